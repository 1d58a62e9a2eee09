"""The metadata quorum of this node, put together: raft driver, loader, publisher, controller, snapshots.

`driver` replicates the log, `metadata` is the published image, `controller` decides. The order of a start:
what is on the disk is read, this node is elected in a new epoch, all that is committed is loaded and
published, and the controller becomes active and writes what a leader has to say first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from barnabas.broker.quorum.controller import ActiveController
from barnabas.broker.quorum.driver import RaftDriver
from barnabas.broker.quorum.files import QuorumFiles, find_quorum
from barnabas.broker.quorum.loader import load_metadata
from barnabas.broker.quorum.snapshots import SnapshotPolicy, Snapshots, SnapshotSource
from barnabas.broker.storage.formatting import (
    KRAFT_VERSION,
    METADATA_DIRECTORY,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    DirectoryRefused,
)
from barnabas.controller.bootstrap import activation_records
from barnabas.core.clock import Clock
from barnabas.core.disk import Disk
from barnabas.core.random import Random, SystemRandom
from barnabas.core.settings.listeners import Listener
from barnabas.log.checkpoints import read_whole
from barnabas.log.config import UNLIMITED, LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import PartitionLog
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metadata.records import FeatureLevelRecord, UnknownRecord, decode_record
from barnabas.metadata.replay import difference, replay_all
from barnabas.protocol.schema import Message
from barnabas.raft.batches import MAX_BATCH_BYTES
from barnabas.raft.config import RaftConfig
from barnabas.raft.control_values import to_control, to_message
from barnabas.raft.core import Raft
from barnabas.raft.election import VoterKey
from barnabas.raft.log_index import Control, KRaftVersion, LogState
from barnabas.raft.snapshot import BOOTSTRAP_CHECKPOINT, read_snapshot
from barnabas.raft.voters import Endpoint, VoterInfo, VoterSet

logger = logging.getLogger("barnabas.quorum")

# Kafka's defaults (metadata.log.segment.bytes and .ms); nothing is deleted but what a snapshot stands for
METADATA_LOG = LogConfig(retention_ms=UNLIMITED, retention_bytes=UNLIMITED, max_message_bytes=MAX_BATCH_BYTES)

SNAPSHOT_POLICY = SnapshotPolicy()
_RANDOM = SystemRandom()


class MetadataQuorum:
    """Made by `open`, which elects this node."""

    def __init__(
        self,
        driver: RaftDriver,
        log: PartitionLog,
        disk: Disk,
        clock: Clock,
        found: QuorumFiles,
        policy: SnapshotPolicy,
    ) -> None:
        self.driver = driver
        self.metadata = MetadataPublisher()
        self.controller = ActiveController(driver, self.metadata, clock)
        self._log = log
        self._disk = disk
        self.snapshots = Snapshots(
            disk,
            log,
            clock,
            policy,
            self._moment,
            known=found.snapshots,
            uncovered_bytes=found.uncovered_bytes,
        )
        self.controller.on_published = self.snapshots.count

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
        random: Random = _RANDOM,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> MetadataQuorum:
        """Load what is there, be elected in a new epoch, and publish everything that is committed.

        `controllers` are the node's controller listeners as others reach them; `min_insync_replicas` is what
        a new cluster begins with; `policy` says when snapshots are due; `random` is for the core's timeouts.
        """
        log = await directory.partition(METADATA_TOPIC, 0, topic_id=METADATA_TOPIC_ID, config=config)
        try:
            found = await find_quorum(disk, log)
            if found.kraft_version > KRAFT_VERSION:
                raise UnknownRecord(
                    f"a newer Kafka wrote this metadata: kraft.version {found.kraft_version}, where "
                    f"{KRAFT_VERSION} is the latest that is known here"
                )
            me = VoterKey(node_id, directory_id)
            _check_sole_voter(found, me, disk)
            endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in controllers)
            raft = Raft(
                me,
                election=found.election,
                log=_log_state(found, log, VoterInfo(VoterKey(node_id), endpoints)),
                config=RaftConfig(endpoints),
                random=random,
                now_ms=int(clock.monotonic() * 1000),
            )
            driver = RaftDriver(raft, log, disk, clock, controllers=controllers, on_failure=on_failure)
            quorum = cls(driver, log, disk, clock, found, policy)
            await quorum._start(found, min_insync_replicas)
        except UnknownRecord as error:
            where = disk.describe(METADATA_DIRECTORY)
            raise DirectoryRefused(
                f"{where}: {error}. Go on with what wrote it, or with a newer version of this"
            ) from error
        return quorum

    async def _start(self, found: QuorumFiles, min_insync_replicas: int) -> None:
        await self.driver.elect()
        replayer, last_ms = await load_metadata(self._log, found, self.driver.high_watermark)
        self.metadata.publish(replayer.image, difference(self.metadata.image, replayer.image))
        self.controller.last_published_ms = last_ms
        self.controller.activate()
        first = await self._activation(replayer.in_transaction, min_insync_replicas)
        if first:
            await self.controller.write(first)
        logger.info("node %d leads the metadata quorum in epoch %d", self.driver.leader_id, self.driver.epoch)

    async def _activation(self, in_transaction: bool, min_insync_replicas: int) -> list[Message]:
        """What a leader has to say first: in a new cluster, what its formatting left for it."""
        image = self.metadata.image
        if image.features:
            return activation_records(image, in_transaction=in_transaction)
        data = await read_whole(self._disk, BOOTSTRAP_CHECKPOINT)
        if data is None:
            return activation_records(image, min_insync_replicas=min_insync_replicas)
        values = read_snapshot(data, self._disk.describe(BOOTSTRAP_CHECKPOINT)).values
        told = [decode_record(value) for value in values]
        replay_all(ClusterImage(), told)  # nothing goes into the log that nobody here could replay
        levels = {each.name: each.feature_level for each in told if isinstance(each, FeatureLevelRecord)}
        return activation_records(
            image,
            in_transaction=in_transaction,
            levels=levels,
            min_insync_replicas=min_insync_replicas,
            others=[each for each in told if not isinstance(each, FeatureLevelRecord)],
        )

    def _moment(self) -> SnapshotSource:
        """What a snapshot would hold now: a reference to the published image."""
        if self.driver.failure is not None:
            raise self.driver.failure
        image = self.metadata.image
        kraft_version, voters = self.driver.voters_at(image.offset)
        told: list[Control] = [KRaftVersion(kraft_version), voters] if kraft_version > 0 else []
        return SnapshotSource(image, [to_message(each) for each in told], self.controller.last_published_ms)

    async def abandon(self) -> None:
        """Stop at once, as a crash would."""
        await self.driver.abandon()

    async def close(self) -> None:
        """Take no more commands, finish those that were given, and resign; the directory closes the log."""
        await self.controller.close()
        self.driver.resign()


def _check_sole_voter(found: QuorumFiles, me: VoterKey, disk: Disk) -> None:
    """This node must be the only voter; with kraft.version 0 the settings say so, not the log."""
    voters = [] if found.voters is None else found.voters.voters
    keys = [VoterKey(each.voter_id, UUID(bytes=bytes(each.voter_directory_id))) for each in voters] or [me]
    if keys != [me]:
        told = ", ".join(f"{key.id} ({key.directory_id})" for key in keys)
        raise DirectoryRefused(
            f"the voters in the metadata log of {disk.describe('')} are {told}; node {me.id} "
            f"({me.directory_id}) must be the only one"
        )


def _log_state(found: QuorumFiles, log: PartitionLog, static: VoterInfo) -> LogState:
    """What the core is to know of the log; `static` is the voter by the settings, where nothing tells any."""
    base = [to_control(message) for message in found.snapshot.controls]
    voters = [each for each in base if isinstance(each, VoterSet)]
    versions = [each.version for each in base if isinstance(each, KRaftVersion)]
    controls = [(offset, to_control(message)) for offset, message in found.controls]
    return LogState(
        voters[-1] if voters else VoterSet([static]),
        versions[-1] if versions else 0,
        [(offset, control) for offset, control in controls if control is not None],
        log.start_offset,
        log.end_offset,
        log.epochs.entries,
        # only the newest is ever served, so only its size is known
        [(each, found.snapshot_bytes if each == found.snapshot_id else 0) for each in found.snapshots],
        found.snapshot_id.end_offset - 1,
    )
