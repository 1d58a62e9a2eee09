"""A partition's log: rolling, following a leader, watermarks, and what it remembers of its producers."""

from __future__ import annotations

import asyncio
import errno

import pytest

from barnabas.core.clock import ManualClock
from barnabas.core.disk import DiskFull
from barnabas.core.errors import CorruptMessage, FencedLeaderEpoch, OutOfOrderSequence
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log import reading
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import Bound, LogClosed, PartitionLog, UnexpectedOffset
from barnabas.log.segment import MAX_RELATIVE_OFFSET
from barnabas.records.batch import NO_TIMESTAMP
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
    sized_batch,
    time_entries,
)
from tests.support.logs import START_MS, batch, open_directory, read_all, read_bytes, values

DAY_MS = 24 * 3600 * 1000


class Setup:
    """A directory with one partition, on a disk in memory, under a clock that stands still."""

    def __init__(self, config: LogConfig | None = None, seed: int = 1) -> None:
        self.config = config
        self.clock = ManualClock(START_MS)
        self.disk = MemoryDisk(clock=self.clock)
        self.random = SeededRandom(seed)
        self.directory: LogDirectory

    async def open(self) -> PartitionLog:
        self.directory = await open_directory(self.disk, self.config, self.clock, self.random)
        return await self.directory.partition("t", 0)

    async def reopen(self) -> PartitionLog:
        await self.directory.close()
        return await self.open()

    async def crash(self) -> PartitionLog:
        self.disk.crash_process()
        return await self.open()


def numbered(base_offset: int, count: int = 1, *, epoch: int = 0, **options: object) -> bytearray:
    """A batch as a leader stores it."""
    return batch(count, base_offset=base_offset, leader_epoch=epoch, **options)


# --- rolling


def test_a_segment_is_rolled_before_it_would_grow_beyond_its_size() -> None:
    async def scenario() -> None:
        log = await Setup(LogConfig(segment_bytes=1000)).open()
        for size, bases in [(500, [0]), (500, [0]), (270, [0, 2]), (731, [0, 2, 3]), (269, [0, 2, 3])]:
            await log.append_as_leader(sized_batch(size), 0)
            assert log.bases == bases
        assert [segment.size_bytes for segment in log.segments] == [1000, 270, 1000]
        assert [record.offset for record in await read_all(log)] == [0, 1, 2, 3, 4]

    asyncio.run(scenario())


def test_age_is_told_by_the_timestamps_of_the_messages() -> None:
    """From the first batch's largest to the largest of what comes; the wall clock has no say."""

    async def scenario() -> None:
        setup = Setup(LogConfig(segment_ms=1000))
        log = await setup.open()
        await log.append_as_leader(batch(1, timestamp=START_MS - 5000), 0)
        setup.clock.advance(100)
        await log.append_as_leader(batch(1, timestamp=START_MS - 4000), 0)
        assert log.bases == [0]
        await log.append_as_leader(batch(1, timestamp=START_MS - 3999), 0)
        assert log.bases == [0, 2]
        # the new segment counts from its own first batch
        await log.append_as_leader(batch(1, timestamp=START_MS - 2999), 0)
        assert log.bases == [0, 2]

    asyncio.run(scenario())


def test_the_first_timestamp_is_found_again_after_a_start() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(segment_ms=1000))
        log = await setup.open()
        await append_all(log, [batch(1, timestamp=START_MS - 5000), batch(1, timestamp=START_MS - 4500)])
        log = await setup.reopen()
        await log.append_as_leader(batch(1, timestamp=START_MS - 3999), 0)
        assert log.bases == [0, 2]

    asyncio.run(scenario())


def test_without_timestamps_age_is_told_by_the_wall_clock() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(segment_ms=1000))
        log = await setup.open()
        await log.append_as_leader(build_batch([Record(0, NO_TIMESTAMP, None, b"v")]), 0)
        setup.clock.advance(1)
        await log.append_as_leader(batch(1, timestamp=START_MS), 0)
        assert log.bases == [0]
        setup.clock.advance(0.001)
        await log.append_as_leader(batch(1, timestamp=START_MS), 0)
        assert log.bases == [0, 2]

    asyncio.run(scenario())


def test_a_follower_rolls_by_the_largest_timestamp_of_all_it_was_sent() -> None:
    async def scenario() -> None:
        log = await Setup(LogConfig(segment_ms=1000)).open()
        await log.append_as_follower(numbered(0, timestamp=START_MS))
        await log.append_as_follower(numbered(1, timestamp=START_MS + 1001) + numbered(2, timestamp=START_MS))
        assert log.bases == [0, 1]

    asyncio.run(scenario())


def test_jitter_makes_segments_roll_earlier_by_a_share_that_the_seed_decides() -> None:
    async def roll_after_ms(seed: int, jitter_ms: int) -> int:
        log = await Setup(LogConfig(segment_ms=1000, segment_jitter_ms=jitter_ms), seed).open()
        await log.append_as_leader(batch(1, timestamp=START_MS), 0)
        for waited_ms in range(0, 1020, 10):
            await log.append_as_leader(batch(1, timestamp=START_MS + waited_ms), 0)
            if len(log.segments) > 1:
                return waited_ms
        raise AssertionError("it did not roll")

    async def scenario() -> None:
        assert await roll_after_ms(1, 0) == 1010
        waits = [await roll_after_ms(seed, 500) for seed in range(8)]
        assert waits == [await roll_after_ms(seed, 500) for seed in range(8)]
        assert all(500 < wait <= 1010 for wait in waits)
        assert len(set(waits)) > 3
        # jitter beyond the age itself is no more than the age
        waits = [await roll_after_ms(seed, 10 * DAY_MS) for seed in range(8)]
        assert all(0 < wait <= 1010 for wait in waits)
        assert len(set(waits)) > 3

    asyncio.run(scenario())


def test_a_full_index_rolls_the_segment() -> None:
    async def scenario() -> None:
        # an entry for every batch but the first; eight offsets and five times fit
        log = await Setup(LogConfig(index_interval_bytes=0, segment_index_bytes=64)).open()
        for number in range(12):
            await log.append_as_leader(batch(1, timestamp=START_MS + number), 0)
        # four times and one for sealing, which the last entry is already
        assert log.bases == [0, 5, 10]
        assert await offset_entries(log.home.disk, path_of(0, ".index")) == [
            (number, number * log.segments[0].size_bytes // 5) for number in range(1, 5)
        ]

    asyncio.run(scenario())


def test_an_index_that_was_full_before_the_stop_is_full_after_it() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(index_interval_bytes=0, segment_index_bytes=64))
        log = await setup.open()
        await append_all(log, [batch(1, timestamp=START_MS + number) for number in range(5)])
        assert log.bases == [0]
        log = await setup.reopen()
        await log.append_as_leader(batch(1, timestamp=START_MS + 5), 0)
        assert log.bases == [0, 5]

    asyncio.run(scenario())


def test_rolling_on_demand_seals_the_segment_and_leaves_an_empty_one_alone() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        assert not await log.roll()
        await append_all(log, [batch(2), batch(3)])
        assert await log.roll()
        assert log.bases == [0, 5]
        assert not await log.roll()
        assert (await log.append_as_leader(batch(1), 0)).first_offset == 5
        assert await setup.disk.listdir("t-0") == [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000005.index",
            "00000000000000000005.log",
            "00000000000000000005.snapshot",
            "00000000000000000005.timeindex",
        ]

    asyncio.run(scenario())


def test_an_empty_active_segment_does_not_roll_by_age() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(segment_ms=1000))
        log = await setup.open()
        setup.clock.advance(100)
        await log.append_as_leader(batch(1, timestamp=START_MS + 100_000), 0)
        assert log.bases == [0]

    asyncio.run(scenario())


def test_index_files_are_preallocated_while_they_grow_and_trimmed_at_the_roll_and_the_stop() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(index_interval_bytes=0, segment_index_bytes=1200))
        log = await setup.open()

        async def sizes(base_offset: int) -> list[int | None]:
            return [
                await setup.disk.size_of(path_of(base_offset, suffix)) for suffix in (".index", ".timeindex")
            ]

        await append_all(log, [batch(1, timestamp=START_MS + number) for number in range(66)])
        assert await sizes(0) == [1200, 1200]
        await log.roll()
        assert await sizes(0) == [65 * 8, 65 * 12]
        await append_all(log, [batch(1, timestamp=START_MS + number) for number in range(66, 132)])
        assert await sizes(66) == [1200, 1200]
        await setup.directory.close()
        assert await sizes(66) == [65 * 8, 65 * 12]

    asyncio.run(scenario())


def test_an_append_that_fails_for_want_of_an_index_entry_does_not_exist() -> None:
    """The records are in the log; the entries wait until there is room."""

    async def scenario() -> None:
        setup = Setup(LogConfig(index_interval_bytes=0))
        log = await setup.open()
        setup.disk.fail("write_at", errno.ENOSPC)
        appended = await append_all(log, [batch(1, timestamp=START_MS + number) for number in range(200)])
        assert [one.first_offset for one in appended] == list(range(200))
        assert len(await read_all(log, max_bytes=500)) == 200
        setup.disk.heal()
        await log.append_as_leader(batch(1, timestamp=START_MS + 200), 0)
        await log.roll()
        assert len(await offset_entries(setup.disk, path_of(0, ".index"))) == 200
        assert (await time_entries(setup.disk, path_of(0, ".timeindex")))[-1] == (START_MS + 200, 200)

    asyncio.run(scenario())


@pytest.mark.parametrize("operation", ["create", "append", "write_at", "rename"])
def test_a_roll_that_fails_leaves_the_log_as_it_was(operation: str) -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(index_interval_bytes=0, flush_messages=1))
        log = await setup.open()
        await append_all(log, [batch(1, timestamp=START_MS + number) for number in range(100)])
        setup.disk.fail(operation, errno.ENOSPC, path_glob="t-0/*")
        if operation == "write_at":  # the indexes stay in memory
            assert await log.roll()
        else:
            with pytest.raises(DiskFull):
                await log.roll()
            assert log.bases == [0]
        setup.disk.heal()
        await log.append_as_leader(batch(1, timestamp=START_MS + 100), 0)
        assert await log.roll()
        assert len(await read_all(log, max_bytes=300)) == 101
        await log.append_as_leader(batch(1), 0)
        log = await setup.reopen()
        assert len(await read_all(log, max_bytes=300)) == 102

    asyncio.run(scenario())


# --- following a leader


def test_a_follower_takes_offsets_as_they_are_gaps_included() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        data = numbered(5, 2) + numbered(9, 1)
        appended = await log.append_as_follower(data)
        assert appended is not None
        assert (appended.first_offset, appended.last_offset) == (5, 9)
        assert log.end_offset == 10
        assert await read_bytes(log, 0) == data
        await log.append_as_follower(numbered(20))
        assert [record.offset for record in await read_all(log)] == [5, 6, 9, 20]

    asyncio.run(scenario())


@pytest.mark.parametrize("data", [numbered(2), numbered(3) + numbered(3), numbered(5) + numbered(4)])
def test_a_follower_refuses_offsets_that_go_back(data: bytearray) -> None:
    async def scenario() -> None:
        log = await Setup().open()
        await log.append_as_follower(numbered(0, 3))
        size = log.size_bytes
        with pytest.raises(UnexpectedOffset, match=r"the leader of t-0 sent offset \d, not \d or later"):
            await log.append_as_follower(data)
        assert (log.end_offset, log.size_bytes) == (3, size)

    asyncio.run(scenario())


def test_a_last_batch_that_is_cut_short_is_left_out() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        whole = numbered(0, 2) + numbered(2, 2)
        for cut in (1, 30, len(numbered(4)) - 1):
            log = await Setup().open()
            appended = await log.append_as_follower(whole + numbered(4)[:cut])
            assert appended is not None
            assert appended.last_offset == 3
            assert log.size_bytes == len(whole)
        assert await log.append_as_follower(numbered(4)[:40]) is None
        assert await log.append_as_follower(b"") is None

    asyncio.run(scenario())


def test_a_follower_checks_checksums() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        data = numbered(0, 2) + numbered(2, 2)
        data[-1] ^= 1
        with pytest.raises(CorruptMessage, match="t-0 from its leader"):
            await log.append_as_follower(data)
        assert log.end_offset == log.size_bytes == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("epoch", [4, 5])
def test_follower_forgets_an_epoch_that_it_led_without_records(epoch: int) -> None:
    """The next leader has more records of an earlier epoch, and never heard of the one in between."""

    async def test() -> None:
        log = await Setup().open()
        await log.append_as_follower(numbered(0, 3, epoch=4))
        log.begin_leading(6)
        await log.append_as_follower(numbered(3, 2, epoch=epoch) + numbered(5, 1, epoch=7), 7)
        epochs = dict(log.epochs.entries)
        assert epochs == ({4: 0, 7: 5} if epoch == 4 else {4: 0, 5: 3, 7: 5})
        assert log.epochs.end_offset_for(epoch, log.end_offset) == (epoch, 5)

    asyncio.run(test())


def test_a_follower_records_the_epochs_of_what_it_is_sent() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await log.append_as_follower(
            numbered(0, 2, epoch=1) + numbered(2, 1, epoch=1) + numbered(3, 1, epoch=4)
        )
        await log.append_as_follower(numbered(4, 1, epoch=4))
        assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (4, 3)]
        await setup.directory.close()
        assert await contents(setup.disk, "t-0/leader-epoch-checkpoint") == b"0\n2\n1 0\n4 3\n"

    asyncio.run(scenario())


def test_a_far_offset_begins_a_segment_of_its_own() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await log.append_as_follower(numbered(0, 3))
        await log.append_as_follower(numbered(MAX_RELATIVE_OFFSET))
        assert log.bases == [0]
        far = 3 * MAX_RELATIVE_OFFSET
        await log.append_as_follower(numbered(far))
        assert log.bases == [0, far]
        # one that would only just not fit begins where the log ends, so that no name is left out
        await log.append_as_follower(numbered(far + MAX_RELATIVE_OFFSET + 1))
        assert log.bases == [0, far, far + 1]
        expected = [0, 1, 2, MAX_RELATIVE_OFFSET, far, far + MAX_RELATIVE_OFFSET + 1]
        assert [record.offset for record in await read_all(log)] == expected
        log = await setup.crash()
        assert [record.offset for record in await read_all(log)] == expected
        log = await setup.reopen()
        assert [record.offset for record in await read_all(log)] == expected

    asyncio.run(scenario())


def test_what_fits_no_segment_together_is_taken_in_parts() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        far = 2 * MAX_RELATIVE_OFFSET
        data = numbered(0) + numbered(10) + numbered(far)
        appended = await log.append_as_follower(data)
        assert appended is not None
        assert appended.last_offset == 10
        await log.append_as_follower(numbered(far))
        expected = [0, 10, far]
        assert [record.offset for record in await read_all(log)] == expected
        log = await setup.crash()
        assert [record.offset for record in await read_all(log)] == expected

    asyncio.run(scenario())


# --- watermarks


def test_the_high_watermark_goes_up_only_and_not_beyond_the_end() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        await log.append_as_leader(batch(5), 0)
        assert log.advance_high_watermark(3)
        assert not log.advance_high_watermark(2)
        assert log.advance_high_watermark(100)
        assert log.high_watermark == 5
        assert not log.advance_high_watermark(100)

    asyncio.run(scenario())


def test_the_high_watermark_is_found_again() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await log.append_as_leader(batch(5), 0)
        log.advance_high_watermark(3)
        assert (await setup.reopen()).high_watermark == 3

    asyncio.run(scenario())


def test_an_open_transaction_holds_the_last_stable_offset_back() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        await log.append_as_leader(batch(2), 0)
        await log.append_as_leader(from_producer(0, 3, transactional=True), 0)
        await log.append_as_leader(batch(1), 0)
        log.advance_high_watermark(6)
        assert log.last_stable_offset == 2
        await end_transaction(log, commit=True)
        # the marker is above the high watermark: the end of the transaction might still be lost
        assert log.last_stable_offset == 2
        log.advance_high_watermark(6)
        assert log.last_stable_offset == 2
        log.advance_high_watermark(7)
        assert log.last_stable_offset == 7

    asyncio.run(scenario())


def test_the_last_stable_offset_is_never_below_the_start() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        await append_all(log, [from_producer(0, 3, transactional=True), batch(3)])
        log.advance_high_watermark(6)
        log.start_offset = 4
        assert log.last_stable_offset == 4

    asyncio.run(scenario())


def test_a_high_watermark_that_hurries_does_not_pass_an_abort_before_it_is_indexed() -> None:
    """Where the disk is slow to take the index entry, readers of committed data must not see the records."""

    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        await log.append_as_leader(from_producer(0, 3, transactional=True), 0)
        gate = disk.gate("append", "*.txnindex")
        ending = asyncio.create_task(end_transaction(log, commit=False))
        await gate.reached.wait()
        log.advance_high_watermark(log.end_offset)
        fetched = await reading.read(log, 0, 1 << 20, Bound.LAST_STABLE)
        assert fetched.range is None
        # nor is the marker itself there yet
        assert (await reading.read(log, 0, 1 << 20, Bound.LOG_END)).range == (
            await reading.read(log, 0, 1 << 20, Bound.HIGH_WATERMARK)
        ).range
        gate.open()
        await ending
        log.advance_high_watermark(log.end_offset)
        fetched = await reading.read(log, 0, 1 << 20, Bound.LAST_STABLE)
        assert fetched.aborted is not None
        assert [aborted.first_offset for aborted in fetched.aborted] == [0]

    asyncio.run(scenario())


def test_an_abort_that_cannot_be_indexed_stops_the_log_until_it_is_opened_anew() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await log.append_as_leader(from_producer(0, 3, transactional=True), 0)
        setup.disk.fail("append", errno.ENOSPC, path_glob="*.txnindex")
        with pytest.raises(DiskFull):
            await end_transaction(log, commit=False)
        setup.disk.heal()
        with pytest.raises(DiskFull):
            await log.append_as_leader(batch(1), 0)
        log.advance_high_watermark(log.end_offset)
        assert (await reading.read(log, 0, 1 << 20, Bound.LAST_STABLE)).range is None
        log = await setup.reopen()
        assert not setup.directory.was_clean
        log.advance_high_watermark(log.end_offset)
        fetched = await reading.read(log, 0, 1 << 20, Bound.LAST_STABLE)
        assert fetched.aborted is not None
        assert [aborted.producer_id for aborted in fetched.aborted] == [7]

    asyncio.run(scenario())


# --- producers, across a stop or a crash


async def send(log: PartitionLog, sequence: int, **options: object) -> tuple[bool, int]:
    appended = await log.append_as_leader(from_producer(sequence, **options), 0)  # type: ignore[arg-type]
    return appended.is_duplicate, appended.first_offset


@pytest.mark.parametrize("how", ["go on", "stop", "crash"])
@pytest.mark.parametrize("roll", [False, True])
def test_the_last_five_batches_are_known_again(how: str, roll: bool) -> None:
    """A snapshot keeps one batch a producer; the log's tail has the others."""

    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        for sequence in range(8):
            await send(log, sequence)
            await log.append_as_leader(batch(2), 0)
            if roll and sequence in (4, 5, 7):
                await log.roll()
        if how != "go on":
            log = await (setup.reopen() if how == "stop" else setup.crash())
        for sequence in range(3, 8):
            assert await send(log, sequence) == (True, 3 * sequence)
        with pytest.raises(OutOfOrderSequence, match="sequence 2"):
            await send(log, 2)
        assert await send(log, 8) == (False, 24)

    asyncio.run(scenario())


def test_a_duplicate_is_acknowledged_as_it_was_the_first_time() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(log_append_time=True))
        log = await setup.open()
        first = await log.append_as_leader(from_producer(0, 3), 0)
        setup.clock.advance(1)
        await log.append_as_leader(batch(1), 0)
        again = await log.append_as_leader(from_producer(0, 3), 0)
        assert again == first._replace(is_duplicate=True, stored_bytes=0)
        assert log.end_offset == 4

    asyncio.run(scenario())


def test_producers_expire_and_may_then_begin_anywhere() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(producer_id_expiration_ms=1000))
        log = await setup.open()
        await send(log, 0, timestamp=START_MS)
        await send(log, 0, producer_id=8, timestamp=START_MS + 500)
        await send(log, 0, producer_id=9, transactional=True, timestamp=START_MS)
        setup.clock.advance(1)
        log.expire_producers()
        # a transaction that is open is not forgotten
        assert {entry.producer_id for entry in log.producers.entries()} == {8, 9}
        assert await send(log, 5) == (False, 3)

    asyncio.run(scenario())


def test_snapshots_are_taken_at_the_roll_and_at_the_stop() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await send(log, 0)
        await log.roll()
        await send(log, 1)

        async def snapshots() -> list[str]:
            return [name for name in await setup.disk.listdir("t-0") if name.endswith(".snapshot")]

        assert await snapshots() == ["00000000000000000001.snapshot"]
        log = await setup.reopen()
        assert await snapshots() == ["00000000000000000001.snapshot", "00000000000000000002.snapshot"]
        # the one of the stop belongs to no segment: it goes when there is a newer one
        await send(log, 2)
        await setup.reopen()
        assert await snapshots() == ["00000000000000000001.snapshot", "00000000000000000003.snapshot"]

    asyncio.run(scenario())


def test_an_open_transaction_is_open_again_after_a_start() -> None:
    async def scenario() -> None:
        for crash in (False, True):
            setup = Setup()
            log = await setup.open()
            await append_all(log, [batch(2), from_producer(0, 3, transactional=True)])
            log.advance_high_watermark(5)
            await setup.directory.checkpoint()
            log = await (setup.crash() if crash else setup.reopen())
            assert (log.high_watermark, log.last_stable_offset) == (5, 2)
            await end_transaction(log, commit=False)
            log.advance_high_watermark(6)
            assert log.last_stable_offset == 6
            assert len(await log.active.aborted.all()) == 1

    asyncio.run(scenario())


# --- the end of a log


def test_a_closed_log_refuses_everything() -> None:
    """Another log may soon stand under the same names."""

    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await log.append_as_leader(batch(2), 0)
        await setup.directory.close()
        with pytest.raises(LogClosed, match="t-0 was closed"):
            await log.append_as_leader(batch(1), 0)
        with pytest.raises(LogClosed):
            await log.append_as_follower(numbered(2))
        with pytest.raises(LogClosed):
            await reading.read(log, 0, 100)
        with pytest.raises(LogClosed):
            await reading.offset_for_timestamp(log, START_MS)
        with pytest.raises(LogClosed):
            await log.roll()

    asyncio.run(scenario())


def test_closing_waits_for_the_append_under_way() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        gate = disk.gate("append", "*.log")
        appending = asyncio.create_task(log.append_as_leader(batch([b"last"]), 0))
        await gate.reached.wait()
        closing = asyncio.create_task(directory.close())
        await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(appending, closing)
        directory = await open_directory(disk)
        assert directory.was_clean
        assert values(await read_all(await directory.partition("t", 0))) == [b"last"]

    asyncio.run(scenario())


def test_a_cancelled_append_is_whole_or_not_there() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        await log.append_as_leader(batch([b"first"]), 0)
        gate = disk.gate("append", "*.log")
        appending = asyncio.create_task(log.append_as_leader(batch([b"cancelled"]), 0))
        await gate.reached.wait()
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending
        assert (await log.append_as_leader(batch([b"next"]), 0)).first_offset == 1
        assert values(await read_all(log)) == [b"first", b"next"]

    asyncio.run(scenario())


# ---- leaders whose epoch is over


def test_a_leader_whose_epoch_is_over_appends_nothing() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        log.begin_leading(2)
        await log.append_as_leader(batch(1), 2)
        log.refuse_epochs_before(4)
        log.refuse_epochs_before(3)
        for epoch in (2, 3):
            with pytest.raises(FencedLeaderEpoch):
                await log.append_as_leader(batch(1), epoch)
        await log.append_as_leader(batch(1), 4)
        assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries] == [(2, 0), (4, 1)]

    asyncio.run(scenario())


def test_an_epoch_that_begins_during_an_append_begins_after_it() -> None:
    async def scenario() -> None:
        log = await Setup().open()
        async with log.turn:
            log.begin_leading(5)  # something is being appended: the end is about to move
            assert log.epochs.latest_epoch is None
        await log.append_as_leader(batch(2), 5)
        assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries] == [(5, 0)]

    asyncio.run(scenario())


def test_what_is_to_be_synced_is_held_once_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        log = await Setup(LogConfig(flush_messages=3)).open()
        await log.append_as_leader(batch(2), 0)
        assert log.held_end == 2
        seen: list[int] = []
        flush = PartitionLog.flush

        async def slow_flush(log: PartitionLog, up_to: int) -> None:
            seen.append(log.held_end)
            await flush(log, up_to)

        monkeypatch.setattr(PartitionLog, "flush", slow_flush)
        await log.append_as_leader(batch(1), 0)
        assert (seen, log.held_end) == ([0], 3)

    asyncio.run(scenario())
