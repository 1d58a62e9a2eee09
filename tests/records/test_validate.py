"""What clients may send. The errors are those that Apache Kafka 4.3.0 answered to the same bytes."""

from __future__ import annotations

import struct
import zlib

import cramjam
import pytest

from barnabas.core.errors import (
    BarnabasError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    UnsupportedCompression,
)
from barnabas.records import kernel
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec, compress
from barnabas.records.record import Record
from barnabas.records.validate import RecordPolicy, RecordSummary, check_client_records, validate_batch
from tests.support.batches import patched, renew_crc, simple_records, with_section

NOW_MS = 1_700_000_000_000
GOOD = build_batch(simple_records(3))
OPEN = RecordPolicy(open_compressed=True)


def encoded(*, delta: int = 0, key: bytes | None = b"k", value: bytes | None = b"v") -> bytes:
    section = bytearray()
    kernel.append_record(section, 0, 0, delta, key, value, ())
    return bytes(section)


def message_set(magic: int) -> bytes:
    """One message of the old formats v0 and v1."""
    timestamp = struct.pack(">q", NOW_MS) if magic else b""
    body = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">ii", -1, 3) + b"abc"
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def refused(batch: bytes | bytearray, policy: RecordPolicy = OPEN) -> type[BarnabasError]:
    with pytest.raises(BarnabasError) as caught:
        validate_batch(bytearray(batch), policy)
    return caught.type


def test_a_good_batch() -> None:
    assert validate_batch(bytearray(GOOD)).record_count == 3
    assert validate_batch(bytearray(GOOD + GOOD[:30])).size_bytes == len(GOOD)
    assert validate_batch(bytearray(GOOD + bytes(5))).size_bytes == len(GOOD)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (b"", InvalidRecord),
        (GOOD[:-1], InvalidRecord),
        (GOOD[:16], InvalidRecord),
        (GOOD + GOOD, InvalidRecord),
        (GOOD + bytes(100), CorruptMessage),
        (message_set(0), InvalidRecord),
        (message_set(1), InvalidRecord),
        (patched(GOOD, 16, "b", 3, crc=False), CorruptMessage),
        (patched(GOOD, 16, "b", -1, crc=False), CorruptMessage),
        (patched(GOOD, 8, "i", 10, crc=False), CorruptMessage),
        (patched(GOOD, 8, "i", 30, crc=False), CorruptMessage),
        (patched(GOOD, 8, "i", -1, crc=False), CorruptMessage),
        (patched(GOOD, 17, "i", 1, crc=False), CorruptMessage),
        (patched(GOOD, 0, "q", 5), InvalidRecord),
        (patched(GOOD, 0, "q", -5), InvalidRecord),
        (patched(patched(GOOD, 0, "q", 5), 30, "b", 1, crc=False), InvalidRecord),
        (patched(GOOD, 57, "i", 0), InvalidRecord),
        (patched(GOOD, 57, "i", -1), InvalidRecord),
        (patched(GOOD, 57, "i", 2), InvalidRecord),
        (patched(GOOD, 57, "i", 4), InvalidRecord),
        (patched(patched(GOOD, 57, "i", 2), 23, "i", 1), InvalidRecord),
        (patched(patched(GOOD, 57, "i", 4), 23, "i", 3), InvalidRecord),
        (patched(GOOD, 23, "i", -1), InvalidRecord),
        (patched(GOOD, 23, "i", 9), InvalidRecord),
        (with_section(b"", 0), InvalidRecord),
        (build_batch(simple_records(), control=True), InvalidRecord),
        (build_batch(simple_records(), producer_id=9, producer_epoch=0), InvalidRecord),
        (build_batch(simple_records(), producer_id=9, producer_epoch=0, base_sequence=-2), InvalidRecord),
        (with_section(bytes(7), 1), InvalidRecord),
        (with_section(b"\x01" + encoded()[1:], 1), InvalidRecord),
        (with_section(b"\x7e" + encoded()[1:], 1), InvalidRecord),
        (with_section(encoded()[:4] + b"\x7e" + encoded()[5:], 1), InvalidRecord),
        (with_section(encoded()[:-1] + b"\x01", 1), InvalidRecord),
        (with_section(encoded()[:-1] + b"\x0a", 1), InvalidRecord),
        (with_section(encoded() + encoded(delta=1), 1), InvalidRecord),
        (with_section(bytes(compress(1, encoded()))[:-4], 1, codec=1), InvalidRecord),
        (with_section(bytes(compress(1, encoded() + encoded(delta=1))), 1, codec=1), InvalidRecord),
        (with_section(bytes(compress(1, b"")), 1, codec=1), InvalidRecord),
    ],
)
def test_refused_as_kafka_refuses_it(batch: bytes | bytearray, error: type[BarnabasError]) -> None:
    assert refused(batch) is error


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        # where Kafka says UNKNOWN_SERVER_ERROR
        (patched(GOOD, 8, "i", (1 << 31) - 1, crc=False), InvalidRecord),
        (patched(GOOD, 21, "h", 5), UnsupportedCompression),
        (with_section(b"\xff" * 20, 1, codec=2), InvalidRecord),
        (with_section(b"\xff" * 20, 1, codec=3), InvalidRecord),
        (with_section(b"\xff" * 20, 1, codec=4), InvalidRecord),
        (with_section(bytes(cramjam.lz4.compress(encoded())), 1, codec=3), InvalidRecord),
        (with_section(b"", 1, codec=1), InvalidRecord),
        (with_section(bytes(compress(1, encoded(delta=7))), 1, codec=1), InvalidRecord),
        (with_section(b"\x8e\x80\x80\x80\x80\x80\x00" + encoded()[1:], 1), InvalidRecord),
        # where Kafka stores it, for consumers to stumble over
        (with_section(encoded(delta=7), 1), InvalidRecord),
        (with_section(encoded() + encoded(), 2), InvalidRecord),
        (with_section(encoded(delta=-3), 1), InvalidRecord),
        (build_batch(simple_records(), transactional=True), InvalidRecord),
        (build_batch(simple_records(), append_time_ms=NOW_MS), InvalidTimestamp),
    ],
)
def test_refused_by_a_better_name_or_where_kafka_takes_it(
    batch: bytes | bytearray, error: type[BarnabasError]
) -> None:
    assert refused(batch) is error


@pytest.mark.parametrize(
    "batch",
    [
        patched(GOOD, 21, "h", 0x80),
        build_batch(simple_records(), base_sequence=4),
        build_batch(simple_records(), producer_id=-2),
        build_batch(simple_records(), delete_horizon_ms=NOW_MS),
        build_batch([Record(0, -1, b"k", b"v")]),
        build_batch([Record(0, -5, b"k", b"v")]),
        with_section(b"\x0e" + encoded()[1:4] + b"\x09" + encoded()[6:], 1),
        with_section(encoded()[:1] + b"\x09" + encoded()[2:], 1),
        with_section(bytes(compress(1, encoded()[:4])) + bytes(compress(1, encoded()[4:])), 1, codec=1),
        with_section(bytes(cramjam.snappy.compress_raw(encoded())), 1, codec=2),
        *(build_batch(simple_records(), codec=codec) for codec in Codec),
    ],
)
def test_taken_as_kafka_takes_it(batch: bytearray) -> None:
    assert validate_batch(bytearray(batch), OPEN).record_count >= 1


@pytest.mark.parametrize("codec", Codec)
def test_a_wrong_largest_timestamp_is_corrected(codec: Codec) -> None:
    lie = patched(build_batch(simple_records(3), codec=codec), 35, "q", 5)
    header = validate_batch(lie, OPEN)
    assert header.max_timestamp == NOW_MS + 2
    assert kernel.check_batch(lie, 0, len(lie)) == header


@pytest.mark.parametrize("codec", Codec)
def test_keys_where_the_topic_requires_them(codec: Codec) -> None:
    policy = RecordPolicy(require_keys=True)
    records = [*simple_records(2), Record(2, NOW_MS, None, b"no key")]
    with pytest.raises(InvalidRecord, match=r"record 2 .* without key"):
        validate_batch(build_batch(records, codec=codec), policy)
    assert validate_batch(build_batch(records, codec=codec)).record_count == 3
    empty_key = [Record(0, NOW_MS, b"", b"v")]
    assert validate_batch(build_batch(empty_key, codec=codec), policy).record_count == 1


@pytest.mark.parametrize("codec", Codec)
def test_every_bad_record_is_named(codec: Codec) -> None:
    policy = RecordPolicy(require_keys=True, earliest_ms=10, latest_ms=20)
    no_key = "Compacted topic cannot accept message without key in topic partition t-7"
    late = "Timestamp 21 of message with offset 3 is out of range. The timestamp should be within [10, 20]"
    keyless = [Record(i, 15, None if i % 2 else b"k", b"v") for i in range(5)]
    with pytest.raises(InvalidRecord, match="record 1 ") as caught:
        validate_batch(build_batch(keyless, codec=codec), policy)
    assert [(one.record_index, one.told("t-7")) for one in caught.value.record_faults] == [
        (1, no_key),
        (3, no_key),
    ]
    both = [Record(0, 21, None, b"v"), Record(1, 15, b"k", b"v"), Record(2, 15, None, b"v"),
            Record(3, 21, b"k", b"v")]  # fmt: skip
    with pytest.raises(InvalidTimestamp, match="record 3 ") as other:
        validate_batch(build_batch(both, codec=codec), policy)
    assert [(one.record_index, one.told("t-7")) for one in other.value.record_faults] == [
        (0, no_key),
        (2, no_key),
        (3, late),
    ]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("wrong", [NOW_MS - 1001, NOW_MS + 1001])
def test_timestamps_within_bounds(codec: Codec, wrong: int) -> None:
    policy = RecordPolicy(earliest_ms=NOW_MS - 1000, latest_ms=NOW_MS + 1000)
    fine = [Record(0, each, b"k", b"v") for each in (NOW_MS - 1000, -1, NOW_MS + 1000)]
    assert validate_batch(build_batch(fine, codec=codec), policy).max_timestamp == NOW_MS + 1000
    with pytest.raises(InvalidTimestamp, match="record 3"):
        validate_batch(build_batch([*fine, Record(0, wrong, b"k", b"v")], codec=codec), policy)


def test_compressed_batches_are_opened_only_where_the_policy_needs_it() -> None:
    damaged = build_batch(simple_records(3), codec=Codec.ZSTD)
    damaged[70] ^= 0xFF
    renew_crc(damaged)
    latest_only = RecordPolicy(latest_ms=NOW_MS + 10, earliest_ms=NOW_MS - (1 << 63) + 1)
    assert not latest_only.opens_compressed
    assert validate_batch(damaged, latest_only).record_count == 3
    for policy in (OPEN, RecordPolicy(require_keys=True), RecordPolicy(earliest_ms=1)):
        assert refused(damaged, policy) is InvalidRecord
    assert validate_batch(damaged, RecordPolicy(require_keys=True, open_compressed=False)).record_count == 3


def test_of_an_unopened_batch_the_header_tells_the_latest_timestamp() -> None:
    batch = build_batch(simple_records(3), codec=Codec.GZIP)
    header = kernel.check_batch(batch, 0, len(batch))
    assert check_client_records(batch, 0, header) == RecordSummary(NOW_MS + 2, 2)
    with pytest.raises(InvalidTimestamp, match=str(NOW_MS + 2)):
        validate_batch(batch, RecordPolicy(latest_ms=NOW_MS + 1))


def test_the_summary_names_the_first_record_with_the_largest_timestamp() -> None:
    records = [Record(0, each, b"k", b"v") for each in (5, 9, 9, 3)]
    batch = build_batch(records)
    header = kernel.check_batch(batch, 0, len(batch))
    assert check_client_records(batch, 0, header) == RecordSummary(9, 1)
    without = build_batch([Record(0, -1, b"k", b"v")])
    header = kernel.check_batch(without, 0, len(without))
    assert check_client_records(without, 0, header) == RecordSummary(-1, -1)
