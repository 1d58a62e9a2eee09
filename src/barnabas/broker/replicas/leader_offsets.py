"""A follower's ListOffsets request to its leader: where the leader's logs start and end."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.replicas.following import FollowedReplica, Key
from barnabas.core.errors import wire_error
from barnabas.log.reading import EARLIEST, LATEST
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.transport.connection import BrokerConnection

__all__ = ["EARLIEST", "LATEST", "ask_offsets"]

_UNKNOWN = wire_error("UNKNOWN_TOPIC_OR_PARTITION").code


async def ask_offsets(
    connection: BrokerConnection, node_id: int, replicas: Iterable[FollowedReplica], time: int
) -> dict[Key, ListOffsetsPartitionResponse]:
    """The answer for each replica. `time` is EARLIEST or LATEST; for a replica LATEST is the log end
    offset."""
    topics: dict[str, ListOffsetsTopic] = {}
    keys: dict[tuple[str, int], Key] = {}
    for one in replicas:
        name, partition = one.replica.name, one.replica.partition
        keys[name, partition] = one.key
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=one.leader_epoch, timestamp=time
            )
        )
    request = ListOffsetsRequest(
        replica_id=node_id, isolation_level=0, topics=list(topics.values()), timeout_ms=0
    )
    response = await connection.ask(request, ListOffsetsResponse)
    answers = {
        key: ListOffsetsPartitionResponse(partition_index=key[1], error_code=_UNKNOWN)
        for key in keys.values()
    }
    for answered in response.topics:
        for answer in answered.partitions:
            if (found := keys.get((answered.name, answer.partition_index))) is not None:
                answers[found] = answer
    return answers
