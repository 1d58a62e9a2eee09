"""Topics: created, deleted, listed, described, and given more partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.admin.engine import Engine, error_of, raise_first, unclear
from barnabas.client.errors import BrokerError
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition
from barnabas.protocol.schema import NO_UUID

DEFAULT = -1  # the broker's own default

_PARTITIONS_AN_ANSWER = 2000


class NewTopic(NamedTuple):
    """A topic to be created."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    configs: Mapping[str, str | None] = {}
    assignments: Mapping[int, Sequence[int]] = {}  # partition -> brokers, instead of the two numbers


class CreatedTopic(NamedTuple):
    """A topic that was created; values that the broker does not send are -1, or zeros."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


class NewPartitions(NamedTuple):
    """The total number of partitions of a topic, and optionally the brokers of the new ones."""

    total: int
    assignments: Sequence[Sequence[int]] | None = None  # the brokers of each new partition


class PartitionDescription(NamedTuple):
    """A partition; the leader is -1 if there is none, and lists that the broker does not send are None."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int] | None = None
    eligible: list[int] | None = None  # may lead although not in sync (KIP-966)
    last_known_eligible: list[int] | None = None


class TopicDescription(NamedTuple):
    """A topic."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionDescription]


class Topics(Engine):
    """The part of an admin for topics."""

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics (TopicExists ...), or only validate the request."""
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        response, is_repeated = await self._change(
            request, CreateTopicsResponse, lambda answer: [topic.error_code for topic in answer.topics]
        )
        raise_first(
            error_of(
                topic.error_code,
                f"cannot create {topic.name!r}",
                unclear(topic.error_message, is_repeated=is_repeated),
            )
            for topic in response.topics
        )
        return [
            CreatedTopic(topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor)
            for topic in response.topics
        ]

    async def delete_topics(self, names: Iterable[str] = (), *, topic_ids: Iterable[bytes] = ()) -> None:
        """Delete topics by their names, or by their ids (UnknownTopic ...)."""
        wanted = list(names)
        topics = [DeleteTopicState(name=name, topic_id=NO_UUID) for name in wanted]
        topics += [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in topic_ids]
        request = DeleteTopicsRequest(topics=topics, topic_names=wanted, timeout_ms=self._timeout_ms)
        response, is_repeated = await self._change(
            request, DeleteTopicsResponse, lambda answer: [topic.error_code for topic in answer.responses]
        )
        raise_first(
            error_of(
                topic.error_code,
                f"cannot delete {_called(topic.name, topic.topic_id)}",
                unclear(topic.error_message, is_repeated=is_repeated),
            )
            for topic in response.responses
        )

    async def list_topics(self, *, with_internal: bool = False) -> list[str]:
        """The names of all topics, sorted; internal ones only on request."""
        response = await self._metadata(None)
        return sorted(
            topic.name
            for topic in response.topics
            if topic.name is not None and (with_internal or not topic.is_internal)
        )

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, topic_ids: Iterable[bytes] = ()
    ) -> dict[str, TopicDescription]:
        """Topics and their partitions; all of them if none are named."""
        response = await self._metadata(names, topic_ids)
        raise_first(
            error_of(topic.error_code, f"cannot describe {_called(topic.name, topic.topic_id)}")
            for topic in response.topics
        )
        return _topics_of(response)

    async def describe_partitions(
        self, names: Iterable[str], *, partitions_an_answer: int = _PARTITIONS_AN_ANSWER
    ) -> dict[str, TopicDescription]:
        """Topics with the additional fields of Kafka 3.7 and later: the eligible leader replicas.

        Each response has at most `partitions_an_answer` partitions, however many there are.
        """
        wanted = sorted(dict.fromkeys(names))
        found: dict[str, TopicDescription] = {}
        failures: dict[str, BrokerError] = {}
        cursor: Cursor | None = None
        while wanted:
            request = DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in wanted],
                response_partition_limit=partitions_an_answer,
                cursor=cursor,
            )
            response = await self._ask(request, DescribeTopicPartitionsResponse, is_safe=True)
            for topic in response.topics:
                name = topic.name or ""
                error = error_of(topic.error_code, f"cannot describe {name!r}")
                if error is not None:
                    failures[name] = error
                    continue
                before = found.get(name) or TopicDescription(name, topic.topic_id, topic.is_internal, [])
                found[name] = before
                before.partitions.extend(map(_partition_in_full, topic.partitions))
            cursor = response.next_cursor
            if cursor is None:
                break
            wanted = [name for name in wanted if name >= cursor.topic_name]
        raise_first(failures.values())
        return found

    async def create_partitions(
        self, topics: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> None:
        """Increase the number of partitions of topics to these totals."""
        request = CreatePartitionsRequest(
            topics=[_grown(name, wanted) for name, wanted in topics.items()],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        response, is_repeated = await self._change(
            request, CreatePartitionsResponse, lambda answer: [topic.error_code for topic in answer.results]
        )
        raise_first(
            error_of(
                topic.error_code,
                f"cannot add partitions to {topic.name!r}",
                unclear(topic.error_message, is_repeated=is_repeated),
            )
            for topic in response.results
        )


def _creatable(topic: NewTopic) -> CreatableTopic:
    is_assigned = bool(topic.assignments)
    return CreatableTopic(
        name=topic.name,
        num_partitions=DEFAULT if is_assigned else topic.partitions,
        replication_factor=DEFAULT if is_assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in topic.assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _grown(name: str, wanted: int | NewPartitions) -> CreatePartitionsTopic:
    total, assignments = (wanted, None) if isinstance(wanted, int) else wanted
    return CreatePartitionsTopic(
        name=name,
        count=total,
        assignments=None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments],
    )


def _topics_of(response: MetadataResponse) -> dict[str, TopicDescription]:
    return {
        topic.name: TopicDescription(
            topic.name,
            topic.topic_id,
            topic.is_internal,
            [_partition(each) for each in sorted(topic.partitions, key=lambda one: one.partition_index)],
        )
        for topic in response.topics
        if topic.name is not None
    }


def _partition(answer: MetadataResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        answer.partition_index,
        answer.leader_id,
        answer.leader_epoch,
        list(answer.replica_nodes),
        list(answer.isr_nodes),
        list(answer.offline_replicas),
    )


def _partition_in_full(answer: DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    eligible, last_known = answer.eligible_leader_replicas, answer.last_known_elr
    return PartitionDescription(
        answer.partition_index,
        answer.leader_id,
        answer.leader_epoch,
        list(answer.replica_nodes),
        list(answer.isr_nodes),
        list(answer.offline_replicas),
        None if eligible is None else list(eligible),
        None if last_known is None else list(last_known),
    )


def _called(name: str | None, topic_id: bytes) -> str:
    return repr(name) if name is not None else f"the topic of id {topic_id.hex()}"
