"""Members of groups and open transactions for tests of the admin and of commands, by bare requests.

A member that was made here sends no heartbeats: it is in its group until its session ends, a minute later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from barnabas.client.admin import (
    ALL_BROKERS,
    Admin,
    ConfigChange,
    ConfigOperation,
    CoordinatorType,
    ResourceType,
)
from barnabas.client.consumer_protocol import Assignment, Partitions, Subscription, encode_part
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from tests.client.real import Clients

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT, MEMBER_ID_REQUIRED = 14, 15, 16, 51, 79
VERIFICATION = "transaction.partition.verification.enable"
NODE = 1  # of clusters of one
DEADLINE_S = 120.0


class _Answer(Protocol):
    error_code: int


A = TypeVar("A", bound=_Answer)
T = TypeVar("T")


class Writer(NamedTuple):
    """A producer that has begun a transaction."""

    producer_id: int
    producer_epoch: int


async def join(
    admin: Admin, group: str, topic: str, partitions: Sequence[int], instance_id: str | None = None
) -> str:
    """Be the one member of a group, which reads these partitions; the member's id."""
    await admin.find_coordinators(CoordinatorType.GROUP, [group])  # makes the topic of groups, if need be
    subscription = encode_part(Subscription(topics=[topic], user_data=None), 1)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    joined = await _again(lambda: admin.cluster.ask(request, JoinGroupResponse, node_id=NODE))
    if joined.error_code == MEMBER_ID_REQUIRED:
        request.member_id = joined.member_id
        joined = await admin.cluster.ask(request, JoinGroupResponse, node_id=NODE)
    assert joined.error_code == 0
    assigned = Assignment(
        assigned_partitions=[Partitions(topic=topic, partitions=list(partitions))], user_data=None
    )
    synced = await admin.cluster.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=joined.member_id, assignment=encode_part(assigned, 1))
            ],
        ),
        SyncGroupResponse,
        node_id=NODE,
    )
    assert synced.error_code == 0
    return joined.member_id


async def begin(
    admin: Admin, transactional_id: str, topic: str, partitions: Sequence[int], *, timeout_ms: int = 60_000
) -> Writer:
    """Begin a transaction of which the coordinator knows, with a record in each partition."""
    await admin.find_coordinators(CoordinatorType.TRANSACTION, [transactional_id])
    init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    given = await _again(lambda: admin.cluster.ask(init, InitProducerIdResponse, node_id=NODE))
    assert given.error_code == 0
    writer = Writer(given.producer_id, given.producer_epoch)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=writer.producer_id,
        v3_and_below_producer_epoch=writer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )
    added = await admin.cluster.ask(add, AddPartitionsToTxnResponse, node_id=NODE, at_most=3)
    codes = [
        each.partition_error_code
        for result in added.results_by_topic_v3_and_below
        for each in result.results_by_partition
    ]
    assert codes == [0] * len(partitions)
    for partition in partitions:
        await write(admin, writer, transactional_id, topic, partition)
    return writer


async def commit(admin: Admin, transactional_id: str, writer: Writer) -> None:
    """Commit; the markers follow."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        committed=True,
    )
    answer = await admin.cluster.ask(request, EndTxnResponse, node_id=NODE, at_most=4)
    assert answer.error_code == 0


async def hang(admin: Admin, writer: Writer, topic: str, partition: int, time_ms: int) -> int:
    """Begin a transaction of which no coordinator knows, as brokers without verification let one; the offset
    at which it begins."""
    off = ConfigChange(VERIFICATION, "false", ConfigOperation.SET)
    await admin.alter_configs(ResourceType.BROKER, ALL_BROKERS, [off])
    try:
        return await write(admin, writer, "nobody", topic, partition, time_ms)
    finally:
        on = ConfigChange(VERIFICATION, None, ConfigOperation.DELETE)
        await admin.alter_configs(ResourceType.BROKER, ALL_BROKERS, [on])


async def write(
    admin: Admin,
    writer: Writer,
    transactional_id: str,
    topic: str,
    partition: int,
    time_ms: int = 1_700_000_000_000,
) -> int:
    """Write a record in a transaction; its offset."""
    batch = build_batch(
        [Record(0, time_ms, None, b"x")],
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    data = [PartitionProduceData(index=partition, records=batch)]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while True:
        response = await admin.cluster.ask(request, ProduceResponse, node_id=NODE, at_most=11)
        ((answer,),) = [each.partition_responses for each in response.responses]
        if answer.error_code == 0:
            return answer.base_offset
        # a setting is heeded a moment after it is altered
        assert asyncio.get_running_loop().time() < deadline, answer
        await asyncio.sleep(0.02)


async def _again(ask: Callable[[], Awaitable[A]]) -> A:
    """Ask until the coordinator is there, and has done with what was before."""
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while True:
        answer = await ask()
        if answer.error_code not in (LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT):
            return answer
        assert asyncio.get_running_loop().time() < deadline, answer
        await asyncio.sleep(0.02)


def on(bootstrap: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Run `work(admin)` with an admin of that cluster."""

    async def whole() -> T:
        async with Clients(bootstrap).admin() as admin:
            return await work(admin)

    return asyncio.run(whole())
