"""The map of latest offsets and the filter of batches: both twins, held to a dictionary and to each other."""

from __future__ import annotations

import contextlib
import importlib
import os
import struct
import sys
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.errors import BarnabasError, CorruptMessage, InvalidRecord
from barnabas.records import _pure_columns, _pure_compact
from barnabas.records.batch import ATTRIBUTES_AT, DELETE_HORIZON_FLAG, HEADER_BYTES, BatchHeader
from barnabas.records.builder import build_batch, compress_batch
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from tests.records.compaction_model import HASH_KEY, Order, Outcome, Round, compact, expected, filter_by
from tests.records.fuzz import mutants
from tests.support.batches import HEADERS, TIMESTAMPS, patched, simple_records, with_section

try:
    c: Any = importlib.import_module("barnabas.records._kernel")
except ImportError:
    c = None

TWINS = [pytest.param(_pure_compact, id="pure")]
HASHERS = [pytest.param(_pure_columns, id="pure")]
if c is not None:
    TWINS.append(pytest.param(c, id="c"))
    HASHERS.append(pytest.param(c, id="c"))
both_twins = pytest.mark.parametrize("kernel", TWINS)
needs_c = pytest.mark.skipif(c is None, reason="the compiled kernel is not built")

KEYS = [b"", b"a", b"b", b"c", b"sixteen byte key", b"k" * 63, b"l" * 64, b"m" * 300]


# ---- random logs ------------------------------------------------------------------------------------------

RECORDS = st.builds(
    Record,
    st.integers(1, 3) | st.integers(1, 20_000),
    TIMESTAMPS,
    st.sampled_from(KEYS) | st.none(),
    st.none() | st.binary(max_size=20) | st.binary(min_size=120, max_size=200),
    HEADERS,
)


@st.composite
def batches(draw: st.DrawFn) -> Callable[[int], bytearray]:
    """A batch at whatever offset it will be; the offsets of the records drawn are gaps between them."""
    records = draw(st.lists(RECORDS, max_size=6)) * draw(st.sampled_from([1, 1, 1, 12]))
    flags: dict[str, Any] = {"leader_epoch": draw(st.integers(-1, 9))}
    kind = draw(st.sampled_from(["plain", "plain", "idempotent", "transactional", "control"]))
    if kind != "plain":
        flags |= {"producer_id": 7, "producer_epoch": 2, "base_sequence": draw(st.integers(-1, 1 << 30))}
    flags |= {"transactional": kind in ("transactional", "control"), "control": kind == "control"}
    flags["codec"] = draw(st.sampled_from([0, 0, 0, 0, 1, 2, 3, 4]))
    flags["append_time_ms"] = draw(st.none() | st.none() | st.integers(0, 1 << 41))
    flags["delete_horizon_ms"] = draw(st.none() | st.sampled_from([0, 999, 1_000, 1_001, 1 << 40]))
    spare = draw(st.integers(0, 3))

    def build(base_offset: int) -> bytearray:
        offset, placed = base_offset - 1, []
        for record in records:
            offset += record.offset if placed else record.offset - 1 or 1
            placed.append(record._replace(offset=offset))
        last = max(offset, base_offset) + spare
        return build_batch(placed, base_offset=base_offset, keep_offsets=True, last_offset=last, **flags)

    return build


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    log, offset = b"", draw(st.sampled_from([0, 5, 1 << 40]))
    for build in draw(st.lists(batches(), min_size=1, max_size=6)):
        batch = build(offset)
        log += batch
        offset = BatchHeader.parse(batch).next_offset + draw(st.integers(0, 3))
    return log


@st.composite
def rounds(draw: st.DrawFn) -> tuple[bytes, Round]:
    log = draw(logs())
    headers, position = [], 0
    while position < len(log):
        headers.append(BatchHeader.parse(log, position))
        position += headers[-1].size_bytes
    lasts = [header.last_offset for header in headers]
    orders = {
        header.base_offset: Order(draw(st.booleans()), draw(st.booleans()), draw(st.booleans()))
        for header in headers
        if draw(st.booleans())
    }
    plan = Round(
        first_offset=draw(st.sampled_from([0, *lasts, lasts[-1] + 1])),
        limit=draw(st.sampled_from([1 << 30, 1 << 30, 0, 1, 3, 5])),
        kept_offsets=draw(st.lists(st.sampled_from(lasts), max_size=2)),
        end_offset=draw(st.sampled_from([0, *(last + 1 for last in lasts)])),
        now_ms=1_000,
        delete_retention_ms=draw(st.sampled_from([0, 100, 1 << 50])),
        orders=orders,
    )
    return log, plan


@given(rounds(), st.sampled_from([bytes, bytearray, memoryview]))
def test_rounds_as_the_model_does_them(drawn: tuple[bytes, Round], form: Callable[[bytes], Any]) -> None:
    log, plan = drawn
    wanted = expected(log, plan, KEYS)
    assert compact(_pure_compact, form(log), plan, KEYS) == wanted
    if c is not None:
        assert compact(c, form(log), plan, KEYS) == wanted


@settings(max_examples=40)
@given(logs())
def test_a_second_round_changes_nothing(log: bytes) -> None:
    """With the same map and clock, what is left once is left again, byte for byte."""
    for kernel in (_pure_compact, c or _pure_compact):
        plan = Round()
        once = compact(kernel, log, plan, KEYS)
        again = compact(kernel, once.log, plan, KEYS)
        # the map of what is left is the map of the whole, but for tombstones that were over
        assert {key for key in KEYS if again.found[key] != once.found[key]} <= over(log)
        assert again.log == once.log


def over(log: bytes) -> set[bytes | None]:
    return {record.key for record in read_records(log) if record.value is None}


# ---- the rules, one by one --------------------------------------------------------------------------------


def survivors(kernel: Any, log: bytes | bytearray, plan: Round) -> list[int]:
    return [record.offset for record in read_records(compact(kernel, log, plan, []).log, control=True)]


@both_twins
def test_the_latest_of_a_key_stays_and_records_without_one_go(kernel: Any) -> None:
    keys = [b"a", b"b", None, b"a", None, b"c"]
    batch = build_batch([Record(0, 5, key, b"v") for key in keys], base_offset=10)
    assert survivors(kernel, batch, Round()) == [11, 13, 15]
    # beyond what the map has seen everything stays, and is not looked at
    assert survivors(kernel, batch, Round(limit=2)) == [10, 11, 12, 13, 14, 15]
    assert survivors(kernel, batch, Round(first_offset=11, limit=2)) == [11, 13, 14, 15]


@both_twins
def test_a_tombstone_gets_its_time_once_and_goes_when_it_is_over(kernel: Any) -> None:
    batch = build_batch([Record(0, 5, b"a", b"v"), Record(0, 9, b"b", None)])
    first = compact(kernel, batch, Round(now_ms=1_000, delete_retention_ms=100), []).log
    header = BatchHeader.parse(first)
    assert (header.delete_horizon_ms, header.max_timestamp, header.record_count) == (1_100, 9, 2)
    assert [record.timestamp for record in read_records(first)] == [5, 9]
    assert compact(kernel, first, Round(now_ms=1_099), []).log == first
    second = compact(kernel, first, Round(now_ms=1_100), []).log
    assert [record.key for record in read_records(second)] == [b"a"]
    assert BatchHeader.parse(second).delete_horizon_ms == 1_100


@both_twins
def test_a_horizon_beyond_the_end_of_time_is_none(kernel: Any) -> None:
    batch = build_batch([Record(0, 5, b"a", b"v"), Record(0, 9, b"b", None)])
    left = compact(kernel, batch, Round(delete_retention_ms=(1 << 63) - 1), []).log
    assert BatchHeader.parse(left).delete_horizon_ms is None
    assert left == batch


@both_twins
def test_an_empty_batch_keeps_its_place_and_its_producer(kernel: Any) -> None:
    def batch(base_offset: int) -> bytearray:
        return build_batch(
            [Record(0, 70, b"a", b"1")],
            base_offset=base_offset,
            producer_id=4,
            producer_epoch=1,
            base_sequence=base_offset,
            leader_epoch=3,
        )

    log = batch(0) + batch(1) + batch(2)
    left = compact(kernel, log, Round(kept_offsets=[1]), []).log
    header = BatchHeader.parse(left)
    assert header.size_bytes == HEADER_BYTES
    assert header[0] == header.base_sequence == 1
    assert (header.leader_epoch, header.attributes, header.base_timestamp, header.max_timestamp) == (
        3,
        0,
        -1,
        70,
    )
    assert left[HEADER_BYTES:] == batch(2)
    # the last of the round stays too
    ended = build_batch([Record(0, 70, None, b"1")], base_offset=3)
    left = compact(kernel, log + ended, Round(end_offset=4), []).log
    assert left[: len(batch(2))] == batch(2)
    assert BatchHeader.parse(left, len(batch(2)))[:2] == (3, HEADER_BYTES - 12)


@both_twins
def test_a_marker_stays_until_its_clock_has_run_out(kernel: Any) -> None:
    marker = bytes(
        build_end_transaction(
            ControlType.ABORT, producer_id=4, producer_epoch=1, coordinator_epoch=0, timestamp=50
        )
    )
    assert compact(kernel, marker, Round(), []).log == marker
    timed = compact(kernel, marker, Round(orders={0: Order(wants_horizon=True)}), []).log
    assert BatchHeader.parse(timed).delete_horizon_ms == 1_100
    assert compact(kernel, timed, Round(orders={0: Order(wants_horizon=True)}), []).log == timed
    assert compact(kernel, timed, Round(orders={0: Order(discard_records=True)}), []).log == b""
    emptied = compact(kernel, timed, Round(orders={0: Order(True, True, True)}), []).log
    header = BatchHeader.parse(emptied)
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 0)
    assert header.delete_horizon_ms is None


@both_twins
def test_what_is_rebuilt_of_a_compressed_batch_comes_apart(kernel: Any) -> None:
    records = [Record(0, 5, b"a", b"1"), Record(0, 6, b"a", b"2")]
    batch = build_batch(records, codec=1)
    offsets = kernel.OffsetMap(240, HASH_KEY)
    offsets.put(b"a", 1)
    keep = kernel.BatchFilter(offsets, b"", -1, 0, 0)
    header = BatchHeader.parse(batch)
    assert keep.run(batch, 0, len(batch)) == (0, header)
    plain = build_batch(records)
    left = keep.batch(batch, 0, header, plain, HEADER_BYTES, len(plain))
    assert isinstance(left, bytearray)
    assert BatchHeader.parse(left).codec == keep.gathered_bytes == 0
    assert list(read_records(left)) == [Record(1, 6, b"a", b"2")]
    compressed = compress_batch(left, header.codec)
    keep.copy(compressed, 0, len(compressed))
    assert list(read_records(keep.take())) == [Record(1, 6, b"a", b"2")]


@both_twins
def test_what_was_taken_stays_as_it_was(kernel: Any) -> None:
    batch = build_batch(simple_records(3))
    keep = kernel.BatchFilter(kernel.OffsetMap(240, HASH_KEY), b"", -1, 0, 0)
    keep.run(batch, 0, len(batch))
    taken = keep.take()
    assert taken.readonly
    keep.copy(b"x" * 999, 0, 999)
    assert taken == batch
    assert keep.take() == b"x" * 999


# ---- the map ----------------------------------------------------------------------------------------------


@both_twins
@pytest.mark.parametrize("slots", [1, 2, 3, 63, 64, 65, 129, 500])
def test_a_map_filled_to_its_last_slot(kernel: Any, slots: int) -> None:
    offsets = kernel.OffsetMap(24 * slots + 23, HASH_KEY)
    assert (offsets.slots, offsets.size, offsets.latest_offset) == (slots, 0, -1)
    for _ in range(2):
        for number in range(slots):
            assert offsets.get(b"%d" % number) == -1
            offsets.put(b"%d" % number, number)
        assert offsets.size == slots
        with pytest.raises(ValueError, match="full"):
            offsets.put(b"one more", 9_999)
        offsets.put(b"0", 5_000)
        assert [offsets.get(b"%d" % number) for number in range(slots)] == [5_000, *range(1, slots)]
        assert offsets.get(b"one more") == -1
        assert offsets.latest_offset == 5_000
        offsets.clear()
        assert (offsets.size, offsets.latest_offset) == (0, -1)


@both_twins
def test_many_keys(kernel: Any) -> None:
    """Far more than the compiled map's first table holds, which it leaves on the way."""
    offsets = kernel.OffsetMap(24 * 40_000, HASH_KEY)
    for _ in range(2):
        for number in range(36_000):
            offsets.put(struct.pack("<q", number * 7), number)
        assert all(offsets.get(struct.pack("<q", number * 7)) == number for number in range(36_000))
        assert offsets.get(b"another") == -1
        offsets.clear()
        assert offsets.get(struct.pack("<q", 7)) == -1


@both_twins
def test_what_a_map_refuses(kernel: Any) -> None:
    for memory_bytes, hash_key in ((23, HASH_KEY), (0, HASH_KEY), (-1, HASH_KEY), (240, b"short")):
        with pytest.raises(ValueError, match=r"slot|16 bytes"):
            kernel.OffsetMap(memory_bytes, hash_key)
    offsets = kernel.OffsetMap(240, HASH_KEY)
    for offset in (-1, (1 << 63) - 1, 1 << 70):
        with pytest.raises(ValueError, match="no such offset"):
            offsets.put(b"a", offset)
    offsets.put(b"a", (1 << 63) - 2)
    assert offsets.get(b"a") == offsets.latest_offset == (1 << 63) - 2


@both_twins
def test_the_latest_offset_advances_and_never_returns(kernel: Any) -> None:
    offsets = kernel.OffsetMap(240, HASH_KEY)
    offsets.advance(7)
    offsets.advance(3)
    assert offsets.latest_offset == 7


@both_twins
def test_the_map_stops_where_it_is_full(kernel: Any) -> None:
    log = build_batch([Record(0, 0, key, b"") for key in (b"a", b"b", b"a", None)])
    log += build_batch([Record(0, 0, key, b"") for key in (None, b"a", b"c")], base_offset=4)
    size = BatchHeader.parse(log).size_bytes
    offsets = kernel.OffsetMap(24 * 9, HASH_KEY)
    assert offsets.note(log, 0, len(log), 0, 1) == (0, None, True)
    assert (offsets.size, offsets.latest_offset) == (1, 0)
    offsets.clear()
    # a key that is known already finds no room either: nobody looks for it
    assert offsets.note(log, 0, len(log), 1, 2) == (size, None, True)
    assert (offsets.get(b"b"), offsets.get(b"a"), offsets.latest_offset) == (1, 2, 3)
    offsets.clear()
    assert offsets.note(log, 0, len(log), 0, 3) == (len(log), None, False)
    assert (offsets.size, offsets.latest_offset) == (3, 6)
    # the slots are a limit of their own
    small = kernel.OffsetMap(48, HASH_KEY)
    assert small.note(log, 0, len(log), 0, 99) == (0, None, True)
    assert (small.size, small.latest_offset) == (2, 1)


@both_twins
def test_only_what_can_hold_dirty_records_is_the_callers_to_judge(kernel: Any) -> None:
    old = build_batch(simple_records(3), codec=2)
    new = build_batch(simple_records(3), codec=2, base_offset=3)
    offsets = kernel.OffsetMap(240, HASH_KEY)
    assert offsets.note(old + new, 0, len(old + new), 3, 9) == (len(old), BatchHeader.parse(new), False)
    assert offsets.latest_offset == -1


@needs_c
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_map_costs_no_memory_before_it_is_used() -> None:
    def resident_bytes() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident_bytes()
    offsets = c.OffsetMap(1 << 30, HASH_KEY)
    for number in range(100):
        offsets.put(b"%d" % number, number)
    assert resident_bytes() - before < 64 << 20
    offsets.clear()
    assert offsets.get(b"1") == -1


@pytest.mark.parametrize("kernel", HASHERS)
def test_keys_are_hashed_by_siphash_as_published(kernel: Any) -> None:
    """Vectors of the authors of SipHash-2-4 with 128 bits, of lengths around the words it reads."""
    published = {
        0: "a3817f04ba25a8e66df67214c7550293",
        1: "da87c1d86b99af44347659119b22fc45",
        7: "a1f1ebbed8dbc153c0b84aa61ff08239",
        8: "3b62a9ba6258f5610f83e264f31497b4",
        9: "264499060ad9baabc47f8b02bb6d71ed",
        15: "5493e99933b0a8117e08ec0f97cfc3d9",
        16: "6ee2a4ca67b054bbfd3315bf85230577",
        17: "473d06e8738db89854c066c47ae47740",
        63: "5150d1772f50834a503e069a973fbd7c",
    }
    batch = build_batch([Record(0, 0, bytes(range(size)), None) for size in published])
    entries = kernel.key_hashes(batch, HEADER_BYTES, len(batch), BatchHeader.parse(batch), HASH_KEY)
    assert [entries[at : at + 16].hex() for at in range(0, len(entries), 24)] == list(published.values())


@needs_c
@pytest.mark.parametrize("kind", ["note", "run"])
def test_others_go_on_meanwhile_but_may_not_touch_what_is_in_use(kind: str) -> None:
    """The compiled passes let the GIL go, so another thread comes to its turn, and is told to keep away."""
    log = bytes(build_batch([Record(0, 0, b"%d" % number, bytes(90)) for number in range(160)])) * 800
    offsets = c.OffsetMap(24_000, HASH_KEY)
    keep = c.BatchFilter(offsets, b"", -1, 0, 0)
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            if kind == "note":
                offsets.note(log, 0, len(log), 0, 900)
            else:
                keep.run(log, 0, len(log))
                keep.take()

    thread = threading.Thread(target=work)
    thread.start()
    calls = {"an offset map is for one thread at a time": lambda: offsets.get(b"1")}
    if kind == "run":
        calls["a filter is for one thread at a time"] = keep.take
    refusals: set[str] = set()
    deadline = time.monotonic() + 60
    while refusals != set(calls) and time.monotonic() < deadline:
        for call in calls.values():
            try:
                call()
            except RuntimeError as error:
                refusals.add(str(error))
    is_over.set()
    thread.join()
    assert refusals == set(calls)


# ---- bytes that are not as they should be -----------------------------------------------------------------


def outcome(kernel: Any, log: bytes, plan: Round) -> Any:
    """What becomes of it: the outcome, or the error and what had gathered before it."""
    try:
        return compact(kernel, log, plan, KEYS)
    except (BarnabasError, ValueError) as error:
        keep = kernel.BatchFilter(kernel.OffsetMap(240, HASH_KEY), b"", -1, 1_000, 100)
        with contextlib.suppress(BarnabasError, ValueError):
            filter_by(keep, log, plan)
        return type(error), str(error), keep.batches_read, keep.records_kept, bytes(keep.take())


@needs_c
def test_damaged_batches() -> None:
    sound = bytes(build_batch(simple_records(4)))
    classes = set()
    for batch in mutants(seed=5, count=1_500):
        ours = outcome(c, sound + bytes(batch), Round())
        assert ours == outcome(_pure_compact, sound + bytes(batch), Round())
        classes.add(Outcome if isinstance(ours, Outcome) else ours[0])
        if not isinstance(ours, Outcome):
            assert ours[-1][: len(sound)] == sound
    assert {Outcome, CorruptMessage, InvalidRecord} <= classes


@needs_c
@given(st.binary(max_size=200), st.integers(0, 20), st.integers(0, 40))
def test_any_bytes_as_records(section: bytes, count: int, last_delta: int) -> None:
    batch = bytes(with_section(section, count))
    header = BatchHeader.parse(batch)._replace(last_offset_delta=last_delta)
    results: list[Any] = []
    for kernel in (c, _pure_compact):
        offsets = kernel.OffsetMap(240, HASH_KEY)
        keep = kernel.BatchFilter(offsets, b"", -1, 1_000, 100)
        calls: tuple[Callable[[], Any], ...] = (
            lambda offsets=offsets: offsets.note_section(section, 0, len(section), header, 0, 9),
            lambda keep=keep: keep.batch(batch, 0, header, section, 0, len(section)),
        )
        for call in calls:
            try:
                results.append(call())
            except BarnabasError as error:
                results.append((type(error), str(error)))
        results.append((offsets.size, offsets.latest_offset, keep.records_kept, bytes(keep.take())))
    assert results[:3] == results[3:]


@both_twins
def test_a_bad_batch_leaves_no_trace_in_the_filter(kernel: Any) -> None:
    good = build_batch(simple_records(3))
    bad = with_section(b"\x0c\x00\x00\x00\x01\x01\x00" + b"\xff" * 9, 2)
    keep = kernel.BatchFilter(kernel.OffsetMap(240, HASH_KEY), b"", -1, 0, 0)
    with pytest.raises(InvalidRecord, match="record 1 of the batch"):
        keep.run(good + bad, 0, len(good + bad))
    assert (keep.batches_read, keep.records_read) == (1, 3)
    with pytest.raises(CorruptMessage, match=f"batch at byte {len(good)}: the checksum"):
        keep.run(good + patched(good, 40, "b", 1, crc=False), 0, 2 * len(good))
    assert keep.take() == good * 2


@both_twins
def test_a_batch_that_is_cut_waits_for_its_rest(kernel: Any) -> None:
    one, two = build_batch(simple_records(3)), build_batch(simple_records(2), base_offset=3)
    log = one + two
    for end in range(len(one), len(log)):
        offsets = kernel.OffsetMap(240, HASH_KEY)
        keep = kernel.BatchFilter(offsets, b"", -1, 0, 0)
        assert offsets.note(log, 0, end, 0, 9) == (len(one), None, False)
        assert keep.run(log, 0, end) == (len(one), None)
        assert offsets.note(log, len(one), len(log), 0, 9) == (len(log), None, False)
        assert keep.run(log, len(one), len(log)) == (len(log), None)
        assert keep.records_read == offsets.size + 2 == 5


@both_twins
@pytest.mark.parametrize(("start", "end"), [(-1, 5), (3, 2), (0, 11), (11, 11)])
def test_ranges_outside_the_buffer(kernel: Any, start: int, end: int) -> None:
    header = BatchHeader.parse(batch := build_batch(simple_records(1)))
    offsets = kernel.OffsetMap(240, HASH_KEY)
    keep = kernel.BatchFilter(offsets, b"", -1, 0, 0)
    for call in (
        lambda: offsets.note(bytes(10), start, end, 0, 9),
        lambda: offsets.note_section(bytes(10), start, end, header, 0, 9),
        lambda: keep.run(bytes(10), start, end),
        lambda: keep.batch(batch, 0, header, bytes(10), start, end),
        lambda: keep.batch(batch, 1, header, batch, HEADER_BYTES, len(batch)),
        lambda: keep.copy(bytes(10), start, end),
    ):
        with pytest.raises(ValueError, match="not inside"):
            call()
    assert keep.take() == b""


@both_twins
def test_a_horizon_before_the_epoch_is_carried_by_nobody(kernel: Any) -> None:
    """It cannot come about; Kafka would write the batch without one."""
    batch = patched(build_batch([Record(0, 5, b"a", b"1"), Record(0, 6, b"a", b"2")]), 27, "q", -7)
    batch = patched(batch, ATTRIBUTES_AT, "h", DELETE_HORIZON_FLAG)
    left = compact(kernel, batch, Round(), []).log
    assert BatchHeader.parse(left).delete_horizon_ms is None
    assert [record.timestamp for record in read_records(left)] == [-6]


@both_twins
def test_kept_offsets_in_any_order(kernel: Any) -> None:
    log = b"".join(bytes(build_batch([Record(0, 0, None, b"")], base_offset=at)) for at in range(6))
    offsets = kernel.OffsetMap(240, HASH_KEY)
    offsets.advance(99)
    for listed in ([4, 1], [1, 4], [1, 1, 4, 70]):
        for form in (array("q", listed), array("q", listed).tobytes()):
            keep = kernel.BatchFilter(offsets, form, 3, 0, 0)
            keep.run(log, 0, len(log))
            assert keep.batches_kept == 3
            left = keep.take()
            assert [BatchHeader.parse(left, at).base_offset for at in range(0, len(left), 61)] == [1, 2, 4]
