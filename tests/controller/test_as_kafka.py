"""The controller decides what Apache Kafka's did.

Kafka's log is replayed; wherever a decision of its controller begins, the same question is put to the
commands here, and the records must be those that follow in the log. (A batch may hold several decisions.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from barnabas.controller.bootstrap import activation_records
from barnabas.controller.brokers import (
    begin_controlled_shutdown,
    fence_broker,
    register_broker,
    unfence_broker,
)
from barnabas.controller.configs import alter_config
from barnabas.controller.controllers import register_controller
from barnabas.controller.topics import create_topics, delete_topics
from barnabas.core.random import SeededRandom
from barnabas.metadata import records as r
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.replay import Replayer
from barnabas.protocol.messages import broker_registration, controller_registration
from barnabas.protocol.schema import Message
from tests.controller.clusters import CLUSTER_ID, POLICY, creation, deletion, topic
from tests.metadata.kafka_life import KafkaLife, fresh, read_fixture


class GivenIds(SeededRandom):
    """Randomness that draws the id which Kafka drew."""

    def __init__(self, topic_id: bytes) -> None:
        super().__init__(1)
        self._topic_id = topic_id

    def uuid(self) -> UUID:
        return UUID(bytes=self._topic_id)


class Decider:
    """Asks the commands for what comes next in Kafka's log."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        # how the broker went down before each of its starts in kafka_life
        self.went_down = ["never was", "clean", "killed"]
        self.decided: list[str] = []

    def decide(self, offset: int, following: list[Any]) -> list[Message]:
        """The decision that begins at `offset`, where Kafka wrote `following`."""
        # changes of partitions come before what they are about
        subject = next(each for each in following if not isinstance(each, r.PartitionChangeRecord))
        decide = {
            r.BeginTransactionRecord: self._bootstrap,
            r.RegisterControllerRecord: self._controller,
            r.RegisterBrokerRecord: self._registration,
            r.BrokerRegistrationChangeRecord: self._broker_change,
            r.TopicRecord: self._topic,
            r.RemoveTopicRecord: self._removal,
            r.ConfigRecord: self._settings,
        }.get(type(subject))
        if decide is None:
            return [subject]  # what nothing here decides about yet
        self.decided.append(type(subject).__name__)
        return decide(offset, subject, following)

    def _bootstrap(self, offset: int, told: Any, following: list[Any]) -> list[Message]:
        levels = {
            each.name: each.feature_level for each in following if isinstance(each, r.FeatureLevelRecord)
        }
        return activation_records(self.image, levels=levels)

    def _controller(self, offset: int, told: Any, following: list[Any]) -> list[Message]:
        request = controller_registration.ControllerRegistrationRequest(
            controller_id=told.controller_id,
            incarnation_id=told.incarnation_id,
            zk_migration_ready=False,
            listeners=[controller_registration.Listener(**vars(each)) for each in told.end_points],
            features=[controller_registration.Feature(**vars(each)) for each in told.features],
        )
        return register_controller(self.image, request).records

    def _registration(self, offset: int, told: Any, following: list[Any]) -> list[Message]:
        known = self.image.brokers.get(told.broker_id)
        request = broker_registration.BrokerRegistrationRequest(
            broker_id=told.broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=told.incarnation_id,
            listeners=[broker_registration.Listener(**vars(each)) for each in told.end_points],
            features=[broker_registration.Feature(**vars(each)) for each in told.features],
            rack=told.rack,
            log_dirs=told.log_dirs,
        )
        is_retry = known is not None and known.incarnation_id == told.incarnation_id
        if not is_retry and self.went_down.pop(0) == "clean":
            assert known is not None
            request.previous_broker_epoch = known.epoch
        return register_broker(
            self.image, request, cluster_id=CLUSTER_ID, next_offset=offset, may_be_alive=False
        ).records

    def _broker_change(self, offset: int, told: Any, following: list[Any]) -> list[Message]:
        broker = self.image.brokers[told.broker_id]
        if told.fenced < 0:
            return unfence_broker(self.image, broker)
        if told.fenced > 0:
            return fence_broker(self.image, broker)
        if told.in_controlled_shutdown:
            return begin_controlled_shutdown(self.image, broker)
        return [told]  # directories, which come with a heartbeat

    def _topic(self, offset: int, told: Any, following: list[Any]) -> list[Message]:
        about = [each for each in following if getattr(each, "topic_id", None) == told.topic_id]
        partitions = [each for each in about if isinstance(each, r.PartitionRecord)]
        configs = _settings_at_the_start(following[1:])
        request = creation(topic(told.name, len(partitions), 1, configs=configs))
        return create_topics(self.image, request, GivenIds(told.topic_id), POLICY).records

    def _removal(self, offset: int, told: Any, following: list[Any]) -> list[Message]:
        return delete_topics(self.image, deletion(told.topic_id)).records

    def _settings(self, offset: int, told: Any, following: list[Any]) -> list[Message]:
        changes = _settings_at_the_start(following)
        resource = told.resource_type, told.resource_name
        return alter_config(self.image, *resource, changes, lambda new: None).records


def _settings_at_the_start(records: list[Any]) -> dict[str, str | None]:
    first = itertools.takewhile(lambda each: isinstance(each, r.ConfigRecord), records)
    return {each.name: each.value for each in first}


def in_order(records: list[Message]) -> list[Message]:
    """The same records, where Kafka's own order is that of a hash table put in another."""
    for record in records:
        if isinstance(record, (r.RegisterBrokerRecord, r.RegisterControllerRecord)):
            record.features = sorted(record.features, key=lambda each: each.name)
    settings = [record for record in records if isinstance(record, r.ConfigRecord)]
    settings.sort(key=lambda record: record.name)
    return [settings.pop(0) if isinstance(record, r.ConfigRecord) else record for record in records]


def decide_all(life: KafkaLife) -> list[str]:
    decider, replayer = Decider(), Replayer(ClusterImage())
    log = [(value.offset, r.decode_record(value.data)) for value in life.log]
    log = [(offset, record) for offset, record in log if not isinstance(record, r.NoOpRecord)]
    at = 0
    while at < len(log):
        following = [record for _, record in log[at:]]
        decided = decider.decide(log[at][0], following)
        told = following[: len(decided)]
        assert in_order(decided) == in_order(told)
        replayer.replay(log[at][0], 0, told)
        decider.image = replayer.image
        at += len(told)
    return decider.decided


@pytest.mark.parametrize(
    "life", [read_fixture, pytest.param(fresh, marks=[pytest.mark.java, pytest.mark.long])]
)
def test_every_decision_in_kafkas_log_is_decided_the_same(life: Callable[[], KafkaLife]) -> None:
    decided = decide_all(life())
    assert decided.count("RegisterBrokerRecord") >= 3
    assert {"BeginTransactionRecord", "TopicRecord", "RemoveTopicRecord", "ConfigRecord"} < set(decided)
