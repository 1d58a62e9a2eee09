"""Reads give whole batches within a bound; look-ups by time and epoch what a walk over the records gives."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import OffsetOutOfRange
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log import reading, trimming
from barnabas.log.config import LogConfig
from barnabas.log.partition import Bound, PartitionLog
from barnabas.log.reading import NOTHING, TimestampOffset
from barnabas.log.segment import CorruptSegment
from barnabas.records.batch import NO_TIMESTAMP
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.reader import read_batches
from barnabas.records.record import Record
from tests.support.log_fixtures import (
    WatchedDisk,
    append_all,
    damage,
    end_transaction,
    from_producer,
    path_of,
    sized_batch,
)
from tests.support.logs import START_MS, batch, open_directory, read_all, read_bytes, read_committed, values

SMALL = LogConfig(index_interval_bytes=0, segment_bytes=1000)


async def fresh_log(config: LogConfig | None = None, disk: MemoryDisk | None = None) -> PartitionLog:
    directory = await open_directory(disk or MemoryDisk(), config)
    return await directory.partition("t", 0)


async def offsets_of(
    log: PartitionLog, offset: int, max_bytes: int = 1 << 20, bound: Bound = Bound.LOG_END
) -> list[tuple[int, int]]:
    """First and last offset of each batch that a read answers with."""
    data = await read_bytes(log, offset, max_bytes, bound)
    return [(header.base_offset, header.last_offset) for header, _ in read_batches(data)]


# --- reads


def test_a_read_gives_whole_batches_as_many_as_fit() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await append_all(log, [sized_batch(300) for _ in range(5)])
        assert await offsets_of(log, 0, 900) == [(0, 0), (1, 1), (2, 2)]
        assert await offsets_of(log, 0, 899) == [(0, 0), (1, 1)]
        assert await offsets_of(log, 3, 900) == [(3, 3), (4, 4)]

    asyncio.run(scenario())


@pytest.mark.parametrize("max_bytes", [0, 1, 299])
def test_a_read_gives_at_least_one_batch(max_bytes: int) -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await append_all(log, [sized_batch(300) for _ in range(3)])
        assert await offsets_of(log, 1, max_bytes) == [(1, 1)]

    asyncio.run(scenario())


def test_an_offset_inside_a_batch_gives_the_whole_of_it() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await append_all(log, [batch(3), batch(4), batch(2)])
        assert await offsets_of(log, 5) == [(3, 6), (7, 8)]

    asyncio.run(scenario())


def test_a_read_ends_with_its_segment_and_the_next_one_goes_on() -> None:
    async def scenario() -> None:
        log = await fresh_log(SMALL)
        await append_all(log, [sized_batch(300) for _ in range(8)])
        assert log.bases == [0, 3, 6]
        assert await offsets_of(log, 1) == [(1, 1), (2, 2)]
        assert await offsets_of(log, 3) == [(3, 3), (4, 4), (5, 5)]
        assert [record.offset for record in await read_all(log, max_bytes=1)] == list(range(8))

    asyncio.run(scenario())


def test_an_offset_in_a_gap_gives_what_comes_after_it_even_in_another_segment() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await log.append_as_follower(batch(2, base_offset=0) + batch(2, base_offset=10))
        await log.roll()
        await log.append_as_follower(batch(1, base_offset=20))
        assert await offsets_of(log, 5) == [(10, 11)]
        assert await offsets_of(log, 15) == [(20, 20)]

    asyncio.run(scenario())


@pytest.mark.parametrize("offset", [-1, 1, 8])
def test_an_offset_out_of_range_is_refused(offset: int) -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await log.append_as_leader(batch(7), 0)
        log.advance_high_watermark(7)
        await trimming.delete_records(log, 2)
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} of t-0 is not between 2 and 7"):
            await reading.read(log, offset, 100)
        assert (await reading.read(log, 7, 100)).range is None

    asyncio.run(scenario())


def test_each_bound_is_kept_to() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await append_all(log, [batch(2), batch(2), from_producer(0, 2, transactional=True), batch(2)])
        for high_watermark, visible, stable in [(0, [], []), (4, [0, 2], [0, 2]), (8, [0, 2, 4, 6], [0, 2])]:
            log.advance_high_watermark(high_watermark)
            for bound, expected in [
                (Bound.LOG_END, [0, 2, 4, 6]),
                (Bound.HIGH_WATERMARK, visible),
                (Bound.LAST_STABLE, stable),
            ]:
                assert [first for first, _ in await offsets_of(log, 0, bound=bound)] == expected
            assert await offsets_of(log, high_watermark, bound=Bound.HIGH_WATERMARK) == []
        assert await offsets_of(log, 5, bound=Bound.LAST_STABLE) == []

    asyncio.run(scenario())


def test_a_bound_inside_a_batch_keeps_all_of_it_back() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await append_all(log, [batch(2), batch(4)])
        log.advance_high_watermark(3)
        assert await offsets_of(log, 0, bound=Bound.HIGH_WATERMARK) == [(0, 1)]
        assert await offsets_of(log, 2, bound=Bound.HIGH_WATERMARK) == []

    asyncio.run(scenario())


def test_a_bound_in_an_earlier_segment_opens_no_later_one() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk, SMALL)
        log = await directory.partition("t", 0)
        await append_all(log, [batch([bytes(400)] * 2) for _ in range(10)])
        log.advance_high_watermark(5)
        await directory.close()
        directory = await open_directory(disk, SMALL)
        log = await directory.partition("t", 0)
        assert log.bases == list(range(0, 20, 2))
        for offset, expected in [(2, [(2, 3)]), (4, [])]:
            disk.bytes_read.clear()
            assert await offsets_of(log, offset, bound=Bound.HIGH_WATERMARK) == expected
            assert {path for path in disk.bytes_read if path.endswith(".log")} == {path_of(offset, ".log")}

    asyncio.run(scenario())


def test_what_a_read_answers_besides() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await append_all(log, [batch(2), from_producer(0, 2, transactional=True), batch(2)])
        log.advance_high_watermark(5)
        await trimming.delete_records(log, 1)
        fetched = await reading.read(log, 1, 100, Bound.HIGH_WATERMARK)
        assert (fetched.start_offset, fetched.end_offset) == (1, 6)
        assert (fetched.high_watermark, fetched.last_stable_offset) == (5, 2)
        assert fetched.aborted is None  # only who reads committed data is told

    asyncio.run(scenario())


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 600), st.booleans()), min_size=1, max_size=20),
    st.integers(0, 80),
    st.integers(0, 3000),
    st.integers(0, 80),
)
def test_any_read_is_what_a_walk_over_the_batches_gives(
    appends: list[tuple[int, int, bool]], offset: int, max_bytes: int, high_watermark: int
) -> None:
    async def scenario() -> None:
        log = await fresh_log(LogConfig(index_interval_bytes=300))
        batches: list[tuple[int, int, int, int]] = []  # first, last, size, segment
        for count, size, roll in appends:
            if roll:
                await log.roll()
            data = batch([bytes(size)] * count)
            done = await log.append_as_leader(data, 0)
            batches.append((done.first_offset, done.last_offset, len(data), len(log.segments)))
        log.advance_high_watermark(high_watermark)
        start = min(offset, log.end_offset)
        expected: list[tuple[int, int]] = []
        total, where = 0, None
        for first, last, size, segment in batches:
            if last < start:
                continue
            if last >= log.high_watermark or where not in (None, segment):
                break
            if expected and total + size > max_bytes:
                break
            where, total = segment, total + size
            expected.append((first, last))
        assert await offsets_of(log, start, max_bytes, Bound.HIGH_WATERMARK) == expected

    asyncio.run(scenario())


# --- reads beside other things


def test_an_append_in_the_middle_of_a_read_is_not_seen_by_half() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        await log.append_as_leader(batch(2), 0)
        log.advance_high_watermark(2)
        gate = disk.gate("read", "*.log")
        looking = asyncio.create_task(reading.read(log, 0, 1 << 20, Bound.HIGH_WATERMARK))
        await gate.reached.wait()
        await log.append_as_leader(batch(5), 0)
        gate.open()
        fetched = await looking
        assert fetched.range is not None
        assert fetched.range.size == len(batch(2))

    asyncio.run(scenario())


def test_a_truncation_in_the_middle_of_a_look_up_starts_it_over() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        await append_all(log, [batch([b"kept"]), batch([b"old"])])
        gate = disk.gate("read", "*.log")
        looking = asyncio.create_task(reading.read(log, 1, 1 << 20, Bound.LOG_END))
        await gate.reached.wait()
        await trimming.truncate_to(log, 1)
        await log.append_as_leader(batch([b"another", b"and one more"]), 3)
        gate.open()
        fetched = await looking
        assert fetched.range is not None
        file, position, size = fetched.range
        assert await file.read(position, size) == await read_bytes(log, 1)
        assert (fetched.end_offset, values(await read_all(log))) == (
            3,
            [b"kept", b"another", b"and one more"],
        )

    asyncio.run(scenario())


def test_a_look_up_waits_for_a_truncation_under_way() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        await append_all(log, [batch(2), batch(2)])
        gate = disk.gate("sync", "*.log")
        cutting = asyncio.create_task(trimming.truncate_to(log, 2))
        await gate.reached.wait()
        looking = asyncio.create_task(reading.offset_for_timestamp(log, reading.MAX_TIMESTAMP))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not looking.done()
        gate.open()
        await cutting
        assert (await looking).offset == 1

    asyncio.run(scenario())


def test_a_segment_deleted_and_swept_in_the_middle_of_a_look_up_starts_it_over() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        config = LogConfig(retention_bytes=0, file_delete_delay_ms=0)
        directory = await open_directory(disk, config)
        log = await directory.partition("t", 0)
        await log.append_as_leader(batch(2, timestamp=START_MS), 0)
        await log.roll()
        await log.append_as_leader(batch(1, timestamp=START_MS + 50), 0)
        log.advance_high_watermark(2)
        gate = disk.gate("read", path_of(0, ".log"))
        looking = asyncio.create_task(reading.offset_for_timestamp(log, START_MS))
        await gate.reached.wait()
        assert await trimming.apply_retention(log) == 1
        assert await trimming.sweep(log) == 1
        gate.open()
        assert await looking == TimestampOffset(START_MS + 50, 2, 0)

    asyncio.run(scenario())


# --- reading committed data


def test_aborted_transactions_come_sorted_by_their_first_offsets() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await append_all(
            log,
            [
                from_producer(0, producer_id=1, transactional=True),
                from_producer(0, producer_id=2, transactional=True),
                from_producer(0, producer_id=3, transactional=True),
            ],
        )
        await end_transaction(log, commit=False, producer_id=2)
        await end_transaction(log, commit=True, producer_id=3)
        await end_transaction(log, commit=False, producer_id=1)
        log.advance_high_watermark(6)
        fetched = await reading.read(log, 0, 1 << 20, Bound.LAST_STABLE)
        assert fetched.aborted is not None
        assert [one[:3] for one in fetched.aborted] == [(1, 0, 5), (2, 1, 3)]
        assert [record.offset for record in await read_committed(log)] == [2]

    asyncio.run(scenario())


def test_only_transactions_that_overlap_are_told_of_even_from_later_segments() -> None:
    async def scenario() -> None:
        log = await fresh_log(SMALL)
        await log.append_as_leader(from_producer(0, producer_id=1, transactional=True), 0)
        await log.append_as_leader(sized_batch(900), 0)  # the marker comes into a later segment
        await end_transaction(log, commit=False, producer_id=1)
        await append_all(log, [sized_batch(900), from_producer(0, producer_id=2, transactional=True)])
        await end_transaction(log, commit=False, producer_id=2)
        log.advance_high_watermark(log.end_offset)
        assert len(log.segments) > 2
        for offset, expected in [(0, [1]), (1, [1]), (3, []), (4, [2])]:
            fetched = await reading.read(log, offset, 1, Bound.LAST_STABLE)
            assert fetched.aborted is not None
            assert [one.producer_id for one in fetched.aborted] == expected, offset

    asyncio.run(scenario())


def test_a_transaction_that_ended_above_the_high_watermark_is_not_read() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await append_all(log, [batch([b"before"]), from_producer(0, 2, transactional=True)])
        await end_transaction(log, commit=True)
        log.advance_high_watermark(3)
        assert values(await read_committed(log)) == [b"before"]
        log.advance_high_watermark(4)
        assert values(await read_committed(log)) == [b"before", b"00", b"01"]

    asyncio.run(scenario())


# --- look-ups by time


async def by_time(log: PartitionLog, timestamp_ms: int) -> tuple[int, int]:
    found = await reading.offset_for_timestamp(log, timestamp_ms)
    return found.timestamp_ms, found.offset


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_a_time_gives_the_first_record_at_or_after_it(codec: Codec) -> None:
    async def scenario() -> None:
        log = await fresh_log()
        for first in (100, 200, 300):
            await log.append_as_leader(batch(3, timestamp=first, codec=codec), 4)
        for asked, timestamp, offset in [(0, 100, 0), (101, 101, 1), (103, 200, 3), (302, 302, 8)]:
            assert await reading.offset_for_timestamp(log, asked) == (timestamp, offset, 4)
        assert await reading.offset_for_timestamp(log, 303) == NOTHING == (-1, -1, -1)

    asyncio.run(scenario())


@given(
    st.lists(
        st.tuples(st.lists(st.integers(-1, 60), min_size=1, max_size=4), st.booleans()),
        min_size=1,
        max_size=25,
    ),
    st.integers(0, 61),
    st.integers(0, 40),
    st.sampled_from([0, 150, 4096]),
)
def test_times_in_any_order_are_found_as_by_a_walk(
    appends: list[tuple[list[int], bool]], asked: int, start: int, interval: int
) -> None:
    """Also where timestamps go back, are missing, or stand before the start of the log."""

    async def scenario() -> None:
        log = await fresh_log(LogConfig(index_interval_bytes=interval))
        for timestamps, roll in appends:
            if roll:
                await log.roll()
            await log.append_as_leader(build_batch([Record(0, one, None, b"v") for one in timestamps]), 0)
        log.advance_high_watermark(log.end_offset)
        await trimming.delete_records(log, min(start, log.end_offset))
        records = await read_all(log)
        found = next(((one.timestamp, one.offset) for one in records if one.timestamp >= asked), (-1, -1))
        assert await by_time(log, asked) == found
        latest = max((one.timestamp for one in records), default=-1)
        newest = next((one.offset for one in records if one.timestamp == latest), -1) if latest >= 0 else -1
        assert await by_time(log, reading.MAX_TIMESTAMP) == (latest, newest)

    asyncio.run(scenario())


def test_log_append_time_is_what_is_looked_up() -> None:
    async def scenario() -> None:
        log = await fresh_log(LogConfig(log_append_time=True))
        await log.append_as_leader(batch(3, timestamp=5), 0)
        assert await by_time(log, 6) == (START_MS, 0)

    asyncio.run(scenario())


def test_a_time_before_the_start_of_the_log_gives_the_start() -> None:
    """Not the end: a consumer would skip everything."""

    async def scenario() -> None:
        log = await fresh_log()
        await log.append_as_leader(batch(4, timestamp=START_MS), 0)
        await log.roll()
        await log.append_as_leader(batch(4, timestamp=START_MS + 100), 0)
        log.advance_high_watermark(8)
        await trimming.delete_records(log, 2)
        assert await by_time(log, 50) == (START_MS + 2, 2)
        await trimming.delete_records(log, 6)
        assert await trimming.apply_retention(log) == 1
        assert await by_time(log, 50) == (START_MS + 102, 6)

    asyncio.run(scenario())


def test_the_special_timestamps() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await log.append_as_leader(batch(2, timestamp=300), 1)
        await log.append_as_leader(batch(2, timestamp=100), 3)
        log.advance_high_watermark(4)
        await trimming.delete_records(log, 1)
        expected = {
            reading.LATEST: (-1, 4, 3),
            reading.EARLIEST: (-1, 1, 1),
            reading.MAX_TIMESTAMP: (301, 1, 1),
            reading.EARLIEST_LOCAL: (-1, 1, 1),
            reading.LATEST_TIERED: (-1, -1, -1),
            reading.EARLIEST_PENDING_UPLOAD: (-1, -1, -1),
        }
        assert set(expected) == {-1, -2, -3, -4, -5, -6}
        for special, answer in expected.items():
            assert await reading.offset_for_timestamp(log, special) == answer
        with pytest.raises(ValueError, match="-7 is no timestamp"):
            await reading.offset_for_timestamp(log, -7)

    asyncio.run(scenario())


def test_an_empty_log_is_looked_up_too() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await trimming.truncate_fully_and_start_at(log, 17)
        assert await reading.offset_for_timestamp(log, 0) == NOTHING
        assert await reading.offset_for_timestamp(log, reading.MAX_TIMESTAMP) == NOTHING
        assert await reading.offset_for_timestamp(log, reading.EARLIEST) == (-1, 17, -1)
        assert await reading.offset_for_timestamp(log, reading.LATEST) == (-1, 17, -1)
        assert (await reading.read(log, 17, 100)).range is None

    asyncio.run(scenario())


def test_records_without_timestamps_are_never_found() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await log.append_as_leader(build_batch([Record(0, NO_TIMESTAMP, None, b"v")]), 0)
        assert await reading.offset_for_timestamp(log, 0) == NOTHING
        assert await reading.offset_for_timestamp(log, reading.MAX_TIMESTAMP) == NOTHING

    asyncio.run(scenario())


def test_a_time_is_found_without_reading_the_log() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk, LogConfig(segment_bytes=100_000))
        log = await directory.partition("t", 0)
        await append_all(log, [sized_batch(1000, timestamp=START_MS + number) for number in range(1000)])
        disk.bytes_read.clear()
        assert await by_time(log, START_MS + 777) == (START_MS + 777, 777)
        # an index entry stands for 5 batches; the rest is what one scan reads ahead
        assert disk.read_from("*.log") <= 30_000

    asyncio.run(scenario())


def test_corruption_on_the_way_is_reported_not_skipped() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        log = await fresh_log(disk=disk)
        await append_all(log, [batch(1, timestamp=100), batch(1, timestamp=200)])
        await log.roll()
        await log.append_as_leader(batch(1, timestamp=300), 0)
        await damage(disk, path_of(0, ".log"), len(batch(1)) + 8, b"\x7f")  # the second batch's length
        with pytest.raises(CorruptSegment, match=f"00000.log is corrupt at byte {len(batch(1))}"):
            await reading.offset_for_timestamp(log, 150)
        with pytest.raises(CorruptSegment):
            await reading.read(log, 1, 100, Bound.LOG_END)

    asyncio.run(scenario())


# --- look-ups by epoch


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        for epoch, count in [(1, 2), (3, 4), (4, 1)]:
            await log.append_as_leader(batch(count), epoch)
        for asked, answer in [(1, (1, 2)), (2, (1, 2)), (3, (3, 6)), (4, (4, 7)), (5, (-1, -1)), (0, (0, 0))]:
            assert reading.end_offset_for_epoch(log, asked) == answer
        assert reading.end_offset_for_epoch(log, -1) == (-1, -1)

    asyncio.run(scenario())


# --- reads that go on where another ended


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 400)),
        st.tuples(
            st.just("read"), st.integers(0, 3), st.sampled_from([1, 500, 1 << 20]), st.sampled_from(Bound)
        ),
        st.tuples(st.just("commit"), st.integers(0, 3)),
        st.tuples(st.just("abort"), st.booleans()),
        st.tuples(st.just("truncate"), st.integers(0, 5)),
        st.tuples(st.just("roll")),
    ),
    max_size=40,
)


@given(STEPS)
def test_reading_on_gives_what_a_look_up_gives_or_nothing(steps: list[tuple[object, ...]]) -> None:
    async def scenario() -> None:
        log = await fresh_log(SMALL)
        readers, producer_id = [0, 0, 0, 0], 0
        for kind, *given_values in steps:
            if kind == "append":
                await append_all(log, [sized_batch(100 + int(str(given_values[0])))])
            elif kind == "commit":
                log.advance_high_watermark(log.high_watermark + int(str(given_values[0])))
            elif kind == "abort":
                producer_id += 1
                await append_all(log, [from_producer(0, producer_id=producer_id, transactional=True)])
                if given_values[0]:
                    await end_transaction(log, commit=False, producer_id=producer_id)
            elif kind == "truncate":
                await trimming.truncate_to(
                    log, max(log.start_offset, log.end_offset - int(str(given_values[0])))
                )
            elif kind == "roll":
                await log.roll()
            else:
                number, max_bytes, bound = given_values
                assert isinstance(number, int)
                assert isinstance(max_bytes, int)
                assert isinstance(bound, Bound)
                offset = min(readers[number], log.end_offset)
                expected = await reading.read(log, offset, max_bytes, bound)
                found = reading.read_on(log, offset, max_bytes, bound)
                assert found is None or found == expected
                if expected.range is not None:
                    data = await expected.range.file.read(expected.range.position, expected.range.size)
                    readers[number] = [header.last_offset for header, _ in read_batches(data)][-1] + 1

    asyncio.run(scenario())


def test_a_reader_at_the_end_needs_no_look_up() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        assert reading.read_on(log, 0, 1000, Bound.HIGH_WATERMARK) is not None  # it is known to be empty
        for number in range(3):
            await append_all(log, [sized_batch(300)])
            log.advance_high_watermark(log.end_offset)
            found = reading.read_on(log, number, 1000, Bound.HIGH_WATERMARK)
            assert found is not None
            assert found.range is not None
            assert (found.range.position, found.range.size) == (300 * number, 300)
        assert reading.read_on(log, 1, 1000, Bound.HIGH_WATERMARK) is not None  # a read ended there
        assert reading.read_on(log, 0, 599, Bound.HIGH_WATERMARK) is None  # where to cut must be looked up

    asyncio.run(scenario())


@pytest.mark.parametrize("bound", [Bound.HIGH_WATERMARK, Bound.LAST_STABLE])
def test_a_reader_at_the_high_watermark_needs_no_look_up(bound: Bound) -> None:
    """As in a replicated partition: followers read to the end, then the high watermark gets there."""

    async def scenario() -> None:
        log = await fresh_log()
        for _ in range(3):
            await append_all(log, [sized_batch(300)])
        log.advance_high_watermark(1)
        assert reading.read_on(log, 0, 1000, bound) is None
        assert (await reading.read(log, 0, 1000, bound)).range is not None
        assert reading.read_on(log, 3, 1000, Bound.LOG_END) is not None  # a follower that has everything
        log.advance_high_watermark(2)
        assert reading.read_on(log, 1, 1000, bound) is None  # no read has ended at the new one yet
        log.advance_high_watermark(3)
        await append_all(log, [sized_batch(300)])
        found = reading.read_on(log, 1, 1000, bound)
        assert found is not None
        assert found == await reading.read(log, 1, 1000, bound)
        assert found.range is not None
        assert (found.range.position, found.range.size) == (300, 600)
        assert reading.read_on(log, 1, 599, bound) is None  # where to cut must be looked up

    asyncio.run(scenario())


def test_a_position_is_not_remembered_across_a_truncation() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        for _ in range(3):
            await append_all(log, [sized_batch(300)])
        log.advance_high_watermark(2)
        await reading.read(log, 0, 1000, Bound.HIGH_WATERMARK)
        await trimming.truncate_to(log, 1)
        for _ in range(3):
            await append_all(log, [sized_batch(400)])
        log.advance_high_watermark(3)
        assert reading.read_on(log, 2, 1000, Bound.HIGH_WATERMARK) is None

    asyncio.run(scenario())
