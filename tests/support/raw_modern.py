"""Members of consumer and share groups by single heartbeats, which only Apache Kafka answers."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Message, String, Struct, Uuid
from tests.support.raw_client import RawClient

JOIN, LEAVE = 0, -1


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ConsumerGroupHeartbeatRequest(Message, key=68, versions=(1, 1), flexible=0):
    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None
    rack_id: String | None
    rebalance_timeout_ms: Int32
    subscribed_topic_names: list[String] | None
    subscribed_topic_regex: String | None
    server_assignor: String | None
    topic_partitions: list[TopicPartitions] | None


class ConsumerGroupHeartbeatResponse(Message, key=68, versions=(1, 1), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    member_id: String | None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None


class ShareGroupHeartbeatRequest(Message, key=76, versions=(1, 1), flexible=0):
    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: String | None
    subscribed_topic_names: list[String] | None


class ShareGroupHeartbeatResponse(Message, key=76, versions=(1, 1), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    member_id: String | None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None


def consumer_heartbeat(
    client: RawClient, group: str, member: str, epoch: int, *topics: str
) -> ConsumerGroupHeartbeatResponse:
    """One of a member, with all that it knows; it reads what it is given at once."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=list(topics),
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=[],
    )
    return client.ask(request, 1, ConsumerGroupHeartbeatResponse)


def share_heartbeat(
    client: RawClient, group: str, member: str, epoch: int, *topics: str
) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=list(topics),
    )
    return client.ask(request, 1, ShareGroupHeartbeatResponse)
