"""What a topic's settings come to: its own over the broker's, parsed once and kept until they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.controller.topics import TopicPolicy
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.topic import log_config_properties, topic_defaults, validate_topic_overrides
from barnabas.log.config import LogConfig, known_settings
from barnabas.metadata.image import ClusterImage

if TYPE_CHECKING:
    from barnabas.core.settings.describe import Described


class TopicSettings(NamedTuple):
    """What the logs of a topic heed, and what their leaders do."""

    log: LogConfig
    min_in_sync: int


class TopicSettingsCache:
    """The settings of every topic that was asked for. Topics that override nothing share one."""

    def __init__(self, image: ClusterImage, settings: BrokerSettings) -> None:
        self._image = image
        self._settings = settings
        self._known: dict[tuple[tuple[str, str], ...], TopicSettings] = {}

    def of(self, topic: str) -> TopicSettings:
        overrides = self._image.topic_config(topic)
        key = tuple(overrides.items())
        found = self._known.get(key)
        if found is None:
            if len(self._known) > _MAX_KEPT:
                self._known.clear()
            found = self._known[key] = self._work_out(overrides)
        return found

    def broker_changed(self, settings: BrokerSettings) -> None:
        """The defaults are others now."""
        self._settings = settings
        self._known.clear()

    def _work_out(self, overrides: dict[str, str]) -> TopicSettings:
        properties = log_config_properties(overrides, self._settings)
        heeded = known_settings()
        log = LogConfig.from_properties({name: text for name, text in properties.items() if name in heeded})
        return TopicSettings(log, int(properties["min.insync.replicas"]))


_MAX_KEPT = 1000


def topic_policy(settings: BrokerSettings) -> TopicPolicy:
    """What new topics get that do not say, and which settings they may have."""
    defaults = topic_defaults(settings)

    def describe(overrides: Mapping[str, str]) -> Iterable[Described]:
        from barnabas.core.settings.describe import describe_topic  # much to import for those who never ask

        return describe_topic(overrides, settings)

    return TopicPolicy(
        num_partitions=settings.integer("num.partitions"),
        replication_factor=settings.integer("default.replication.factor"),
        validate=lambda overrides: validate_topic_overrides(overrides, defaults),
        describe=describe,
    )
