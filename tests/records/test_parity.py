"""The compiled kernel and its pure twin: the same bytes, the same values, the same errors."""

from __future__ import annotations

import array
import os
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.core.errors import BarnabasError
from barnabas.records import _pure, _pure_columns, columnar
from barnabas.records.batch import HEADER_BYTES, BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.columns import BinaryColumn, Columns, HeaderColumn
from barnabas.records.record import Record
from tests.records.fuzz import mutants
from tests.support.batches import CODECS, FIELDS, HEADERS, INT64, RECORD_LISTS, simple_records

c: Any = pytest.importorskip("barnabas.records._kernel", reason="the compiled kernel is not built")

FORMS: tuple[Callable[[bytes], Any], ...] = (bytes, bytearray, memoryview)
EDGES = st.sampled_from([0, 1, 60, 61, 62, 63, 127, 128, 16 << 10])


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns, or the class and words of what it raises, and the records that it names."""
    try:
        return plain(function(*arguments))
    except (BarnabasError, ValueError, BufferError) as error:
        return type(error), str(error), list(getattr(error, "record_faults", ()))


def plain(value: Any) -> Any:
    """Values that can be compared: iterators run to their end, buffers as bytes."""
    if isinstance(value, Columns | BinaryColumn | HeaderColumn):
        return type(value), [plain(part) for part in value]
    if isinstance(value, int | str | None | tuple | list):
        return value
    if hasattr(value, "__next__"):
        return list(value)
    return bytes(memoryview(value))


def both(name: str, *arguments: Any) -> tuple[Any, Any]:
    twin = getattr(_pure, name, None) or getattr(_pure_columns, name)
    return outcome(getattr(c, name), *arguments), outcome(twin, *arguments)


def same(name: str, *arguments: Any) -> Any:
    ours, twin = both(name, *arguments)
    assert ours == twin
    return ours


def decode_all(kernel: Any, data: bytes, **options: Any) -> Any:
    return outcome(lambda: columnar.decode(data, into=kernel.ColumnDecoder(), **options))


def encode_two_rows(kernel: Any, columns: Columns) -> Any:
    return kernel.ColumnEncoder(columns).batch(0, 2, 999, 0, -1, -1, -1)


def encode_in_order(kernel: Any, columns: Columns, order: bytes) -> Any:
    return kernel.ColumnEncoder(columns, order).batch(0, len(order) // 4, 1 << 20, 0, -1, -1, -1)


def readers_agree(data: bytes) -> None:
    """Every function that reads, over bytes that may be anything."""
    end = len(data)
    same("crc32c", data, 0, end)
    same("check_batch", data, 0, end)
    same("scan", data, 0, end, True)
    same("scan", data, 0, end, False)
    same("scan_headers", data, 0, end)
    for options in ({}, {"control": True, "verify_crc": False}, {"first_offset": 1, "end_offset": 3}):
        assert decode_all(c, data, **options) == decode_all(_pure_columns, data, **options)
    if end >= HEADER_BYTES:
        # as a section of records, with whatever count and deltas the header claims
        header = BatchHeader.parse(data)._replace(
            record_count=min(BatchHeader.parse(data).record_count, 1 << 20)
        )
        same("iterate", data, HEADER_BYTES, end, header)
        same("check_records", data, HEADER_BYTES, end, header, True, 0, 1 << 60)
        same("key_hashes", data, HEADER_BYTES, end, header, bytes(range(16)))
        ours, twin = bytearray(data), bytearray(data)
        arguments = (700, 3, True, -5, 1 << 60)
        assert c.admit(ours, *arguments) == _pure.admit(twin, *arguments)
        assert ours == twin


@given(RECORD_LISTS, CODECS, st.booleans(), st.sampled_from(FORMS))
def test_sound_batches(
    records: list[Record], codec: int, append_time: bool, form: Callable[[bytes], Any]
) -> None:
    batch = build_batch(records, codec=codec, append_time_ms=5 if append_time else None, base_offset=10)
    readers_agree(form(bytes(batch) * 2))


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    readers_agree(data)


@given(st.binary(min_size=1, max_size=200), st.integers(-1, 20))
def test_any_bytes_as_records(section: bytes, count: int) -> None:
    header = BatchHeader.parse(build_batch(simple_records(1)))._replace(
        record_count=count, last_offset_delta=30
    )
    same("iterate", section, 0, len(section), header)
    same("check_records", section, 0, len(section), header, False, -(1 << 63), (1 << 63) - 1)
    ours, twin = c.ColumnDecoder(), _pure_columns.ColumnDecoder()
    results = [
        outcome(decoder.section, section, 0, len(section), header, 0, 1 << 62) for decoder in (ours, twin)
    ]
    assert results[0] == results[1]
    assert plain(ours.finish()) == plain(twin.finish())


@given(RECORD_LISTS, st.booleans(), INT64, INT64, st.binary(max_size=2))
def test_every_record_that_breaks_a_rule_is_named(
    records: list[Record], require_keys: bool, earliest: int, latest: int, trailing: bytes
) -> None:
    batch = bytes(build_batch(records))
    header = BatchHeader.parse(batch)
    found = same("check_records", batch + trailing, HEADER_BYTES, len(batch) + len(trailing), header,
                 require_keys, earliest, latest)  # fmt: skip
    bad = [
        index
        for index, record in enumerate(records)
        if (require_keys and record.key is None)
        or (record.timestamp != -1 and not earliest <= record.timestamp <= latest)
    ]
    if bad and not trailing:
        assert [one.record_index for one in found[2]] == bad


@pytest.mark.parametrize("broken_at", [9_999, 10_000, 10_001])
def test_naming_ends_at_a_number_of_records(broken_at: int) -> None:
    """A fault of the format is met only where the records before it can all be named."""
    whole = bytes(build_batch([Record(i, 5, None, None) for i in range(10_002)]))
    header = BatchHeader.parse(whole)
    cut = bytes(build_batch([Record(i, 5, None, None) for i in range(broken_at)]))
    kind, _, named = same("check_records", cut, HEADER_BYTES, len(cut), header, True, 0, 9)
    assert kind.__name__ == "InvalidRecord"
    assert len(named) == (1 if broken_at < 10_000 else 10_000)


def test_damaged_batches() -> None:
    for batch in mutants(seed=11, count=1500):
        readers_agree(bytes(batch))


@pytest.mark.parametrize("kernel", [c, _pure_columns], ids=["c", "pure"])
def test_a_bad_batch_leaves_no_trace_in_the_columns(kernel: Any) -> None:
    good, late = build_batch(simple_records(9)), build_batch(simple_records(5), base_offset=9)
    cut = good[:-1]
    header = BatchHeader.parse(good)
    decoder = kernel.ColumnDecoder()
    decoder.run(good, 0, len(good), 0, 1 << 62, False, True)
    with pytest.raises(BarnabasError):
        decoder.section(cut, HEADER_BYTES, len(cut), header, 0, 1 << 62)
    decoder.run(late, 0, len(late), 0, 1 << 62, False, True)
    assert plain(decoder.finish()) == plain(columnar.decode(bytes(good + late)))
    assert decoder.rows == 0


@given(st.binary(max_size=5000), EDGES, EDGES)
@example(bytes(range(256)) * 100, 0, 0)
def test_checksums(data: bytes, start: int, cut: int) -> None:
    end = max(len(data) - cut, 0)
    start = min(start, end)
    expected = _pure.crc32c(data, start, end)
    assert c.crc32c(data, start, end) == expected
    assert c.crc32c_without_instruction(data, start, end) == expected


@pytest.mark.parametrize("size", [3071, 3072, 3073, 16384, 65536, 100_003])
def test_checksums_of_long_data(size: int) -> None:
    data = os.urandom(size)
    assert (
        c.crc32c(data, 0, size) == c.crc32c_without_instruction(data, 0, size) == _pure.crc32c(data, 0, size)
    )


@given(INT64, st.integers(-1, (1 << 31) - 1), INT64)
def test_patches(base_offset: int, epoch: int, timestamp: int) -> None:
    for name, arguments in (
        ("assign", (HEADER_BYTES, base_offset, epoch)),
        ("stamp", (0, 90, timestamp)),
        ("set_max_timestamp", (3, 80, timestamp)),
        ("stamp", (0, 60, timestamp)),
        ("stamp", (90, 61, timestamp)),
    ):
        ours, twin = bytearray(range(150)), bytearray(range(150))
        assert outcome(getattr(c, name), ours, *arguments) == outcome(getattr(_pure, name), twin, *arguments)
        assert ours == twin


@pytest.mark.parametrize("kernel", [c, _pure], ids=["c", "pure"])
def test_read_only_buffers_are_not_patched(kernel: Any) -> None:
    for call in (lambda: kernel.assign(bytes(99), 0, 1, 1), lambda: kernel.stamp(bytes(99), 0, 90, 1)):
        with pytest.raises(BufferError):
            call()


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (3, 2), (0, 11), (11, 11)])
def test_ranges_outside_the_buffer(start: int, end: int) -> None:
    header = BatchHeader.parse(build_batch(simple_records(1)))
    for name, arguments in (
        ("crc32c", (start, end)),
        ("check_batch", (start, end)),
        ("scan", (start, end, True)),
        ("scan_headers", (start, end)),
        ("check_records", (start, end, header, False, 0, 0)),
        ("iterate", (start, end, header)),
        ("key_hashes", (start, end, header, bytes(16))),
    ):
        assert same(name, bytes(10), *arguments)[0] is ValueError


@given(INT64, INT64, st.integers(0, (1 << 31) - 1), FIELDS, FIELDS, HEADERS)
def test_encoding_one_record(
    base: int, timestamp: int, delta: int, key: bytes | None, value: bytes | None, headers: Any
) -> None:
    ours, twin = bytearray(b"x"), bytearray(b"x")
    c.append_record(ours, base, timestamp, delta, key, value, headers)
    _pure.append_record(twin, base, timestamp, delta, key, value, headers)
    assert ours == twin


@given(RECORD_LISTS, st.integers(0, 3), st.sampled_from([1, 100, 500, 1 << 20]))
def test_encoding_columns(records: list[Record], start: int, limit: int) -> None:
    columns = columnar.decode(build_batch(records))
    arguments = (start, columns.rows, limit, 0x10, 5, 1, 7)
    ours = outcome(c.ColumnEncoder(columns).batch, *arguments)
    assert ours == outcome(_pure_columns.ColumnEncoder(columns).batch, *arguments)


@given(RECORD_LISTS, st.data())
def test_encoding_columns_in_another_order(records: list[Record], data: st.DataObject) -> None:
    columns = columnar.decode(build_batch(records))
    rows = data.draw(st.lists(st.integers(-1, columns.rows), max_size=6))
    order = array.array("i", rows).tobytes()
    made = [outcome(encode_in_order, kernel, columns, order) for kernel in (c, _pure_columns)]
    assert made[0] == made[1]
    if rows and all(0 <= row < columns.rows for row in rows):
        again = columnar.decode(made[0][0])
        assert again.to_arrow().column("value").to_pylist() == [
            columns.to_arrow().column("value")[row].as_py() for row in rows
        ]


@given(st.lists(st.integers(-2, 4)), st.integers(0, 5))
def test_rows_by_group(numbers: list[int], groups: int) -> None:
    result = same("group_rows", array.array("i", numbers).tobytes(), len(numbers), groups)
    if all(-1 <= number < groups for number in numbers):
        order, ends = (memoryview(each).cast("i").tolist() for each in result)
        assert order == sorted(range(len(numbers)), key=lambda row: numbers[row])
        assert ends == [sum(number < each for number in numbers) for each in range(groups + 1)]
    else:
        assert result[0] is ValueError
    same("group_rows", b"1234", 2, groups)
    same("group_rows", b"", 0, -1)


@given(st.lists(st.integers(-3, 12), min_size=4, max_size=4), st.integers(-1, 3), st.binary(max_size=8))
def test_encoding_columns_that_contradict_themselves(ends: list[int], first: int, data: bytes) -> None:
    memory = array.array("i", ends).tobytes()
    column = BinaryColumn(b"\x05", memory, data, 1, first)
    for headers in (None, HeaderColumn(memory, column, column), HeaderColumn(memory[:4], column, column)):
        columns = Columns(2, b"", struct.pack("=qq", 1, 2), column, column, headers)
        results = [outcome(encode_two_rows, kernel, columns) for kernel in (c, _pure_columns)]
        assert results[0] == results[1]
    same("partition_column", column, 2, 5)
    same("partition_column", column, 2, 0)


@given(st.binary(max_size=64))
@example(b"")
def test_hashes(key: bytes) -> None:
    same("murmur2", key)
    batch = build_batch([Record(0, 0, key, None), Record(0, 0, None, b"no key"), Record(0, 0, key[1:], None)])
    header = BatchHeader.parse(batch)
    entries = same("key_hashes", batch, HEADER_BYTES, len(batch), header, b"secret".ljust(16))
    assert [offset for _, _, offset in struct.iter_unpack("=QQq", entries)] == [0, 2]
    columns = columnar.decode(batch)
    partitions = same("partition_column", columns.key, columns.rows, 7)
    assert struct.unpack("=iii", partitions)[1] == -1
