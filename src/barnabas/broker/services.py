"""What handlers have at hand. Made once, when a node starts; handlers keep no state of their own."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.controller_channel import ControllerChannel
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.quorum import MetadataQuorum
from barnabas.broker.replicas import Replicas
from barnabas.controller.bootstrap import SUPPORTED_FEATURES
from barnabas.core.clock import Clock
from barnabas.core.random import Random
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.metadata.image import ClusterImage


class Services:
    """The parts of a running node."""

    __slots__ = (
        "clock",
        "cluster_id",
        "controller",
        "features",
        "fetch_max_bytes",
        "image",
        "node_id",
        "producer_ids",
        "quorum",
        "random",
        "replicas",
        "sessions",
        "settings",
        "stop",
    )

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        settings: BrokerSettings,
        clock: Clock,
        random: Random,
        quorum: MetadataQuorum,
        controller: ControllerChannel,
        replicas: Replicas,
        sessions: FetchSessions,
        producer_ids: ProducerIds,
        stop: Callable[[BaseException], None],
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.settings = settings
        self.clock = clock
        self.random = random
        self.quorum = quorum
        self.image: ClusterImage = quorum.image
        self.controller = controller
        self.features = SUPPORTED_FEATURES
        self.fetch_max_bytes = settings.integer("fetch.max.bytes")
        self.replicas = replicas
        self.sessions = sessions
        self.producer_ids = producer_ids
        self.stop = stop
