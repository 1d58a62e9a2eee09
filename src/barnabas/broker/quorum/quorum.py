"""The metadata quorum of this node: drives the core of `raft` over the log `__cluster_metadata`.

A command decides on the image and returns records. They are appended in the leader's epoch, flushed to the
disk, committed by a majority, and only then replayed into the image and answered: whoever has an answer finds
it again after any crash, and the image never knows more than what is committed. Commands run one at a time,
in the order in which they were given; one whose records cannot be written (a full disk) fails and leaves no
trace.

What leaves the log in doubt (a failed sync, records that contradict the image) ends this node's part in the
cluster: `on_failure` is told, once, every later command gets the same `MetadataLogFailed`, and the node must
stop. A new start reads what is there and can tell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from uuid import UUID

from barnabas.broker.quorum.files import QUORUM_STATE_PATH, Found, batches, find_quorum
from barnabas.broker.quorum.snapshots import Moment, SnapshotPolicy, Snapshots
from barnabas.broker.storage.formatting import (
    KRAFT_VERSION,
    METADATA_DIRECTORY,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    DirectoryRefused,
    make_voter,
)
from barnabas.controller.bootstrap import activation_records
from barnabas.controller.decisions import Decision
from barnabas.core.clock import Clock
from barnabas.core.disk import Disk
from barnabas.core.errors import BarnabasError, InvariantViolation, StorageError, wire_error
from barnabas.core.settings.listeners import Listener
from barnabas.log.checkpoints import read_whole, write_atomically
from barnabas.log.config import UNLIMITED, LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import PartitionLog
from barnabas.log.producers import Origin
from barnabas.log.turn import Turn
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metadata.records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    UnknownRecord,
    decode_record,
    encode_record,
)
from barnabas.metadata.replay import Replayer, difference, replay_all
from barnabas.metadata.versions import LATEST_METADATA_VERSION, record_version
from barnabas.protocol.schema import Message
from barnabas.raft.batches import MAX_BATCH_BYTES, data_batches
from barnabas.raft.control_records import KRaftVersionRecord, VotersRecord, control_batch
from barnabas.raft.core import Raft, Ready
from barnabas.raft.election import State, VoterKey
from barnabas.raft.quorum_state import encode_quorum_state
from barnabas.raft.snapshot import BOOTSTRAP_CHECKPOINT, read_snapshot
from barnabas.records.batch import BatchHeader

logger = logging.getLogger("barnabas.quorum")

R = TypeVar("R")

# Kafka's defaults (metadata.log.segment.bytes and .ms); nothing is deleted but what a snapshot stands for
METADATA_LOG = LogConfig(retention_ms=UNLIMITED, retention_bytes=UNLIMITED, max_message_bytes=MAX_BATCH_BYTES)

SNAPSHOT_POLICY = SnapshotPolicy()


class MetadataLogFailed(StorageError):
    """The metadata log is in doubt: the node must stop, and start anew."""


class QuorumClosed(BarnabasError):
    """The node is stopping; nothing is decided any more."""

    wire = wire_error("NOT_CONTROLLER")


class MetadataQuorum:
    """Made by `open`, which elects this node. Whoever is not `submit` only reads the image."""

    def __init__(
        self,
        log: PartitionLog,
        disk: Disk,
        raft: Raft,
        clock: Clock,
        found: Found,
        controllers: Sequence[Listener] = (),
        policy: SnapshotPolicy = SNAPSHOT_POLICY,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.metadata = MetadataPublisher()
        self._replayer = Replayer(ClusterImage())
        self._log = log
        self._disk = disk
        self._raft = raft
        self._clock = clock
        self.kraft_version = found.kraft_version
        self.controllers = tuple(controllers)
        self._voters = found.voters
        self._appended_ms = 0
        self.snapshots = Snapshots(
            disk,
            log,
            clock,
            policy,
            self._moment,
            known=found.snapshots,
            uncovered_bytes=found.uncovered_bytes,
        )
        self._on_failure = on_failure
        self._failure: BarnabasError | None = None
        self._is_closing = False
        self._turn = Turn()
        self._running: dict[asyncio.Task[Any], None] = {}

    @classmethod
    async def open(
        cls,
        directory: LogDirectory,
        disk: Disk,
        *,
        node_id: int,
        directory_id: UUID,
        clock: Clock,
        controllers: Sequence[Listener] = (),
        config: LogConfig = METADATA_LOG,
        min_insync_replicas: int = 1,
        policy: SnapshotPolicy = SNAPSHOT_POLICY,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> MetadataQuorum:
        """Load what is there, be elected in a new epoch, and replay everything that is committed.

        `controllers` are the node's controller listeners as others reach them; `min_insync_replicas` is what
        a new cluster begins with; `policy` says when snapshots are due.
        """
        log = await directory.partition(METADATA_TOPIC, 0, topic_id=METADATA_TOPIC_ID, config=config)
        try:
            found = await find_quorum(disk, log)
        except UnknownRecord as error:
            raise _too_new(disk, str(error)) from error
        if found.kraft_version > KRAFT_VERSION:
            level = (
                f"kraft.version {found.kraft_version}, where {KRAFT_VERSION} is the latest that is known here"
            )
            raise _too_new(disk, f"a newer Kafka wrote this metadata: {level}")
        me = VoterKey(node_id, directory_id)
        voters = VotersRecord(voters=[make_voter(node_id, directory_id, controllers)])
        raft = Raft(
            me,
            {_sole_voter(found, me, disk)},
            election=found.election,
            log_epoch=max(log.epochs.latest_epoch or 0, found.snapshot_id.epoch),
            end_offset=log.end_offset,
            epoch_records=(told := _epoch_records(found, voters)),
        )
        if told:
            found = found._replace(voters=voters if voters.voters[0].endpoints else found.voters)
        quorum = cls(log, disk, raft, clock, found, controllers, policy, on_failure)
        await quorum._start(found, min_insync_replicas)
        return quorum

    async def _start(self, found: Found, min_insync_replicas: int) -> None:
        self._raft.tick(self._clock.wall_ms())
        await self._settle()
        try:
            await self._load(found)
            activation = await self._activation(min_insync_replicas)
        except UnknownRecord as error:
            raise _too_new(self._disk, str(error)) from error
        if activation:
            await self._commit(activation)
        logger.info("node %d leads the metadata quorum in epoch %d", self.leader_id, self.epoch)

    async def _load(self, found: Found) -> None:
        """Replay the newest snapshot and what is committed behind it."""
        empty = ClusterImage(found.snapshot_id.end_offset, found.snapshot_id.epoch)
        image = replay_all(empty, map(decode_record, found.snapshot.values))
        replayer = self._replayer = Replayer(image)
        async for header, batch in batches(self._log, image.offset, self.committed_offset):
            if header.is_control:
                replayer.skip(header.last_offset + 1, header.leader_epoch)
            else:
                replayer.replay(header.base_offset, header.leader_epoch, batch)
        self.metadata.publish(replayer.image, difference(self.image, replayer.image))

    async def _activation(self, min_insync_replicas: int) -> list[Message]:
        """What a leader has to say first: in a new cluster, what its formatting left for it."""
        if self.image.features:
            return activation_records(self.image, in_transaction=self._replayer.in_transaction)
        data = await read_whole(self._disk, BOOTSTRAP_CHECKPOINT)
        if data is None:
            return activation_records(self.image, min_insync_replicas=min_insync_replicas)
        values = read_snapshot(data, self._disk.describe(BOOTSTRAP_CHECKPOINT)).values
        told = [decode_record(value) for value in values]
        replay_all(ClusterImage(), told)  # nothing goes into the log that nobody here could replay
        levels = {each.name: each.feature_level for each in told if isinstance(each, FeatureLevelRecord)}
        return activation_records(
            self.image,
            levels=levels,
            min_insync_replicas=min_insync_replicas,
            others=[each for each in told if not isinstance(each, FeatureLevelRecord)],
        )

    @property
    def image(self) -> ClusterImage:
        """The published metadata."""
        return self.metadata.image

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    @property
    def leader_id(self) -> int:
        """The node that leads the quorum, -1 where none does."""
        return self._raft.leader_id

    @property
    def me(self) -> VoterKey:
        """This node, as a voter."""
        return self._raft.me

    @property
    def committed_offset(self) -> int:
        """Everything below is committed, and in the image."""
        return self._raft.high_watermark

    @property
    def end_offset(self) -> int:
        """What the next record gets; to a command, the offset of the first record that it returns."""
        return self._raft.end_offset

    async def submit(self, command: Callable[[ClusterImage], Decision[R]]) -> R:
        """Run a command when those before it are done; returns its response once its records are committed.

        Whoever waits may be cancelled; a command that has begun goes on.
        """
        return await self._carried_through(self._execute(command))

    async def raise_kraft_version(self) -> None:
        """Let the voters stand in the log from now on (kraft.version 1), and not in the settings."""
        await self._carried_through(self._tell_voters())

    async def _carried_through(self, work: Coroutine[Any, Any, R]) -> R:
        if self._is_closing:
            work.close()
            raise QuorumClosed("the node is stopping")
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return await asyncio.shield(task)

    async def _execute(self, command: Callable[[ClusterImage], Decision[R]]) -> R:
        async with self._turn:
            if self._failure is not None:
                raise self._failure
            decision = command(self.image)
            if decision.records:
                await self._commit(decision.records)
            return decision.response

    async def _tell_voters(self) -> None:
        async with self._turn:
            if self._failure is not None:
                raise self._failure
            if self.kraft_version >= KRAFT_VERSION:
                return
            voters = VotersRecord(voters=[make_voter(*self.me, self.controllers)])
            told = [KRaftVersionRecord(k_raft_version=KRAFT_VERSION), voters]
            committed = self._raft.propose([control_batch(told, self._clock.wall_ms())])
            await self._settle()
            self.kraft_version, self._voters = KRAFT_VERSION, voters
            self._replayer.skip(committed, self.epoch)

    async def _commit(self, new_records: Sequence[Message]) -> None:
        metadata_version = self.image.metadata_version
        batches = self._batches(new_records, metadata_version)
        if len(batches) > 1:
            # a crash could leave some of them: in a transaction they count together or not at all
            new_records = [BeginTransactionRecord(), *new_records, EndTransactionRecord()]
            batches = self._batches(new_records, metadata_version)
        if metadata_version < LATEST_METADATA_VERSION:
            # what an older version cannot say is not replayed here, either
            new_records = [decode_record(_encode(record, metadata_version)) for record in new_records]
        first, committed = self.end_offset, self._raft.propose(batches)
        await self._settle()
        if self.committed_offset < committed:
            raise self._fail(InvariantViolation(f"offset {committed} is not committed by its only voter"))
        try:
            for change in self._replayer.replay(first, self.epoch, new_records):
                self.metadata.publish(*change)
        except Exception as error:
            raise self._fail(error) from error
        self.snapshots.count(sum(map(len, batches)))

    def _batches(self, new_records: Sequence[Message], metadata_version: int) -> list[bytearray]:
        values = (_encode(record, metadata_version) for record in new_records)
        return data_batches(values, self._clock.wall_ms())

    async def _settle(self) -> None:
        """Do what the core asks for, until it asks for nothing more."""
        while ready := self._raft.ready():
            if ready.election is not None:
                voters = [voter.id for voter in sorted(self._raft.voters)]
                state = encode_quorum_state(ready.election, min(self.kraft_version, 1), voters)
                await write_atomically(self._disk, QUORUM_STATE_PATH, state)
            if ready.batches:
                await self._append(ready)
            self._raft.advance(ready)
        self._log.advance_high_watermark(self._raft.high_watermark)

    async def _append(self, ready: Ready) -> None:
        """Write and flush what the core gave; the log numbers it as the core expects."""
        log = self._log
        data = ready.batches[0] if len(ready.batches) == 1 else bytearray().join(ready.batches)
        if log.end_offset != ready.base_offset:
            raise self._fail(
                InvariantViolation(f"{log.path} ends at {log.end_offset}, not at {ready.base_offset}")
            )
        try:
            await log.append_as_leader(data, ready.epoch, Origin.COORDINATOR)
            await log.flush()
        except Exception as error:
            if log.failure is None and log.end_offset == ready.base_offset:
                self._raft.withdraw()  # nothing was written, so nothing is in doubt
                raise
            raise self._fail(error) from error
        except BaseException as error:
            self._fail(error)
            raise
        self._appended_ms = BatchHeader.parse(ready.batches[-1]).max_timestamp

    async def _moment(self) -> Moment:
        """What a snapshot would tell now; commands wait while it is copied, others do not."""
        async with self._turn:
            if self._failure is not None:
                raise self._failure  # the image may have half of what the last command said
            controls: list[Message] = []
            if self.kraft_version > 0:
                controls.append(KRaftVersionRecord(k_raft_version=self.kraft_version))
                if self._voters is not None:
                    controls.append(self._voters)
            return Moment(self._replayer.image, controls, self._appended_ms)

    def _fail(self, error: BaseException) -> BarnabasError:
        """From now on nothing is decided here; the node is told to stop."""
        if self._failure is None:
            self._failure = MetadataLogFailed(f"the metadata log is in doubt ({error}): the node must stop")
            logger.critical("%s", self._failure)
            if self._on_failure is not None:
                self._on_failure(self._failure)
        return self._failure

    async def close(self) -> None:
        """Take no more commands, finish those that were given, and resign; the directory closes the log."""
        self._is_closing = True
        while self._running:
            await asyncio.wait(self._running)
        if self._raft.state is State.LEADER:
            self._raft.resign()


def _too_new(disk: Disk, told: str) -> DirectoryRefused:
    where = disk.describe(METADATA_DIRECTORY)
    return DirectoryRefused(f"{where}: {told}. Go on with what wrote it, or with a newer version of this")


def _encode(record: Message, metadata_version: int) -> bytes:
    return encode_record(record, record_version(type(record), metadata_version))


def _sole_voter(found: Found, me: VoterKey, disk: Disk) -> VoterKey:
    """This node, which must be the only voter; with kraft.version 0 the settings say so, not the log."""
    voters = [] if found.voters is None else found.voters.voters
    keys = [VoterKey(each.voter_id, UUID(bytes=bytes(each.voter_directory_id))) for each in voters] or [me]
    if keys != [me]:
        told = ", ".join(f"{key.id} ({key.directory_id})" for key in keys)
        raise DirectoryRefused(
            f"the voters in the metadata log of {disk.describe('')} are {told}; node {me.id} "
            f"({me.directory_id}) must be the only one"
        )
    return me


def _epoch_records(found: Found, voters: VotersRecord) -> list[Message]:
    """What the leader says at the start of its epoch: the voters, if the log tells none, or others."""
    if found.kraft_version < KRAFT_VERSION or found.voters is None:
        return []
    if not voters.voters[0].endpoints:
        voters = found.voters
    if found.voters_in_log and voters == found.voters:
        return []
    return [KRaftVersionRecord(k_raft_version=found.kraft_version), voters]
