"""The controller of a node: its part in the metadata quorum, and the listeners at which it answers.

It answers as soon as the metadata is loaded, before the broker of the same process is registered: a broker
has to be able to reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from barnabas.broker.cluster.controller_channel import LocalController
from barnabas.broker.connections.connections import Connections, limits_of
from barnabas.broker.connections.requests import CONTROLLER_ROUTER
from barnabas.broker.quorum.quorum import METADATA_LOG, MetadataQuorum
from barnabas.broker.quorum.snapshots import SnapshotPolicy
from barnabas.broker.services import ControllerServices
from barnabas.broker.settings.current_settings import CurrentSettings
from barnabas.broker.settings.unenforced import ALLOW, refuse_unenforced
from barnabas.broker.storage.storage import Storage
from barnabas.core.clock import Clock
from barnabas.core.random import Random
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.listeners import Listener
from barnabas.core.settings.security import refuse_unenforceable
from barnabas.log.config import LogConfig


class ControllerServer:
    """Made by `open`, which loads the metadata and elects this node."""

    def __init__(
        self, quorum: MetadataQuorum, settings: CurrentSettings, services: ControllerServices
    ) -> None:
        self.quorum = quorum
        self.settings = settings
        self.services = services
        self.connections = Connections(services, CONTROLLER_ROUTER, limits_of(settings.broker))
        settings.subscribe(lambda altered: self.connections.limit(limits_of(altered)))

    @classmethod
    async def open(
        cls,
        static: BrokerSettings,
        storage: Storage,
        reachable: Sequence[Listener],
        *,
        clock: Clock,
        random: Random,
        fail: Callable[[BaseException], None],
    ) -> ControllerServer:
        """`static` is what the node was started with, `reachable` where others find its listeners."""
        node_id = static.node_id
        quorum = await MetadataQuorum.open(
            storage.metadata,
            storage.metadata.disk,
            node_id=node_id,
            directory_id=storage.metadata_id,
            clock=clock,
            controllers=reachable,
            min_insync_replicas=static.integer("min.insync.replicas"),
            config=_metadata_log(static),
            policy=SnapshotPolicy.of(static),
            on_failure=fail,
        )
        await quorum.start()
        settings = CurrentSettings(node_id, quorum.metadata, static)
        refuse_unenforceable(settings.broker)
        allowed = settings.broker.boolean(ALLOW)
        refuse_unenforced(quorum.metadata.image, storage.metadata.where, allowed=allowed)
        channel = LocalController(
            quorum.controller,
            node_id=node_id,
            cluster_id=storage.cluster_id,
            random=random,
            clock=clock,
            topic_policy=settings.topic_policy,
            config_rules=settings.config_rules,
            election_defaults=settings.election_defaults,
        )
        services = ControllerServices(
            node_id=node_id,
            cluster_id=storage.cluster_id,
            settings=settings,
            clock=clock,
            random=random,
            quorum=quorum.driver,
            metadata=quorum.metadata,
            controller=channel,
            stop=fail,
        )
        return cls(quorum, settings, services)


def _metadata_log(settings: BrokerSettings) -> LogConfig:
    return replace(
        METADATA_LOG,
        # the internal one goes below the usual minimum, for tests
        segment_bytes=settings.optional_integer("internal.metadata.log.segment.bytes")
        or settings.integer("metadata.log.segment.bytes"),
        segment_ms=settings.integer("metadata.log.segment.ms"),
    )
