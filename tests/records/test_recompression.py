"""A batch in another codec: the records and all that the header says of them stay as they are."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import CorruptMessage, InvalidRecord, InvalidTimestamp
from barnabas.records import kernel
from barnabas.records.batch import HEADER_BYTES, MAX_TIMESTAMP_AT, RECORD_COUNT_AT, BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec, compress, decompress
from barnabas.records.reader import read_batch
from barnabas.records.recompression import recompress_batch
from barnabas.records.record import Record
from barnabas.records.validate import RecordPolicy
from tests.support.batches import CODECS, RECORD_LISTS, patched, simple_records, with_section

KEPT = [name for name in BatchHeader._fields if name not in ("batch_length", "crc", "attributes")]


@given(RECORD_LISTS, CODECS, CODECS, st.booleans())
def test_only_the_wrapping_changes(records: list[Record], old: int, new: int, is_idempotent: bool) -> None:
    numbers = (7, 3, 2**31 - 2) if is_idempotent else (-1, -1, -1)
    sent = build_batch(
        records,
        codec=old,
        producer_id=numbers[0],
        producer_epoch=numbers[1],
        base_sequence=numbers[2],
        transactional=is_idempotent,
    )
    before = bytes(sent)
    stored = recompress_batch(sent, Codec(new))
    assert sent == before
    was, header = BatchHeader.parse(sent), kernel.check_batch(stored, 0, len(stored))
    assert header.codec == new
    assert header.attributes & ~7 == was.attributes & ~7
    assert [getattr(header, name) for name in KEPT] == [getattr(was, name) for name in KEPT]
    plain = decompress(old, before[HEADER_BYTES:])
    assert bytes(decompress(new, bytes(stored[HEADER_BYTES:]))) == bytes(plain)
    assert list(read_batch(stored)) == list(read_batch(sent))


@pytest.mark.parametrize("codec", list(Codec))
def test_every_record_is_looked_at(codec: Codec) -> None:
    other = Codec.ZSTD if codec is not Codec.ZSTD else Codec.GZIP
    keyless = build_batch([Record(0, 5, None, b"v", ())], codec=codec)
    with pytest.raises(InvalidRecord, match="record 0"):
        recompress_batch(keyless, other, policy=RecordPolicy(require_keys=True))
    with pytest.raises(InvalidTimestamp):
        recompress_batch(keyless, other, policy=RecordPolicy(latest_ms=4))
    three_as_two = patched(build_batch(simple_records(3), codec=codec), RECORD_COUNT_AT, "i", 2)
    with pytest.raises(InvalidRecord):
        recompress_batch(three_as_two, other)
    damaged = build_batch(simple_records(3), codec=codec)
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessage):
        recompress_batch(damaged, other)


def test_a_wrong_largest_timestamp_is_corrected() -> None:
    sent = patched(build_batch(simple_records(3), codec=Codec.GZIP), MAX_TIMESTAMP_AT, "q", 99)
    stored = recompress_batch(sent, Codec.ZSTD)
    assert kernel.check_batch(stored, 0, len(stored)).max_timestamp == 1_700_000_000_002


def test_what_is_left_over_behind_the_batch_is_dropped() -> None:
    sent = build_batch(simple_records(3))
    stored = recompress_batch(sent + build_batch(simple_records(9))[:40], Codec.GZIP)
    assert stored == recompress_batch(sent, Codec.GZIP)


def test_bytes_that_cannot_be_unfolded_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="cannot be read"):
        recompress_batch(with_section(b"\x1f\x8b" + b"x" * 40, 3, codec=Codec.GZIP), Codec.ZSTD)


@pytest.mark.parametrize(
    ("codec", "little", "much"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 3, 12), (Codec.ZSTD, -50, 19)]
)
def test_levels_are_heeded(codec: Codec, little: int, much: int) -> None:
    words = [b"%d words in line %x" % (i * 7919 % 1000, i * 104729) for i in range(3000)]
    plain = build_batch([Record(i, 5, None, word, ()) for i, word in enumerate(words)])
    sizes = [len(recompress_batch(plain, codec, level)) for level in (little, much)]
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize("level", [None, 3, 12])
@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 300_000])
def test_lz4_blocks_that_do_not_shrink_are_stored_as_they_are(size: int, level: int | None) -> None:
    for data in (Random(size).randbytes(size), b"x" * size):
        packed = compress(Codec.LZ4, data, level)
        assert bytes(decompress(Codec.LZ4, packed)) == data
        assert len(packed) <= size + 100
