"""What partitions hold: offsets by time or by name, records deleted, producers remembered."""

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

TO_THE_END = -1  # delete everything there is (up to the high watermark)


class ActiveProducer(NamedTuple):
    """A producer that a partition remembers; what it has not got is None."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


class Records(Engine):
    """The part of an admin that looks after what partitions hold."""

    async def list_offsets(
        self, wanted: Mapping[P, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Offsets by time, or by name (EARLIEST, LATEST, MAX_TIMESTAMP ...)."""
        by_partition = {TopicPartition(*partition): at for partition, at in wanted.items()}
        timeout_s = self._timeout_ms / 1000
        return await list_offsets(
            self.cluster, by_partition, read_committed=read_committed, timeout_s=timeout_s
        )

    async def delete_records(self, before: Mapping[P, int]) -> dict[TopicPartition, int]:
        """Delete all records before an offset, or TO_THE_END; where each partition begins now."""
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
            # to delete again what is deleted does nothing; but an end may have moved on meanwhile
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
        """The producers that the leaders of partitions remember, or that broker, which has replicas."""

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
