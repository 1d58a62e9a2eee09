"""Snapshots of the metadata log: when they are taken, what they make superfluous, and that no crash hurts."""

from __future__ import annotations

import asyncio
import errno
import gc
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

import pytest

from barnabas.broker.quorum.driver import MetadataLogFailed
from barnabas.broker.quorum.files import MetadataGap, find_quorum
from barnabas.broker.quorum.quorum import METADATA_LOG, MetadataQuorum
from barnabas.broker.quorum.raft_disk import RaftDisk
from barnabas.broker.quorum.snapshots import CHECK_SECONDS, SnapshotPolicy
from barnabas.broker.storage.formatting import METADATA_DIRECTORY, METADATA_TOPIC, DirectoryRefused
from barnabas.controller.decisions import Decision
from barnabas.core.clock import ManualClock
from barnabas.core.disk import DiskFull
from barnabas.core.errors import InvariantViolation
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log.checkpoints import read_whole, write_atomically
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.producers import Origin
from barnabas.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
    read_frame,
)
from barnabas.protocol.schema import Message
from barnabas.raft.batches import data_batches
from barnabas.raft.control_records import KRaftVersionRecord, VotersRecord, control_batch
from barnabas.raft.ready import SnapshotChunk
from barnabas.raft.snapshot import (
    BOOTSTRAP_CHECKPOINT,
    SnapshotId,
    build_snapshot,
    parse_snapshot_name,
    read_snapshot,
)
from tests.broker.test_formatting import CONTROLLER, DIRECTORY_ID, FEATURES, NOW_MS
from tests.broker.test_quorum import FIRST, create, new_disk, topic
from tests.support.images import contents, image_of
from tests.support.logs import START_MS, open_directory

MANUAL = SnapshotPolicy(max_bytes=1 << 40, interval_ms=0)
SMALL_SEGMENTS = replace(METADATA_LOG, segment_bytes=600, file_delete_delay_ms=0)


async def open_quorum(
    directory: LogDirectory, disk: MemoryDisk, policy: SnapshotPolicy, clock: ManualClock, config: LogConfig
) -> MetadataQuorum:
    return await MetadataQuorum.open(
        directory,
        disk,
        node_id=1,
        directory_id=DIRECTORY_ID,
        clock=clock,
        controllers=CONTROLLER,
        config=config,
        policy=policy,
    )


@asynccontextmanager
async def running(
    disk: MemoryDisk,
    policy: SnapshotPolicy = MANUAL,
    clock: ManualClock | None = None,
    config: LogConfig = SMALL_SEGMENTS,
) -> AsyncIterator[MetadataQuorum]:
    """From a start to a clean stop, with snapshots kept in the background."""
    clock = clock or ManualClock(START_MS)
    directory = await open_directory(disk, clock=clock)
    quorum = await open_quorum(directory, disk, policy, clock, config)
    await quorum.start()
    keeping = asyncio.ensure_future(quorum.snapshots.keep())
    yield quorum
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping
    await quorum.close()
    await directory.close()


async def snapshots(disk: MemoryDisk) -> list[SnapshotId]:
    names = map(parse_snapshot_name, await disk.listdir(METADATA_DIRECTORY))
    return sorted(each for each in names if each is not None)


async def settle() -> None:
    """Let the background do what it can do now."""
    for _ in range(100):
        await asyncio.sleep(0)


async def read(disk: MemoryDisk, snapshot: SnapshotId) -> tuple[list[Message], list[bytes]]:
    data = await read_whole(disk, f"{METADATA_DIRECTORY}/{snapshot.name}")
    found = read_snapshot(data or b"", snapshot.name)
    return found.controls, found.values


def test_one_is_taken_after_so_many_bytes_and_the_next_start_begins_with_it() -> None:
    async def run() -> None:
        async with running(disk, MANUAL._replace(max_bytes=2000)) as quorum:
            for number in range(60):
                await create(quorum, f"t{number}")
                await settle()
            taken = await snapshots(disk)
            assert 2 <= len(taken) <= 4
            last = taken[-1]
            assert last == quorum.snapshots.newest
            assert last.epoch == quorum.driver.epoch
            image, end = quorum.metadata.image, quorum.driver.end_offset
        controls, values = await read(disk, last)
        assert [type(each) for each in controls] == [KRaftVersionRecord, VotersRecord]
        seen = image_of(*map(decode_record, values))
        assert len(seen.topics_by_name) == last.end_offset - FIRST
        # that the snapshot is read shows when the log no longer has what it stands for
        async with running(disk, MANUAL._replace(retention_bytes=0)) as quorum:
            assert await quorum.snapshots.clean() == len(taken) - 1
            assert contents(quorum.metadata.image) == contents(image)
        assert await snapshots(disk) == [last]
        async with running(disk) as quorum:
            assert contents(quorum.metadata.image) == contents(image)
            assert quorum.driver.end_offset == end + 2  # each start is a new epoch

    disk = new_disk()
    asyncio.run(run())


def test_a_node_that_does_not_know_yet_what_is_committed_lets_go_of_none() -> None:
    async def run() -> None:
        async with running(disk) as quorum:
            for number in range(5):
                await create(quorum, f"t{number}")
                await quorum.snapshots.take()
            killed = disk.fork()  # as a kill would leave it
        taken = await snapshots(killed)
        assert len(taken) == 6  # with the one that formatting has written
        directory = await open_directory(killed)
        policy = MANUAL._replace(retention_bytes=0)
        quorum = await open_quorum(directory, killed, policy, ManualClock(START_MS), SMALL_SEGMENTS)
        assert await quorum.snapshots.clean() == 0
        await quorum.start()
        assert await quorum.snapshots.clean() == 5
        await quorum.close()
        await directory.close()
        assert await snapshots(killed) == taken[-1:]

    disk = new_disk()
    asyncio.run(run())


def test_one_is_taken_after_so_long_if_anything_came() -> None:
    async def run() -> None:
        clock = ManualClock(START_MS)
        policy = MANUAL._replace(interval_ms=3_600_000)
        async with running(disk, policy, clock) as quorum:
            await create(quorum, "letters")
            for minutes in (59, 2, 120, 120):
                for _ in range(minutes):
                    clock.advance(CHECK_SECONDS)
                    await settle()
                taken = await snapshots(disk)
                assert len(taken) == (1 if minutes == 59 else 2)
            assert taken[-1] == (quorum.driver.end_offset, quorum.driver.epoch)
            await create(quorum, "replies")
            for _ in range(2):
                clock.advance(CHECK_SECONDS)
                await settle()
            assert len(await snapshots(disk)) == 3

    disk = new_disk()
    asyncio.run(run())


def test_retention_takes_snapshots_and_the_log_they_leave_behind() -> None:
    async def run() -> None:
        clock = ManualClock(NOW_MS)
        async with running(disk, MANUAL._replace(retention_ms=3 * 3_600_000), clock) as quorum:
            log = quorum.snapshots._log
            for hour in range(5):
                for number in range(20):
                    await create(quorum, f"t{hour}-{number}")
                await quorum.snapshots.take()
                clock.advance(3_600_000 / 1000)
                await settle()
                kept = await snapshots(disk)
                assert log.start_offset == kept[0].end_offset
                # whole segments before it are gone
                assert len(log.bases) == 1 or log.bases[1] > log.start_offset
            assert len(kept) == 3
            assert log.start_offset > 0

    disk = new_disk()
    asyncio.run(run())


def test_the_newest_never_goes() -> None:
    async def run() -> None:
        clock = ManualClock(START_MS)
        policy = MANUAL._replace(retention_bytes=0, retention_ms=0)
        async with running(disk, policy, clock) as quorum:
            await create(quorum, "letters")
            last = await quorum.snapshots.take()
            for _ in range(3):
                clock.advance(CHECK_SECONDS)
                await settle()
                assert await snapshots(disk) == [last]
            assert await quorum.snapshots.take() is None

    disk = new_disk()
    asyncio.run(run())


def test_a_broken_one_is_set_aside_and_the_one_before_counts(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with running(disk) as quorum:
            for number in range(5):
                await create(quorum, f"t{number}")
                await quorum.snapshots.take()
            image = quorum.metadata.image
        for keep_bytes in (0, 100):
            newest = (await snapshots(disk))[-1]
            path = f"{METADATA_DIRECTORY}/{newest.name}"
            file = await disk.open(path)
            await file.truncate(keep_bytes)
            file.close()
            async with running(disk) as quorum:
                assert contents(quorum.metadata.image) == contents(image)
            assert newest not in await snapshots(disk)
            assert await disk.size_of(path + ".corrupt") == keep_bytes
        assert caplog.text.count("it is set aside") == 2
        # without a log that reaches back that far, nobody knows what was there
        async with running(disk, MANUAL._replace(retention_bytes=0)) as quorum:
            await quorum.snapshots.clean()
        (only,) = await snapshots(disk)
        file = await disk.open(f"{METADATA_DIRECTORY}/{only.name}")
        await file.truncate(200)
        file.close()
        with pytest.raises(MetadataGap, match="newest whole snapshot ends at 0"):
            async with running(disk):
                pass

    disk = new_disk()
    asyncio.run(run())


def test_a_fetched_snapshot_replaces_a_log_of_earlier_epochs_that_is_longer() -> None:
    """A follower that had diverged died after it had renamed the snapshot, before it cut its log."""

    def names(quorum: MetadataQuorum) -> list[str]:
        return sorted(quorum.metadata.image.topics_by_name)

    async def run() -> None:
        async with running(disk) as quorum:
            for number in range(5):
                await create(quorum, f"diverged-{number}")
            await quorum.snapshots.take()
            end_offset, epoch = quorum.driver.end_offset, quorum.driver.epoch
        (taken,) = (each for each in await snapshots(disk) if each.end_offset)
        controls, _ = await read(disk, taken)
        fetched = SnapshotId(end_offset - 2, epoch + 5)
        version = FeatureLevelRecord(name="metadata.version", feature_level=30)
        data = build_snapshot(
            [encode_record(each) for each in (version, topic("committed"))],
            NOW_MS,
            controls=controls,
            epoch=fetched.epoch,
        )
        await disk.remove(f"{METADATA_DIRECTORY}/{taken.name}")
        await write_atomically(disk, f"{METADATA_DIRECTORY}/{fetched.name}", data)
        async with running(disk) as quorum:
            assert names(quorum) == ["committed"]
            log = quorum.driver.core.log
            assert (log.start_offset, quorum.driver.epoch) == (fetched.end_offset, fetched.epoch + 1)
            await create(quorum, "later")
        async with running(disk) as quorum:
            assert names(quorum) == ["committed", "later"]

    disk = new_disk()
    asyncio.run(run())


def test_a_full_disk_costs_a_snapshot_and_nothing_else() -> None:
    async def run() -> None:
        async with running(disk) as quorum:
            await create(quorum, "letters")
            disk.fail("append", errno.ENOSPC, path_glob="*.part", times=1)
            with pytest.raises(DiskFull):
                await quorum.snapshots.take()
            assert not [name for name in await disk.listdir(METADATA_DIRECTORY) if "part" in name.split(".")]
            await create(quorum, "replies")
            taken = await quorum.snapshots.take()
            assert taken is not None
            assert taken.end_offset == quorum.driver.end_offset

    disk = new_disk()
    asyncio.run(run())


def test_none_is_taken_of_an_image_that_is_in_doubt() -> None:
    async def run() -> None:
        async with running(disk) as quorum:
            await create(quorum, "letters")
            twice = asyncio.ensure_future(
                quorum.controller.submit(lambda image: Decision([topic("replies"), topic("letters")], None))
            )
            await asyncio.sleep(0)
            taking = asyncio.ensure_future(quorum.snapshots.take())
            with pytest.raises(MetadataLogFailed):
                await twice
            with pytest.raises(MetadataLogFailed):
                await taking
            assert await snapshots(disk) == [SnapshotId(0, 0)]

    disk = new_disk()
    asyncio.run(run())


def test_leftovers_of_crashes_go_at_the_next_start() -> None:
    async def run() -> None:
        names = [SnapshotId(5, 1).name + ".part", SnapshotId(3, 1).name + ".deleted"]
        for name in names:
            (await disk.open(f"{METADATA_DIRECTORY}/{name}", create=True)).close()
        async with running(disk):
            left = await disk.listdir(METADATA_DIRECTORY)
            assert not set(names) & set(left)

    disk = new_disk()
    asyncio.run(run())


def test_commands_go_on_while_one_is_written() -> None:
    async def run() -> None:
        async with running(disk, config=METADATA_LOG) as quorum:
            await quorum.controller.submit(
                lambda image: Decision([topic(f"t{n}") for n in range(2000)], None)
            )
            taking = asyncio.ensure_future(quorum.snapshots.take())
            during = 0
            while not taking.done():
                await create(quorum, f"during {during}")
                during += 1
            assert during > 5
            taken = await taking
            assert taken is not None
            _, values = await read(disk, taken)
            # exactly what was committed when it began
            assert len(values) == 2000 + len(FEATURES) + 1
            assert taken.end_offset < quorum.driver.end_offset
        async with running(disk) as quorum:
            assert len(quorum.metadata.image.topics_by_name) == 2000 + during

    disk = new_disk()
    asyncio.run(run())


@pytest.mark.parametrize("topics", [1000, 10_000])
def test_a_large_image_does_not_hold_the_loop_up(topics: int) -> None:
    """10,000 partitions: no turn of the loop takes longer than a few milliseconds of processor time."""

    async def run() -> float:
        async with running(disk, config=METADATA_LOG) as quorum:
            many: list[Message] = []
            for number in range(topics):
                many.append(topic(f"t{number}"))
                many += [partition(f"t{number}", index) for index in range(10_000 // topics)]
            await quorum.controller.submit(lambda image: Decision(many, None))
            gc.disable()  # of all that the tests before have left
            try:
                return await longest_turn(asyncio.ensure_future(quorum.snapshots.take()))
            finally:
                gc.enable()

    disk = new_disk()
    # measured with 1,000 topics: 2.9 ms at the most
    assert asyncio.run(run()) < 0.05


async def longest_turn(work: asyncio.Future[SnapshotId | None]) -> float:
    """The most processor time that the loop spent at once until it was done."""
    longest = 0.0
    while not work.done():
        before = time.process_time()
        await asyncio.sleep(0)
        longest = max(longest, time.process_time() - before)
    assert await work is not None
    return longest


def partition(name: str, index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic(name).topic_id,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY_ID.bytes],
    )


# ---- what is kept ----------------------------------------------------------------------------------------

KEPT: list[Message] = [
    ClientQuotaRecord(
        entity=[QuotaEntity(entity_type="user", entity_name=None)],
        key="producer_byte_rate",
        value=1024.5,
        remove=False,
    ),
    AccessControlEntryRecord(
        id=b"acl id, 16 bytes",
        resource_type=2,
        resource_name="letters",
        pattern_type=3,
        principal="User:k",
        host="*",
        operation=2,
        permission_type=3,
    ),
    UserScramCredentialRecord(
        name="k", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096
    ),
    DelegationTokenRecord(
        owner="User:k",
        requester="User:k",
        renewers=["User:l"],
        issue_timestamp=1,
        max_timestamp=2,
        expiration_timestamp=3,
        token_id="token",
    ),
]


def test_records_of_what_is_not_served_survive_byte_for_byte() -> None:
    async def run() -> None:
        async with running(disk) as quorum:
            await quorum.controller.submit(lambda image: Decision(list(KEPT), None))
            taken = await quorum.snapshots.take()
            assert taken is not None
            _, values = await read(disk, taken)
            assert [encode_record(record) for record in KEPT] == [value for value in values if is_kept(value)]

    disk = new_disk()
    asyncio.run(run())


def is_kept(value: bytes) -> bool:
    return read_frame(value)[0] in {type(record) for record in KEPT}


def test_an_older_metadata_version_is_told_in_older_records() -> None:
    """That of 3.9 knows directories, but neither eligible leader replicas nor cordoned directories."""

    async def run() -> None:
        async with running(disk) as quorum:
            level = FeatureLevelRecord(name="metadata.version", feature_level=21)
            broker = RegisterBrokerRecord(
                broker_id=1,
                incarnation_id=bytes(16),
                broker_epoch=5,
                end_points=[],
                features=[],
                log_dirs=[DIRECTORY_ID.bytes],
                cordoned_log_dirs=[],
            )
            led = partition("letters", 0)
            led.last_known_elr = [1]
            await quorum.controller.submit(lambda image: Decision([level], None))
            await quorum.controller.submit(lambda image: Decision([broker, topic("letters"), led], None))
            image = quorum.metadata.image
            # what could not be written is not believed, either
            assert image.brokers[1].cordoned_log_dirs is None
            assert image.topics_by_name["letters"].partitions[0].last_known_elr == ()
            taken = await quorum.snapshots.take()
            assert taken is not None
            _, values = await read(disk, taken)
            versions = {cls: version for cls, version, _ in map(read_frame, values)}
            assert (versions[RegisterBrokerRecord], versions[PartitionRecord]) == (3, 1)
        async with running(disk) as quorum:
            assert contents(quorum.metadata.image) == contents(image)

    disk = new_disk()
    asyncio.run(run())


NEWER = [
    (b"\x01\x1d\x00", [], "a record of type 29 of version 0"),
    (b"\x01\x02\x01", [], "TopicRecord of version 1"),
    (b"\x02\x02\x00", [], "TopicRecord of version 0, frame version 2"),
    (
        encode_record(FeatureLevelRecord(name="metadata.version", feature_level=31)),
        [],
        "metadata.version 31, where 30 is the latest",
    ),
    (None, [KRaftVersionRecord(k_raft_version=2)], "kraft.version 2, where 1 is the latest"),
]


@pytest.mark.parametrize("in_snapshot", [True, False])
@pytest.mark.parametrize(("value", "controls", "told"), NEWER)
def test_what_a_newer_kafka_wrote_is_refused_by_name(
    value: bytes | None, controls: list[Message], told: str, in_snapshot: bool
) -> None:
    async def run() -> None:
        values = [] if value is None else [value]
        async with running(disk) as quorum:
            end, epoch = quorum.driver.end_offset, quorum.driver.epoch
            if not in_snapshot:
                log = quorum.snapshots._log
                batches = data_batches(values, NOW_MS) or [control_batch(controls, NOW_MS)]
                await log.append_as_leader(batches[0], epoch, Origin.COORDINATOR)
        if in_snapshot:
            written = build_snapshot(values, NOW_MS, controls=controls)
            path = f"{METADATA_DIRECTORY}/{SnapshotId(end, epoch).name}"
            await write_atomically(disk, path, written)
        with pytest.raises(DirectoryRefused, match="a newer Kafka wrote this metadata") as refusal:
            async with running(disk):
                pass
        assert told in str(refusal.value)
        assert METADATA_DIRECTORY in str(refusal.value)

    disk = new_disk()
    asyncio.run(run())


@pytest.mark.parametrize(("value", "told"), [(value, told) for value, _, told in NEWER if value is not None])
def test_what_a_newer_kafka_formatted_is_refused_before_it_is_in_the_log(value: bytes, told: str) -> None:
    async def run() -> None:
        ours = await read_whole(disk, BOOTSTRAP_CHECKPOINT) or b""
        await write_atomically(disk, BOOTSTRAP_CHECKPOINT, build_snapshot([value], NOW_MS))
        with pytest.raises(DirectoryRefused) as refusal:
            async with running(disk):
                pass
        assert told in str(refusal.value)
        await disk.remove(".lock")
        await write_atomically(disk, BOOTSTRAP_CHECKPOINT, ours)
        disk.crash_process()
        async with running(disk) as quorum:
            assert quorum.metadata.image.features == FEATURES

    disk = new_disk()
    asyncio.run(run())


def test_a_leader_that_cannot_become_active_stops() -> None:
    """The checkpoint of the formatting speaks of a partition whose topic it does not know."""

    async def run() -> None:
        impossible = build_snapshot([encode_record(partition("of-no-topic", 0))], NOW_MS)
        await write_atomically(disk, BOOTSTRAP_CHECKPOINT, impossible)
        with pytest.raises(InvariantViolation, match="which does not exist"):
            async with running(disk):
                pass

    disk = new_disk()
    asyncio.run(run())


# ---- crashes ---------------------------------------------------------------------------------------------


class Crash(NamedTuple):
    """The disk at some operation, and what had been promised by then."""

    disk: MemoryDisk
    answered: tuple[str, ...]
    asked: tuple[str, ...]


class Witness:
    """Lets a node live, with tiny thresholds, and keeps the disk as it is before every operation."""

    policy = SnapshotPolicy(max_bytes=300, interval_ms=0, retention_bytes=1500, retention_ms=-1)

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk, self.answered, self.asked = disk, list[str](), list[str]()
        self.moments: list[Crash] = []

    def _keep(self, operation: str, path: str) -> None:
        self.moments.append(Crash(self.disk.fork(), tuple(self.answered), tuple(self.asked)))

    async def live(self, names: Sequence[str]) -> None:
        self.disk.before = self._keep
        async with running(self.disk, self.policy) as quorum:
            for name in names:
                self.asked.append(name)
                self.answered.append(await create(quorum, name))
                await asyncio.sleep(0)
            await settle()
            assert quorum.snapshots._log.start_offset > 0
        self.disk.before = None


async def survive(crash: Crash) -> None:
    async with running(crash.disk, Witness.policy) as quorum:
        there = set(quorum.metadata.image.topics_by_name)
        assert set(crash.answered) <= there <= set(crash.asked)
        assert quorum.metadata.image.features == FEATURES
        await create(quorum, "one more")
        assert "one more" in quorum.metadata.image.topics_by_name
        names = await crash.disk.listdir(METADATA_DIRECTORY)
        assert not [name for name in names if name.endswith((".corrupt", ".checkpoint.deleted"))]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_no_crash_while_snapshots_are_taken_loses_anything(seed: int | None) -> None:
    """Of the process (no seed) or of the power, at every operation of the disk."""

    async def run() -> int:
        witness = Witness(disk)
        await witness.live([f"topic {number}" for number in range(24)])
        for number, crash in enumerate(witness.moments):
            if seed is None:
                crash.disk.crash_process()
            else:
                crash.disk.crash_power(SeededRandom(seed * 100_000 + number))
            await survive(crash)
        return len(witness.moments)

    disk = new_disk()
    assert asyncio.run(run()) > 200


async def fetch(disk: MemoryDisk, snapshot: SnapshotId, data: bytes) -> list[MemoryDisk]:
    """A follower loads a snapshot in two pieces; gives the disk as it was before every operation."""
    before: list[MemoryDisk] = []
    directory = await open_directory(disk)
    log = await directory.partition(METADATA_TOPIC, 0, config=SMALL_SEGMENTS)
    files = RaftDisk(log, disk, ManualClock(START_MS))
    disk.before = lambda operation, path: before.append(disk.fork())
    half = len(data) // 2
    await files.write_chunk(SnapshotChunk(snapshot, 0, len(data), data[:half], is_last=False))
    await files.write_last_chunk(SnapshotChunk(snapshot, half, len(data), data[half:], is_last=True))
    disk.before = None
    before.append(disk.fork())
    files.close()
    await directory.close()
    return before


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("behind", [-2, 0, 7])
def test_no_crash_while_a_snapshot_is_fetched_mixes_it_with_the_log(behind: int, seed: int | None) -> None:
    """The log of the follower has diverged, and goes beyond the snapshot or does not."""

    async def run() -> None:
        async with running(disk) as quorum:
            for number in range(5):
                await create(quorum, f"diverged-{number}")
            end_offset, epoch = quorum.driver.end_offset, quorum.driver.epoch
            controls = quorum._moment().controls
        fetched = SnapshotId(end_offset + behind, epoch + 5)
        data = build_snapshot([encode_record(topic("new"))], NOW_MS, controls=controls, epoch=fetched.epoch)
        found_new = []
        for number, crashed in enumerate(await fetch(disk, fetched, data)):
            if seed is None:
                crashed.crash_process()
            else:
                crashed.crash_power(SeededRandom(seed * 1_000 + number))
            directory = await open_directory(crashed)
            log = await directory.partition(METADATA_TOPIC, 0, config=SMALL_SEGMENTS)
            found = await find_quorum(crashed, log)
            found_new.append(found.snapshot_id == fetched)
            whole = (fetched.end_offset, fetched.end_offset) if found_new[-1] else (0, end_offset)
            assert (log.start_offset, log.end_offset) == whole
            await directory.close()
        assert found_new == sorted(found_new)
        assert (found_new[0], found_new[-1]) == (False, True)

    disk = new_disk()
    asyncio.run(run())
