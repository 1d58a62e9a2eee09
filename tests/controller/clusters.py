"""Clusters to decide about: an image driven by decisions, through bytes as the log would hold them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from barnabas.controller.bootstrap import FEATURE_LEVELS, REGISTERED_FEATURES, activation_records
from barnabas.controller.brokers import heartbeat, register_broker
from barnabas.controller.decisions import Decision
from barnabas.controller.elections import ElectionDefaults
from barnabas.controller.topics import TopicPolicy, create_topics, delete_topics
from barnabas.core.random import SeededRandom
from barnabas.core.settings.topic import validate_topic_overrides
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import PartitionImage
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metadata.records import decode_record, encode_record
from barnabas.metadata.replay import Replayer
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from barnabas.protocol.schema import NO_UUID, Message

R = TypeVar("R")

CLUSTER_ID = "the-cluster"
_DEFAULTS = ElectionDefaults()
POLICY = TopicPolicy(num_partitions=2, replication_factor=1, validate=validate_topic_overrides)


def topic(
    name: str,
    partitions: int = -1,
    replication: int = -1,
    *,
    assigned: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assigned or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def creation(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)


def deletion(*topics: str | bytes, states: Iterable[DeleteTopicState] = ()) -> DeleteTopicsRequest:
    named = [
        DeleteTopicState(name=each, topic_id=NO_UUID)
        if isinstance(each, str)
        else DeleteTopicState(name=None, topic_id=each)
        for each in topics
    ]
    return DeleteTopicsRequest(topics=[*named, *states], topic_names=[], timeout_ms=1000)


def registration(
    broker_id: int,
    *,
    incarnation: int = 1,
    previous_epoch: int = -1,
    cluster_id: str = CLUSTER_ID,
    port: int = 9092,
) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=bytes([incarnation]) * 16,
        listeners=[Listener(name="PLAINTEXT", host="h", port=port, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in REGISTERED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[bytes([100 + broker_id]) * 16],
        previous_broker_epoch=previous_epoch,
    )


class Cluster:
    """An image and the log that made it."""

    def __init__(self, *brokers: int, has_elr: bool = True, seed: int = 1) -> None:
        self._replayer = Replayer(ClusterImage())
        self.metadata = MetadataPublisher()
        self.log: list[bytes] = []
        self.random = SeededRandom(seed)
        levels = FEATURE_LEVELS if has_elr else {"metadata.version": 30}
        self.append(activation_records(self.image, levels=levels))
        for broker_id in brokers:
            self.start(broker_id)

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    def append(self, records: Iterable[Message]) -> None:
        batch = [encode_record(record) for record in records]
        changes = self._replayer.replay(len(self.log), 0, [decode_record(data) for data in batch])
        self.log += batch
        for change in changes:
            self.metadata.publish(*change)

    def carry_out(self, decision: Decision[R]) -> R:
        self.append(decision.records)
        return decision.response

    def start(
        self,
        broker_id: int,
        *,
        incarnation: int = 1,
        previous_epoch: int = -1,
        defaults: ElectionDefaults = _DEFAULTS,
    ) -> None:
        request = registration(broker_id, incarnation=incarnation, previous_epoch=previous_epoch)
        decision = register_broker(
            self.image, request, cluster_id=CLUSTER_ID, next_offset=len(self.log), may_be_alive=False
        )
        assert self.carry_out(decision).error_code == 0
        assert not self.beat(broker_id, defaults=defaults).is_fenced

    def beat(
        self,
        broker_id: int,
        *,
        want_shut_down: bool = False,
        want_fence: bool = False,
        defaults: ElectionDefaults = _DEFAULTS,
    ) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch,
            current_metadata_offset=len(self.log) - 1,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
        )
        return self.carry_out(heartbeat(self.image, request, defaults=defaults))

    def stop(self, broker_id: int) -> int:
        """A clean stop; the epoch to restart with."""
        while not self.beat(broker_id, want_shut_down=True).should_shut_down:
            pass
        return self.image.brokers[broker_id].epoch

    def create(self, *topics: CreatableTopic) -> list[CreatableTopicResult]:
        return self.carry_out(create_topics(self.image, creation(*topics), self.random, POLICY)).topics

    def delete(self, *topics: str | bytes) -> list[DeletableTopicResult]:
        return self.carry_out(delete_topics(self.image, deletion(*topics))).responses

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        return self.image.topics_by_name[name].partitions[index]
