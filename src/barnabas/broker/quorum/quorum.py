"""The metadata quorum of this node: raft driver, loader, publisher, controller and snapshots together.

`driver` replicates the log. `metadata` is the published image: `loader` updates it from the log, and while
this node is the active controller, `controller` updates it with its decisions. The lead begins with an
election. The controller becomes active when a record of its own epoch is committed and everything before it
is loaded, and then writes the first records of a leader. When the lead is lost the loader goes on behind the
published image. A node that is no voter (a broker) is always a follower: an observer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from barnabas.broker.quorum.controller import ActiveController
from barnabas.broker.quorum.driver import RaftDriver, WriteSnapshot
from barnabas.broker.quorum.files import QuorumFiles, find_quorum
from barnabas.broker.quorum.loader import MetadataLoader, snapshot_image
from barnabas.broker.quorum.raft_disk import RaftDisk
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
from barnabas.core.errors import BarnabasError, InvariantViolation, StorageError
from barnabas.core.network import Address, Network
from barnabas.core.random import Random, SystemRandom
from barnabas.core.settings.listeners import Listener
from barnabas.log.checkpoints import read_whole
from barnabas.log.config import UNLIMITED, LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import PartitionLog
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.publisher import MetadataNotApplied, MetadataPublisher
from barnabas.metadata.records import FeatureLevelRecord, UnknownRecord, decode_record
from barnabas.metadata.replay import replay_all
from barnabas.protocol.schema import Message
from barnabas.raft.batches import MAX_BATCH_BYTES
from barnabas.raft.config import RaftConfig
from barnabas.raft.control_values import to_control, to_message
from barnabas.raft.core import Raft
from barnabas.raft.election import NO_NODE, VoterKey
from barnabas.raft.log_index import Control, KRaftVersion, LogState
from barnabas.raft.snapshot import BOOTSTRAP_CHECKPOINT, SnapshotId, read_snapshot
from barnabas.raft.states import Follower
from barnabas.raft.voters import Endpoint, VoterInfo, VoterSet

if TYPE_CHECKING:
    from barnabas.broker.quorum.links import QuorumLinks

logger = logging.getLogger("barnabas.quorum")

# Kafka's defaults (metadata.log.segment.bytes and .ms); only snapshots allow records to be deleted
METADATA_LOG = LogConfig(retention_ms=UNLIMITED, retention_bytes=UNLIMITED, max_message_bytes=MAX_BATCH_BYTES)

SNAPSHOT_POLICY = SnapshotPolicy()
# how long a broker waits at most for a change that another node has committed
REFRESH_SECONDS = 0.5
REFRESH_RETRY_SECONDS = 0.02
# how long a leader that stops waits for the other voters to know
RESIGN_SECONDS = 1.0
_RANDOM = SystemRandom()


class MetadataQuorum:
    """Made by `open`; begins to take part with `start`."""

    def __init__(
        self,
        driver: RaftDriver,
        log: PartitionLog,
        disk: Disk,
        clock: Clock,
        found: QuorumFiles,
        policy: SnapshotPolicy,
        min_insync_replicas: int,
    ) -> None:
        self.driver = driver
        self.metadata = MetadataPublisher()
        self.controller = ActiveController(driver, self.metadata, clock, log.config.max_message_bytes)
        self.loader = MetadataLoader(
            log, self.metadata, self._fail, snapshot_image(found.snapshot_id, found.snapshot)
        )
        self._log = log
        self._disk = disk
        self._clock = clock
        self._min_insync_replicas = min_insync_replicas
        # the timestamp of the last batch in the published image
        self.last_published_ms = found.snapshot.last_contained_ms
        self._led_until = 0.0  # monotonic
        self._behind_since: float | None = None  # since when more is committed than published
        self._activation: asyncio.Task[None] | None = None
        self._refusal: BaseException | None = None  # why this node could not become the active controller
        self._waiting: dict[asyncio.Future[None], None] = {}  # a set in the order of arrival
        self.snapshots = Snapshots(
            disk,
            log,
            clock,
            policy,
            self._moment,
            known=found.snapshots,
            uncovered_bytes=found.uncovered_bytes,
        )
        # called when this node becomes the active controller, and when it no longer is
        self.on_active: Callable[[bool], None] = lambda is_active: None
        self._follow_driver()

    def _follow_driver(self) -> None:
        driver = self.driver
        driver.on_commit = self._committed
        driver.on_lost = self._lost
        driver.on_elected = self._elected
        driver.on_change = self._changed
        driver.install = self._install
        self.controller.on_published = self.loader.on_published = self._published
        self.loader.on_moved = self._changed
        self.snapshots.on_taken = self._taken
        self.snapshots.on_trimmed = self._trimmed

    def _taken(self, snapshot: SnapshotId, size_bytes: int) -> None:
        from barnabas.raft.messages import SnapshotTaken  # messages: a sole voter has no other

        self.driver.step(SnapshotTaken(snapshot, size_bytes))

    def _trimmed(self, snapshot: SnapshotId) -> None:
        from barnabas.raft.messages import LogTrimmed

        self.driver.step(LogTrimmed(snapshot))

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
        voters: VoterSet | None = None,
        raft: RaftConfig | None = None,
        config: LogConfig = METADATA_LOG,
        min_insync_replicas: int = 1,
        policy: SnapshotPolicy = SNAPSHOT_POLICY,
        random: Random = _RANDOM,
        network: Network | None = None,
        cluster_id: str = "",
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> MetadataQuorum:
        """Read the files. `controllers` are the node's controller listeners as other nodes reach them, none
        for a broker alone. `voters` are used if the log has none; by default this node is the only voter.
        `min_insync_replicas` is the setting of a new cluster; `network` is used to reach other nodes."""
        log = await directory.partition(METADATA_TOPIC, 0, topic_id=METADATA_TOPIC_ID, config=config)
        endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in controllers)
        own = VoterSet([VoterInfo(VoterKey(node_id), endpoints)] if endpoints else [])
        me = VoterKey(node_id, directory_id)
        raft_config = (raft or RaftConfig())._replace(endpoints=endpoints)
        try:
            found = await find_quorum(disk, log)
            _check_found(found, me, disk)
            core = Raft(
                me,
                election=found.election,
                log=_log_state(found, log, own if voters is None else voters),
                config=raft_config,
                random=random,
                now_ms=int(clock.monotonic() * 1000),
            )
            driver = RaftDriver(
                core,
                RaftDisk(log, disk, clock),
                clock,
                controllers=controllers,
                sender=lambda driver: _links(driver, network, clock, raft_config, cluster_id),
                on_failure=on_failure,
            )
            return cls(driver, log, disk, clock, found, policy, min_insync_replicas)
        except UnknownRecord as error:
            raise _refused(disk, error) from error

    async def start(self) -> None:
        """Begin to take part. A sole voter is the active controller on return; in a larger quorum `caught_up`
        waits for the first metadata."""
        self.driver.start()
        if self.driver.is_sole_voter:
            await self.until(lambda: self.controller.is_active or self._refusal is not None)
            if self._activation is not None:
                await asyncio.shield(self._activation)
            if self._refusal is not None:
                raise _reason(self._refusal)

    async def caught_up(self) -> None:
        """Wait until the published image has everything that the leader has reported as committed."""
        await self.until(lambda: self.is_caught_up)

    @property
    def is_caught_up(self) -> bool:
        driver = self.driver
        if driver.is_leader:
            return self.controller.is_active
        told = driver.leader_high_watermark
        return driver.leader_id != NO_NODE and 0 <= told <= self.loader.position

    @property
    def lag_s(self) -> float:
        """For how long it has been uncertain whether the published image has everything committed."""
        if self.controller.is_active:
            return 0.0
        since = max(self.driver.core.heard_ms / 1000, self._led_until)
        if self._behind_since is not None:
            since = min(since, self._behind_since)
        return max(self._clock.monotonic() - since, 0.0)

    @property
    def former_leader(self) -> tuple[int, float]:
        """The node that was last heard as the leader, and when (monotonic); -1 if there was none, or this
        node has led since."""
        core = self.driver.core
        heard_at = core.heard_ms / 1000
        return NO_NODE if self._led_until > heard_at else core.heard_id, heard_at

    @property
    def is_attached(self) -> bool:
        """Whether this node is the active controller, or a follower that hears from its leader."""
        role, suspicion = self.driver.core.role, self.driver.core.suspicion
        if isinstance(role, Follower):
            return role.has_fetched and not suspicion.is_gone
        return self.controller.is_active

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until a condition on the quorum or on the published image holds."""
        while not is_true():
            if self.driver.failure is not None:
                raise _reason(self._refusal or self.driver.failure)
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[waiting] = None
            try:
                await waiting
            finally:
                self._waiting.pop(waiting, None)  # a cancelled caller must not stay here

    @property
    def led_epoch(self) -> int:
        """The latest epoch with a known leader, or the one before an epoch whose leader is not known yet."""
        driver = self.driver
        return driver.epoch - (driver.leader_id == NO_NODE)

    async def led_after(self, epoch: int) -> int:
        """Wait until the leader of a later epoch is known; returns that epoch."""
        driver = self.driver
        await self.until(lambda: driver.epoch > epoch and driver.leader_id != NO_NODE)
        return driver.epoch

    async def refreshed(self) -> None:
        """Wait, for a limited time, until the published image has what the leader has committed by now.
        Raises the failure of a node that stops meanwhile."""
        from barnabas.transport.waiting import within

        try:
            await within(self._clock, REFRESH_SECONDS, self._refresh(), "reading the latest metadata")
        except BarnabasError as error:
            if self.driver.failure is not None:
                raise self.driver.failure from error
            logger.debug("the image may be behind the leader's: %s", error)

    async def _refresh(self) -> None:
        high_watermark = await self._high_watermark_of_leader()
        await self.until(lambda: self.controller.is_active or self.loader.position >= high_watermark)

    async def _high_watermark_of_leader(self) -> int:
        while not self.controller.is_active:
            try:
                return await self.driver.ask_high_watermark()
            except BarnabasError as error:  # this node may not know of the latest election yet
                logger.debug("asking again what is committed: %s", error)
                await self._clock.sleep(REFRESH_RETRY_SECONDS)
        return self.driver.high_watermark

    @property
    def leader(self) -> tuple[int, Address] | None:
        """The active controller's id and address, if this node knows them."""
        address = self.driver.leader_address
        return None if address is None else (self.driver.leader_id, address)

    # --- called by the driver

    def _committed(self, high_watermark: int) -> None:
        if self.controller.is_active:
            self.controller.committed(high_watermark)
        else:
            self.loader.advance(high_watermark)
        self._changed()

    def _elected(self, epoch: int) -> None:
        self._refusal = None
        self._activation = asyncio.get_running_loop().create_task(self._activate(epoch))
        self._activation.add_done_callback(self._activation_ended)

    def _lost(self, reason: BarnabasError) -> None:
        if self.driver.is_leader and self.driver.failure is None:
            if self.controller.withdrawn(reason):
                logger.warning("node %d leads the metadata quorum no more: %s", self.driver.me.id, reason)
                self.driver.resign()
            return
        self.controller.lost(reason)
        if self.controller.is_active:
            self.controller.deactivate()
            self._led_until = self._clock.monotonic()
            self.on_active(False)
            self.loader.resume()
        else:
            self._refusal = self._refusal or reason
        self._changed()

    async def _install(self, snapshot_id: SnapshotId, write: WriteSnapshot) -> tuple[VoterSet, int]:
        """Replace log and image by a snapshot that was fetched."""
        await self.loader.pause()
        try:
            async with self.snapshots.turn:
                snapshot = await write()
                replaced = self.snapshots.installed(snapshot_id)
        except BaseException:
            self.loader.resume()
            raise
        try:
            self.loader.install(snapshot_id, snapshot)
        except (UnknownRecord, InvariantViolation) as error:
            self._fail(error)  # the log belongs to the snapshot by now, and the image does not
            raise
        self.last_published_ms = snapshot.last_contained_ms
        self.driver.totals.snapshots_loaded += 1
        for each in replaced:
            await self._remove(each)
        told = [to_control(message) for message in snapshot.controls]
        voters = [each for each in told if isinstance(each, VoterSet)]
        versions = [each.version for each in told if isinstance(each, KRaftVersion)]
        known = self.driver.core
        return voters[-1] if voters else known.voters, versions[-1] if versions else 0

    async def _remove(self, snapshot: SnapshotId) -> None:
        try:
            await self._disk.remove(f"{METADATA_DIRECTORY}/{snapshot.name}")
        except StorageError as error:
            logger.warning("a snapshot that was replaced stays: %s", error)

    def _published(self, size_bytes: int, timestamp_ms: int) -> None:
        self.last_published_ms = timestamp_ms
        self.snapshots.count(size_bytes)

    def _changed(self) -> None:
        committed = max(self.driver.high_watermark, self.driver.leader_high_watermark)
        if self.controller.is_active or self.loader.position >= committed:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = self._clock.monotonic()
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, MetadataNotApplied):
            self.driver.totals.apply_errors += 1
        else:
            self.driver.totals.load_errors += 1
        if isinstance(error, UnknownRecord):
            error = _refused(self._disk, error)
        self._refusal = error
        self.driver.fail(error)
        self._changed()

    # --- becoming the active controller

    async def _activate(self, epoch: int) -> None:
        """Load everything that is committed, and write a leader's first records; ends when the lead is
        lost."""
        try:
            while True:
                await self.until(lambda: self._has_loaded(epoch) or not self._leads(epoch))
                if not self._leads(epoch):
                    return
                first = await self._first_records()
                if self._has_loaded(epoch):  # no record arrived meanwhile
                    break
            self.loader.stand_by()
            self.controller.activate()
            if first:
                await self.controller.write(first)
        except BarnabasError as error:
            self._could_not_activate(error)
            return
        logger.info("node %d leads the metadata quorum in epoch %d", self.driver.me.id, epoch)
        self.on_active(True)
        self._changed()

    def _activation_ended(self, activation: asyncio.Task[None]) -> None:
        """After an unexpected error, a leader that is not active must not go on."""
        if not activation.cancelled() and (error := activation.exception()) is not None:
            self._fail(error)

    def _could_not_activate(self, error: BarnabasError) -> None:
        """The first records could not be written: resign, as another voter may be able to."""
        self._refusal = _refused(self._disk, error) if isinstance(error, UnknownRecord) else _reason(error)
        if self.driver.is_leader and not self.driver.is_closed:  # otherwise the node stops
            logger.error("node %d cannot lead the metadata quorum: %s", self.driver.me.id, error)
            self.driver.resign()
        self._changed()

    def _leads(self, epoch: int) -> bool:
        return self.driver.is_leader and self.driver.epoch == epoch

    def _has_loaded(self, epoch: int) -> bool:
        driver, loader = self.driver, self.loader
        if not self._leads(epoch) or not driver.has_committed or loader.is_loading:
            return False
        return loader.position >= driver.high_watermark

    async def _first_records(self) -> list[Message]:
        """The first records of a leader; in a new cluster, those that formatting has left."""
        image, in_transaction = self.metadata.image, self.loader.in_transaction
        if image.features:
            return activation_records(image, in_transaction=in_transaction)
        data = await read_whole(self._disk, BOOTSTRAP_CHECKPOINT)
        if data is None:
            return activation_records(image, min_insync_replicas=self._min_insync_replicas)
        values = read_snapshot(data, self._disk.describe(BOOTSTRAP_CHECKPOINT)).values
        told = [decode_record(value) for value in values]
        replay_all(ClusterImage(), told)  # nothing goes into the log that this node could not replay
        levels = {each.name: each.feature_level for each in told if isinstance(each, FeatureLevelRecord)}
        return activation_records(
            image,
            in_transaction=in_transaction,
            levels=levels,
            min_insync_replicas=self._min_insync_replicas,
            others=[each for each in told if not isinstance(each, FeatureLevelRecord)],
        )

    def _moment(self) -> SnapshotSource:
        """The source of a snapshot now: a reference to the published image."""
        if self.driver.failure is not None:
            raise self.driver.failure
        image = self.metadata.image
        kraft_version, voters = self.driver.voters_at(image.offset)
        told: list[Control] = [KRaftVersion(kraft_version), voters] if kraft_version > 0 else []
        return SnapshotSource(image, [to_message(each) for each in told], self.last_published_ms)

    # --- stop

    async def abandon(self) -> None:
        """Stop at once, as a crash would."""
        await self.driver.abandon()
        await self._end()

    async def resign(self) -> None:
        """Take no more commands, finish those under way, and resign."""
        self.controller.close()
        if not self.driver.is_settled:
            await self._briefly(self.driver.settle(), "writing the last decisions")
        await self._soon(lambda: not self.controller.is_deciding, "committing the last decisions")
        if self.driver.is_leader and not self.driver.is_sole_voter:
            self.driver.resign()
            await self._soon(lambda: self.driver.has_told_successors, "telling the other voters")

    async def close(self) -> None:
        """Stop taking part; the directory closes the log."""
        await self.resign()
        self.driver.resign()
        await self.driver.close()
        await self._end()

    async def _soon(self, is_true: Callable[[], bool], what: str) -> None:
        if not is_true() and self.driver.failure is None:
            await self._briefly(self.until(is_true), what)

    async def _briefly(self, work: Coroutine[Any, Any, None], what: str) -> None:
        from barnabas.transport.waiting import within

        try:
            await within(self._clock, RESIGN_SECONDS, work, what)
        except BarnabasError as error:
            logger.info("the quorum goes on without this node: %s", error)

    async def _end(self) -> None:
        if self._activation is not None:
            self._activation.cancel()
            await asyncio.gather(self._activation, return_exceptions=True)
        await self.loader.pause()
        self._changed()


def _links(
    driver: RaftDriver, network: Network | None, clock: Clock, config: RaftConfig, cluster_id: str
) -> QuorumLinks:
    from barnabas.broker.quorum.links import LinkSettings, QuorumLinks  # a sole voter dials nobody

    assert network is not None  # otherwise no other node is known
    endpoint = config.listener or (config.bootstrap[0] if config.bootstrap else None)
    listener = "CONTROLLER" if endpoint is None else endpoint.listener
    timeout_s = config.request_timeout_ms / 1000
    settings = LinkSettings(cluster_id, f"raft-client-{driver.me.id}", listener, timeout_s, timeout_s)
    return QuorumLinks(network, clock, settings, driver.step)


def _reason(error: BaseException) -> BaseException:
    """The error to report at a start: the cause, rather than the doubt that it leaves."""
    return error.__cause__ if isinstance(error.__cause__, BarnabasError) else error


def _refused(disk: Disk, error: UnknownRecord) -> DirectoryRefused:
    where = disk.describe(METADATA_DIRECTORY)
    return DirectoryRefused(f"{where}: {error}. Go on with what wrote it, or with a newer version of this")


def _check_found(found: QuorumFiles, me: VoterKey, disk: Disk) -> None:
    if found.kraft_version > KRAFT_VERSION:
        raise UnknownRecord(
            f"a newer Kafka wrote this metadata: kraft.version {found.kraft_version}, where "
            f"{KRAFT_VERSION} is the latest that is known here"
        )
    voters = [] if found.voters is None else found.voters.voters
    keys = [VoterKey(each.voter_id, UUID(bytes=bytes(each.voter_directory_id))) for each in voters]
    if keys and me not in keys and {key.id for key in keys} == {me.id}:
        told = ", ".join(f"{key.id} ({key.directory_id})" for key in keys)
        raise DirectoryRefused(
            f"the only voter in the metadata log of {disk.describe('')} is {told}, which is node {me.id} on "
            f"another directory than this one ({me.directory_id}): restore that directory"
        )


def _log_state(found: QuorumFiles, log: PartitionLog, voters: VoterSet) -> LogState:
    """The core's view of the log; `voters` are those of the settings, used if the log has none."""
    base = [to_control(message) for message in found.snapshot.controls]
    told = [each for each in base if isinstance(each, VoterSet)]
    versions = [each.version for each in base if isinstance(each, KRaftVersion)]
    controls = [(offset, to_control(message)) for offset, message in found.controls]
    return LogState(
        told[-1] if told else voters,
        versions[-1] if versions else 0,
        [(offset, control) for offset, control in controls if control is not None],
        log.start_offset,
        log.end_offset,
        log.epochs.entries,
        # only the newest is ever served, so only its size is needed
        [(each, found.snapshot_bytes if each == found.snapshot_id else 0) for each in found.snapshots],
        found.snapshot_id.end_offset - 1,
    )
