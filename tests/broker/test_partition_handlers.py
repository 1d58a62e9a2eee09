"""What administrators do to topics, and what clients then find: more partitions, fewer records, no broker.

How each of them is answered, odd requests included, is compared with Kafka in tests/interop.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from barnabas.broker.connections.requests import BROKER_ROUTER, PARTITIONS_A_TURN, RequestContext
from barnabas.broker.handlers import fetch as fetch_handler
from barnabas.broker.handlers import produce as produce_handler
from barnabas.core.disk import Disk
from barnabas.log import checkpoints, names
from barnabas.protocol.messages import alter_client_quotas as quotas
from barnabas.protocol.messages import describe_client_quotas as described_quotas
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchResponse
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceResponse
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.records.reader import read_records
from barnabas.testing import Broker
from tests.support.raw_client import RawClient, fetch_request, metadata_request, produce_request

OUT_OF_RANGE, UNKNOWN_TOPIC, NO_LEADER, NOT_LEADER, NOT_CONTROLLER = 1, 3, 5, 6, 41


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def produce(client: RawClient, partition: int, *values: bytes) -> tuple[int, int]:
    """The error and the first offset."""
    request = produce_request("t", list(values), partition=partition)
    answer = client.ask(request, 9, ProduceResponse).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def fetch(client: RawClient, partition: int, offset: int) -> tuple[int, int, list[bytes | None]]:
    """The error, where the log starts, and the values."""
    request = fetch_request("t", partition=partition, offset=offset)
    answer = client.ask(request, 11, FetchResponse).responses[0].partitions[0]
    records = read_records(bytes(answer.records or b""))  # type: ignore[arg-type]
    return answer.error_code, answer.log_start_offset, [record.value for record in records]


def metadata(client: RawClient) -> MetadataResponse:
    return client.ask(metadata_request("t"), 9, MetadataResponse)


def grow(client: RawClient, count: int) -> tuple[int, str | None]:
    topic = CreatePartitionsTopic(name="t", count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=5000, validate_only=False)
    (result,) = client.ask(request, 3, CreatePartitionsResponse).results
    return result.error_code, result.error_message


def delete(client: RawClient, partition: int, offset: int) -> tuple[int, int]:
    """The error and the new start."""
    asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = [DeleteRecordsTopic(name="t", partitions=[asked])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=5000)
    (result,) = client.ask(request, 2, DeleteRecordsResponse).topics[0].partitions
    return result.error_code, result.low_watermark


def test_new_partitions_are_there_for_everyone_at_once_and_after_a_restart(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        metadata(client)
        assert produce(client, 2, b"too early")[0] == UNKNOWN_TOPIC
        assert grow(client, 3) == (0, None)
        assert [one.partition_index for one in metadata(client).topics[0].partitions] == [0, 1, 2]
        assert produce(client, 2, b"a", b"b") == (0, 0)
    broker.restart()
    with RawClient(broker.port) as client:
        assert fetch(client, 2, 0) == (0, 0, [b"a", b"b"])
        assert grow(client, 3)[1] == "Topic already has 3 partition(s)."


def test_deleted_records_are_gone_for_readers_and_stay_gone_when_the_process_dies(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        metadata(client)
        for value in (b"a", b"b", b"c", b"d", b"e"):
            produce(client, 0, value)
        assert delete(client, 0, 3) == (0, 3)
        assert fetch(client, 0, 2)[0] == OUT_OF_RANGE
        assert fetch(client, 0, 3) == (0, 3, [b"d", b"e"])
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        assert fetch(client, 0, 2)[0] == OUT_OF_RANGE
        assert fetch(client, 0, 3) == (0, 3, [b"d", b"e"])
        assert delete(client, 0, -1) == (0, 5)
        assert fetch(client, 0, 5) == (0, 5, [])
        assert produce(client, 0, b"f") == (0, 5)
        assert fetch(client, 0, 5) == (0, 5, [b"f"])


def test_many_partitions_are_shortened_with_few_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write = checkpoints.write_offset_checkpoint

    async def counted(disk: Disk, path: str, offsets: dict[tuple[str, int], int]) -> None:
        written.append(path)
        await write(disk, path, offsets)

    with Broker(tmp_path / "data") as broker, RawClient(broker.port) as client:
        metadata(client)
        assert grow(client, 100) == (0, None)
        for partition in range(100):
            assert produce(client, partition, b"a", b"b") == (0, 0)
        monkeypatch.setattr(checkpoints, "write_offset_checkpoint", counted)
        asked = [DeleteRecordsPartition(partition_index=index, offset=index % 4 - 1) for index in range(100)]
        topics = [DeleteRecordsTopic(name="t", partitions=asked)]
        (topic,) = client.ask(DeleteRecordsRequest(topics=topics), 2, DeleteRecordsResponse).topics
    found = [(one.partition_index, one.error_code, one.low_watermark) for one in topic.partitions]
    assert found == [(index, 0, (2, 0, 1, 2)[index % 4]) for index in range(100)]
    assert written.count(names.LOG_START_CHECKPOINT) <= 3  # for the first, and for those that came meanwhile


def test_a_start_inside_a_batch_gives_the_whole_batch_as_any_offset_does(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        metadata(client)
        produce(client, 0, b"a", b"b", b"c")
        assert delete(client, 0, 2) == (0, 2)
        assert fetch(client, 0, 2) == (0, 2, [b"a", b"b", b"c"])


def test_a_broker_that_is_unregistered_leads_nothing_until_it_is_started_anew(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with RawClient(broker.port) as client:
        metadata(client)
        produce(client, 0, b"a")
        request = UnregisterBrokerRequest(broker_id=1)
        assert client.ask(request, 0, UnregisterBrokerResponse).error_code == 0
        found = metadata(client)
        assert found.brokers == []
        assert found.topics[0].partitions[0].error_code == NO_LEADER
        assert produce(client, 0, b"b")[0] == NOT_LEADER
        assert client.ask(request, 0, UnregisterBrokerResponse).error_message == (
            "Broker ID 1 is not currently registered"
        )
        asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
        (topic,) = client.ask(asked, 0, DescribeTopicPartitionsResponse).topics
        (partition,) = topic.partitions
        assert (partition.error_code, partition.leader_id, partition.isr_nodes) == (NO_LEADER, -1, [])
        assert partition.eligible_leader_replicas == [1]
    assert "until it is started anew" in caplog.text
    broker.restart()
    with RawClient(broker.port) as client:
        assert [each.node_id for each in metadata(client).brokers] == [1]
        assert produce(client, 0, b"b") == (0, 1)
        assert fetch(client, 0, 0) == (0, 0, [b"a", b"b"])


def alter_quota(client: RawClient, user: str) -> int:
    entry = quotas.EntryData(
        entity=[quotas.EntityData(entity_type="user", entity_name=user)],
        ops=[quotas.OpData(key="producer_byte_rate", value=1e6, remove=False)],
    )
    request = quotas.AlterClientQuotasRequest(entries=[entry], validate_only=False)
    (result,) = client.ask(request, 1, quotas.AlterClientQuotasResponse).entries
    return result.error_code


def test_quotas_outlive_a_process_that_dies(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        assert alter_quota(client, "u") == 0
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        request = described_quotas.DescribeClientQuotasRequest(components=[], strict=False)
        response = client.ask(request, 1, described_quotas.DescribeClientQuotasResponse)
        assert response.entries is not None
        (entry,) = response.entries
        assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("user", "u")]
        assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", 1e6)]


def test_a_disk_that_is_full_is_named(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        metadata(client)
        assert broker._memory is not None
        broker._memory.fail("append", errno.ENOSPC, path_glob="*__cluster_metadata*", times=2)
        assert grow(client, 2)[0] == NOT_CONTROLLER
        assert alter_quota(client, "u") == NOT_CONTROLLER
        assert grow(client, 2)[0] == 0  # there is room again
        target = ReassignablePartition(partition_index=0, replicas=[1])
        moves = AlterPartitionReassignmentsRequest(
            timeout_ms=5000,
            allow_replication_factor_change=True,
            topics=[ReassignableTopic(name="t", partitions=[target])],
        )
        assert client.ask(moves, 1, AlterPartitionReassignmentsResponse).error_code == 0


def turns_during(broker: Broker, work: Callable[[], Awaitable[object]]) -> int:
    """How often somebody else on the broker's loop has a turn."""

    async def count() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.get_running_loop().create_task(other())
        await work()
        task.cancel()
        return turns

    return broker.run(count())


def test_a_request_for_very_many_partitions_gives_way_to_others(broker: Broker) -> None:
    count = 3 * PARTITIONS_A_TURN
    with RawClient(broker.port) as client:
        metadata(client)
        assert grow(client, count) == (0, None)
    services = broker.node.services
    context = RequestContext("User:ANONYMOUS", "PLAINTEXT", BROKER_ROUTER, "127.0.0.1", "client", 11)

    async def send() -> None:
        request = produce_request("t", [b"a"])
        (topic,) = request.topic_data
        records = bytes(topic.partition_data[0].records or b"")  # type: ignore[arg-type]
        topic.partition_data = [
            PartitionProduceData(index=index, records=memoryview(bytearray(records)))
            for index in range(count)
        ]
        response = await produce_handler.handle(request, context, services)
        assert response is not None
        assert {one.error_code for one in response.responses[0].partition_responses} == {0}

    async def read() -> None:
        request = fetch_request("t")
        (topic,) = request.topics
        topic.partitions = [FetchPartition(partition=index, partition_max_bytes=9) for index in range(count)]
        response = await fetch_handler.handle(request, context, services)
        assert len(response.responses[0].partitions) == count

    broker.run(send())  # opens them
    assert turns_during(broker, send) >= 3
    assert turns_during(broker, read) >= 3
