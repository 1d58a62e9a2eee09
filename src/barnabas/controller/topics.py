"""CreateTopics and DeleteTopics.

Every topic of a request is decided separately, in the order of the request, as if those before it existed
already (Kafka does not detect collisions of names within one request; here they are refused). A topic named
twice is refused. A new partition starts in epoch 0, led by the first of its active replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.controller.decisions import Decision, Refused
from barnabas.controller.names import Collisions, check_name
from barnabas.controller.placement import place
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.core.random import Random
from barnabas.metadata.image import TOPIC_RESOURCE, ClusterImage
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.metadata.parts import UNASSIGNED_DIRECTORY, BrokerImage
from barnabas.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.schema import NO_UUID, Message, Uuid

if TYPE_CHECKING:
    from barnabas.core.settings.describe import Described

MAX_PARTITIONS_PER_REQUEST = 10_000
USE_DEFAULT = -1


def _allow_all(overrides: Mapping[str, str | None]) -> None:
    """Accept any settings."""


def _describe_nothing(overrides: Mapping[str, str]) -> Iterable[Described]:
    return ()


class TopicPolicy(NamedTuple):
    """The defaults of topics, the check of their settings, and their description."""

    num_partitions: int = 1
    replication_factor: int = 1
    validate: Callable[[Mapping[str, str | None]], None] = _allow_all
    describe: Callable[[Mapping[str, str]], Iterable[Described]] = _describe_nothing


def create_topics(
    image: ClusterImage, request: CreateTopicsRequest, random: Random, policy: TopicPolicy
) -> Decision[CreateTopicsResponse]:
    """The records of every topic that can be created, and a result for each requested one."""
    counts = Counter(topic.name for topic in request.topics)
    collisions = Collisions(image)
    too_many = _partitions_asked_for(request, policy) > MAX_PARTITIONS_PER_REQUEST
    records: list[Message] = []
    results: list[CreatableTopicResult] = []
    for topic in request.topics:
        if counts[topic.name] == 0:
            continue  # a duplicate: it was answered together with the first
        try:
            if too_many:
                raise Refused("POLICY_VIOLATION", "Excessively large number of partitions per request.")
            if counts[topic.name] > 1:
                counts[topic.name] = 0
                raise Refused("INVALID_REQUEST", "Duplicate topic name.")
            made, result = _create(image, topic, collisions, random, policy)
            collisions.add(topic.name)
        except Refused as refused:
            made, result = [], _creation_refused(topic.name, refused)
        records += made
        results.append(result)
    response = CreateTopicsResponse(throttle_time_ms=0, topics=results)
    return Decision([] if request.validate_only else records, response)


def _partitions_asked_for(request: CreateTopicsRequest, policy: TopicPolicy) -> int:
    def count(topic: CreatableTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return policy.num_partitions if topic.num_partitions == USE_DEFAULT else max(topic.num_partitions, 0)

    return sum(map(count, request.topics))


def _create(
    image: ClusterImage, topic: CreatableTopic, collisions: Collisions, random: Random, policy: TopicPolicy
) -> tuple[list[Message], CreatableTopicResult]:
    _check_new_name(image, topic.name, collisions)
    overrides = _checked_overrides(topic, policy)
    replicas = _assigned(image, topic.assignments) if topic.assignments else None
    if replicas is None:
        replicas = _placed(image, topic, random, policy)
    elif topic.replication_factor != USE_DEFAULT:
        raise _needs_default("replication factor")
    elif topic.num_partitions != USE_DEFAULT:
        raise _needs_default("numPartitions")
    topic_id = new_topic_id(random)
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
        for name, value in overrides.items()
    ]
    records += [new_partition(image, topic_id, index, ids) for index, ids in enumerate(replicas)]
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=0,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=_described(overrides, policy),
    )
    return records, result


def _needs_default(what: str) -> Refused:
    message = f"A manual partition assignment was specified, but {what} was not set to -1."
    return Refused("INVALID_REQUEST", message)


def _check_new_name(image: ClusterImage, name: str, collisions: Collisions) -> None:
    check_name(name)
    if name == CLUSTER_METADATA:
        raise Refused("INVALID_REQUEST", f"Creation of internal topic {CLUSTER_METADATA} is prohibited.")
    if name in image.topics_by_name:
        raise Refused("TOPIC_ALREADY_EXISTS", f"Topic '{name}' already exists.")
    collisions.check(name)


def _checked_overrides(topic: CreatableTopic, policy: TopicPolicy) -> dict[str, str]:
    given = {config.name: config.value for config in topic.configs}
    try:
        policy.validate(given)
    except BarnabasError as error:
        raise Refused("INVALID_CONFIG", str(error)) from None
    return {name: value for name, value in sorted(given.items()) if value is not None}


def _placed(
    image: ClusterImage, topic: CreatableTopic, random: Random, policy: TopicPolicy
) -> list[list[int]]:
    partitions, factor = topic.num_partitions, topic.replication_factor
    if partitions != USE_DEFAULT and partitions <= 0:
        raise Refused("INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value.")
    if factor != USE_DEFAULT and factor <= 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refused("INVALID_REPLICATION_FACTOR", message)
    return place(
        list(image.brokers.values()),
        policy.num_partitions if partitions == USE_DEFAULT else partitions,
        policy.replication_factor if factor == USE_DEFAULT else factor,
        random,
    )


def _assigned(image: ClusterImage, assignments: list[CreatableReplicaAssignment]) -> list[list[int]]:
    by_index: dict[int, list[int]] = {}
    factor: int | None = None
    for assignment in assignments:
        index, replicas = assignment.partition_index, assignment.broker_ids
        if index in by_index:
            raise Refused(
                "INVALID_REPLICA_ASSIGNMENT",
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_assignment(image, replicas, index, factor)
        by_index[index] = replicas
        factor = len(replicas)
    if sorted(by_index) != list(range(len(by_index))):
        raise Refused(
            "INVALID_REPLICA_ASSIGNMENT", "partitions should be a consecutive 0-based integer sequence"
        )
    return [by_index[index] for index in range(len(by_index))]


def check_assignment(
    image: ClusterImage, replicas: list[int], partition: int | None = None, factor: int | None = None
) -> None:
    """Refused if a partition cannot have these replicas.

    For a new `partition` one of them must be active; `factor` is the required number.
    """
    if not replicas:
        raise _misassigned("includes an empty replica list")
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _misassigned(f"includes broker {broker_id}, but no such broker is registered")
        if replicas.count(broker_id) > 1:
            raise _misassigned(f"includes the broker {broker_id} more than once")
    if factor is not None and len(replicas) != factor:
        raise _misassigned(
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent with "
            f"previous partitions, which have {factor} replica(s)"
        )
    if partition is not None and not any(image.brokers[broker_id].is_active for broker_id in replicas):
        raise Refused(
            "INVALID_REPLICA_ASSIGNMENT",
            "All brokers specified in the manual partition assignment for partition "
            f"{partition} are fenced or in controlled shutdown.",
        )


def _misassigned(problem: str) -> Refused:
    return Refused("INVALID_REPLICA_ASSIGNMENT", f"The manual partition assignment {problem}.")


def new_partition(image: ClusterImage, topic_id: Uuid, index: int, replicas: list[int]) -> PartitionRecord:
    """A partition whose ISR is its active replicas."""
    isr = [broker_id for broker_id in replicas if image.brokers[broker_id].is_active]
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[default_directory(image.brokers[broker_id]) for broker_id in replicas],
    )


def default_directory(broker: BrokerImage) -> Uuid:
    """The broker's directory if it has only one; otherwise the broker reports its choice later."""
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


def new_topic_id(random: Random) -> Uuid:
    """A random id; none whose text begins with "-", which tools would take for an option."""
    while (topic_id := random.uuid().bytes)[0] >> 2 == 62:
        pass
    return topic_id


def _described(overrides: Mapping[str, str], policy: TopicPolicy) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=each.name,
            value=each.value,
            read_only=each.read_only,
            config_source=int(each.source),
            is_sensitive=each.is_sensitive,
        )
        for each in policy.describe(overrides)
    ]


def _creation_refused(name: str, refused: Refused) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=NO_UUID, error_code=refused.error.code, error_message=refused.told, configs=[]
    )


def delete_topics(image: ClusterImage, request: DeleteTopicsRequest) -> Decision[DeleteTopicsResponse]:
    """The removal of every existing topic, by name or by id, and a result for each requested one."""
    asked = [DeleteTopicState(name=name, topic_id=NO_UUID) for name in request.topic_names]
    asked += request.topics
    resolved = [_resolve(image, state) for state in asked]
    counts = Counter(_identity(result) for result in resolved)
    records: list[Message] = []
    results: list[DeletableTopicResult] = []
    for state, result in zip(asked, resolved, strict=True):
        times = counts[_identity(result)]
        counts[_identity(result)] = 0
        if times == 0:
            continue  # a duplicate: it was answered together with the first
        if times > 1 and result.error_code != wire_error("INVALID_REQUEST").code:
            what = "name" if state.topic_id == NO_UUID else "id"
            result = _deletion(state.name, state.topic_id, "INVALID_REQUEST", f"Duplicate topic {what}.")
        if result.error_code == 0:
            records.append(RemoveTopicRecord(topic_id=result.topic_id))
        results.append(result)
    return Decision(records, DeleteTopicsResponse(throttle_time_ms=0, responses=results))


def _identity(result: DeletableTopicResult) -> tuple[str | None, Uuid]:
    return (None, result.topic_id) if result.topic_id != NO_UUID else (result.name, NO_UUID)


def _resolve(image: ClusterImage, state: DeleteTopicState) -> DeletableTopicResult:
    """The result for one topic, regardless of the others."""
    if state.name is None and state.topic_id == NO_UUID:
        return _deletion(None, NO_UUID, "INVALID_REQUEST", "Neither topic name nor id were specified.")
    if state.name is not None and state.topic_id != NO_UUID:
        message = "You may not specify both topic name and topic id."
        return _deletion(state.name, state.topic_id, "INVALID_REQUEST", message)
    if state.name is not None:
        topic = image.topic(state.name)
        if topic is None:
            message = "This server does not host this topic-partition."
            return _deletion(state.name, NO_UUID, "UNKNOWN_TOPIC_OR_PARTITION", message)
    else:
        topic = image.topic_by_id(state.topic_id)
        if topic is None:
            message = "This server does not host this topic ID."
            return _deletion(None, state.topic_id, "UNKNOWN_TOPIC_ID", message)
    return _deletion(topic.name, topic.id, "NONE", None)


def _deletion(name: str | None, topic_id: Uuid, error_name: str, message: str | None) -> DeletableTopicResult:
    code = wire_error(error_name).code
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
