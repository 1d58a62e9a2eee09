"""The parts that controller and broker of one process share: metadata quorum, published image, settings.

A process has one part in the quorum, as a voter or as an observer, whichever roles it has. `open` reads the
files, `start` begins to take part. A controller has to answer other nodes before that, for without votes
there is no leader. A broker waits until the published image has all records that the leader says are
committed (`caught_up`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.broker.cluster.controller_channel import LocalController
from barnabas.broker.cluster.forwarding import OwnController, RoutedController
from barnabas.broker.quorum.quorum import METADATA_LOG, MetadataQuorum
from barnabas.broker.quorum.snapshots import SnapshotPolicy
from barnabas.broker.services import ControllerServices
from barnabas.broker.settings.current_settings import CurrentSettings
from barnabas.broker.settings.unenforced import ALLOW, UnenforcedSecurity, refuse_unenforced
from barnabas.broker.storage.storage import Storage
from barnabas.core.clock import Clock
from barnabas.core.network import Network
from barnabas.core.random import Random
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.listeners import Listener
from barnabas.core.settings.relations import read_voters
from barnabas.core.settings.security import refuse_unenforceable
from barnabas.log.config import LogConfig
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.raft.config import RaftConfig
from barnabas.raft.election import VoterKey
from barnabas.raft.voters import Endpoint, VoterInfo, VoterSet

if TYPE_CHECKING:
    from barnabas.broker.cluster.broker_watch import BrokerWatch
    from barnabas.broker.cluster.leader_upkeep import LeaderUpkeep
    from barnabas.broker.cluster.remote_controller import RemoteController

logger = logging.getLogger("barnabas.node")

# how often a broker that waits for the quorum logs that
_WAITING_SECONDS = 10.0


class SharedServer:
    """Made by `open`. `local` are the services of this process's controller. `services` are those of its
    broker, whose requests find the active controller on any node."""

    def __init__(
        self,
        quorum: MetadataQuorum,
        static: BrokerSettings,
        storage: Storage,
        *,
        inter_broker_listener: str | None,
        network: Network,
        clock: Clock,
        random: Random,
        fail: Callable[[BaseException], None],
    ) -> None:
        self.quorum = quorum
        self._inter_broker_listener = inter_broker_listener
        self._storage = storage
        self._network = network
        self._clock = clock
        self._random = random
        self._fail = fail
        self._kept: object = None  # the security records of the image that was checked last
        self.settings = settings = CurrentSettings(static.node_id, quorum.metadata, static)
        self._watch: BrokerWatch | None = None
        self.controller = LocalController(
            quorum.controller,
            node_id=static.node_id,
            cluster_id=storage.cluster_id,
            random=random,
            clock=clock,
            topic_policy=settings.topic_policy,
            config_rules=settings.config_rules,
            election_defaults=settings.election_defaults,
            watch=self.watch,
            static_voters=[each.node_id for each in read_voters(static)],
        )
        self.local = ControllerServices(
            node_id=static.node_id,
            cluster_id=storage.cluster_id,
            settings=settings,
            clock=clock,
            random=random,
            quorum=quorum.driver,
            metadata=quorum.metadata,
            controller=self.controller,
            stop=fail,
        )
        self.routed = RoutedController(
            OwnController(self.local) if "controller" in static.roles else None,
            is_active=lambda: quorum.controller.is_active,
            leader=lambda: quorum.leader,
            until=quorum.until,
            caught_up=quorum.refreshed,
            remote=self._remote,
            settings=lambda: settings.broker,
            clock=clock,
        )
        self.services = self.local.with_controller(self.routed)

    @classmethod
    async def open(
        cls,
        static: BrokerSettings,
        storage: Storage,
        controllers: Sequence[Listener],
        *,
        inter_broker_listener: str | None,
        network: Network,
        clock: Clock,
        random: Random,
        fail: Callable[[BaseException], None],
    ) -> SharedServer:
        """`static` are the settings that the node was started with; `controllers` the addresses of its
        controller for other nodes, if it has one; `inter_broker_listener` the name of its broker's listener,
        if it has one."""
        quorum = await MetadataQuorum.open(
            storage.metadata,
            storage.metadata.disk,
            node_id=static.node_id,
            directory_id=storage.metadata_id,
            clock=clock,
            controllers=controllers,
            voters=initial_voters(static),
            raft=raft_config(static),
            min_insync_replicas=static.integer("min.insync.replicas"),
            config=_metadata_log(static),
            policy=SnapshotPolicy.of(static),
            random=random,
            network=network,
            cluster_id=storage.cluster_id,
            on_failure=fail,
        )
        return cls(
            quorum,
            static,
            storage,
            inter_broker_listener=inter_broker_listener,
            network=network,
            clock=clock,
            random=random,
            fail=fail,
        )

    def watch(self) -> BrokerWatch:
        """The watch over brokers while this node is the active controller; made at first use."""
        if self._watch is None:
            from barnabas.broker.cluster.broker_watch import BrokerWatch

            settings = self.settings.broker
            self._watch = BrokerWatch(
                self.quorum.controller,
                self._network,
                self._clock,
                node_id=self.local.node_id,
                former_leader=lambda: self.quorum.former_leader,
                inter_broker_listener=self._inter_broker_listener,
                session_s=settings.integer("broker.session.timeout.ms") / 1000,
                by_socket=settings.boolean("barnabas.fence.by.socket"),
                election_defaults=self.settings.election_defaults,
            )
        return self._watch

    def leader_upkeep(self) -> LeaderUpkeep:
        """Elects leaders from time to time while this node is the active controller."""
        from barnabas.broker.cluster.leader_upkeep import LeaderUpkeep

        settings = self.settings.broker
        is_on = settings.boolean("auto.leader.rebalance.enable")
        return LeaderUpkeep(
            self.quorum.controller,
            self._clock,
            preferred_s=settings.integer("leader.imbalance.check.interval.seconds") if is_on else None,
            leaderless_s=settings.integer("unclean.leader.election.interval.ms") / 1000,
            election_defaults=self.watch().election_defaults,
        )

    @property
    def watch_in_use(self) -> BrokerWatch | None:
        """The watch over brokers, if it was made."""
        return self._watch

    def _remote(self) -> RemoteController:
        from barnabas.broker.cluster.remote_controller import RemoteController

        return RemoteController(
            node_id=self.local.node_id,
            network=self._network,
            clock=self._clock,
            random=self._random,
            settings=lambda: self.settings.broker,
        )

    async def caught_up(self) -> None:
        """Wait until the image has all committed records; from then on, refuse security that cannot be
        enforced."""
        saying = asyncio.get_running_loop().create_task(self._say_what_is_missing())
        try:
            await self.quorum.caught_up()
        finally:
            saying.cancel()
        refuse_unenforceable(self.settings.broker)
        image = self.quorum.metadata.image
        self._refuse_unenforced(image)
        self._kept = image.kept
        self.quorum.metadata.subscribe(self._published)

    async def close(self) -> None:
        """Stop taking part in the quorum."""
        self.routed.close()
        await self.quorum.close()

    async def abandon(self) -> None:
        """Stop at once, as a crash would."""
        self.routed.close()
        await self.quorum.abandon()

    async def _say_what_is_missing(self) -> None:
        while True:
            await self._clock.sleep(_WAITING_SECONDS)
            driver = self.quorum.driver
            if driver.leader_id < 0:
                logger.warning(
                    "waiting for a majority of the controllers: no leader is known%s",
                    "".join(f"; {each}" for each in driver.problems),
                )
            else:
                logger.info(
                    "catching up with the metadata of node %d: at offset %d of %d",
                    driver.leader_id,
                    self.quorum.loader.position,
                    driver.leader_high_watermark,
                )

    def _published(self, image: ClusterImage, delta: Delta) -> None:
        if image.kept is not self._kept:
            self._kept = image.kept
            try:
                self._refuse_unenforced(image)
            except UnenforcedSecurity as error:
                self._fail(error)

    def _refuse_unenforced(self, image: ClusterImage) -> None:
        allowed = self.settings.broker.boolean(ALLOW)
        refuse_unenforced(image, self._storage.metadata.where, allowed=allowed)


def initial_voters(settings: BrokerSettings) -> VoterSet | None:
    """The voters before the log has any: those of the settings; an empty set where other nodes are asked for
    the log; None where the settings name no other nodes."""
    listener = settings.strings("controller.listener.names")
    voters = [
        VoterInfo(VoterKey(each.node_id), (Endpoint(listener[0].upper(), each.host, each.port),))
        for each in read_voters(settings)
    ]
    if voters or settings.strings("controller.quorum.bootstrap.servers"):
        return VoterSet(voters)
    return None


def raft_config(settings: BrokerSettings) -> RaftConfig:
    """The settings of the raft core."""
    name = settings.strings("controller.listener.names")[0].upper()
    servers = []
    for server in settings.strings("controller.quorum.bootstrap.servers"):
        host, _, port = server.rpartition(":")
        servers.append(Endpoint(name, host.removeprefix("[").removesuffix("]"), int(port)))
    return RaftConfig(
        bootstrap=tuple(servers),
        auto_join=settings.boolean("controller.quorum.auto.join.enable"),
        controller_listener=name,
        # 0 means as short as possible: some time has to pass
        election_timeout_ms=max(1, settings.integer("controller.quorum.election.timeout.ms")),
        fetch_timeout_ms=max(1, settings.integer("controller.quorum.fetch.timeout.ms")),
        election_backoff_max_ms=settings.integer("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=settings.integer("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=settings.integer("controller.quorum.retry.backoff.ms"),
    )


def _metadata_log(settings: BrokerSettings) -> LogConfig:
    return replace(
        METADATA_LOG,
        # the internal setting allows less than the usual minimum, for tests
        segment_bytes=settings.optional_integer("internal.metadata.log.segment.bytes")
        or settings.integer("metadata.log.segment.bytes"),
        segment_ms=settings.integer("metadata.log.segment.ms"),
        max_message_bytes=settings.integer("internal.metadata.max.batch.size.in.bytes"),
    )
