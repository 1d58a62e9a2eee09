"""The metadata quorum over a real log: what was answered is there, whatever happens next."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

import pytest

from barnabas.broker.quorum.driver import MetadataLogFailed
from barnabas.broker.quorum.files import QUORUM_STATE_PATH
from barnabas.broker.quorum.quorum import METADATA_LOG, MetadataQuorum
from barnabas.broker.storage.formatting import METADATA_DIRECTORY, DirectoryRefused, InitialVoter, make_voter
from barnabas.controller.decisions import Decision, NotController
from barnabas.core.clock import ManualClock
from barnabas.core.disk import DiskFailed, DiskFull
from barnabas.core.errors import InvariantViolation
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.core.settings.listeners import Listener
from barnabas.log import housekeeping
from barnabas.log.checkpoints import read_whole, write_atomically
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import PartitionLog
from barnabas.log.reading import batches
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import BeginTransactionRecord, ConfigRecord, TopicRecord, encode_record
from barnabas.protocol.schema import Message
from barnabas.raft.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
    read_control_batch,
)
from barnabas.raft.election import Election
from barnabas.raft.quorum_state import CorruptQuorumState, decode_quorum_state
from barnabas.raft.snapshot import SnapshotId, build_snapshot
from tests.broker.test_formatting import CHECKPOINT, CONTROLLER, DIRECTORY_ID, FEATURES, formatted
from tests.support.images import contents, to_records
from tests.support.logs import START_MS, open_directory

# offsets in a new log: a leader change, the version, the voters; then, between two marks, the features
# and how many replicas must be in sync
FIRST = 3 + 2 + len(FEATURES) + 1


class Open(NamedTuple):
    quorum: MetadataQuorum
    directory: LogDirectory
    clock: ManualClock
    failures: list[BaseException]


async def start(
    disk: MemoryDisk,
    *,
    controllers: Sequence[Listener] = CONTROLLER,
    directory_id: UUID = DIRECTORY_ID,
    config: LogConfig = METADATA_LOG,
) -> Open:
    clock, failures = ManualClock(START_MS), list[BaseException]()
    directory = await open_directory(disk, clock=clock)
    quorum = await MetadataQuorum.open(
        directory,
        disk,
        node_id=1,
        directory_id=directory_id,
        clock=clock,
        controllers=controllers,
        config=config,
        on_failure=failures.append,
    )
    await quorum.start()
    return Open(quorum, directory, clock, failures)


@asynccontextmanager
async def running(disk: MemoryDisk, **options: object) -> AsyncIterator[Open]:
    """From a start to a clean stop."""
    opened = await start(disk, **options)  # type: ignore[arg-type]
    yield opened
    await opened.quorum.close()
    await opened.directory.close()


def new_disk() -> MemoryDisk:
    disk = MemoryDisk()
    asyncio.run(formatted(disk))
    return disk


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=name.encode().ljust(16, b"\0"))


async def create(quorum: MetadataQuorum, name: str) -> str:
    return await quorum.controller.submit(lambda image: Decision([topic(name)], name))


async def controls(directory: LogDirectory) -> list[Message]:
    """What the quorum says of itself in its log."""
    log = await directory.partition("__cluster_metadata", 0)
    found: list[Message] = []
    async for chunk, position, header in batches(log, log.start_offset, log.end_offset):
        if header.is_control:
            found += [message for _, message in read_control_batch(chunk, position, header)]
    return found


def test_a_new_cluster_begins_with_its_voters_and_features() -> None:
    async def run() -> None:
        disk = new_disk_
        async with running(disk) as (quorum, directory, _, _):
            assert (quorum.driver.epoch, quorum.driver.leader_id) == (1, 1)
            assert quorum.driver.high_watermark == quorum.driver.end_offset == FIRST
            assert quorum.metadata.image.features == FEATURES
            assert [type(message) for message in await controls(directory)] == [
                LeaderChangeMessage,
                KRaftVersionRecord,
                VotersRecord,
            ]
            log = await directory.partition("__cluster_metadata", 0)
            assert (log.high_watermark, log.recovery_point, log.topic_id) == (FIRST, FIRST, UUID(int=1))
            state = await read_whole(disk, QUORUM_STATE_PATH) or b""
            assert decode_quorum_state(state, "") == Election(1, leader_id=1)

    new_disk_ = new_disk()
    asyncio.run(run())


def test_a_command_is_answered_when_its_records_are_committed_and_replayed() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            told: list[str] = []

            def listen(image: ClusterImage, delta: Delta) -> None:
                assert quorum.driver.high_watermark == image.offset == FIRST + 1
                assert quorum.metadata.image is image
                told.extend(image.topics_by_id[each].name for each in delta.changed_topics)

            quorum.metadata.subscribe(listen)
            assert await create(quorum, "letters") == "letters"
            assert told == ["letters"]

    disk = new_disk()
    asyncio.run(run())


def test_commands_run_in_order_and_each_sees_what_those_before_it_did() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            seen: list[tuple[int, int]] = []

            def command(number: int, image: ClusterImage) -> Decision[int]:
                seen.append((len(image.topics_by_name), quorum.controller.next_offset))
                return Decision([topic(f"t{number}")], number)

            answers = await asyncio.gather(
                *(quorum.controller.submit(lambda image, n=number: command(n, image)) for number in range(20))
            )
            assert answers == list(range(20))
            assert seen == [(number, FIRST + number) for number in range(20)]

    disk = new_disk()
    asyncio.run(run())


def test_a_decision_without_records_writes_nothing() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            before = disk.operations
            assert await quorum.controller.submit(lambda image: Decision([], len(image.features))) == len(
                FEATURES
            )
            assert (disk.operations, quorum.driver.end_offset) == (before, FIRST)

    disk = new_disk()
    asyncio.run(run())


def test_a_command_that_refuses_changes_nothing() -> None:
    def refuse(image: ClusterImage) -> Decision[None]:
        raise ValueError("no")

    async def run() -> None:
        async with running(disk) as (quorum, _, _, failures):
            with pytest.raises(ValueError, match="no"):
                await quorum.controller.submit(refuse)
            assert await create(quorum, "letters") == "letters"
            assert not failures

    disk = new_disk()
    asyncio.run(run())


def test_a_restart_replays_all_of_it_in_a_new_epoch() -> None:
    async def run() -> None:
        images = []
        for life in range(4):
            async with running(disk) as (quorum, directory, _, _):
                assert quorum.driver.epoch == life + 1
                if images:
                    assert contents(quorum.metadata.image) == contents(images[-1])
                await create(quorum, f"t{life}")
                images.append(quorum.metadata.image)
                log = await directory.partition("__cluster_metadata", 0)
                assert log.epochs.latest_epoch == life + 1
        async with running(disk) as (quorum, directory, _, _):
            assert sorted(quorum.metadata.image.topics_by_name) == ["t0", "t1", "t2", "t3"]
            # the voters are said once; later leaders only say that they lead
            assert sum(isinstance(message, VotersRecord) for message in await controls(directory)) == 1

    disk = new_disk()
    asyncio.run(run())


def test_an_epoch_does_not_go_back_where_the_vote_was_lost() -> None:
    async def run() -> None:
        for _ in range(3):
            async with running(disk):
                pass
        await disk.remove(QUORUM_STATE_PATH)
        async with running(disk) as (quorum, _, _, _):
            assert quorum.driver.epoch == 4

    disk = new_disk()
    asyncio.run(run())


@pytest.mark.parametrize("damaged", [b"{}", b""])
def test_a_damaged_vote_is_no_vote_that_was_never_given(damaged: bytes) -> None:
    async def run() -> None:
        async with running(disk):
            pass
        await write_atomically(disk, QUORUM_STATE_PATH, damaged)
        with pytest.raises(CorruptQuorumState):
            await start(disk)

    disk = new_disk()
    asyncio.run(run())


def test_a_full_disk_fails_the_command_and_nothing_else() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, failures):
            disk.fail("append", errno.ENOSPC, path_glob="*.log", times=1)
            with pytest.raises(NotController) as refusal:
                await create(quorum, "lost")
            assert isinstance(refusal.value.__cause__, DiskFull)
            assert (quorum.driver.end_offset, [*quorum.metadata.image.topics_by_name]) == (FIRST, [])
            await create(quorum, "kept")
            assert not failures
        async with running(disk) as (quorum, _, _, _):
            assert [*quorum.metadata.image.topics_by_name] == ["kept"]

    disk = new_disk()
    asyncio.run(run())


@pytest.mark.parametrize("power", [False, True])
def test_a_failed_sync_stops_the_node(power: bool) -> None:
    async def run() -> None:
        quorum, _, _, failures = await start(disk)
        await create(quorum, "kept")
        disk.fail("sync", errno.EIO, path_glob="*.log", times=1)
        answers = await asyncio.gather(
            *(create(quorum, name) for name in ("doubtful", "later")), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [MetadataLogFailed, MetadataLogFailed]
        assert failures == [answers[0]]
        assert [*quorum.metadata.image.topics_by_name] == ["kept"]
        with pytest.raises(MetadataLogFailed):
            await create(quorum, "too late")
        if power:
            disk.crash_power(SeededRandom(3))
        else:
            disk.crash_process()
        async with running(disk) as (quorum, _, _, _):
            assert "kept" in quorum.metadata.image.topics_by_name
            assert "too late" not in quorum.metadata.image.topics_by_name
            await create(quorum, "after")

    disk = new_disk()
    asyncio.run(run())


def test_records_that_contradict_the_image_stop_the_node() -> None:
    async def run() -> None:
        quorum, _, _, failures = await start(disk)
        await create(quorum, "letters")
        with pytest.raises(MetadataLogFailed) as raised:
            await create(quorum, "letters")
        assert isinstance(raised.value.__cause__, InvariantViolation)
        assert failures == [raised.value]

    disk = new_disk()
    asyncio.run(run())


def test_a_vote_that_cannot_be_written_elects_nobody() -> None:
    async def run() -> None:
        disk.fail("sync", errno.EIO, path_glob="*quorum-state*")
        with pytest.raises(DiskFailed, match="quorum-state"):
            await start(disk)
        disk.crash_process()
        disk.heal()
        async with running(disk) as (quorum, directory, _, _):
            assert quorum.driver.epoch >= 1
            led = [
                message for message in await controls(directory) if isinstance(message, LeaderChangeMessage)
            ]
            assert len(led) == 1

    disk = new_disk()
    asyncio.run(run())


def test_who_waits_may_go_away_but_the_command_goes_on() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            waiting = asyncio.create_task(create(quorum, "letters"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await create(quorum, "replies")
            assert sorted(quorum.metadata.image.topics_by_name) == ["letters", "replies"]

    disk = new_disk()
    asyncio.run(run())


def test_the_voters_come_into_the_log_though_who_asked_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = PartitionLog.flush

    async def slow_flush(log: PartitionLog, up_to: int | None = None) -> None:
        await asyncio.sleep(0)
        await flush(log, up_to)

    async def run() -> None:
        await disk.remove(CHECKPOINT)
        async with running(disk) as (quorum, _, _, failures):
            assert quorum.driver.kraft_version == 0
            monkeypatch.setattr(PartitionLog, "flush", slow_flush)
            waiting = asyncio.create_task(quorum.controller.raise_kraft_version())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await create(quorum, "letters")
            assert (quorum.driver.kraft_version, failures) == (1, [])
        async with running(disk) as (quorum, directory, _, _):
            assert quorum.driver.kraft_version == 1
            assert [type(each) for each in await controls(directory)].count(VotersRecord) == 1

    disk = new_disk()
    asyncio.run(run())


def test_asking_twice_for_the_voters_in_the_log_takes_no_decision_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flush = PartitionLog.flush
    published: list[int] = []

    async def run() -> None:
        flushes = asyncio.Event()

        async def gated_flush(log: PartitionLog, up_to: int | None = None) -> None:
            await flushes.wait()
            await flush(log, up_to)

        await disk.remove(CHECKPOINT)
        async with running(disk) as (quorum, _, _, _):
            quorum.metadata.subscribe(lambda image, delta: published.append(image.offset))
            monkeypatch.setattr(PartitionLog, "flush", gated_flush)
            asked = []
            for ask in (
                quorum.controller.raise_kraft_version,
                lambda: create(quorum, "letters"),
                quorum.controller.raise_kraft_version,
            ):
                asked.append(asyncio.ensure_future(ask()))
                await asyncio.sleep(0)
            flushes.set()
            await asyncio.gather(*asked)
            assert quorum.metadata.image.offset == quorum.driver.end_offset

    disk = new_disk()
    asyncio.run(run())
    assert published == sorted(published)


def test_a_closed_quorum_decides_nothing_more() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, failures):
            last = asyncio.create_task(create(quorum, "last"))
            await asyncio.sleep(0)
            await quorum.close()
            assert await last == "last"
            with pytest.raises(NotController):
                await create(quorum, "later")
            assert not failures

    disk = new_disk()
    asyncio.run(run())


def large(name: str) -> list[Message]:
    """More than one batch can hold."""
    return [
        ConfigRecord(resource_type=2, resource_name=name, name=f"key{number}", value="x" * 32_000)
        for number in range(300)
    ]


def test_records_of_several_batches_count_together() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            await quorum.controller.submit(lambda image: Decision(large("letters"), None))
            assert quorum.driver.end_offset == FIRST + 302
            image = quorum.metadata.image
            assert len(image.topic_config("letters")) == 300
        async with running(disk) as (quorum, _, _, _):
            assert contents(quorum.metadata.image) == contents(image)

    disk = new_disk()
    asyncio.run(run())


def test_batches_are_as_large_as_the_settings_allow() -> None:
    async def run() -> None:
        async with running(disk, config=replace(METADATA_LOG, max_message_bytes=1024)) as opened:
            quorum = opened.quorum
            sizes: list[int] = []
            quorum.driver.on_append = lambda offset, epoch, batches: sizes.extend(map(len, batches))
            topics: list[Message] = [topic(f"topic-{number}") for number in range(40)]
            await quorum.controller.submit(lambda image: Decision(topics, None))
            assert len(sizes) > 1
            assert max(sizes) <= 1024
            assert quorum.driver.end_offset == FIRST + 42
            assert len(quorum.metadata.image.topics_by_name) == 40

    disk = new_disk()
    asyncio.run(run())


def test_a_transaction_whose_leader_died_is_aborted() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            # as a crash leaves it that takes the last batches
            await quorum.controller.write([BeginTransactionRecord(name="torn"), topic("torn")])
        async with running(disk) as (quorum, _, _, _):
            assert not quorum.metadata.image.topics_by_name
            await create(quorum, "whole")
        async with running(disk) as (quorum, _, _, _):
            assert [*quorum.metadata.image.topics_by_name] == ["whole"]

    disk = new_disk()
    asyncio.run(run())


def test_a_decision_of_which_a_part_was_written_is_aborted() -> None:
    config = replace(METADATA_LOG, segment_bytes=2_000, max_message_bytes=1_024)
    topics: list[Message] = [topic(f"torn-{number}") for number in range(60)]

    async def run() -> None:
        async with running(disk, config=config) as (quorum, _, clock, failures):
            await create(quorum, "before")
            disk.fail("append", errno.ENOSPC, path_glob="*.log", after=1, times=1)
            with pytest.raises(NotController):
                await quorum.controller.submit(lambda image: Decision(topics, None))
            clock.advance(2.0)
            await quorum.until(lambda: quorum.controller.is_active)
            await create(quorum, "after")
            image = quorum.metadata.image
            assert sorted(image.topics_by_name) == ["after", "before"]
            assert quorum.driver.epoch == 2
            assert not failures
        async with running(disk, config=config) as (quorum, _, _, _):
            assert contents(quorum.metadata.image) == contents(image)

    disk = new_disk()
    asyncio.run(run())


def test_a_snapshot_stands_for_what_is_before_it() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            await create(quorum, "before")
            end_offset, epoch = quorum.driver.end_offset, quorum.driver.epoch
            # one that tells of it otherwise than the log does, so that it shows which was read
            values = [
                encode_record(record) for record in [*to_records(quorum.metadata.image), topic("snapshot")]
            ]
            await create(quorum, "after")
        me = InitialVoter(1, CONTROLLER[0].host, CONTROLLER[0].port, DIRECTORY_ID)
        voters = VotersRecord(voters=[make_voter(me, "CONTROLLER")])
        data = build_snapshot(values, START_MS, controls=[KRaftVersionRecord(k_raft_version=1), voters])
        path = f"{METADATA_DIRECTORY}/{SnapshotId(end_offset, epoch).name}"
        await write_atomically(disk, path, data)
        async with running(disk) as (quorum, directory, _, _):
            assert sorted(quorum.metadata.image.topics_by_name) == ["after", "before", "snapshot"]
            assert sum(isinstance(message, VotersRecord) for message in await controls(directory)) == 1
        # as in Kafka, one that goes beyond the log stands for what the log has lost
        await write_atomically(disk, f"{METADATA_DIRECTORY}/{SnapshotId(99, 9).name}", data)
        async with running(disk) as (quorum, directory, _, _):
            assert sorted(quorum.metadata.image.topics_by_name) == ["before", "snapshot"]
            assert (quorum.driver.epoch, quorum.driver.high_watermark) == (10, 99 + 1)
            log = await directory.partition("__cluster_metadata", 0)
            assert log.start_offset == 99

    disk = new_disk()
    asyncio.run(run())


def test_only_the_voter_that_the_log_names_leads() -> None:
    disk = new_disk()
    with pytest.raises(DirectoryRefused, match=r"the only voter .* is 1 .* another directory"):
        asyncio.run(start(disk, directory_id=UUID(int=78)))


def test_a_voter_that_moved_says_so_in_the_log() -> None:
    async def run() -> None:
        async with running(disk):
            pass
        moved = [CONTROLLER[0]._replace(port=19099)]
        for _ in range(2):
            async with running(disk, controllers=moved) as (_, directory, _, _):
                told = [message for message in await controls(directory) if isinstance(message, VotersRecord)]
                assert [each.voters[0].endpoints[0].port for each in told] == [19093, 19099]

    disk = new_disk()
    asyncio.run(run())


def test_nothing_of_it_grows_too_old_or_too_large() -> None:
    async def run() -> None:
        config = replace(METADATA_LOG, segment_bytes=1000)
        async with running(disk, config=config) as (quorum, directory, clock, _):
            for number in range(50):
                await create(quorum, f"t{number}")
            clock.advance(400 * 24 * 3600)
            await directory.checkpoint()
            assert await housekeeping.apply_retention(directory) == 0
            log = await directory.partition("__cluster_metadata", 0)
            assert log.start_offset == 0
            assert len(log.segments) > 3
        async with running(disk, config=config) as (quorum, _, _, _):
            assert len(quorum.metadata.image.topics_by_name) == 50

    disk = new_disk()
    asyncio.run(run())


# ---- crashes ---------------------------------------------------------------------------------------------


class Moment(NamedTuple):
    """The disk at some operation, and what had been promised by then."""

    disk: MemoryDisk
    answered: tuple[str, ...]
    asked: tuple[str, ...]
    epoch: int


class Witness:
    """Runs a node and keeps the disk as it is before every operation."""

    def __init__(self, disk: MemoryDisk, answered: Sequence[str] = (), asked: Sequence[str] = ()) -> None:
        self.disk, self.answered, self.asked, self.epoch = disk, list(answered), list(asked), 0
        self.moments: list[Moment] = []

    def _keep(self, operation: str, path: str) -> None:
        answered, asked = tuple(self.answered), tuple(self.asked)
        self.moments.append(Moment(self.disk.fork(), answered, asked, self.epoch))

    async def live(self, names: Sequence[str]) -> None:
        self.disk.before = self._keep
        async with running(self.disk, config=replace(METADATA_LOG, segment_bytes=600)) as (quorum, _, _, _):
            self.epoch = quorum.driver.epoch
            for name in names:
                self.asked.append(name)
                self.answered.append(await create(quorum, name))
        self._keep("end", "")
        self.disk.before = None


async def survive(moment: Moment) -> None:
    async with running(moment.disk) as (quorum, _, _, _):
        there = set(quorum.metadata.image.topics_by_name)
        assert there >= set(moment.answered)
        assert there <= set(moment.asked)
        assert quorum.driver.epoch > moment.epoch
        assert quorum.metadata.image.features == FEATURES
        await create(quorum, "one more")
        assert "one more" in quorum.metadata.image.topics_by_name


@pytest.mark.slow  # hundreds of starts, each on a copy of the disk
@pytest.mark.parametrize("seed", [None, 1, pytest.param(2, marks=pytest.mark.long)])
def test_what_was_answered_is_there_after_a_crash_at_any_operation(seed: int | None) -> None:
    """Of the process (no seed) or of the power."""

    def crash(disk: MemoryDisk, number: int) -> None:
        if seed is None:
            disk.crash_process()
        else:
            disk.crash_power(SeededRandom(seed * 100_000 + number))

    async def run() -> int:
        tried = 0
        first = Witness(new)
        await first.live(["a", "b", "c", "d", "e", "f"])
        for moment in first.moments:
            tried += 1
            crash(moment.disk, tried)
            if tried % 9:
                await survive(moment)
                continue
            # here the next life is crashed everywhere, too
            second = Witness(moment.disk, moment.answered, moment.asked)
            await second.live([f"again {tried}"])
            for later in second.moments:
                tried += 1
                crash(later.disk, tried)
                await survive(later._replace(epoch=max(moment.epoch, later.epoch)))
        return tried

    new = new_disk()
    assert asyncio.run(run()) > 300
