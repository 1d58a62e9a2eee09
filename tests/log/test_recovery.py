"""Opening a partition: little is read after a clean stop; after a crash, or where something is missing or
corrupt, it is rebuilt, with a line saying what and why; what was promised and is gone is not passed over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

import pytest

from barnabas.core.clock import ManualClock
from barnabas.core.errors import OutOfOrderSequence
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log import reading, recovery, trimming
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import PartitionLog
from barnabas.log.segment import CorruptSegment
from barnabas.records.batch import LAST_OFFSET_DELTA_AT
from tests.support.batches import patched
from tests.support.log_fixtures import (
    WatchedDisk,
    append_all,
    contents,
    damage,
    end_transaction,
    from_producer,
    path_of,
    put,
    said,
    sized_batch,
    snapshot_of,
)
from tests.support.logs import START_MS, batch, open_directory, read_all, read_committed, values

CLEAN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
EPOCHS = "t-0/leader-epoch-checkpoint"


class Setup:
    """A directory with one partition, on a watched disk in memory."""

    def __init__(self, config: LogConfig | None = None) -> None:
        self.config = config
        self.clock = ManualClock(START_MS)
        self.memory = MemoryDisk(clock=self.clock)
        self.disk = WatchedDisk(self.memory)
        self.directory: LogDirectory

    async def open(self) -> PartitionLog:
        self.directory = await open_directory(self.disk, self.config, self.clock)
        return await self.directory.partition("t", 0)

    async def reopen(self) -> PartitionLog:
        await self.directory.close()
        return await self.open()

    async def crash(self) -> PartitionLog:
        self.memory.crash_process()
        return await self.open()


async def a_bit_of_everything(log: PartitionLog) -> None:
    """Three segments, two epochs, an idempotent producer, a transaction committed and one aborted."""
    await append_all(log, [batch(2), from_producer(0, 2, producer_id=1)], 1)
    await log.append_as_leader(from_producer(0, producer_id=2, transactional=True), 1)
    await log.append_as_leader(from_producer(0, producer_id=3, transactional=True), 1)
    await end_transaction(log, commit=False, producer_id=2, leader_epoch=1)
    await log.roll()
    await end_transaction(log, commit=True, producer_id=3, leader_epoch=1)
    await append_all(log, [batch([b"x" * 3000]), batch([b"y" * 3000]), from_producer(2, producer_id=1)], 4)
    await log.roll()
    await log.append_as_leader(from_producer(1, producer_id=2, transactional=True), 4)
    await end_transaction(log, commit=False, producer_id=2, leader_epoch=4)
    log.advance_high_watermark(log.end_offset)


async def facts(log: PartitionLog) -> dict[str, object]:
    """What a log says of itself, and what readers get."""
    log.advance_high_watermark(log.end_offset)
    return {
        "offsets": (log.start_offset, log.end_offset, log.last_stable_offset),
        "bases": log.bases,
        "epochs": [tuple(entry) for entry in log.epochs.entries],
        "producers": sorted(log.producers.entries()),
        "aborted": [await segment.aborted.all() for segment in log.segments],
        "records": await read_all(log, control=True, max_bytes=2000),
        "committed": await read_committed(log, max_bytes=2000),
        "times": [await reading.offset_for_timestamp(log, START_MS + delta) for delta in range(3)],
    }


# --- after a clean stop


def test_everything_is_as_before_after_a_stop_and_after_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await a_bit_of_everything(log)
        before = await facts(log)
        assert await facts(await setup.reopen()) == before
        assert await facts(await setup.crash()) == before
        assert await facts(await setup.crash()) == before

    with caplog.at_level(logging.WARNING, "barnabas.log"):
        asyncio.run(scenario())
    assert said(caplog) == []


def test_a_clean_start_reads_little() -> None:
    """Of 12 MB: an index entry, the batches behind it and, for the sake of producers, the last 4 MiB."""

    async def scenario() -> None:
        for with_producer, limit in [(False, 20_000), (True, recovery.REFILL_BYTES + 20_000)]:
            setup = Setup(LogConfig(segment_bytes=3_000_000))
            log = await setup.open()
            for number in range(1200):
                await log.append_as_leader(sized_batch(10_000), 0)
                if with_producer:
                    await log.append_as_leader(from_producer(number), 0)
            await setup.directory.close()
            setup.disk.bytes_read.clear()
            log = await setup.open()
            assert log.end_offset == 1200 * (1 + with_producer)
            assert sum(setup.disk.bytes_read.values()) <= limit
            # the other segments were not even opened
            assert len(log.bases) >= 4
            opened = {path[4:24] for path in setup.disk.bytes_read if path.endswith(("index", ".log"))}
            assert opened <= {f"{base:020d}" for base in log.bases[-1 - 2 * with_producer :]}

    asyncio.run(scenario())


def test_a_clean_start_writes_nothing_but_that_it_has_begun() -> None:
    async def scenario() -> None:
        setup = Setup()
        await a_bit_of_everything(await setup.open())
        await setup.directory.close()
        before = await snapshot_of(setup.memory, "t-0")
        writes = list[str]()
        setup.memory.before = lambda operation, path: writes.append(f"{operation} {path}")
        await setup.open()
        assert writes == [f"remove {CLEAN}", "sync_dir "]
        await setup.directory.close()
        assert await snapshot_of(setup.memory, "t-0") == before

    asyncio.run(scenario())


# --- after a crash


def test_only_segments_past_the_recovery_point_are_read() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(segment_bytes=100_000))
        log = await setup.open()
        await append_all(log, [from_producer(0), *(sized_batch(10_000) for _ in range(25))])
        await log.flush()
        await setup.directory.checkpoint()
        await append_all(log, [sized_batch(10_000) for _ in range(35)])
        assert len(log.segments) == 7
        unsynced = [base for base in log.bases if base >= log.bases[log.floor_segment(log.recovery_point)]]
        setup.memory.crash_process()
        setup.disk.bytes_read.clear()
        # what refills the producers' windows would hide what else is read
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recovery, "REFILL_BYTES", 0)
            log = await setup.open()
        assert log.end_offset == 61
        read = {path for path in setup.disk.bytes_read if path.endswith(".log")}
        assert read - {path_of(log.bases[-1], ".log")} <= {path_of(base, ".log") for base in unsynced}
        assert len(log.producers) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("left", [1, 12, 60, 61, 200])
def test_a_torn_tail_is_cut(left: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await append_all(log, [batch([b"whole"]), from_producer(0, 5)], 3)
        size = log.size_bytes
        await log.append_as_leader(from_producer(5, 20), 4)
        file = await setup.memory.open(path_of(0, ".log"))
        await file.truncate(size + left)
        log = await setup.crash()
        assert (log.end_offset, log.size_bytes) == (6, size)
        assert await setup.memory.size_of(path_of(0, ".log")) == size
        assert [tuple(entry) for entry in log.epochs.entries] == [(3, 0)]
        # the producer's next batch is the one that was torn
        assert (await log.append_as_leader(from_producer(5, 20), 5)).first_offset == 6
        assert len(await read_all(log)) == 26

    asyncio.run(scenario())
    (message,) = said(caplog)
    assert "cutting memory:/t-0/00000000000000000000.log from" in message
    assert f"at offset 6: the file ends {left} bytes into a batch" in message


def test_a_tail_with_a_wrong_checksum_is_cut_and_so_are_the_segments_behind_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await append_all(log, [batch([b"kept"]), batch([b"bad"])])
        await log.roll()
        await log.append_as_leader(batch([b"behind"]), 0)
        await damage(setup.memory, path_of(0, ".log"), -1)
        log = await setup.crash()
        assert (log.end_offset, log.bases) == (1, [0])
        assert values(await read_all(log)) == [b"kept"]
        assert not [name for name in await setup.memory.listdir("t-0") if name.startswith(f"{2:020d}")]
        await log.append_as_leader(batch([b"next"]), 0)
        assert values(await read_all(await setup.reopen())) == [b"kept", b"next"]

    asyncio.run(scenario())
    assert "at offset 1: " in said(caplog)[0]
    assert "the checksum does not match" in said(caplog)[0]
    assert "removing memory:/t-0/00000000000000000002.log: it was not synced" in said(caplog)[1]


def test_batches_that_an_older_write_left_behind_are_cut() -> None:
    """Sound in themselves, but their offsets go back: a lost truncation brings such bytes back."""

    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await append_all(log, [batch(2), batch(2)])
        file = await setup.memory.open(path_of(0, ".log"))
        await file.append(await file.read(0, file.size))
        log = await setup.crash()
        assert log.end_offset == 4
        assert [record.offset for record in await read_all(log)] == [0, 1, 2, 3]

    asyncio.run(scenario())


def test_a_tail_of_zeros_is_cut() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await append_all(log, [batch(2)])
        size = log.size_bytes
        await (await setup.memory.open(path_of(0, ".log"))).truncate(size + 5000)
        log = await setup.crash()
        assert (log.end_offset, log.size_bytes) == (2, size)

    asyncio.run(scenario())


def test_indexes_are_rebuilt_as_they_would_have_been() -> None:
    async def scenario() -> None:
        for interval in (0, 500, 4096):
            setup = Setup(LogConfig(index_interval_bytes=interval, segment_bytes=30_000))
            log = await setup.open()
            await append_all(log, [sized_batch(700, timestamp=START_MS + n * 7 % 50) for n in range(200)])
            await setup.directory.close()
            before = await snapshot_of(setup.memory, "t-0")
            await setup.memory.remove(CLEAN)
            await put(setup.memory, RECOVERY_POINTS, b"0\n1\nt 0 0\n")
            for base in log.bases:
                await damage(setup.memory, path_of(base, ".index"), 0, b"\x01" * 16)
            await setup.open()
            await setup.directory.close()
            assert await snapshot_of(setup.memory, "t-0") == before

    asyncio.run(scenario())


def test_recovery_that_crashes_is_done_again() -> None:
    """At whatever operation: recovery only ever goes on from what is there."""

    async def scenario() -> None:
        setup = Setup(LogConfig(index_interval_bytes=0))
        log = await setup.open()
        await a_bit_of_everything(log)
        before = await facts(log)
        setup.memory.crash_process()
        count = setup.memory.operations
        log = await setup.open()
        count = setup.memory.operations - count
        assert count > 10
        for stop in range(0, count, 3):
            await put(setup.memory, RECOVERY_POINTS, b"0\n1\nt 0 0\n")
            setup.memory.crash_process()
            left = stop

            class Died(BaseException):
                pass

            def die(operation: str, path: str) -> None:
                nonlocal left
                if left == 0:
                    raise Died
                left -= 1

            setup.memory.before = die
            with pytest.raises(Died):
                await setup.open()
            setup.memory.before = None
            assert await facts(await setup.crash()) == before

    asyncio.run(scenario())


# --- what was promised


async def synced_log(setup: Setup) -> PartitionLog:
    """Two segments, 0-2 and 3-7, synced up to 6."""
    log = await setup.open()
    await append_all(log, [batch([b"%d" % number]) for number in range(3)])
    await log.roll()
    await append_all(log, [batch([b"%d" % number]) for number in range(3, 6)])
    await log.flush()
    await setup.directory.checkpoint()
    await append_all(log, [batch([b"%d" % number]) for number in range(6, 8)])
    return log


def test_corruption_before_the_recovery_point_is_reported_and_nothing_is_cut() -> None:
    async def scenario() -> None:
        setup = Setup()
        await synced_log(setup)
        size = len(batch([b"0"]))
        await damage(setup.memory, path_of(3, ".log"), 2 * size - 1)  # the value of offset 4
        logs = [await contents(setup.memory, path_of(base, ".log")) for base in (0, 3)]
        for _ in range(2):
            with pytest.raises(CorruptSegment) as caught:
                await setup.crash()
            message = str(caught.value)
            assert f"memory:/t-0/00000000000000000003.log is corrupt at byte {size}, offset 4: " in message
            assert "Everything below offset 6 had been synced" in message
            assert f"truncate it to {size} bytes" in message
            assert [await contents(setup.memory, path_of(base, ".log")) for base in (0, 3)] == logs
        # what the message says to do, in case nothing else is left
        await (await setup.memory.open(path_of(3, ".log"))).truncate(size)
        await put(setup.memory, RECOVERY_POINTS, b"0\n0\n")
        assert values(await read_all(await setup.crash())) == [b"0", b"1", b"2", b"3"]

    asyncio.run(scenario())


def test_a_synced_segment_that_is_missing_is_reported_and_nothing_is_cut() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await synced_log(setup)
        await log.roll()
        await log.append_as_leader(batch([b"8"]), 0)
        await setup.memory.remove(path_of(3, ".log"))
        before = await contents(setup.memory, path_of(8, ".log"))
        with pytest.raises(CorruptSegment, match=r"00008.log begins with offset 8, where 3 should follow"):
            await setup.crash()
        assert await contents(setup.memory, path_of(8, ".log")) == before

    asyncio.run(scenario())


def test_a_segment_that_ends_too_early_before_the_recovery_point_is_reported() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await synced_log(setup)
        await log.roll()
        await log.append_as_leader(batch([b"8"]), 0)
        await (await setup.memory.open(path_of(3, ".log"))).truncate(2 * len(batch([b"0"])))
        with pytest.raises(CorruptSegment, match=r"begins with offset 8, where 5 should follow"):
            await setup.crash()

    asyncio.run(scenario())


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_that_ends_too_early_says_so(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A file that ends between batches looks sound; only the recovery point knows better."""

    async def scenario() -> None:
        setup = Setup()
        await synced_log(setup)
        if clean:
            await setup.directory.close()
        await (await setup.memory.open(path_of(3, ".log"))).truncate(len(batch([b"0"])))
        log = await setup.crash()
        assert log.end_offset == 4

    with caplog.at_level(logging.ERROR, "barnabas.log"):
        asyncio.run(scenario())
    synced = 8 if clean else 6
    assert said(caplog) == [
        f"t-0 ends at offset 4, but everything below {synced} had been synced: data was lost on the way"
    ]


def _with_a_hole(batch_before: bytes, *, policy: str, cleaned_offset: int = 0) -> int:
    """Where a log ends after a crash that found the segment of offsets 3 and 4 gone."""

    async def scenario() -> int:
        setup = Setup(LogConfig(cleanup_policy=frozenset({policy})))
        log = await setup.open()
        await log.append_as_follower(batch_before)
        await log.roll()
        await log.append_as_leader(batch(2), 0)
        await log.roll()
        await log.append_as_leader(batch(3), 0)
        if cleaned_offset:
            log.cleaned_offset = cleaned_offset
            await setup.directory.offsets.write_cleaned()
        await setup.memory.remove(path_of(3, ".log"))
        return (await setup.crash()).end_offset

    return asyncio.run(scenario())


def test_a_gap_between_unsynced_segments_is_a_hole_and_ends_the_log_whatever_the_policy() -> None:
    """Compaction keeps to what is durable, and noted to be: a gap behind that comes from a power loss."""
    assert _with_a_hole(bytes(batch(3)), policy="compact") == 3
    assert _with_a_hole(bytes(batch(3)), policy="delete") == 3


def test_a_gap_between_segments_that_apache_kafka_compacted_ahead_of_its_checkpoints_stays() -> None:
    assert _with_a_hole(bytes(batch(3)), policy="compact", cleaned_offset=5) == 8
    # its last offset says that three were written, but records are missing from it
    thinned = bytes(patched(batch(2), LAST_OFFSET_DELTA_AT, "i", 2))
    assert _with_a_hole(thinned, policy="compact") == 8
    assert _with_a_hole(thinned, policy="delete") == 3
    a_batch_is_gone = bytes(batch(1)) + bytes(batch(1, base_offset=2))
    assert _with_a_hole(a_batch_is_gone, policy="compact") == 8


def test_after_a_power_failure_what_was_flushed_is_there_and_the_rest_is_a_prefix() -> None:
    async def scenario() -> None:
        for seed in range(30):
            setup = Setup(LogConfig(index_interval_bytes=100))
            log = await setup.open()
            await append_all(log, [batch([b"%d" % number]) for number in range(8)])
            await log.roll()
            await append_all(log, [batch([b"%d" % number]) for number in range(8, 12)])
            await log.flush()
            await setup.directory.checkpoint()
            await append_all(log, [batch([b"%d" % number]) for number in range(12, 20)])
            await log.roll()
            await append_all(log, [batch([b"%d" % number]) for number in range(20, 24)])
            setup.memory.crash_power(SeededRandom(seed))
            log = await setup.open()
            assert log.end_offset >= 12
            assert values(await read_all(log)) == [b"%d" % number for number in range(log.end_offset)]

    asyncio.run(scenario())


# --- missing or corrupt files, besides the batches

Harm = Callable[[MemoryDisk, str], Coroutine[None, None, None]]


async def _remove(disk: MemoryDisk, path: str) -> None:
    await disk.remove(path)


async def _garble(disk: MemoryDisk, path: str) -> None:
    await put(disk, path, b"no such thing\n")


async def _flip(disk: MemoryDisk, path: str) -> None:
    (byte,) = (await contents(disk, path))[-3:-2]
    await damage(disk, path, -3, bytes((byte ^ 0x10,)))


async def _shorten(disk: MemoryDisk, path: str) -> None:
    file = await disk.open(path)
    await file.truncate(file.size - 1)


# the file, what happens to it, the line to expect, and the stops after which it is there: what recovery
# makes anew in any case is not looked at first, and what nobody needs is not either
HARM: list[tuple[str, Harm, str, str]] = [
    (path_of(7, ".index"), _remove, "00007.index is missing; rebuilding the indexes", "clean, crash"),
    (path_of(7, ".index"), _shorten, "00007.index is corrupt: 7 bytes are not a multiple", "clean, crash"),
    (path_of(7, ".index"), _flip, "00007.index is corrupt: no batch at byte", "clean, crash"),
    (path_of(7, ".timeindex"), _remove, "00007.timeindex is missing; rebuilding the indexes", "clean, crash"),
    (path_of(11, ".index"), _remove, "00011.index is missing; rebuilding the indexes", "clean"),
    (path_of(11, ".timeindex"), _shorten, "00011.timeindex is corrupt: 11 bytes are not a multiple", "clean"),
    (path_of(0, ".txnindex"), _shorten, "00000.txnindex is corrupt: 33 bytes are no whole", "clean, crash"),
    (path_of(0, ".txnindex"), _garble, "00000.txnindex is corrupt: 14 bytes are no whole", "clean, crash"),
    (path_of(11, ".txnindex"), _shorten, "00011.txnindex is corrupt: 33 bytes are no whole", "clean"),
    (path_of(13, ".snapshot"), _flip, "00013.snapshot is corrupt: its CRC", "clean"),
    (path_of(13, ".snapshot"), _shorten, "00013.snapshot is corrupt: its CRC", "clean"),
    (path_of(13, ".snapshot"), _remove, "", ""),
    (path_of(11, ".snapshot"), _flip, "00011.snapshot is corrupt: its CRC", "crash"),
    (EPOCHS, _remove, "leader-epoch-checkpoint is missing; rebuilding the leader epochs", "clean, crash"),
    (EPOCHS, _garble, "leader-epoch-checkpoint is corrupt in line 1", "clean, crash"),
    (RECOVERY_POINTS, _garble, "recovery-point-offset-checkpoint is corrupt in line 1", "clean, crash"),
    (START_OFFSETS, _garble, "log-start-offset-checkpoint is corrupt in line 1", "clean, crash"),
    (HIGH_WATERMARKS, _garble, "replication-offset-checkpoint is corrupt in line 1", "clean, crash"),
    (CLEAN, _garble, "", ""),
]


@pytest.mark.parametrize("stop", ["clean", "crash"])
@pytest.mark.parametrize(
    ("path", "harm", "line", "stops"),
    HARM,
    ids=[f"{path.split('/')[-1]}{harm.__name__}" for path, harm, _, _ in HARM],
)
def test_what_can_be_rebuilt_is_with_a_line_saying_what_and_why(
    path: str, harm: Harm, line: str, stops: str, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the last stop was a clean one, or everything was synced when the power failed."""

    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await a_bit_of_everything(log)
        assert (log.bases, log.end_offset) == ([0, 7, 11], 13)
        before = await facts(log)
        await setup.directory.close()
        await harm(setup.memory, path)
        if stop == "crash":
            await setup.memory.remove(CLEAN)
        caplog.clear()
        assert await facts(await setup.open()) == before
        messages = [message for message in said(caplog) if path in message]
        assert [line in message for message in messages[:1]] == ([True] if stop in stops else [])
        # and it is sound again: nothing more is said at the next start
        await setup.directory.close()
        caplog.clear()
        assert await facts(await setup.open()) == before
        assert setup.directory.was_clean
        assert said(caplog) == []

    with caplog.at_level(logging.WARNING, "barnabas.log"):
        asyncio.run(scenario())


def test_a_lost_recovery_point_costs_a_scan_and_no_data(caplog: pytest.LogCaptureFixture) -> None:
    """Nor is it passed over in silence."""

    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await a_bit_of_everything(log)
        before = await facts(log)
        await setup.directory.close()
        await setup.memory.remove(RECOVERY_POINTS)
        setup.disk.bytes_read.clear()
        log = await setup.open()
        assert not setup.directory.was_clean
        for segment in log.segments:
            assert setup.disk.bytes_read[segment.path(".log")] >= segment.size_bytes
        assert await facts(log) == before

    asyncio.run(scenario())
    assert said(caplog) == [f"without memory:/{RECOVERY_POINTS} every partition is read from its start"]


def test_without_its_checkpoint_the_log_starts_with_its_first_segment() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await append_all(log, [batch(3), batch(3)])
        log.advance_high_watermark(6)
        await trimming.delete_records(log, 3)
        await setup.directory.close()
        await put(setup.memory, START_OFFSETS, b"garbage")
        log = await setup.open()
        assert (log.start_offset, log.end_offset) == (0, 6)

    asyncio.run(scenario())


def test_a_snapshot_from_beyond_the_end_is_not_believed() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await append_all(log, [from_producer(0), from_producer(1)])
        await setup.directory.close()
        snapshot = await contents(setup.memory, path_of(2, ".snapshot"))
        await put(setup.memory, path_of(9, ".snapshot"), snapshot)
        await (await setup.memory.open(path_of(0, ".log"))).truncate(len(from_producer(0)))
        log = await setup.crash()
        assert log.end_offset == 1
        assert (await log.append_as_leader(from_producer(1), 0)).first_offset == 1
        assert [name for name in await setup.memory.listdir("t-0") if name.endswith(".snapshot")] == []

    asyncio.run(scenario())


def test_stray_snapshots_go_but_for_the_newest() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await append_all(log, [from_producer(number) for number in range(5)])
        await setup.directory.close()
        newest = await contents(setup.memory, path_of(5, ".snapshot"))
        for stray in (1, 3):
            await put(setup.memory, path_of(stray, ".snapshot"), newest)
        log = await setup.open()
        assert [name for name in await setup.memory.listdir("t-0") if name.endswith(".snapshot")] == [
            "00000000000000000005.snapshot"
        ]
        assert (await log.append_as_leader(from_producer(4), 0)).is_duplicate

    asyncio.run(scenario())


def test_the_window_is_refilled_from_the_last_4_mib_only() -> None:
    async def scenario() -> None:
        setup = Setup(LogConfig(segment_bytes=2_000_000))
        log = await setup.open()
        await log.append_as_leader(from_producer(0), 0)
        await append_all(log, [sized_batch(500_000) for _ in range(9)])
        await append_all(log, [from_producer(1), from_producer(2)])
        log = await setup.reopen()
        assert (await log.append_as_leader(from_producer(1), 0)).is_duplicate
        assert (await log.append_as_leader(from_producer(2), 0)).is_duplicate
        with pytest.raises(OutOfOrderSequence):
            await log.append_as_leader(from_producer(0), 0)

    asyncio.run(scenario())


def test_a_log_that_ends_before_its_start_goes_on_from_there(caplog: pytest.LogCaptureFixture) -> None:
    """DeleteRecords promised more than the power failure left."""

    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await append_all(log, [from_producer(number, 2) for number in (0, 2, 4)])
        log.advance_high_watermark(6)
        await trimming.delete_records(log, 5)
        await (await setup.memory.open(path_of(0, ".log"))).truncate(len(from_producer(0, 2)))
        log = await setup.crash()
        assert (log.start_offset, log.end_offset, log.bases) == (5, 5, [5])
        assert (await log.append_as_leader(batch(1), 0)).first_offset == 5
        assert [record.offset for record in await read_all(await setup.reopen())] == [5]

    asyncio.run(scenario())
    assert any("t-0 ends before its start offset" in message for message in said(caplog))


def test_files_that_vanished_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await log.append_as_leader(batch(5), 0)
        await setup.directory.close()
        for name in await setup.memory.listdir("t-0"):
            await setup.memory.remove(f"t-0/{name}")
        log = await setup.open()
        assert log.end_offset == 0
        await log.append_as_leader(batch(1), 0)

    with caplog.at_level(logging.ERROR, "barnabas.log"):
        asyncio.run(scenario())
    assert said(caplog) == [
        "t-0 ends at offset 0, but everything below 5 had been synced: data was lost on the way"
    ]


def test_nothing_is_missed_that_had_been_deleted(caplog: pytest.LogCaptureFixture) -> None:
    """All is deleted, durably, and the empty segment that the log was to go on in is lost with the power."""

    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await log.append_as_leader(batch(5), 0)
        await log.flush()
        log.advance_high_watermark(5)
        await trimming.delete_records(log, 5)
        await setup.directory.checkpoint()
        for name in await setup.memory.listdir("t-0"):
            await setup.memory.remove(f"t-0/{name}")
        log = await setup.crash()
        assert (log.start_offset, log.end_offset) == (5, 5)

    with caplog.at_level(logging.ERROR, "barnabas.log"):
        asyncio.run(scenario())
    assert said(caplog) == []


def test_offsets_beyond_what_a_segment_can_hold_are_not_taken_for_its_own() -> None:
    async def scenario() -> None:
        setup = Setup()
        log = await setup.open()
        await append_all(log, [batch(1), batch(1)])
        file = await setup.memory.open(path_of(0, ".log"))
        far = patched(batch(1, base_offset=1 << 40), LAST_OFFSET_DELTA_AT, "i", 0)
        await file.append(far)
        log = await setup.crash()
        assert log.end_offset == 2

    asyncio.run(scenario())
