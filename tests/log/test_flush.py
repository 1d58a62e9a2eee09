"""What is on the disk when: `flush.messages`, `flush.ms`, one sync for many, and disks that say no."""

from __future__ import annotations

import asyncio
import errno

import pytest

from barnabas.core.clock import ManualClock, SystemClock
from barnabas.core.disk import DiskFailed, DiskFull
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import SeededRandom
from barnabas.core.workers import ThreadWorkers
from barnabas.log import housekeeping, trimming
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import PartitionLog
from tests.support.log_fixtures import (
    WatchedDisk,
    append_all,
    contents,
    end_transaction,
    from_producer,
    path_of,
    said,
    sized_batch,
    snapshot_of,
)
from tests.support.logs import START_MS, batch, open_directory, read_all, values

EVERY_MESSAGE = LogConfig(flush_messages=1)


class Setup:
    """A directory with one partition, on a watched disk in memory, under a clock that stands still."""

    def __init__(self, config: LogConfig | None = None, capacity_bytes: int | None = None) -> None:
        self.config = config
        self.clock = ManualClock(START_MS)
        self.memory = MemoryDisk(clock=self.clock, capacity_bytes=capacity_bytes)
        self.disk = WatchedDisk(self.memory)
        self.directory: LogDirectory

    async def open(self) -> PartitionLog:
        self.directory = await open_directory(self.disk, self.config, self.clock)
        return await self.directory.partition("t", 0)

    async def lose_power(self, seed: int) -> PartitionLog:
        self.memory.crash_power(SeededRandom(seed))
        return await self.open()


# --- flush.messages


def test_without_a_policy_nothing_is_synced_on_the_way() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        setup.disk.calls.clear()
        await append_all(log, [batch(3) for _ in range(100)])
        assert setup.disk.calls["sync"] == setup.disk.calls["sync_dir"] == 0
        assert log.recovery_point == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(8))
def test_flush_messages_1_is_on_the_disk_before_the_append_returns(seed: int) -> None:
    """Of a partition that is brand new, too: its names are synced with the batch."""

    async def scenario() -> None:
        setup = Setup(EVERY_MESSAGE)
        log = await setup.open()
        await log.append_as_leader(batch([b"first"]), 3)
        assert log.recovery_point == 1
        log = await setup.lose_power(seed)
        assert values(await read_all(log)) == [b"first"]
        await log.append_as_leader(from_producer(0), 3)
        await log.append_as_follower(batch([b"third"], base_offset=2, leader_epoch=4))
        await log.roll()
        await log.append_as_leader(from_producer(1, transactional=True), 5)
        await end_transaction(log, commit=False, leader_epoch=5)
        log = await setup.lose_power(seed)
        assert log.end_offset == 5
        assert [tuple(entry) for entry in log.epochs.entries] == [(3, 0), (4, 2), (5, 3)]
        assert [len(await segment.aborted.all()) for segment in log.segments] == [0, 1]
        assert (await log.append_as_leader(from_producer(1, transactional=True), 5)).is_duplicate

    asyncio.run(scenario())


def test_flush_messages_counts_records_since_the_last_flush() -> None:
    async def scenario() -> None:
        log = await Setup(LogConfig(flush_messages=10)).open()
        for count, flushed in [(4, 0), (5, 0), (1, 10), (9, 10), (30, 49)]:
            await log.append_as_leader(batch(count), 0)
            assert log.recovery_point == flushed

    asyncio.run(scenario())


def test_a_duplicate_is_not_acknowledged_before_the_first_one_is_on_the_disk() -> None:
    """Its producer lost the connection while the sync was under way, and comes again."""

    async def scenario() -> None:
        setup = Setup(EVERY_MESSAGE)
        log = await setup.open()
        gate = setup.disk.gate("sync", "*.log")
        first = asyncio.create_task(log.append_as_leader(from_producer(0), 0))
        await gate.reached.wait()
        again = asyncio.create_task(log.append_as_leader(from_producer(0), 0))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not again.done()
        gate.open()
        await first
        assert (await again).is_duplicate
        assert log.recovery_point == 1

    asyncio.run(scenario())


def test_many_appends_share_few_syncs() -> None:
    async def scenario() -> None:
        setup = Setup(EVERY_MESSAGE)
        log = await setup.open()
        await log.append_as_leader(batch(1), 0)
        setup.disk.calls.clear()
        gate = setup.disk.gate("sync", "*.log")
        first = asyncio.create_task(log.append_as_leader(batch(1), 0))
        await gate.reached.wait()
        others = [asyncio.create_task(log.append_as_leader(batch(1), 0)) for _ in range(100)]
        for _ in range(300):
            await asyncio.sleep(0)
        assert log.end_offset == 102  # all are written, none is acknowledged
        assert not any(task.done() for task in others)
        gate.open()
        await asyncio.gather(first, *others)
        assert setup.disk.calls["sync"] == 2
        assert log.recovery_point == 102

    asyncio.run(scenario())


def test_appends_share_syncs_on_a_real_disk(tmp_path: object) -> None:
    async def scenario() -> None:
        workers = ThreadWorkers(2)
        disk = WatchedDisk(OsDisk(str(tmp_path), workers, SystemClock()))
        directory = await open_directory(disk, EVERY_MESSAGE)
        log = await directory.partition("t", 0)
        await log.append_as_leader(batch(1), 0)
        disk.calls.clear()
        appended = await asyncio.gather(*(log.append_as_leader(batch([b"%d" % n]), 0) for n in range(200)))
        assert sorted(one.first_offset for one in appended) == list(range(1, 201))
        assert disk.calls["sync"] <= 20
        assert log.recovery_point == 201
        await directory.close()
        disk.close()
        workers.close()

    asyncio.run(scenario())


# --- flush.ms and rolled segments


def test_flush_ms_bounds_how_long_a_batch_may_wait() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(flush_ms=1000))
        log = await setup.open()
        await log.append_as_leader(batch(2), 0)
        setup.clock.advance(0.999)
        await housekeeping.flush_due(setup.directory)
        assert log.recovery_point == 0
        setup.clock.advance(0.001)
        await housekeeping.flush_due(setup.directory)
        assert log.recovery_point == 2
        # the next one counts from here
        await log.append_as_leader(batch(2), 0)
        setup.clock.advance(0.999)
        await housekeeping.flush_due(setup.directory)
        assert log.recovery_point == 2

    asyncio.run(scenario())


def test_a_wall_clock_that_is_set_back_does_not_put_a_flush_off() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(flush_ms=1000))
        log = await setup.open()
        await log.append_as_leader(batch(2), 0)
        setup.clock.jump_ms(-3_600_000)
        setup.clock.advance(1)
        await housekeeping.flush_due(setup.directory)
        assert log.recovery_point == 2

    asyncio.run(scenario())


def test_a_sealed_segment_is_flushed_without_the_active_one() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await log.append_as_leader(batch(2), 0)
        await log.roll()
        await log.append_as_leader(batch(2), 0)
        await housekeeping.flush_due(setup.directory)
        assert log.recovery_point >= 2
        setup.disk.calls.clear()
        await housekeeping.flush_due(setup.directory)
        assert setup.disk.calls["sync"] == 0

    asyncio.run(scenario())


def test_a_flush_makes_everything_durable_whatever_was_rolled_or_begun_since() -> None:
    async def scenario() -> None:
        for seed in range(10):
            setup = Setup(LogConfig(index_interval_bytes=0))
            log = await setup.open()
            for epoch in range(4):
                await append_all(log, [from_producer(3 * epoch + number) for number in range(3)], epoch)
                await log.roll()
            await log.append_as_leader(from_producer(12), 9)
            await log.flush()
            await setup.directory.checkpoint()
            log = await setup.lose_power(seed)
            assert log.end_offset == 13
            assert [entry.epoch for entry in log.epochs.entries] == [0, 1, 2, 3, 9]
            assert [record.offset for record in await read_all(log, max_bytes=1)] == list(range(13))

    asyncio.run(scenario())


def test_where_all_is_synced_already_a_roll_syncs_the_indexes_too(caplog: pytest.LogCaptureFixture) -> None:
    """The recovery point is past the segment, so after a crash nobody would look at it again."""

    async def scenario() -> None:
        for seed in range(8):
            setup = Setup(LogConfig(flush_messages=1, index_interval_bytes=0))
            log = await setup.open()
            await append_all(log, [batch(1, timestamp=START_MS + number) for number in range(100)])
            await log.roll()
            await log.append_as_leader(batch(1), 0)
            await setup.directory.checkpoint()
            before = [await contents(setup.memory, path_of(0, suffix)) for suffix in (".index", ".timeindex")]
            log = await setup.lose_power(seed)
            assert len(await read_all(log)) == 101
            assert before == [
                await contents(setup.memory, path_of(0, suffix)) for suffix in (".index", ".timeindex")
            ]

    asyncio.run(scenario())
    assert said(caplog) == []


def test_flush_that_ends_during_a_roll_leaves_no_unsynced_index(caplog: pytest.LogCaptureFixture) -> None:
    """The recovery point does not pass a segment whose indexes were written after its batches were synced.
    Seed 7700358: a power loss tore such an index, and reads from the start missed the first records."""

    async def scenario(seed: int) -> None:
        setup = Setup(LogConfig(index_interval_bytes=0))
        log = await setup.open()
        await append_all(log, [batch(1, timestamp=START_MS + number) for number in range(8)])
        syncing = setup.disk.gate("sync", path_of(0, ".log"))
        creating = setup.disk.gate("open", path_of(8, ".log"))
        flushing = asyncio.create_task(log.flush(8))
        await syncing.reached.wait()
        rolling = asyncio.create_task(log.roll())
        await creating.reached.wait()
        syncing.open()
        for _ in range(50):
            await asyncio.sleep(0)
        assert log.recovery_point == 0
        creating.open()
        await asyncio.gather(rolling, flushing)
        assert log.recovery_point == 8
        await setup.directory.checkpoint()
        log = await setup.lose_power(seed)
        assert [record.offset for record in await read_all(log)] == list(range(8))

    for seed in range(16):
        asyncio.run(scenario(seed))
    assert said(caplog) == []


def test_a_flush_that_meets_a_roll_goes_round_again() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await log.append_as_leader(batch(2), 0)
        gate = setup.disk.gate("sync", path_of(0, ".log"))
        flushing = asyncio.create_task(log.flush())
        await gate.reached.wait()
        await log.append_as_leader(batch(2), 0)
        await log.roll()
        await log.append_as_leader(batch(2), 0)
        gate.open()
        await flushing
        assert log.recovery_point >= 2
        log = await setup.lose_power(1)
        assert log.end_offset >= 2
        assert [record.offset for record in await read_all(log)] == list(range(log.end_offset))

    asyncio.run(scenario())


# --- disks that say no


@pytest.mark.parametrize("operation", ["sync", "sync_dir"])
def test_a_sync_that_fails_stops_the_log_until_it_is_opened_anew(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What the failed sync lost is unknown, and a second one would not say."""

    async def scenario() -> None:
        setup = Setup(EVERY_MESSAGE)
        log = await setup.open()
        await log.append_as_leader(batch([b"kept"]), 0)
        await log.roll()
        setup.memory.fail(operation, errno.EIO, path_glob="t-0*", times=1)
        with pytest.raises(DiskFailed):
            await log.append_as_leader(batch([b"in doubt"]), 0)
        setup.memory.heal()
        for _ in range(2):
            with pytest.raises(DiskFailed):
                await log.append_as_leader(batch([b"refused"]), 0)
        with pytest.raises(DiskFailed):
            await log.append_as_follower(batch(1, base_offset=log.end_offset))
        with pytest.raises(DiskFailed):
            await trimming.truncate_to(log, 0)
        assert log.recovery_point == 1
        # readers go on
        assert values(await read_all(log))[0] == b"kept"
        await setup.directory.close()
        setup.memory.crash_process()  # the node is started anew
        log = await setup.open()
        assert not setup.directory.was_clean
        assert values(await read_all(log)) == [b"kept", b"in doubt"]
        await log.append_as_leader(batch([b"next"]), 0)
        assert log.recovery_point == 3

    asyncio.run(scenario())
    assert "t-0 takes no more appends until it is opened anew" in caplog.text


def test_everyone_who_waits_for_a_failed_sync_is_told() -> None:
    async def scenario() -> None:
        setup = Setup(EVERY_MESSAGE)
        log = await setup.open()
        await log.append_as_leader(batch(1), 0)
        gate = setup.disk.gate("sync", "*.log")
        tasks = [asyncio.create_task(log.append_as_leader(batch(1), 0)) for _ in range(5)]
        await gate.reached.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        setup.memory.fail("sync", errno.EIO, path_glob="*.log")
        gate.open()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [DiskFailed] * 5
        assert log.recovery_point == 1

    asyncio.run(scenario())


def test_one_partition_that_cannot_be_flushed_does_not_keep_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(flush_ms=0))
        broken = await setup.open()
        other = await setup.directory.partition("u", 0)
        for log in (broken, other):
            await log.append_as_leader(batch(2), 0)
        setup.memory.fail("sync", errno.EIO, path_glob="t-0/*.log")
        await housekeeping.flush_due(setup.directory)
        assert (broken.recovery_point, other.recovery_point) == (0, 2)

    asyncio.run(scenario())
    assert "cannot flush t-0: cannot sync memory:/t-0/00000000000000000000.log" in caplog.text


def test_a_full_disk_leaves_no_trace_of_the_append_and_the_next_one_works_when_there_is_room() -> None:
    async def scenario() -> None:
        setup = Setup(capacity_bytes=10_000)
        log = await setup.open()
        await append_all(log, [sized_batch(3000), from_producer(0)], 2)
        before, epochs = await snapshot_of(setup.memory, "t-0"), log.epochs.entries
        for _ in range(3):
            with pytest.raises(DiskFull, match=r"t-0/00000000000000000000\.log.*free some space"):
                await log.append_as_leader(from_producer(1, value_bytes=9000), 5)
        assert (log.end_offset, log.epochs.entries) == (2, epochs)
        assert await snapshot_of(setup.memory, "t-0") == before
        # what is smaller still fits
        assert (await log.append_as_leader(from_producer(1), 5)).first_offset == 2
        setup.memory.capacity_bytes = None
        assert (await log.append_as_leader(from_producer(2, value_bytes=9000), 5)).first_offset == 3
        assert [record.offset for record in await read_all(log)] == [0, 1, 2, 3]
        assert not (await log.append_as_leader(from_producer(3), 5)).is_duplicate

    asyncio.run(scenario())


def test_a_write_that_fails_otherwise_leaves_no_trace_either() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await log.append_as_leader(batch(2), 0)
        before = await snapshot_of(setup.memory, "t-0")
        setup.memory.fail("append", errno.EIO, path_glob="*.log", times=1)
        with pytest.raises(DiskFailed, match=r"00000\.log.*check the device"):
            await log.append_as_leader(batch(2), 0)
        assert await snapshot_of(setup.memory, "t-0") == before
        assert (await log.append_as_leader(batch(2), 0)).first_offset == 2

    asyncio.run(scenario())


def test_a_stop_on_a_disk_that_fails_is_not_called_clean(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await log.append_as_leader(batch(2), 0)
        setup.memory.fail("sync", errno.EIO, path_glob="t-0/*.log", times=1)
        await setup.directory.close()
        setup.memory.crash_process()
        log = await setup.open()
        assert not setup.directory.was_clean
        assert log.end_offset == 2

    asyncio.run(scenario())
    assert "cannot close t-0 cleanly" in caplog.text


def test_a_sealed_segment_for_which_there_was_no_room_is_flushed_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        await log.append_as_leader(batch(2), 0)
        await log.roll()
        disk.fail("append", errno.ENOSPC, path_glob="*leader-epoch-checkpoint*")
        await housekeeping.flush_due(directory)
        assert log.recovery_point == 0
        assert "cannot flush t-0" in caplog.text
        disk.heal()
        await housekeeping.flush_due(directory)
        assert log.recovery_point == 2

    asyncio.run(scenario())
