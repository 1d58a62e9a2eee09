"""A producer's requests, and how it handles the responses.

no error                            written
DUPLICATE_SEQUENCE_NUMBER           written before; the broker no longer knows the offset
OUT_OF_ORDER_SEQUENCE_NUMBER,
UNKNOWN_PRODUCER_ID                 see sequences
MESSAGE_TOO_LARGE,
RECORD_LIST_TOO_LARGE               sent as two batches of half the records, down to one record
CONCURRENT_TRANSACTIONS             retried very soon
any other that is retriable         retried after a pause, or at once if the response names the leader
all others                          failed
"""

from __future__ import annotations

from barnabas.client.accumulator import Accumulator
from barnabas.client.batches import NO_OFFSET, Batch
from barnabas.client.cluster import Cluster
from barnabas.client.errors import broker_error, wire_error_of
from barnabas.client.metadata import Leader, Metadata, TopicPartition
from barnabas.core.network import Address
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.schema import EVERY_VERSION, NO_UUID

LAST_VERSION_BY_NAME = 12
_CONCURRENT_SHARE = 0.2  # of the usual pause: markers take milliseconds


def produce_request(
    batches: list[Batch],
    metadata: Metadata,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
    at_most: int = EVERY_VERSION,
) -> tuple[ProduceRequest, int]:
    """The request, and the newest version that it may have: topics without an id can only be named."""
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        topic, partition = batch.partition
        data = topics.get(topic)
        if data is None:
            topic_id = metadata.topic_id(topic)
            data = topics[topic] = TopicProduceData(topic_id=topic_id, name=topic, partition_data=[])
            if topic_id == NO_UUID:
                at_most = min(at_most, LAST_VERSION_BY_NAME)
        data.partition_data.append(PartitionProduceData(index=partition, records=batch.data))
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )
    return request, at_most


def judge_response(
    response: ProduceResponse, batches: list[Batch], accumulator: Accumulator, cluster: Cluster
) -> None:
    """Apply a response to every batch of its request."""
    answers: dict[TopicPartition, PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or cluster.metadata.name_of(topic.topic_id)
        for answer in topic.partition_responses:
            if name is not None:
                answers[TopicPartition(name, answer.index)] = answer
    endpoints = {node.node_id: Address(node.host, node.port) for node in response.node_endpoints}
    for batch in batches:
        told = answers.get(batch.partition)
        if told is None:  # the topic's id has changed meanwhile
            _send_again(batch, accumulator, cluster, is_leader_known=False)
        else:
            _judge(batch, told, endpoints, accumulator, cluster)


def _judge(
    batch: Batch,
    answer: PartitionProduceResponse,
    endpoints: dict[int, Address],
    accumulator: Accumulator,
    cluster: Cluster,
) -> None:
    error = wire_error_of(answer.error_code)
    if answer.error_code == 0:
        accumulator.written(batch, answer.base_offset, answer.log_append_time_ms)
    elif error.name == "DUPLICATE_SEQUENCE_NUMBER":
        accumulator.written(batch, NO_OFFSET, answer.log_append_time_ms)
    elif error.name in ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID") and batch.number is not None:
        again = cluster.clock.monotonic() + cluster.backoff.seconds(batch.attempts)
        failure = broker_error(error, f"cannot write to {batch.partition}", answer.error_message)
        accumulator.out_of_order(batch, again, failure)
    elif error.name in ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"):
        failure = broker_error(error, f"cannot write to {batch.partition}", answer.error_message)
        accumulator.split(batch, failure)
    elif error.name == "CONCURRENT_TRANSACTIONS":  # markers of the previous transaction are being written
        batch.refusal = error
        wait_s = cluster.backoff.seconds(batch.attempts) * _CONCURRENT_SHARE
        accumulator.send_again(batch, cluster.clock.monotonic() + wait_s)
    elif error.retriable:
        batch.refusal = error
        is_leader_known = False
        if answer.current_leader is not None:
            leader = Leader(answer.current_leader.leader_id, answer.current_leader.leader_epoch)
            endpoint = endpoints.get(leader.node_id)
            is_leader_known = cluster.metadata.learn_leader(*batch.partition, leader, endpoint)
        _send_again(batch, accumulator, cluster, is_leader_known=is_leader_known)
    else:
        said = answer.error_message
        if answer.record_errors:
            first = answer.record_errors[0]
            said = first.batch_index_error_message or f"{said}: record {first.batch_index} of the batch"
        accumulator.give_up(batch, broker_error(error, f"cannot write to {batch.partition}", said))


def _send_again(batch: Batch, accumulator: Accumulator, cluster: Cluster, *, is_leader_known: bool) -> None:
    wait_s = 0.0 if is_leader_known else cluster.backoff.seconds(batch.attempts)
    accumulator.send_again(batch, cluster.clock.monotonic() + wait_s)
    if not is_leader_known:
        cluster.refresh_soon()
