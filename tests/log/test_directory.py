"""A log directory: its lock, the mark of a clean stop, Kafka's checkpoints, partitions that come and go."""

from __future__ import annotations

import asyncio
import logging
import resource
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas.core.clock import ManualClock, SystemClock
from barnabas.core.disk import DirectoryLocked
from barnabas.core.errors import InconsistentTopicId
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import SeededRandom
from barnabas.core.workers import InlineWorkers
from barnabas.log import housekeeping, reading, trimming, untouched
from barnabas.log.checkpoints import write_offset_checkpoint
from barnabas.log.config import LogConfig
from barnabas.log.directory import PartitionDeleted
from barnabas.log.partition import PartitionLog
from tests.support.log_fixtures import WatchedDisk, contents, from_producer, path_of, put, said
from tests.support.logs import START_MS, batch, open_directory, read_all, values

CLEAN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
ID, OTHER_ID = UUID(int=0x1234), UUID(int=0x5678)


# --- the lock and the mark


def test_a_second_opener_is_refused_until_the_first_has_closed() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        with pytest.raises(DirectoryLocked, match=r"memory:/\.lock: another node uses this log directory"):
            await open_directory(disk)
        await directory.close()
        await (await open_directory(disk)).close()

    asyncio.run(scenario())


def test_the_lock_holds_between_two_disks_of_the_same_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = (OsDisk(tmp_path, InlineWorkers(), SystemClock()) for _ in range(2))
        directory = await open_directory(first)
        with pytest.raises(DirectoryLocked, match=str(tmp_path)):
            await open_directory(second)
        await directory.close()
        directory = await open_directory(second)
        assert directory.was_clean
        first.close()
        second.close()

    asyncio.run(scenario())


def test_an_opening_that_fails_gives_the_lock_back() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        disk.fail("list", 5, times=1)
        with pytest.raises(Exception, match="cannot list"):
            await open_directory(disk)
        await open_directory(disk)

    asyncio.run(scenario())


def test_the_mark_of_a_clean_stop_is_believed_once() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        assert not directory.was_clean
        await directory.close(broker_epoch=17)
        assert await contents(disk, CLEAN) == b'{"version":0,"brokerEpoch":17}'
        directory = await open_directory(disk)
        assert directory.was_clean
        assert await disk.size_of(CLEAN) is None
        disk.crash_power(SeededRandom(3))
        assert not (await open_directory(disk)).was_clean

    asyncio.run(scenario())


def test_a_stop_is_not_clean_while_a_partition_waits_for_its_recovery() -> None:
    """The next start would take what was never looked at for sound."""

    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        for number in (0, 1):
            await (await directory.partition("t", number)).append_as_leader(batch(2), 0)
        disk.crash_process()
        directory = await open_directory(disk)
        await directory.partition("t", 0)
        await directory.close()
        assert await disk.size_of(CLEAN) is None
        directory = await open_directory(disk)
        await housekeeping.recover_untouched(directory)
        await directory.close()
        assert await disk.size_of(CLEAN) is not None

    asyncio.run(scenario())


# --- checkpoints


def test_the_checkpoints_are_in_kafkas_format() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        first, second = await directory.partition("orders", 0), await directory.partition("a-b", 12)
        await first.append_as_leader(batch(7), 3)
        await second.append_as_leader(batch(2), 0)
        first.advance_high_watermark(5)
        await trimming.delete_records(first, 2)
        await second.flush()
        await directory.checkpoint()
        assert await contents(disk, RECOVERY_POINTS) == b"0\n2\norders 0 0\na-b 12 2\n"
        assert await contents(disk, START_OFFSETS) == b"0\n1\norders 0 2\n"
        assert await contents(disk, HIGH_WATERMARKS) == b"0\n2\norders 0 5\na-b 12 0\n"
        await directory.close()
        assert await contents(disk, RECOVERY_POINTS) == b"0\n2\norders 0 7\na-b 12 2\n"
        assert await contents(disk, "orders-0/leader-epoch-checkpoint") == b"0\n1\n3 2\n"

    asyncio.run(scenario())


def test_partitions_that_were_not_touched_keep_their_entries() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        for topic in ("t", "u"):
            log = await directory.partition(topic, 0)
            await log.append_as_leader(batch(5), 0)
            log.advance_high_watermark(4)
            await trimming.delete_records(log, 3)
        await directory.close()
        before = [await contents(disk, name) for name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS)]
        directory = await open_directory(disk)
        await directory.partition("t", 0)
        await directory.close()
        directory = await open_directory(disk)
        await directory.checkpoint()
        assert before == [
            await contents(disk, name) for name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS)
        ]
        log = await directory.partition("u", 0)
        assert (log.start_offset, log.high_watermark, log.end_offset) == (3, 4, 5)

    asyncio.run(scenario())


def test_checkpoints_asked_for_together_are_written_one_after_another() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        await log.append_as_leader(batch(5), 0)
        gate = disk.gate("sync", f"{HIGH_WATERMARKS}.tmp")
        first = asyncio.create_task(directory.checkpoint())
        await gate.reached.wait()
        log.advance_high_watermark(5)
        others = [asyncio.create_task(directory.checkpoint()) for _ in range(5)]
        await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(first, *others)
        assert await contents(disk, HIGH_WATERMARKS) == b"0\n1\nt 0 5\n"

    asyncio.run(scenario())


# --- partitions on their first touch


def test_partitions_are_listed_and_nothing_of_them_is_opened() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        for topic, partition in [("b-c", 10), ("a", 1), ("a", 0)]:
            await (await directory.partition(topic, partition)).append_as_leader(batch(3), 0)
        await directory.close()
        await disk.mkdir("not a partition")
        await disk.mkdir(f"gone-0.{ID.hex}-delete")
        await disk.mkdir(f"moving-0.{ID.hex}-future")
        await disk.mkdir(f"lost-0.{ID.hex}-stray")
        disk.bytes_read.clear()
        directory = await open_directory(disk)
        assert directory.partitions == [("a", 0), ("a", 1), ("b-c", 10)]
        assert directory.opened("a", 0) is None
        assert not [path for path in disk.bytes_read if "/" in path]
        log = await directory.partition("a", 0)
        assert directory.opened("a", 0) is log
        assert {path.split("/")[0] for path in disk.bytes_read if "/" in path} == {"a-0"}

    asyncio.run(scenario())


def test_first_touches_that_come_together_open_once() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        await (await directory.partition("t", 0)).append_as_leader(batch(3), 0)
        disk.inner.crash_process()  # type: ignore[attr-defined]
        directory = await open_directory(disk)
        gate = disk.gate("read", "t-0/*.log")
        tasks = [asyncio.create_task(directory.partition("t", 0)) for _ in range(20)]
        await gate.reached.wait()
        other = await directory.partition("u", 0)  # it waits for nobody
        gate.open()
        logs = await asyncio.gather(*tasks)
        assert len({id(log) for log in logs}) == 1
        assert logs[0].end_offset == 3
        assert other is not logs[0]

    asyncio.run(scenario())


def test_an_opening_that_failed_can_be_tried_again() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        disk.fail("create", 28, path_glob="*.log", times=1)
        with pytest.raises(Exception, match="cannot create"):
            await directory.partition("t", 0)
        log = await directory.partition("t", 0)
        assert (await log.append_as_leader(batch(1), 0)).first_offset == 0

    asyncio.run(scenario())


def test_a_partition_may_have_settings_of_its_own() -> None:
    async def scenario() -> None:
        directory = await open_directory(MemoryDisk(), LogConfig(segment_bytes=1000))
        own = await directory.partition("t", 0, config=LogConfig(segment_bytes=100))
        assert own.config.segment_bytes == 100
        assert (await directory.partition("t", 1)).config.segment_bytes == 1000

    asyncio.run(scenario())


# --- topic ids


def test_a_topic_id_is_kept_and_asked_for() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        log = await directory.partition("t", 0, topic_id=ID)
        assert log.topic_id == ID
        assert (
            await contents(disk, "t-0/partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAASNA"
        )
        await directory.close()
        directory = await open_directory(disk)
        with pytest.raises(InconsistentTopicId, match=f"memory:/t-0 holds topic id {ID}, not {OTHER_ID}"):
            await directory.partition("t", 0, topic_id=OTHER_ID)
        assert (await directory.partition("t", 0)).topic_id == ID

    asyncio.run(scenario())


def test_a_topic_id_is_durable_with_the_first_flush() -> None:
    async def scenario() -> None:
        for seed in range(8):
            disk = MemoryDisk()
            directory = await open_directory(disk)
            log = await directory.partition("t", 0, topic_id=ID)
            await log.append_as_leader(batch(1), 0)
            await log.flush()
            disk.crash_power(SeededRandom(seed))
            directory = await open_directory(disk)
            with pytest.raises(InconsistentTopicId):
                await directory.partition("t", 0, topic_id=OTHER_ID)

    asyncio.run(scenario())


def test_a_topic_id_that_a_directory_is_given_later_is_durable_at_once() -> None:
    async def scenario() -> None:
        for seed in range(8):
            disk = MemoryDisk()
            directory = await open_directory(disk)
            await (await directory.partition("t", 0)).append_as_leader(batch(1), 0)
            await directory.close()
            directory = await open_directory(disk)
            await directory.partition("t", 0, topic_id=ID)
            disk.crash_power(SeededRandom(seed))
            assert (await (await open_directory(disk)).partition("t", 0)).topic_id == ID

    asyncio.run(scenario())


@pytest.mark.parametrize("harm", ["missing", "corrupt"])
def test_a_lost_topic_id_is_taken_from_who_asks_with_a_line(
    harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        await (await directory.partition("t", 0, topic_id=ID)).append_as_leader(batch(1), 0)
        await directory.close()
        if harm == "missing":
            await disk.remove("t-0/partition.metadata")
        else:
            await put(disk, "t-0/partition.metadata", b"version: 0\ntopic")
        directory = await open_directory(disk)
        log = await directory.partition("t", 0, topic_id=OTHER_ID)
        assert (log.topic_id, log.end_offset) == (OTHER_ID, 1)
        await directory.close()
        directory = await open_directory(disk)
        assert (await directory.partition("t", 0)).topic_id == OTHER_ID

    with caplog.at_level(logging.WARNING, "barnabas.log"):
        asyncio.run(scenario())
    (message,) = said(caplog)
    assert message.startswith(f"memory:/t-0/partition.metadata is {harm}")
    assert message.endswith(f"taking the directory for that of topic id {OTHER_ID}")


# --- deleted partitions


def test_a_deleted_partition_is_renamed_at_once_and_removed_after_the_delay() -> None:
    async def scenario() -> None:
        clock = ManualClock(START_MS)
        disk = MemoryDisk(clock=clock)
        directory = await open_directory(disk, LogConfig(file_delete_delay_ms=1000), clock)
        log = await directory.partition("t", 0)
        await log.append_as_leader(batch(3), 0)
        log.advance_high_watermark(3)
        await trimming.delete_records(log, 2)
        await directory.checkpoint()
        await directory.delete_partition("t", 0)
        assert directory.partitions == []
        assert directory.opened("t", 0) is None
        (renamed,) = [name for name in await disk.listdir("") if name.startswith("t-0")]
        assert renamed.endswith("-delete")
        for name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS):
            assert await contents(disk, name) == b"0\n0\n"
        clock.advance(0.999)
        await housekeeping.apply_retention(directory)
        assert renamed in await disk.listdir("")
        clock.advance(0.001)
        await housekeeping.apply_retention(directory)
        assert renamed not in await disk.listdir("")

    asyncio.run(scenario())


def test_a_partition_that_is_deleted_before_retention_opens_it_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        await (await directory.partition("t", 0)).append_as_leader(batch(1), 0)
        await directory.close()
        directory = await open_directory(disk)

        async def deleted_meanwhile(*_: object) -> bool:
            await directory.delete_partition("t", 0)
            return True

        monkeypatch.setattr(untouched, "may_be_due", deleted_meanwhile)
        await housekeeping.apply_retention(directory)
        assert directory.partitions == []
        assert await disk.listdir("t-0") == []

    asyncio.run(scenario())


def test_a_partition_that_is_deleted_under_retention_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        directory = await open_directory(MemoryDisk())
        deleted, kept = await directory.partition("t", 0), await directory.partition("u", 0)
        seen = []

        async def meanwhile(log: PartitionLog) -> int:
            seen.append(log)
            if log is deleted:
                await directory.delete_partition("t", 0)
                await log.append_as_leader(batch(1), 0)
            return 0

        monkeypatch.setattr(trimming, "apply_retention", meanwhile)
        await housekeeping.apply_retention(directory)
        assert seen == [deleted, kept]

    asyncio.run(scenario())
    assert said(caplog) == []


def test_a_partition_made_anew_begins_anew_whatever_crashes() -> None:
    async def scenario() -> None:
        for seed in range(8):
            disk = MemoryDisk()
            directory = await open_directory(disk)
            log = await directory.partition("t", 0, topic_id=ID)
            await log.append_as_leader(from_producer(0, 5), 9)
            log.advance_high_watermark(5)
            await trimming.delete_records(log, 3)
            await log.flush()
            await directory.checkpoint()
            await directory.delete_partition("t", 0)
            log = await directory.partition("t", 0, topic_id=OTHER_ID)
            await log.append_as_leader(batch([b"new"]), 1)
            await log.flush()
            disk.crash_power(SeededRandom(seed))
            directory = await open_directory(disk)
            assert directory.partitions == [("t", 0)]
            log = await directory.partition("t", 0, topic_id=OTHER_ID)
            assert (log.start_offset, log.end_offset, log.high_watermark) == (0, 1, 0)
            assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0)]
            assert len(log.producers) == 0
            assert values(await read_all(log)) == [b"new"]

    asyncio.run(scenario())


def test_a_deletion_that_a_crash_interrupted_is_finished_later() -> None:
    async def scenario() -> None:
        clock = ManualClock(START_MS)
        disk = MemoryDisk(clock=clock)
        directory = await open_directory(disk, clock=clock)
        await (await directory.partition("t", 0)).append_as_leader(batch(3), 0)
        await directory.delete_partition("t", 0)
        disk.crash_process()
        directory = await open_directory(disk, clock=clock)
        assert directory.partitions == []
        await housekeeping.apply_retention(directory)
        assert not [name for name in await disk.listdir("") if name.startswith("t-0")]

    asyncio.run(scenario())


def test_a_partition_that_was_never_touched_can_be_deleted() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        await (await directory.partition("t", 0)).append_as_leader(batch(3), 0)
        await directory.close()
        directory = await open_directory(disk)
        await directory.delete_partition("t", 0)
        assert directory.partitions == []
        assert (await directory.partition("t", 0)).end_offset == 0

    asyncio.run(scenario())


def test_who_still_holds_a_deleted_log_is_told_so() -> None:
    """And neither writes to, nor reads from, the partition that has its name by now."""

    async def scenario() -> None:
        directory = await open_directory(MemoryDisk())
        old = await directory.partition("t", 0)
        await old.append_as_leader(batch([b"old"]), 0)
        old.advance_high_watermark(1)
        await directory.delete_partition("t", 0)
        new = await directory.partition("t", 0)
        await new.append_as_leader(batch([b"new"]), 0)
        with pytest.raises(PartitionDeleted, match="t-0 was deleted") as caught:
            await old.append_as_leader(batch([b"late"]), 0)
        assert caught.value.wire.name == "UNKNOWN_TOPIC_OR_PARTITION"
        with pytest.raises(PartitionDeleted):
            await reading.read(old, 0, 100)
        assert values(await read_all(new)) == [b"new"]

    asyncio.run(scenario())


def test_a_reader_that_holds_the_file_of_a_deleted_partition_reads_on() -> None:
    async def scenario() -> None:
        directory = await open_directory(MemoryDisk(), LogConfig(file_delete_delay_ms=0))
        log = await directory.partition("t", 0)
        await log.append_as_leader(batch([b"old"]), 0)
        log.advance_high_watermark(1)
        fetched = await reading.read(log, 0, 100)
        assert fetched.range is not None
        file, position, size = fetched.range
        file.pin()
        await directory.delete_partition("t", 0)
        await housekeeping.apply_retention(directory)
        assert b"old" in await file.read(position, size)
        file.unpin()

    asyncio.run(scenario())


def test_a_deletion_in_the_middle_of_a_look_up_is_told_to_the_reader() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        await log.append_as_leader(batch(1), 0)
        gate = disk.gate("read", "t-0/*.log")
        looking = asyncio.create_task(reading.offset_for_timestamp(log, 0))
        await gate.reached.wait()
        await directory.delete_partition("t", 0)
        gate.open()
        with pytest.raises(PartitionDeleted):
            await looking

    asyncio.run(scenario())


def test_who_opens_a_partition_that_is_being_deleted_waits_and_gets_a_new_one() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        await (await directory.partition("t", 0, topic_id=ID)).append_as_leader(batch(3), 0)
        gate = disk.gate("sync", f"{RECOVERY_POINTS}*")
        deleting = asyncio.create_task(directory.delete_partition("t", 0))
        await gate.reached.wait()
        opening = asyncio.create_task(directory.partition("t", 0, topic_id=OTHER_ID))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not opening.done()
        gate.open()
        await deleting
        assert (await opening).end_offset == 0

    asyncio.run(scenario())


# --- many partitions, few descriptors


def test_many_partitions_share_few_descriptors(tmp_path: Path) -> None:
    """Ten thousand cost no more than these: a log's files are handles, and descriptors are lent to them."""

    async def scenario() -> None:
        limit, partitions = 32, 300
        workers, clock = InlineWorkers(), SystemClock()

        def descriptors() -> int:
            return len(list(Path("/dev/fd").iterdir()))

        for life in range(2):
            disk = OsDisk(tmp_path, workers, clock, max_open_files=limit)
            directory = await open_directory(disk)
            before = descriptors()
            for number in range(partitions):
                log = await directory.partition("t", number)
                assert log.end_offset == 2 * life
                await log.append_as_leader(from_producer(life, 1, producer_id=number), 0)
                await log.append_as_leader(batch([b"%d" % number]), 0)
            assert descriptors() - before <= limit
            for number in range(0, partitions, 7):
                log = directory.opened("t", number)
                assert log is not None
                assert values(await read_all(log))[-1] == b"%d" % number
                assert (await log.append_as_leader(from_producer(life, producer_id=number), 0)).is_duplicate
            assert descriptors() - before <= limit
            disk.close()  # as if it died: a clean stop would sync them all

    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 64
    asyncio.run(scenario())


def test_marks_go_down_with_a_log_that_ends_before_them() -> None:
    """What is appended in the place of what a power failure took is neither synced nor replicated."""

    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        log = await directory.partition("t", 0)
        await log.append_as_leader(batch(1), 0)
        await log.flush()
        await log.append_as_leader(batch(9), 0)
        log.advance_high_watermark(10)
        await directory.checkpoint()
        disk.crash_process()
        file = await disk.open(path_of(0, ".log"))
        await file.truncate(len(batch(1)))
        await write_offset_checkpoint(disk, RECOVERY_POINTS, {("t", 0): 10})
        disk.crash_process()
        log = await (await open_directory(disk)).partition("t", 0)
        assert (log.end_offset, log.recovery_point, log.high_watermark) == (1, 1, 1)
        await log.append_as_leader(batch(9), 1)
        disk.crash_process()
        log = await (await open_directory(disk)).partition("t", 0)
        assert (log.end_offset, log.recovery_point, log.high_watermark) == (10, 1, 1)

    asyncio.run(scenario())


def test_an_open_log_is_given_to_nobody_who_asks_for_another_topic_id() -> None:
    async def scenario() -> None:
        directory = await open_directory(MemoryDisk())
        log = await directory.partition("t", 0, topic_id=ID)
        assert await directory.partition("t", 0) is await directory.partition("t", 0, topic_id=ID) is log
        with pytest.raises(InconsistentTopicId, match="deleted and made anew"):
            await directory.partition("t", 0, topic_id=OTHER_ID)

    asyncio.run(scenario())


# --- retention of what nobody has touched


@pytest.mark.parametrize(
    ("settings", "age_ms", "goes"),
    [
        ({"retention_ms": 1000}, 900, False),
        ({"retention_ms": 1000}, 1100, True),
        ({"retention_ms": -1}, 10**12, False),
        ({"retention_ms": 1000, "cleanup_policy": frozenset({"compact"})}, 10**6, False),
        ({"retention_ms": -1, "retention_bytes": 100}, 0, True),
        ({"retention_ms": 1000, "retention_bytes": 100}, 0, True),
        ({"retention_ms": -1, "retention_bytes": 1000}, 10**6, False),
    ],
)
def test_what_nobody_touches_is_let_go_all_the_same(
    settings: dict[str, Any], age_ms: int, goes: bool
) -> None:
    async def scenario() -> None:
        clock = ManualClock(START_MS)
        disk = MemoryDisk(clock=clock)
        config = LogConfig(segment_bytes=100, file_delete_delay_ms=0, **settings)
        directory = await open_directory(disk, config, clock)
        log = await directory.partition("t", 0)
        for _ in range(3):
            await log.append_as_leader(batch(1), 0)
        log.advance_high_watermark(3)
        await directory.close()
        clock.advance(age_ms / 1000)
        directory = await open_directory(disk, config, clock)
        await housekeeping.apply_retention(directory)
        assert (directory.opened("t", 0) is not None) is goes
        assert ((await directory.partition("t", 0)).start_offset > 0) is goes
        await directory.close()

    asyncio.run(scenario())
