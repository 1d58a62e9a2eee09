"""Records and producers of partitions: offsets by time or special value, records deleted, producer state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from barnabas.client.admin.engine import Engine, error_of, raise_first
from barnabas.client.errors import BrokerError
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import FoundOffset, list_offsets
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)

P = TypeVar("P", bound=tuple[str, int])

TO_THE_END = -1  # delete all records (up to the high watermark)


class ActiveProducer(NamedTuple):
    """The state of a producer in a partition; missing values are None."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


class Records(Engine):
    """The part of an admin for records and producers of partitions."""

    async def list_offsets(
        self, wanted: Mapping[P, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Offsets by time, or by special value (EARLIEST, LATEST, MAX_TIMESTAMP ...)."""
        by_partition = {TopicPartition(*partition): at for partition, at in wanted.items()}
        timeout_s = self._timeout_ms / 1000
        return await list_offsets(
            self.cluster, by_partition, read_committed=read_committed, timeout_s=timeout_s
        )

    async def delete_records(self, before: Mapping[P, int]) -> dict[TopicPartition, int]:
        """Delete all records before an offset, or TO_THE_END; returns the first remaining offset of each
        partition."""
        wanted = {TopicPartition(*partition): offset for partition, offset in before.items()}

        async def ask(
            node_id: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, int | BrokerError]:
            topics: dict[str, DeleteRecordsTopic] = {}
            for each in partitions:
                topic = topics.setdefault(each.topic, DeleteRecordsTopic(name=each.topic, partitions=[]))
                topic.partitions.append(
                    DeleteRecordsPartition(partition_index=each.partition, offset=wanted[each])
                )
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._timeout_ms)
            # deleting up to the same offset twice does nothing; but the end may have moved on meanwhile
            is_safe = all(wanted[each] != TO_THE_END for each in partitions)
            response = await self._ask_leader(node_id, request, DeleteRecordsResponse, is_safe=is_safe)
            return {
                (at := TopicPartition(answer.name, each.partition_index)): error_of(
                    each.error_code, f"cannot delete records of {at}"
                )
                or each.low_watermark
                for answer in response.topics
                for each in answer.partitions
            }

        return await self._ask_leaders(wanted, ask)

    async def describe_producers(
        self, partitions: Iterable[tuple[str, int]], *, node_id: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The producer state of partitions, from their leaders, or from the broker `node_id`."""

        async def ask(
            node_id: int, asked: list[TopicPartition]
        ) -> dict[TopicPartition, list[ActiveProducer] | BrokerError]:
            topics: dict[str, TopicRequest] = {}
            for each in asked:
                topic = topics.setdefault(each.topic, TopicRequest(name=each.topic, partition_indexes=[]))
                topic.partition_indexes.append(each.partition)
            request = DescribeProducersRequest(topics=list(topics.values()))
            response = await self._ask_leader(node_id, request, DescribeProducersResponse)
            return {
                (at := TopicPartition(answer.name, each.partition_index)): error_of(
                    each.error_code, f"cannot describe the producers of {at}", each.error_message
                )
                or [_producer(state) for state in each.active_producers]
                for answer in response.topics
                for each in answer.partitions
            }

        wanted = [TopicPartition(*each) for each in partitions]
        if node_id is None or not wanted:
            return await self._ask_leaders(wanted, ask)
        answers = await ask(node_id, wanted)
        raise_first(answer for answer in answers.values() if isinstance(answer, BrokerError))
        return {at: answer for at, answer in answers.items() if not isinstance(answer, BrokerError)}


def _producer(state: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        None if state.coordinator_epoch < 0 else state.coordinator_epoch,
        None if state.current_txn_start_offset < 0 else state.current_txn_start_offset,
    )
