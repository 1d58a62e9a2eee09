"""The group coordinator: `__consumer_offsets`, its shards, and their settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.coordinator import Coordinator
from barnabas.broker.coordinators.host import Host
from barnabas.broker.coordinators.settings_cache import SettingsCache
from barnabas.broker.coordinators.topics import ensure_topic
from barnabas.coordination.effects import Markers
from barnabas.core.errors import InvariantViolation
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.groups.records import KINDS
from barnabas.groups.settings import GroupSettings
from barnabas.groups.shard import GroupShard
from barnabas.metadata.names import CONSUMER_OFFSETS
from barnabas.metadata.parts import TopicImage

if TYPE_CHECKING:
    from barnabas.broker.services import Services


def coordinate_groups(services: Services) -> Coordinator[GroupShard]:
    """The group coordinator of this node."""
    settings = SettingsCache(services, _settings)
    coordinator = Coordinator(
        CONSUMER_OFFSETS,
        KINDS,
        lambda: GroupShard(settings, services.random),
        metadata=services.metadata,
        replicas=services.replicas,
        clock=services.clock,
        codec=services.settings.integer("offsets.topic.compression.codec"),
        commit_timeout=lambda: services.settings.integer("offsets.commit.timeout.ms") / 1000,
        send_markers=_no_markers,
        ensure_topic=partial(ensure_topic, CONSUMER_OFFSETS, services),
        stop=services.stop,
    )

    def removed(topic: TopicImage) -> None:
        coordinator.tell_all(lambda shard, now: shard.topic_deleted(topic.name, topic.id))

    services.replicas.on_removed.append(removed)
    return coordinator


def _settings(settings: BrokerSettings, _: int) -> GroupSettings:
    return GroupSettings(
        initial_rebalance_delay_ms=settings.integer("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=settings.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=settings.integer("group.max.session.timeout.ms"),
        max_size=settings.integer("group.max.size"),
        offset_metadata_max_bytes=settings.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=settings.integer("offsets.retention.minutes") * 60_000,
        offsets_check_interval_ms=settings.integer("offsets.retention.check.interval.ms"),
    )


def _no_markers(host: Host[GroupShard], markers: Markers) -> None:
    raise InvariantViolation("a group has no transactions to end")
