"""Responses to producers, with errors by version: older clients do not know PRODUCER_FENCED."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.coordination.effects import Producer, TopicPartition
from barnabas.core.errors import wire_error
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.end_txn import EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.transactions.transaction import NO_EPOCH, NO_ID

NO_PRODUCER = Producer(NO_ID, NO_EPOCH)

# The first versions that know PRODUCER_FENCED.
INIT_KNOWS_FENCED = 4
OTHERS_KNOW_FENCED = 2


def told(error_name: str, api_version: int, knows_fenced: int = OTHERS_KNOW_FENCED) -> str:
    """The error name for a client of that version."""
    if error_name == "PRODUCER_FENCED" and api_version < knows_fenced:
        return "INVALID_PRODUCER_EPOCH"
    return error_name


def init_answer(error_name: str, producer: Producer = NO_PRODUCER) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=_code(error_name),
        producer_id=producer.id,
        producer_epoch=producer.epoch,
    )


def end_answer(error_name: str, producer: Producer = NO_PRODUCER) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=0,
        error_code=_code(error_name),
        producer_id=producer.id,
        producer_epoch=producer.epoch,
    )


def partitions_of(asked: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    """The requested partitions, in order."""
    return [TopicPartition(topic.name, partition) for topic in asked.topics for partition in topic.partitions]


def partitions_result(
    asked: AddPartitionsToTxnTransaction, errors: str | Mapping[TopicPartition, str]
) -> AddPartitionsToTxnResult:
    """The result for one transaction: one error for all its partitions, or one for each."""

    def code(topic: str, partition: int) -> int:
        name = errors if isinstance(errors, str) else errors[TopicPartition(topic, partition)]
        return _code(name)

    topics = [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition, partition_error_code=code(topic.name, partition)
                )
                for partition in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
    return AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=topics)


def _code(error_name: str) -> int:
    return wire_error(error_name).code
