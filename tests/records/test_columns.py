"""Columns: what the records were, in Arrow's layout, and batches made of them again."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import CorruptMessage, InvalidRecord
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.columnar import BinaryColumn, Columns, Encoder, decode, partition_of
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from tests.support.batches import CODECS, RECORD_LISTS, patched, simple_records, with_section


def rows(columns: Columns) -> list[Record]:
    """The columns as records, by way of Arrow."""
    arrow = columns.to_arrow()
    arrow.validate(full=True)
    arrow = arrow.set_column(1, "timestamp", arrow.column("timestamp").cast(pa.int64()))
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in arrow.to_pylist()
    ]


@given(st.lists(st.tuples(RECORD_LISTS, CODECS, st.booleans()), max_size=4))
def test_decoding_gives_what_reading_gives(batches: list[tuple[list[Record], int, bool]]) -> None:
    data, offset = bytearray(), 100
    for records, codec, append_time in batches:
        data += build_batch(
            records, codec=codec, base_offset=offset, append_time_ms=9 if append_time else None
        )
        offset += len(records)
    assert rows(decode(data)) == list(read_records(data))
    assert rows(decode(data + build_batch(simple_records())[:-1])) == list(read_records(data))


@given(RECORD_LISTS, CODECS, st.integers(0, 14), st.integers(0, 14))
def test_decoding_a_range_of_offsets(records: list[Record], codec: int, first: int, end: int) -> None:
    data = build_batch(records, codec=codec) + build_batch(records[:2], base_offset=len(records))
    wanted = [record for record in read_records(data) if first <= record.offset < end]
    assert rows(decode(data, first_offset=first, end_offset=end)) == wanted


def test_control_batches_are_skipped_unless_asked_for() -> None:
    marker = build_end_transaction(
        ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=3
    )
    data = build_batch(simple_records(3)) + marker + build_batch(simple_records(1), base_offset=4)
    assert [record.offset for record in rows(decode(data))] == [0, 1, 2, 4]
    assert [record.offset for record in rows(decode(data, control=True))] == [0, 1, 2, 3, 4]


def test_bad_batches_raise() -> None:
    good = build_batch(simple_records(3))
    with pytest.raises(CorruptMessage, match=f"batch at byte {len(good)}: the checksum"):
        decode(good + patched(good, 40, "b", 1, crc=False))
    with pytest.raises(InvalidRecord, match="record 1 of the batch"):
        decode(with_section(bytes(build_batch(simple_records(2)))[61:-1], 2))
    assert decode(patched(good, 35, "q", 1, crc=False), verify_crc=False).rows == 3


def test_nothing_decodes_to_no_rows() -> None:
    assert rows(decode(b"")) == []
    assert decode(build_batch([], last_offset=5)).rows == 0


def test_one_decoder_takes_many_buffers() -> None:
    decoder = kernel.ColumnDecoder()
    for base in range(0, 30, 3):
        data = build_batch(simple_records(3), base_offset=base)
        assert decoder.run(data, 0, len(data), 0, 1 << 62, False, True) == (len(data), None)
    assert decoder.rows == 30
    assert [record.offset for record in rows(decode(b"", into=decoder))] == list(range(30))


def test_many_rows_across_growing_buffers() -> None:
    record = Record(0, 7, b"k" * 10, b"v" * 100, (("trace", b"t" * 30),))
    one = build_batch([record] * 50)
    data = bytearray()
    for i in range(2000):
        kernel.assign(one, 0, 50 * i, 0)
        data += one
    arrow = decode(data).to_arrow()
    assert arrow.num_rows == 100_000
    assert arrow.column("offset").to_pylist() == list(range(100_000))
    assert arrow.column("value").unique().to_pylist() == [b"v" * 100]
    assert arrow.column("key").unique().to_pylist() == [b"k" * 10]
    assert arrow.column("headers").flatten().field("value").unique().to_pylist() == [b"t" * 30]


def test_header_names_that_are_not_text() -> None:
    record = bytearray()
    kernel.append_record(record, 0, 0, 0, None, None, (("ab", b"x"),))
    raw = bytes(record).replace(b"ab", b"\xff\xfe")
    assert decode(with_section(raw, 1)).to_arrow().column("headers").to_pylist() == [
        [{"key": "��", "value": b"x"}]
    ]


# ---- encoding ---------------------------------------------------------------------------------------------


def encode_all(columns: Columns, limit_bytes: int, **options: Any) -> list[bytearray]:
    encoder, batches, row = Encoder(columns), [], 0
    while row < encoder.rows:
        batch, following = encoder.batch(row, limit_bytes=limit_bytes, **options)
        kernel.assign(batch, 0, row, -1)
        batches.append(batch)
        assert following > row
        row = following
    return batches


@given(RECORD_LISTS, CODECS, st.sampled_from([1, 200, 800, 1 << 20]))
def test_encoding_is_the_inverse_of_decoding(records: list[Record], codec: int, limit: int) -> None:
    columns = decode(build_batch(records))
    batches = encode_all(columns, limit, codec=codec)
    assert list(read_records(b"".join(batches))) == list(read_records(build_batch(records)))


@given(RECORD_LISTS)
def test_encoding_makes_the_bytes_the_builder_makes(records: list[Record]) -> None:
    options: dict[str, Any] = {
        "producer_id": 5,
        "producer_epoch": 1,
        "base_sequence": 9,
        "transactional": True,
    }
    (batch,) = encode_all(decode(build_batch(records)), 1 << 20, **options)
    assert batch == build_batch(records, **options)


def test_batches_keep_to_the_limit_except_for_one_large_row() -> None:
    records = [Record(0, 1, None, bytes(size)) for size in (50, 50, 500, 50, 50, 50)]
    batches = encode_all(decode(build_batch(records)), 200)
    counts = [BatchHeader.parse(batch).record_count for batch in batches]
    assert counts == [2, 1, 2, 1]
    assert [len(batch) <= 200 for batch in batches] == [True, False, True, True]


@given(RECORD_LISTS, st.integers(0, 6), st.integers(0, 12))
def test_from_arrow_takes_slices(records: list[Record], start: int, length: int) -> None:
    whole = decode(build_batch(records)).to_arrow()
    piece = whole.slice(start, length)
    if not piece.num_rows:
        return
    (batch,) = encode_all(Columns.from_arrow(piece), 1 << 20)
    again = rows(decode(batch))
    expected = list(read_records(build_batch(records)))[start : start + length]
    assert [record[1:] for record in again] == [record[1:] for record in expected]


def test_from_arrow_takes_what_pipelines_hand_over() -> None:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "value": pa.array(["one", None, "three"], pa.large_string()),
            "key": pa.array([None, "b", "c"]),
            "timestamp": pa.array([1000, None, 3000], pa.timestamp("us", "UTC")),
            "headers": pa.array([None, [{"key": "h", "value": b"x"}], []], header),
        }
    )
    (encoded,) = encode_all(Columns.from_arrow(batch, now_ms=42), 1 << 20)
    assert list(read_records(encoded)) == [
        Record(0, 1, None, b"one"),
        Record(1, 42, b"b", None, (("h", b"x"),)),
        Record(2, 3, b"c", b"three"),
    ]
    (plain,) = encode_all(Columns.from_arrow(batch.select(["value"]), now_ms=7), 1 << 20, codec=Codec.LZ4)
    assert [(record.timestamp, record.key) for record in read_records(plain)] == [(7, None)] * 3


def test_from_arrow_takes_lists_with_64_bit_ends() -> None:
    header = pa.large_list(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": "h", "value": b"x"}]]
    batch = pa.record_batch({"value": pa.array([b"v"]), "headers": pa.array(headers, header)})
    (encoded,) = encode_all(Columns.from_arrow(batch), 1 << 20)
    assert list(read_records(encoded)) == [Record(0, -1, None, b"v", (("h", b"x"),))]


@pytest.mark.parametrize("first", [-1, 1, 8, 1 << 61, 1 << 62])
def test_a_column_that_starts_outside_its_buffers(first: int) -> None:
    column = BinaryColumn(b"\1", bytes(8), b"", 0, first)
    with pytest.raises(ValueError, match="contradict themselves"):
        kernel.partition_column(column, 1, 12)


def test_rows_that_are_not_there() -> None:
    encoder = Encoder(decode(build_batch(simple_records(3))))
    for start, stop in ((3, 3), (0, 4), (-1, 2), (2, 1)):
        with pytest.raises(ValueError, match="no such rows"):
            encoder.batch(start, stop)


# ---- hashes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_as_the_java_clients_compute_it(key: bytes, hashed: int) -> None:
    assert kernel.murmur2(key) == hashed
    assert partition_of(key, 12) == (hashed & 0x7FFFFFFF) % 12


def test_key_hashes_are_siphash_with_128_bits() -> None:
    seed = bytes(range(16))
    batch = build_batch([Record(0, 0, bytes(range(size)), None) for size in (0, 1)], base_offset=70)
    entries = kernel.key_hashes(batch, 61, len(batch), BatchHeader.parse(batch), seed)
    # the first vectors that the authors of SipHash published for this variant
    assert entries[:16].hex() == "a3817f04ba25a8e66df67214c7550293"
    assert entries[24:40].hex() == "da87c1d86b99af44347659119b22fc45"
    assert [struct.unpack_from("=q", entries, at)[0] for at in (16, 40)] == [70, 71]
    with pytest.raises(ValueError, match="16 bytes"):
        kernel.key_hashes(batch, 61, len(batch), BatchHeader.parse(batch), b"short")
