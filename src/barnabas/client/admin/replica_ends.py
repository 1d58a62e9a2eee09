"""The logs of single replicas, leading or following, read as by Kafka's own debugging tools.

A request with the replica id -2 is answered by any replica, to the end of its log, and does not count as a
follower's fetch.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.client.admin.engine import Engine, error_of
from barnabas.client.errors import BrokerError
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import LATEST
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.records.batch import HEADER_BYTES, MAGIC, NO_TIMESTAMP, BatchHeader

_DEBUGGER = -2
_NO_SESSION = -1
_ENOUGH_BYTES = 1 << 10  # the first batch is complete, whatever its size


class ReplicaEnds(Engine):
    """The part of an admin that reads single replicas."""

    async def replica_ends(
        self, node_id: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | BrokerError]:
        """The log end offsets of these partitions on a broker."""
        topics: dict[str, ListOffsetsTopic] = {}
        for name, partition in partitions:
            topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
            topic.partitions.append(ListOffsetsPartition(partition_index=partition, timestamp=LATEST))
        request = ListOffsetsRequest(
            replica_id=_DEBUGGER,
            isolation_level=0,
            topics=list(topics.values()),
            timeout_ms=self._timeout_ms,
        )
        response = await self._ask(request, ListOffsetsResponse, is_safe=True, node_id=node_id)
        return {
            (at := TopicPartition(topic.name, each.partition_index)): error_of(
                each.error_code, f"no end of {at} on broker {node_id}"
            )
            or each.offset
            for topic in response.topics
            for each in topic.partitions
        }

    async def timestamp_at(
        self, node_id: int, partition: TopicPartition, topic_id: bytes, offset: int
    ) -> int | None:
        """The timestamp of the batch with this offset, or the next one, committed or not; None if the broker
        has none, or its records have no timestamps."""
        ask = FetchPartition(
            partition=partition.partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=_ENOUGH_BYTES,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=_DEBUGGER, replica_epoch=-1),
            replica_id=_DEBUGGER,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_ENOUGH_BYTES,
            session_id=0,
            session_epoch=_NO_SESSION,
            topics=[FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=[ask])],
            forgotten_topics_data=[],
            rack_id="",
        )
        response = await self._ask(request, FetchResponse, is_safe=True, node_id=node_id)
        for topic in response.responses:
            for each in topic.partitions:
                records = bytes(each.records or b"")  # type: ignore[arg-type]
                if not each.error_code and len(records) >= HEADER_BYTES:
                    header = BatchHeader.parse(records)
                    is_known = header.magic == MAGIC and header.base_timestamp != NO_TIMESTAMP
                    return header.base_timestamp if is_known else None
        return None
