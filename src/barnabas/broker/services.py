"""The parts of a node that handlers use, at a controller's listeners and at a broker's.

Made once, when a node starts; handlers keep no state of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.cluster.controller_channel import ControllerChannel
from barnabas.broker.cluster.producer_ids import ProducerIds
from barnabas.broker.quorum.driver import RaftDriver
from barnabas.broker.replicas.fetch_sessions import FetchSessions
from barnabas.broker.replicas.replicas import Replicas
from barnabas.broker.settings.current_settings import CurrentSettings
from barnabas.broker.storage.storage import Storage
from barnabas.controller.bootstrap import SUPPORTED_FEATURES
from barnabas.core.clock import Clock
from barnabas.core.network import Network
from barnabas.core.random import Random
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.metadata.publisher import MetadataPublisher

if TYPE_CHECKING:
    from barnabas.broker.cluster.peers import Peers
    from barnabas.broker.coordinators.coordinator import Coordinator
    from barnabas.broker.coordinators.ends import MarkerWrites
    from barnabas.broker.directories.moves import Moves
    from barnabas.broker.metrics.requests import RequestTraffic
    from barnabas.controller.configs import ConfigRules
    from barnabas.groups.shard import GroupShard
    from barnabas.metadata.parts import TopicImage
    from barnabas.transactions.shard import TransactionShard


class ControllerServices:
    """The parts that a controller's handlers use; a broker's handlers have them, too."""

    __slots__ = (
        "_settings",
        "clock",
        "cluster_id",
        "controller",
        "features",
        "metadata",
        "node_id",
        "quorum",
        "random",
        "stop",
        "traffic",
    )

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        settings: CurrentSettings,
        clock: Clock,
        random: Random,
        quorum: RaftDriver,
        metadata: MetadataPublisher,
        controller: ControllerChannel,
        stop: Callable[[BaseException], None],
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self._settings = settings
        self.clock = clock
        self.random = random
        self.quorum = quorum
        self.metadata = metadata
        self.controller = controller
        self.features = SUPPORTED_FEATURES
        self.stop = stop
        self.traffic: RequestTraffic | None = None  # None unless the node serves metrics

    @property
    def image(self) -> ClusterImage:
        """The published metadata now; to be read again after every await."""
        return self.metadata.image

    @property
    def settings(self) -> BrokerSettings:
        """The node's current settings."""
        return self._settings.broker

    def with_controller(self, controller: ControllerChannel) -> ControllerServices:
        """The same services with another channel to the active controller."""
        return ControllerServices(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            settings=self._settings,
            clock=self.clock,
            random=self.random,
            quorum=self.quorum,
            metadata=self.metadata,
            controller=controller,
            stop=self.stop,
        )

    def config_rules(self) -> ConfigRules:
        """The rules for settings of topics, brokers, groups and subscriptions."""
        return self._settings.config_rules()


class Services(ControllerServices):
    """The parts that a broker's handlers use."""

    __slots__ = (
        "_inter_broker_listener",
        "_marker_writes",
        "_network",
        "_peers",
        "fetch_max_bytes",
        "groups_in_use",
        "moves",
        "producer_ids",
        "replicas",
        "sessions",
        "storage",
        "transactions_in_use",
    )

    def __init__(
        self,
        common: ControllerServices,
        *,
        network: Network,
        inter_broker_listener: str,
        replicas: Replicas,
        sessions: FetchSessions,
        producer_ids: ProducerIds,
        storage: Storage,
    ) -> None:
        """`common` are the node's services for a controller; a node without a controller has them, too."""
        super().__init__(
            node_id=common.node_id,
            cluster_id=common.cluster_id,
            settings=common._settings,
            clock=common.clock,
            random=common.random,
            quorum=common.quorum,
            metadata=common.metadata,
            controller=common.controller,
            stop=common.stop,
        )
        self._network = network
        self._inter_broker_listener = inter_broker_listener
        self._peers: Peers | None = None
        self.fetch_max_bytes = self.settings.integer("fetch.max.bytes")
        self.replicas = replicas
        self.sessions = sessions
        self.producer_ids = producer_ids
        self.storage = storage
        self.moves: Moves | None = None  # None with a single directory
        self.groups_in_use: Coordinator[GroupShard] | None = None
        self.transactions_in_use: Coordinator[TransactionShard] | None = None
        self._marker_writes: MarkerWrites | None = None

    @property
    def peers(self) -> Peers:
        """Channels to the brokers of the cluster, this one included."""
        if self._peers is None:
            from barnabas.broker.cluster.peers import Peers  # only transactions need them

            self._peers = Peers(self, self._network, self._inter_broker_listener)
        return self._peers

    @property
    def marker_writes(self) -> MarkerWrites:
        """Writes markers into the partitions that this node leads."""
        if self._marker_writes is None:
            from barnabas.broker.coordinators.ends import MarkerWrites

            self._marker_writes = MarkerWrites(self)
        return self._marker_writes

    def close_peers(self) -> None:
        """Send no more requests to other brokers, and stop waiting for markers."""
        if self._marker_writes is not None:
            self._marker_writes.close()
        if self._peers is not None:
            self._peers.close()

    # coordinators are made at the first request, or when a partition of theirs is led here

    @property
    def groups(self) -> Coordinator[GroupShard]:
        """The group coordinator."""
        if self.groups_in_use is None:
            from barnabas.broker.coordinators.groups import coordinate_groups

            self.groups_in_use = coordinate_groups(self)
        return self.groups_in_use

    @property
    def transactions(self) -> Coordinator[TransactionShard]:
        """The transaction coordinator."""
        if self.transactions_in_use is None:
            from barnabas.broker.coordinators.transactions import coordinate_transactions

            self.transactions_in_use = coordinate_transactions(self)
        return self.transactions_in_use

    def load_coordinators(self) -> None:
        """Load this node's coordinator partitions in the background: sessions and transactions have to time
        out. From now on partitions are loaded when this node becomes their leader."""
        for topic in (TRANSACTION_STATE, CONSUMER_OFFSETS):
            if self.image.topic(topic) is not None:
                self._coordinator_of(topic).load_all()
        self.replicas.on_changed.append(self._coordinate)

    def _coordinate(self, topic: TopicImage) -> None:
        """Load a coordinator's partition that may be led here now; a coordinator in use loads it itself."""
        if topic.name == TRANSACTION_STATE and self.transactions_in_use is None:
            self.transactions.load_all()
        elif topic.name == CONSUMER_OFFSETS and self.groups_in_use is None:
            self.groups.load_all()

    def _coordinator_of(self, topic: str) -> Coordinator[GroupShard] | Coordinator[TransactionShard]:
        return self.transactions if topic == TRANSACTION_STATE else self.groups

    async def close_coordinators(self) -> None:
        """Close the coordinators, and answer all requests that wait for a group or a transaction."""
        if self.groups_in_use is not None:
            await self.groups_in_use.close()
        if self.transactions_in_use is not None:
            await self.transactions_in_use.close()
