"""Taking data away: truncation at the tail, deletion and retention at the head, and files that go later."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from barnabas.core.clock import ManualClock
from barnabas.core.disk import DiskFailed, DiskFull
from barnabas.core.errors import OffsetOutOfRange, OutOfOrderSequence
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log import housekeeping, reading, trimming
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import Bound, Interrupted, PartitionLog
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from tests.support.log_fixtures import (
    WatchedDisk,
    append_all,
    contents,
    end_transaction,
    from_producer,
    offset_entries,
    path_of,
    said,
    sized_batch,
)
from tests.support.logs import START_MS, batch, open_directory, read_all, read_bytes, values

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"


class Setup:
    """A directory with one partition, on a disk in memory, under a clock that stands still."""

    def __init__(self, config: LogConfig | None = None) -> None:
        self.config = config
        self.clock = ManualClock(START_MS)
        self.disk = MemoryDisk(clock=self.clock)
        self.directory: LogDirectory

    async def open(self) -> PartitionLog:
        self.directory = await open_directory(self.disk, self.config, self.clock)
        return await self.directory.partition("t", 0)

    async def reopen(self) -> PartitionLog:
        await self.directory.close()
        return await self.open()

    async def checkpointed(self, name: str) -> list[str]:
        return (await contents(self.disk, name)).decode().splitlines()[2:]

    async def names(self, *suffixes: str) -> list[str]:
        return [name for name in await self.disk.listdir("t-0") if name.endswith(suffixes)]


async def three_segments(log: PartitionLog) -> None:
    """Segments 0-5, 6-11 and 12-17, of three batches of two records each; epochs 1, 2 and 3."""
    for epoch in (1, 2, 3):
        await append_all(log, [batch(2) for _ in range(3)], epoch)
        if epoch < 3:
            await log.roll()
    log.advance_high_watermark(18)


def epochs_of(log: PartitionLog) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in log.epochs.entries]


# --- truncation


@pytest.mark.parametrize(
    ("offset", "end", "bases", "epochs"),
    [
        (17, 16, [0, 6, 12], [(1, 0), (2, 6), (3, 12)]),  # inside a batch: the whole of it goes
        (16, 16, [0, 6, 12], [(1, 0), (2, 6), (3, 12)]),
        (13, 12, [0, 6, 12], [(1, 0), (2, 6)]),  # inside a segment's first batch
        (12, 12, [0, 6], [(1, 0), (2, 6)]),  # at a segment's base
        (9, 8, [0, 6], [(1, 0), (2, 6)]),
        (7, 6, [0, 6], [(1, 0)]),
        (2, 2, [0], [(1, 0)]),
        (1, 0, [0], []),
        (0, 0, [0], []),
    ],
)
def test_truncation_cuts_at_the_start_of_a_batch(
    offset: int, end: int, bases: list[int], epochs: list[tuple[int, int]]
) -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await three_segments(log)
        assert await trimming.truncate_to(log, offset)
        for _ in range(2):
            assert (log.start_offset, log.end_offset, log.high_watermark) == (0, end, end)
            assert log.bases == bases
            assert epochs_of(log) == epochs
            assert [record.offset for record in await read_all(log)] == list(range(end))
            log = await setup.reopen()
        assert (await log.append_as_leader(batch([b"new"]), 9)).first_offset == end
        assert values(await read_all(log))[end:] == [b"new"]

    asyncio.run(scenario())


def test_truncation_at_or_beyond_the_end_does_nothing() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        await log.append_as_leader(batch(3), 0)
        assert not await trimming.truncate_to(log, 3)
        assert not await trimming.truncate_to(log, 10)
        assert log.end_offset == 3

    asyncio.run(scenario())


def test_truncation_below_the_first_segment_starts_over_there() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await trimming.truncate_fully_and_start_at(log, 50)
        await log.append_as_leader(from_producer(0, 3), 2)
        log.advance_high_watermark(53)
        assert await trimming.truncate_to(log, 20)
        assert (log.start_offset, log.end_offset, log.high_watermark) == (20, 20, 20)
        assert log.bases == [20]
        assert epochs_of(log) == []
        assert len(log.producers) == 0
        log = await setup.reopen()
        assert (log.start_offset, log.end_offset) == (20, 20)

    asyncio.run(scenario())


def test_truncation_into_the_batch_where_the_log_starts_leaves_an_empty_log() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        await append_all(log, [batch(10), batch(10)])
        log.advance_high_watermark(20)
        await trimming.delete_records(log, 5)
        await trimming.truncate_to(log, 7)
        assert log.start_offset == log.end_offset == log.high_watermark == 5
        assert (await log.append_as_leader(batch(1), 0)).first_offset == 5
        assert [record.offset for record in await read_all(log)] == [5]

    asyncio.run(scenario())


def test_truncation_in_a_gap_cuts_what_comes_after_it() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        await log.append_as_follower(batch(2, base_offset=0) + batch(2, base_offset=10))
        await trimming.truncate_to(log, 7)
        assert log.end_offset == 2

    asyncio.run(scenario())


def test_the_recovery_point_is_lowered_durably_before_anything_is_cut() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await three_segments(log)
        await log.flush()
        await setup.directory.checkpoint()
        assert await setup.checkpointed(RECOVERY_POINTS) == ["t 0 18"]
        seen: dict[str, int] = {}

        def note(operation: str, path: str) -> None:
            if path.endswith(".log") and operation in ("rename", "truncate"):
                file = setup.disk._tree.find(RECOVERY_POINTS)
                assert file is not None
                point = int(bytes(file.durable.written).split()[-1])  # type: ignore[union-attr]
                seen.setdefault(operation, point)

        setup.disk.before = note
        await trimming.truncate_to(log, 9)
        setup.disk.before = None
        assert set(seen) == {"rename", "truncate"}
        assert all(point <= 8 for point in seen.values())
        assert log.recovery_point <= 8
        await log.append_as_leader(batch(1), 3)
        await log.flush()
        assert log.recovery_point == 9

    asyncio.run(scenario())


def test_a_cut_is_durable_when_the_call_returns() -> None:
    async def scenario() -> None:
        for seed in range(10):
            setup = Setup()
            log = await setup.open()
            await three_segments(log)
            await log.flush()
            await setup.directory.checkpoint()
            await trimming.truncate_to(log, 9)
            setup.disk.crash_power(SeededRandom(seed))
            log = await setup.open()
            assert log.end_offset == 8
            assert [record.offset for record in await read_all(log)] == list(range(8))

    asyncio.run(scenario())


def test_producers_are_set_back_to_where_the_log_ends() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        for sequence in range(10):
            await log.append_as_leader(from_producer(sequence), 0)
            if sequence == 5:
                await log.roll()
        await trimming.truncate_to(log, 8)
        for sequence in range(3, 8):
            assert (await log.append_as_leader(from_producer(sequence), 0)).is_duplicate
        with pytest.raises(OutOfOrderSequence):
            await log.append_as_leader(from_producer(9), 0)
        assert (await log.append_as_leader(from_producer(8), 0)).first_offset == 8
        await trimming.truncate_to(log, 0)
        assert (await log.append_as_leader(from_producer(0), 0)).first_offset == 0

    asyncio.run(scenario())


def test_a_transaction_whose_end_is_cut_is_open_again() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        await append_all(log, [batch(1), from_producer(0, 2, transactional=True)])
        await end_transaction(log, commit=False)
        await log.append_as_leader(batch(1), 0)
        log.advance_high_watermark(5)
        assert log.last_stable_offset == 5
        await trimming.truncate_to(log, 3)
        assert log.last_stable_offset == 1
        assert await log.active.aborted.all() == []
        await end_transaction(log, commit=True)
        log.advance_high_watermark(4)
        assert log.last_stable_offset == 4

    asyncio.run(scenario())


def test_what_is_cut_away_keeps_no_place_in_the_indexes() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(index_interval_bytes=0))
        log = await setup.open()
        await append_all(log, [sized_batch(300, timestamp=START_MS + number) for number in range(100)])
        await trimming.truncate_to(log, 50)
        await append_all(log, [sized_batch(400, timestamp=START_MS + number) for number in range(50, 60)])
        await log.roll()
        expected = [(number, 300 * number) for number in range(1, 50)]
        expected += [(number, 15_000 + 400 * (number - 50)) for number in range(50, 60)]
        # the first batch after a cut begins a new interval
        assert await offset_entries(setup.disk, path_of(0, ".index")) == [
            entry for entry in expected if entry[0] != 50
        ]
        for number in range(60):
            assert (await reading.read(log, number, 1, Bound.LOG_END)).range is not None

    asyncio.run(scenario())


def test_truncating_fully_starts_at_any_offset() -> None:
    async def scenario() -> None:
        for offset in (0, 7, 100):
            setup = Setup()
            log = await setup.open()
            await three_segments(log)
            await log.append_as_leader(from_producer(0), 3)
            await log.flush()
            await trimming.truncate_fully_and_start_at(log, offset)
            for _ in range(2):
                assert log.start_offset == log.end_offset == log.high_watermark == offset
                assert log.recovery_point == offset
                assert (log.bases, epochs_of(log), len(log.producers)) == ([offset], [], 0)
                log = await setup.reopen()
            assert (await log.append_as_leader(batch(1), 5)).first_offset == offset
            assert epochs_of(log) == [(5, offset)]

    asyncio.run(scenario())


@pytest.mark.parametrize("operation", ["rename", "truncate", "sync", "sync_dir"])
def test_a_truncation_that_fails_half_way_stops_the_log_until_it_is_opened_anew(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await three_segments(log)
        setup.disk.fail(operation, errno.EIO, path_glob="t-0*", times=1)
        with pytest.raises(DiskFailed):
            await trimming.truncate_to(log, 9)
        setup.disk.heal()
        with pytest.raises(DiskFailed):
            await log.append_as_leader(batch(1), 3)
        log = await setup.reopen()
        assert not setup.directory.was_clean
        found = [record.offset for record in await read_all(log)]
        assert found == list(range(log.end_offset))
        assert log.end_offset in (8, 12, 18)
        assert (await log.append_as_leader(batch(1), 3)).first_offset == log.end_offset - 1

    asyncio.run(scenario())
    assert "t-0 takes no more appends until it is opened anew" in caplog.text


def test_a_cancelled_truncation_is_no_error_of_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    """A node that is stopped while it starts cancels what it does (seed 1936198446 of `cluster`)."""

    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await three_segments(log)

        def cancel(operation: str, path: str) -> None:
            raise asyncio.CancelledError

        setup.disk.before = cancel
        with pytest.raises(asyncio.CancelledError):
            await trimming.truncate_to(log, 9)
        setup.disk.before = None
        with pytest.raises(Interrupted):
            await log.append_as_leader(batch(1), 3)

    asyncio.run(scenario())
    (told,) = [each for each in caplog.records if "takes no more appends" in each.getMessage()]
    assert told.levelno == logging.WARNING
    assert "was interrupted" in told.getMessage()


# --- deleting records


def test_deleted_records_are_gone_at_once_their_segments_with_the_next_retention() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await three_segments(log)
        assert await trimming.delete_records(log, 9) == 9
        assert (log.start_offset, log.bases) == (9, [0, 6, 12])
        assert epochs_of(log) == [(2, 9), (3, 12)]
        assert [record.offset for record in await read_all(log)] == list(range(9, 18))
        with pytest.raises(OffsetOutOfRange):
            await read_bytes(log, 8)
        assert await trimming.apply_retention(log) == 1
        assert log.bases == [6, 12]
        log = await setup.reopen()
        assert (log.start_offset, log.bases) == (9, [6, 12])
        assert epochs_of(log) == [(2, 9), (3, 12)]

    asyncio.run(scenario())


def test_records_are_deleted_up_to_the_high_watermark_at_most() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        await log.append_as_leader(batch(10), 0)
        log.advance_high_watermark(6)
        for refused in (7, -2):
            with pytest.raises(OffsetOutOfRange, match="its high watermark is 6"):
                await trimming.delete_records(log, refused)
        assert await trimming.delete_records(log, 4) == 4
        assert await trimming.delete_records(log, 2) == 4  # never back
        assert await trimming.delete_records(log, -1) == 6

    asyncio.run(scenario())


def test_a_new_start_survives_a_power_failure() -> None:
    async def scenario() -> None:
        for seed in range(5):
            setup = Setup()
            log = await setup.open()
            await three_segments(log)
            await log.flush()
            await trimming.delete_records(log, 9)
            setup.disk.crash_power(SeededRandom(seed))
            log = await setup.open()
            assert log.start_offset == 9
            assert [record.offset for record in await read_all(log)] == list(range(9, 18))

    asyncio.run(scenario())


def test_nobody_is_told_of_a_new_start_before_it_is_durable() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await three_segments(log)
        told: list[int] = []
        setup.disk.before = lambda operation, path: told.append(log.start_offset)
        assert await trimming.delete_records(log, 9) == 9
        setup.disk.before = None
        assert told
        assert set(told) == {0}
        setup.disk.crash_process()
        assert (await setup.open()).start_offset == 9

    asyncio.run(scenario())


def test_a_start_that_cannot_be_kept_is_not_moved_and_no_file_goes() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(retention_bytes=0))
        log = await setup.open()
        await three_segments(log)
        setup.disk.fail("append", errno.ENOSPC, path_glob=f"{START_OFFSETS}*")
        with pytest.raises(DiskFull):
            await trimming.delete_records(log, 9)
        assert log.start_offset == 0
        for _ in range(2):
            with pytest.raises(DiskFull):
                await trimming.apply_retention(log)
            assert [record.offset for record in await read_all(log)] == list(range(18))
        setup.disk.heal()
        assert await trimming.apply_retention(log) == 3
        assert log.start_offset == 18

    asyncio.run(scenario())


# --- retention


def test_retention_by_size_renames_at_once_and_removes_after_the_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(retention_bytes=1500, segment_bytes=1000, file_delete_delay_ms=60_000))
        log = await setup.open()
        await append_all(log, [sized_batch(500) for _ in range(8)])
        log.advance_high_watermark(8)
        assert log.bases == [0, 2, 4, 6]
        assert await housekeeping.apply_retention(setup.directory) == 2
        assert (log.start_offset, log.bases) == (4, [4, 6])
        assert await setup.names(".log") == [f"{base:020d}.log" for base in (4, 6)]
        assert await setup.names(".deleted") == [
            f"{base:020d}{suffix}.deleted"
            for base in (0, 2)
            for suffix in (".index", ".log", *([".snapshot"] if base else []), ".timeindex")
        ]
        setup.clock.advance(59.999)
        await housekeeping.apply_retention(setup.directory)
        assert len(await setup.names(".deleted")) == 7
        setup.clock.advance(0.001)
        await housekeeping.apply_retention(setup.directory)
        assert await setup.names(".deleted") == []
        assert [record.offset for record in await read_all(log)] == [4, 5, 6, 7]

    with caplog.at_level(logging.INFO, "barnabas.log"):
        asyncio.run(scenario())
    assert "deleting segment 2 of t-0: the log is larger than retention.bytes" in said(caplog)


def test_retention_by_time_takes_the_active_segment_too() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(retention_ms=1000))
        log = await setup.open()
        await append_all(log, [batch(1, timestamp=START_MS), from_producer(0, timestamp=START_MS)])
        setup.clock.advance(1)
        log.advance_high_watermark(2)
        assert await trimming.apply_retention(log) == 0
        setup.clock.advance(0.001)
        assert await trimming.apply_retention(log) == 1
        assert log.start_offset == log.end_offset == 2
        assert log.bases == [2]
        # its producers are still known: the records went, not the memory of them
        assert (await log.append_as_leader(from_producer(0), 0)).is_duplicate
        log = await setup.reopen()
        assert (log.start_offset, log.end_offset) == (2, 2)
        assert (await log.append_as_leader(from_producer(0), 0)).is_duplicate

    asyncio.run(scenario())


def test_without_timestamps_the_age_of_the_file_counts() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(retention_ms=1000))
        log = await setup.open()
        await log.append_as_leader(build_batch([Record(0, -1, None, b"v")]), 0)
        log.advance_high_watermark(1)
        setup.clock.advance(1)
        assert await trimming.apply_retention(log) == 0
        setup.clock.advance(0.001)
        assert await trimming.apply_retention(log) == 1

    asyncio.run(scenario())


def test_nothing_above_the_high_watermark_goes() -> None:
    async def scenario() -> None:
        log = await Setup(LogConfig(retention_bytes=0)).open()
        await three_segments(log)
        log.high_watermark = 11
        assert await trimming.apply_retention(log) == 1
        assert log.bases == [6, 12]

    asyncio.run(scenario())


def test_a_topic_that_is_only_compacted_keeps_everything_but_deleted_records() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(cleanup_policy=frozenset({"compact"}), retention_bytes=0, retention_ms=1))
        log = await setup.open()
        await three_segments(log)
        setup.clock.advance(100)
        assert await trimming.apply_retention(log) == 0
        await trimming.delete_records(log, 7)
        assert await trimming.apply_retention(log) == 1

    asyncio.run(scenario())


def test_a_reader_in_the_middle_of_a_deleted_segment_goes_on() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(retention_bytes=0, file_delete_delay_ms=1000))
        log = await setup.open()
        await three_segments(log)
        expected = await read_bytes(log, 0)
        fetched = await reading.read(log, 0, 1 << 20)
        assert fetched.range is not None
        file, position, size = fetched.range
        file.pin()
        first_half = await file.read(position, size // 2)
        assert await housekeeping.apply_retention(setup.directory) == 3
        setup.clock.advance(1)
        await housekeeping.apply_retention(setup.directory)
        # the files of the other two are gone, those that are read are not
        assert {name[:20] for name in await setup.names(".deleted")} == {f"{0:020d}"}
        assert first_half + await file.read(position + size // 2, size - size // 2) == expected
        file.unpin()
        await housekeeping.apply_retention(setup.directory)
        assert await setup.names(".deleted") == []

    asyncio.run(scenario())


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_wall_clock_that_is_set_changes_nothing_about_when_files_go(jump_ms: int) -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(retention_bytes=0, file_delete_delay_ms=2000))
        await three_segments(await setup.open())
        assert await housekeeping.apply_retention(setup.directory) == 3
        setup.clock.jump_ms(jump_ms)
        setup.clock.advance(1)
        await setup.directory.removals.sweep()
        assert await setup.names(".deleted") != []
        setup.clock.advance(1)
        await setup.directory.removals.sweep()
        assert await setup.names(".deleted") == []

    asyncio.run(scenario())


def test_files_that_cannot_be_removed_are_tried_again() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(retention_bytes=0, file_delete_delay_ms=0))
        log = await setup.open()
        await three_segments(log)
        setup.disk.fail("remove", errno.EIO, times=1)
        await housekeeping.apply_retention(setup.directory)
        assert await setup.names(".deleted") != []
        await housekeeping.apply_retention(setup.directory)
        assert await setup.names(".deleted") == []

    asyncio.run(scenario())


def test_a_partition_that_fails_does_not_keep_the_others_from_being_trimmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(retention_bytes=0))
        broken = await setup.open()
        other = await setup.directory.partition("u", 0)
        for log in (broken, other):
            await three_segments(log)
        setup.disk.fail("rename", errno.EIO, path_glob="t-0/*.log")
        assert await housekeeping.apply_retention(setup.directory) == 3
        assert other.start_offset == 18

    asyncio.run(scenario())
    assert "cannot apply retention to t-0: cannot rename" in caplog.text


def test_a_checkpoint_in_the_middle_of_a_truncation_is_right_about_the_start() -> None:
    """While a log starts over it has no segment; others write the checkpoints of all partitions meanwhile."""

    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        await three_segments(log)
        for operation, path_glob in [("rename", "t-0/*.log"), ("sync_dir", "t-0"), ("open", "*100.log")]:
            gate = disk.gate(operation, path_glob)
            cutting = asyncio.create_task(trimming.truncate_fully_and_start_at(log, 100))
            await gate.reached.wait()
            await directory.checkpoint()
            assert b"t 0 100" in await contents(disk, START_OFFSETS)
            gate.open()
            await cutting
            await log.append_as_leader(batch(2), 1)

    asyncio.run(scenario())


def test_a_flush_in_the_middle_of_a_truncation_promises_nothing_that_is_cut() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        await three_segments(log)
        gate = disk.gate("rename", "t-0/*.log")
        cutting = asyncio.create_task(trimming.truncate_to(log, 9))
        await gate.reached.wait()
        flushing = asyncio.create_task(log.flush())
        for _ in range(10):
            await asyncio.sleep(0)
        assert log.recovery_point == 0
        gate.open()
        await asyncio.gather(cutting, flushing)
        assert log.recovery_point == log.end_offset == 8

    asyncio.run(scenario())
