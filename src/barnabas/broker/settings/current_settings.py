"""The current settings: those that the node was started with, overridden by the metadata.

A topic's settings are its own over the broker's; they are computed once and cached until something changes.
Altered settings that are unusable (another version of Kafka left them) are ignored, with a line in the log: a
node must start, so that they can be altered again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.controller.elections import ElectionDefaults
from barnabas.controller.topics import TopicPolicy
from barnabas.core.settings.broker_settings import BrokerSettings, setting_of
from barnabas.core.settings.definition import InvalidSetting, Setting, Update
from barnabas.core.settings.topic import (
    TOPIC,
    log_config_properties,
    topic_defaults,
    validate_topic_overrides,
)
from barnabas.log.config import CleanerSettings, InvalidConfig, LogConfig, known_settings
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import BROKER_RESOURCE, ClusterImage
from barnabas.metadata.publisher import MetadataPublisher

if TYPE_CHECKING:
    from barnabas.controller.configs import ConfigRules
    from barnabas.core.settings.describe import Described

logger = logging.getLogger("barnabas.settings")

_MAX_KEPT = 1000


class TopicSettings(NamedTuple):
    """Settings of a topic's logs and leaders."""

    log: LogConfig
    min_in_sync: int


class CurrentSettings:
    """The settings of a node and of its topics. Topics without overrides share theirs."""

    def __init__(self, node_id: int, metadata: MetadataPublisher, static: BrokerSettings) -> None:
        self._name = str(node_id)
        self._metadata = metadata
        self._static = static
        self._topics: dict[tuple[tuple[str, str], ...], TopicSettings] = {}
        self._subscribers: list[Callable[[BrokerSettings], None]] = []
        self.broker = static
        self._work_out_broker(metadata.image)
        metadata.subscribe(self._published)

    def _published(self, image: ClusterImage, delta: Delta) -> None:
        # the values of some settings depend on the metadata.version
        is_altered = any(resource_type == BROKER_RESOURCE for resource_type, _ in delta.changed_configs)
        if is_altered or delta.changed_features:
            self._work_out_broker(image)

    def _work_out_broker(self, image: ClusterImage) -> None:
        own, common = image.broker_config(self._name), image.broker_config()
        self.broker = self._static.with_dynamic(_usable(own), _usable(common))
        self._topics.clear()
        for tell in self._subscribers:
            tell(self.broker)

    def subscribe(self, tell: Callable[[BrokerSettings], None]) -> None:
        """Call `tell` with the broker's settings whenever they were altered."""
        self._subscribers.append(tell)

    def cleaner(self) -> CleanerSettings:
        """Settings of log compaction."""
        settings = self.broker
        return CleanerSettings(
            backoff_ms=max(1, settings.integer("log.cleaner.backoff.ms")),
            dedupe_buffer_bytes=settings.integer("log.cleaner.dedupe.buffer.size"),
            io_buffer_bytes=settings.integer("log.cleaner.io.buffer.size"),
            load_factor=settings.double("log.cleaner.io.buffer.load.factor"),
            max_bytes_per_second=settings.double("log.cleaner.io.max.bytes.per.second"),
        )

    def of_topic(self, name: str) -> TopicSettings:
        overrides = self._metadata.image.topic_config(name)
        key = tuple(overrides.items())
        found = self._topics.get(key)
        if found is None:
            if len(self._topics) >= _MAX_KEPT:
                self._topics.clear()
            found = self._topics[key] = self._work_out(overrides)
        return found

    def _work_out(self, overrides: Mapping[str, str]) -> TopicSettings:
        usable = {name: text for name, text in overrides.items() if _fits(TOPIC.get(name), text)}
        try:
            return _topic_settings(usable, self.broker)
        except InvalidConfig as error:  # of brokers, valid but not as a topic's defaults
            logger.error("the altered settings of brokers are passed over for topics: %s", error)
            return _topic_settings(usable, self._static)

    def topic_policy(self) -> TopicPolicy:
        """Defaults of new topics, and the rules for their settings."""
        settings = self.broker
        defaults = topic_defaults(settings)

        def describe(overrides: Mapping[str, str]) -> Iterable[Described]:
            from barnabas.core.settings.describe import (
                describe_topic,  # much to import, and rarely needed
            )

            return describe_topic(overrides, settings)

        return TopicPolicy(
            num_partitions=settings.integer("num.partitions"),
            replication_factor=settings.integer("default.replication.factor"),
            validate=lambda overrides: validate_topic_overrides(overrides, defaults),
            describe=describe,
        )

    def election_defaults(self) -> ElectionDefaults:
        """Settings of elections where neither the topic nor the cluster overrides them."""
        return ElectionDefaults(
            self.broker.integer("min.insync.replicas"),
            self.broker.boolean("unclean.leader.election.enable"),
        )

    def config_rules(self) -> ConfigRules:
        """The rules for settings of topics, brokers, groups and client metrics subscriptions."""
        from barnabas.broker.settings.config_rules import config_rules  # rarely needed

        return config_rules(self.broker, self._static)


def _topic_settings(overrides: Mapping[str, str], broker: BrokerSettings) -> TopicSettings:
    properties = log_config_properties(overrides, broker)
    heeded = known_settings()
    log = LogConfig.from_properties({name: text for name, text in properties.items() if name in heeded})
    return TopicSettings(log, int(properties["min.insync.replicas"]))


def _usable(altered: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in altered.items() if _is_alterable(name, text)}


def _is_alterable(name: str, text: str) -> bool:
    setting = setting_of(name)
    is_fixed = setting is not None and setting.update is Update.READ_ONLY
    if is_fixed and not name.startswith("listener.name."):
        logger.error("an altered setting is passed over: %s is not altered while a broker runs", name)
        return False
    return _fits(setting, text)


def _fits(setting: Setting | None, text: str) -> bool:
    try:
        if setting is not None:
            setting.parse(text)
    except InvalidSetting as error:
        logger.error("an altered setting is passed over: %s", error)
        return False
    return True
