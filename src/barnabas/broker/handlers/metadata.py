"""Metadata: brokers, topics, and the leaders of their partitions, with addresses at the request's listener.

In version 0 an empty list asks for all topics; from 1 on null does, and an empty list asks for none. Topics
have ids from 10 on, and can be named by id from 12 on. A topic that does not exist is created if client and
settings allow it, and is answered with its leader: the response waits for the creation to be committed, but
only briefly without an active controller.

As in Kafka the `controller_id` is any broker that is alive: brokers forward requests for the controller,
which clients may not be able to reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.cluster.forwarding import ON_THE_WAY_TIMEOUT_S
from barnabas.broker.connections.requests import RequestContext
from barnabas.controller.decisions import NOT_COMMITTED, Refused
from barnabas.controller.names import check_name
from barnabas.core.errors import wire_error
from barnabas.metadata.directories import is_online
from barnabas.metadata.names import INTERNAL_TOPICS, is_internal
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.schema import NO_UUID

if TYPE_CHECKING:
    from barnabas.broker.services import ControllerServices, Services
from barnabas.metadata.parts import PartitionImage, TopicImage

# The allowed operations, as bits by the number of the operation; without an authorizer these are all.
TOPIC_OPERATIONS = 0b1101_1111_1000
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
_NOT_ASKED = -(2**31)
_NO_NODE = -1
_FIRST_BY_ID = 12
_FIRST_WITH_LISTENER_ERROR = 6

_LEADER_NOT_AVAILABLE = wire_error("LEADER_NOT_AVAILABLE").code
_UNKNOWN_TOPIC = wire_error("UNKNOWN_TOPIC_OR_PARTITION").code
_UNKNOWN_ID = wire_error("UNKNOWN_TOPIC_ID").code
_INVALID_REQUEST = wire_error("INVALID_REQUEST").code
_EXISTS = wire_error("TOPIC_ALREADY_EXISTS").code
# clients know LEADER_NOT_AVAILABLE as an error of topics, and retry
_NOT_CREATED_NOW = frozenset(error.wire.code for error in NOT_COMMITTED)
_LISTENER_NOT_FOUND = wire_error("LISTENER_NOT_FOUND").code


async def handle(request: MetadataRequest, context: RequestContext, services: Services) -> MetadataResponse:
    asked = request.topics
    if asked is None or (context.api_version == 0 and not asked):
        known = services.image.topics_by_name.values()
        topics = [_known(topic, request, context, services) for topic in known]
    else:
        errors = await _create_missing(request, context, services)
        once = {(one.name, one.topic_id): one for one in asked}  # as in Kafka, each topic is answered once
        topics = [_answer(one, errors, request, context, services) for one in once.values()]
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[
            MetadataResponseBroker(node_id=broker.id, host=at.host, port=at.port, rack=broker.rack)
            for broker in services.image.brokers.values()
            if not broker.fenced and (at := broker.endpoints.get(context.listener)) is not None
        ],
        cluster_id=services.cluster_id,
        controller_id=alive_broker(services),
        topics=topics,
        error_code=0,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else _NOT_ASKED,
    )


def alive_broker(services: ControllerServices) -> int:
    """The id of a broker that is not fenced, -1 if there is none."""
    alive = [broker.id for broker in services.image.brokers.values() if not broker.fenced]
    if not alive:
        return _NO_NODE
    return alive[0] if len(alive) == 1 else alive[services.random.below(len(alive))]


def _answer(
    asked: MetadataRequestTopic,
    errors: dict[str, int],
    request: MetadataRequest,
    context: RequestContext,
    services: Services,
) -> MetadataResponseTopic:
    if _goes_by_id(asked):
        if context.api_version < _FIRST_BY_ID:
            return _failed(asked.name or "", asked.topic_id, _INVALID_REQUEST)
        topic = services.image.topic_by_id(asked.topic_id)
        if topic is None:
            return _failed(None, asked.topic_id, _UNKNOWN_ID)
        return _known(topic, request, context, services)
    assert asked.name is not None
    topic = services.image.topic(asked.name)
    if topic is None:
        return _failed(asked.name, NO_UUID, errors.get(asked.name, _UNKNOWN_TOPIC))
    return _known(topic, request, context, services)


def _goes_by_id(asked: MetadataRequestTopic) -> bool:
    """Whether a topic is named by id. Java's clients then send an empty name rather than null."""
    return asked.name is None or asked.topic_id != NO_UUID


def _failed(name: str | None, topic_id: bytes, error_code: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error_code,
        name=name,
        topic_id=topic_id,
        is_internal=name is not None and is_internal(name),
        partitions=[],
    )


def _known(
    topic: TopicImage, request: MetadataRequest, context: RequestContext, services: Services
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(*item, context, services) for item in enumerate(topic.partitions)],
        topic_authorized_operations=TOPIC_OPERATIONS
        if request.include_topic_authorized_operations
        else _NOT_ASKED,
    )


def _partition(
    index: int, image: PartitionImage, context: RequestContext, services: Services
) -> MetadataResponsePartition:
    state = partition_state(image, context.listener, services)
    error_code = state.error_code
    if error_code == _LISTENER_NOT_FOUND and context.api_version < _FIRST_WITH_LISTENER_ERROR:
        error_code = _LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error_code,
        partition_index=index,
        leader_id=state.leader_id,
        leader_epoch=image.leader_epoch,
        replica_nodes=image.replicas,  # type: ignore[arg-type]
        isr_nodes=image.isr,  # type: ignore[arg-type]
        offline_replicas=state.offline,
    )


class PartitionState(NamedTuple):
    """A partition's leader, if it can be reached, and its offline replicas."""

    error_code: int
    leader_id: int
    offline: list[int]


def partition_state(image: PartitionImage, listener: str, services: Services) -> PartitionState:
    """The state of a partition for clients of that listener."""
    brokers = services.image.brokers
    leader = brokers.get(image.leader)
    error_code = 0
    if leader is None or leader.fenced:
        error_code = _LEADER_NOT_AVAILABLE
    elif listener not in leader.endpoints:
        error_code = _LISTENER_NOT_FOUND
    offline = [
        node
        for node in image.replicas
        if node not in brokers or brokers[node].fenced or not is_online(image, brokers[node])
    ]
    return PartitionState(error_code, -1 if error_code else image.leader, offline)


async def _create_missing(
    request: MetadataRequest, context: RequestContext, services: Services
) -> dict[str, int]:
    """Create the missing topics that are requested by name; returns the errors of those that could not be
    created."""
    missing = [
        topic.name
        for topic in request.topics or ()
        if topic.name is not None and not _goes_by_id(topic) and services.image.topic(topic.name) is None
    ]
    if not missing:
        return {}
    if not (request.allow_auto_topic_creation and services.settings.boolean("auto.create.topics.enable")):
        return _misnamed(missing)
    wanted = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[])
            for name in dict.fromkeys(missing)
            if name not in INTERNAL_TOPICS
        ],
    )
    try:
        response = await services.controller.send(
            wanted,
            CreateTopicsResponse,
            context._replace(api_version=CreateTopicsRequest.__versions__[1]),
            timeout_s=ON_THE_WAY_TIMEOUT_S,
        )
    except NOT_COMMITTED:  # the reason is logged elsewhere
        return dict.fromkeys(missing, _LEADER_NOT_AVAILABLE)
    errors = {topic.name: topic.error_code for topic in response.topics if topic.error_code}
    return {
        name: _LEADER_NOT_AVAILABLE if code in _NOT_CREATED_NOW else code
        for name, code in errors.items()
        if code != _EXISTS
    }


def _misnamed(names: list[str]) -> dict[str, int]:
    """The errors of invalid names; they are returned even if no topic would be created."""
    errors: dict[str, int] = {}
    for name in names:
        try:
            check_name(name)
        except Refused as refused:
            errors[name] = refused.error.code
    return errors
