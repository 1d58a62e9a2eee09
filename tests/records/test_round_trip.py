"""What is built is read back: every codec, nulls, headers, both timestamp types, gaps, horizons."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import BarnabasError, CorruptMessage, InvalidRecord, UnsupportedCompression
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader
from barnabas.records.builder import BatchBuilder, build_batch
from barnabas.records.reader import read_batch, read_batches, read_records
from barnabas.records.record import Record
from tests.support.batches import CODECS, INT64, RECORD_LISTS, patched, simple_records

MANY = simple_records(200)


def numbered(records: list[Record], base: int) -> list[Record]:
    return [record._replace(offset=base + i) for i, record in enumerate(records)]


@given(RECORD_LISTS, CODECS, st.integers(0, 1 << 62))
def test_create_time(records: list[Record], codec: int, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    assert list(read_records(batch)) == numbered(records, base_offset)
    header = kernel.check_batch(batch, 0, len(batch))
    assert header.size_bytes == len(batch)
    assert (header.record_count, header.last_offset_delta) == (len(records), len(records) - 1)
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(-1, *(record.timestamp for record in records))


@given(RECORD_LISTS, CODECS, INT64)
def test_append_time(records: list[Record], codec: int, now_ms: int) -> None:
    batch = build_batch(records, codec=codec, append_time_ms=now_ms)
    assert [record.timestamp for record in read_records(batch)] == [now_ms] * len(records)
    later = build_batch(records, codec=codec)
    kernel.stamp(later, 0, len(later), now_ms)
    assert kernel.check_batch(later, 0, len(later)).is_log_append_time
    assert list(read_records(later)) == list(read_records(batch))


@given(RECORD_LISTS, CODECS, INT64)
def test_a_delete_horizon_stands_in_for_the_base_timestamp(
    records: list[Record], codec: int, horizon_ms: int
) -> None:
    batch = build_batch(records, codec=codec, delete_horizon_ms=horizon_ms)
    assert BatchHeader.parse(batch).delete_horizon_ms == horizon_ms
    assert list(read_records(batch)) == numbered(records, 0)


@given(RECORD_LISTS, CODECS, st.data())
def test_gaps_left_by_compaction(records: list[Record], codec: int, data: st.DataObject) -> None:
    count = len(records)
    offsets = data.draw(
        st.lists(st.integers(50, 500), min_size=count, max_size=count, unique=True).map(sorted)
    )
    placed = [record._replace(offset=offset) for record, offset in zip(records, offsets, strict=True)]
    batch = build_batch(placed, base_offset=50, keep_offsets=True, last_offset=600, codec=codec)
    header = kernel.check_batch(batch, 0, len(batch))
    assert list(read_batch(batch)) == placed
    assert (header.last_offset, header.record_count) == (600, count)


def test_a_batch_that_compaction_emptied() -> None:
    batch = build_batch([], base_offset=7, last_offset=9, producer_id=4, producer_epoch=1, base_sequence=0)
    header = kernel.check_batch(batch, 0, len(batch))
    assert (header.record_count, header.base_offset, header.last_offset) == (0, 7, 9)
    assert list(read_batch(batch)) == []


def test_every_field_of_the_header() -> None:
    batch = build_batch(
        MANY[:2],
        base_offset=1000,
        producer_id=1 << 40,
        producer_epoch=300,
        base_sequence=70_000,
        transactional=True,
        leader_epoch=9,
    )
    header = kernel.check_batch(batch, 0, len(batch))
    assert header[:4] == (1000, len(batch) - 12, 9, 2)
    assert header[6:] == (1, MANY[0].timestamp, MANY[1].timestamp, 1 << 40, 300, 70_000, 2)
    assert header.is_transactional
    assert not header.is_control
    assert header.last_sequence == 70_001


def test_patches_change_what_they_should_and_no_more() -> None:
    batch = build_batch(MANY)
    expected = build_batch(MANY, base_offset=1 << 40, leader_epoch=12)
    kernel.assign(batch, 0, 1 << 40, 12)
    assert batch == expected
    kernel.set_max_timestamp(batch, 0, len(batch), 5)
    assert kernel.check_batch(batch, 0, len(batch)).max_timestamp == 5


def test_a_record_behind_an_earlier_offset_is_refused() -> None:
    builder = BatchBuilder(base_offset=5)
    builder.append(1, None, b"", offset=9)
    for offset in (9, 4, 5 + (1 << 31)):
        with pytest.raises(InvalidRecord):
            builder.append(1, None, b"", offset=offset)
    assert builder.record_count == 1
    assert builder.size_bytes == len(builder.build())


# ---- walking over several batches -------------------------------------------------------------------------

THREE = bytes(
    build_batch(MANY[:5]) + build_batch(MANY[:3], base_offset=5) + build_batch(MANY[:1], base_offset=8)
)


@pytest.mark.parametrize("cut", range(0, len(THREE) + 1, 7))
def test_a_scan_stops_before_a_batch_that_is_cut(cut: int) -> None:
    headers, consumed, problem = kernel.scan(THREE, 0, cut, True)
    assert problem is None
    assert consumed == sum(header.size_bytes for header in headers) <= cut
    assert [header.base_offset for header in headers] == [0, 5, 8][: len(headers)]
    whole = [header for header, position in read_batches(THREE) if position + header.size_bytes <= cut]
    assert headers == whole


def test_a_scan_says_what_is_wrong_with_what_follows() -> None:
    size = BatchHeader.parse(THREE).size_bytes
    for change, words in (
        (patched(THREE, size + 16, "b", 1, crc=False), "v0 or v1"),
        (patched(THREE, size + 16, "b", 9, crc=False), "magic"),
        (patched(THREE, size + 8, "i", 48, crc=False), "length"),
        (patched(THREE, size + 30, "b", 1, crc=False), "checksum"),
        (bytearray(THREE[:size]) + bytes(40), "v0 or v1"),
    ):
        headers, consumed, problem = kernel.scan(change, 0, len(change), True)
        assert (len(headers), consumed) == (1, size)
        assert problem is not None
        assert words in problem


def test_headers_alone_are_walked_without_the_last_body() -> None:
    starts = [position for _, position in read_batches(THREE)]
    found = kernel.scan_headers(THREE, 0, starts[2] + 61)
    assert [position for _, position in found] == starts
    assert [position for _, position in kernel.scan_headers(THREE, 0, starts[2] + 60)] == starts[:2]
    assert [position for _, position in kernel.scan_headers(THREE, starts[1], len(THREE))] == starts[1:]


def test_reading_raises_where_the_bytes_go_bad() -> None:
    batches = read_records(THREE[:-1])
    assert len([next(batches) for _ in range(8)]) == 8
    with pytest.raises(CorruptMessage, match="the bytes end before the batch does"):
        next(batches)


@pytest.mark.parametrize(
    ("at", "form", "value", "error"),
    [
        (8, "i", 48, CorruptMessage),
        (8, "i", -1, CorruptMessage),
        (8, "i", 1 << 30, CorruptMessage),
        (16, "b", 0, InvalidRecord),
        (16, "b", 1, InvalidRecord),
        (16, "b", 3, CorruptMessage),
        (16, "b", -1, CorruptMessage),
        (21, "h", 5, UnsupportedCompression),
        (21, "h", 7, UnsupportedCompression),
        (57, "i", -1, InvalidRecord),
        (57, "i", 1 << 20, InvalidRecord),
        (23, "i", -1, InvalidRecord),
        (23, "i", 3, InvalidRecord),
        (0, "q", -1, InvalidRecord),
        (0, "q", (1 << 63) - 1, InvalidRecord),
    ],
)
def test_a_header_that_makes_no_sense(at: int, form: str, value: int, error: type[BarnabasError]) -> None:
    batch = patched(build_batch(MANY[:5]), at, form, value)
    with pytest.raises(error):
        kernel.check_batch(batch, 0, len(batch))


def test_any_flipped_bit_behind_the_checksum_is_found() -> None:
    batch = build_batch(MANY[:2])
    for at in range(17, len(batch)):
        batch[at] ^= 4
        with pytest.raises(CorruptMessage, match="checksum"):
            kernel.check_batch(batch, 0, len(batch))
        batch[at] ^= 4
    assert kernel.check_batch(batch, 0, len(batch)).record_count == 2


def test_the_checksum_is_castagnolis() -> None:
    assert kernel.crc32c(b"x123456789y", 1, 10) == 0xE3069283
    assert struct.pack(">I", kernel.crc32c(bytes(32), 0, 32)) == bytes.fromhex("8a9136aa")
