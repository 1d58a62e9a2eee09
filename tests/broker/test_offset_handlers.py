"""ListOffsets and OffsetForLeaderEpoch as clients see them; `--target=kafka` says whether this is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from barnabas.broker.replicas.replica import Replica
from barnabas.log.producers import TRUSTED
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.testing import Broker
from tests.support.raw_client import RawClient, wait_until

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
TIMES = [1_700_000_001_000, 1_700_000_003_000, 1_700_000_002_000]
NOTHING = (0, -1, -1, -1)
UNKNOWN_TOPIC, UNSUPPORTED_VERSION, INVALID_REQUEST, FENCED_EPOCH, UNKNOWN_EPOCH = 3, 35, 42, 74, 75


class Found(NamedTuple):
    """What is answered for one partition."""

    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int


@pytest.fixture
def client(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(int(bootstrap.rpartition(":")[2])) as connected:
        yield connected


def _create(client: RawClient, name: str, partitions: int = 2) -> None:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    answer = client.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0
    # in Kafka, leaders take their time
    wait_until(
        lambda: not any(_list(client, name, LATEST, partition=at).error_code for at in range(partitions)),
        f"leaders of {name}",
    )


def _produce(client: RawClient, name: str, times: list[int]) -> None:
    """A batch for each."""
    for time_ms in times:
        batch = build_batch([Record(0, time_ms, None, b"value", ())])
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=1, timeout_ms=5000, topic_data=[TopicProduceData(name=name, partition_data=[data])]
        )
        answer = client.ask(request, 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0


def _list(
    client: RawClient,
    name: str,
    timestamp: int,
    *,
    version: int = 11,
    partition: int = 0,
    epoch: int = -1,
    replica_id: int = -1,
    isolation: int = 0,
) -> Found:
    ask = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=[ask])],
        timeout_ms=1000,
    )
    answer = client.ask(request, version, ListOffsetsResponse)
    (topic,) = answer.topics
    (one,) = topic.partitions
    assert (topic.name, one.partition_index) == (name, partition)
    return Found(one.error_code, one.timestamp, one.offset, one.leader_epoch)


def test_offsets_with_a_name(client: RawClient) -> None:
    _create(client, "named")
    _produce(client, "named", TIMES)
    assert _list(client, "named", LATEST) == (0, -1, 3, 0)
    assert _list(client, "named", EARLIEST) == (0, -1, 0, 0)
    assert _list(client, "named", MAX_TIMESTAMP) == (0, TIMES[1], 1, 0)
    assert _list(client, "named", EARLIEST_LOCAL) == (0, -1, 0, 0)
    assert _list(client, "named", LATEST_TIERED) == NOTHING
    assert _list(client, "named", PENDING_UPLOAD) == NOTHING


def test_offsets_of_an_empty_partition(client: RawClient) -> None:
    _create(client, "empty")
    assert _list(client, "empty", LATEST, partition=1) == (0, -1, 0, 0)
    assert _list(client, "empty", EARLIEST, partition=1) == (0, -1, 0, 0)
    assert _list(client, "empty", MAX_TIMESTAMP, partition=1) == NOTHING
    assert _list(client, "empty", 5, partition=1) == NOTHING


def test_offsets_by_time(client: RawClient) -> None:
    _create(client, "times")
    _produce(client, "times", TIMES)
    assert _list(client, "times", 0) == (0, TIMES[0], 0, 0)
    assert _list(client, "times", TIMES[0]) == (0, TIMES[0], 0, 0)
    assert _list(client, "times", TIMES[0] + 1) == (0, TIMES[1], 1, 0)
    assert _list(client, "times", TIMES[1]) == (0, TIMES[1], 1, 0)
    assert _list(client, "times", TIMES[1] + 1) == NOTHING


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version(client: RawClient, version: int) -> None:
    name = f"version-{version}"
    _create(client, name)
    _produce(client, name, TIMES[:1])
    epoch = 0 if version >= 4 else -1
    assert _list(client, name, LATEST, version=version) == (0, -1, 1, epoch)
    assert _list(client, name, TIMES[0], version=version) == (0, TIMES[0], 0, epoch)


@pytest.mark.parametrize(
    ("special", "since"),
    [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11), (-7, 12), (-100, 12)],
)
def test_a_special_that_the_version_does_not_know(client: RawClient, special: int, since: int) -> None:
    name = f"special{special}"
    _create(client, name)
    for version in range(1, 12):
        error = _list(client, name, special, version=version).error_code
        assert error == (0 if version >= since else UNSUPPORTED_VERSION), version


def test_what_is_not_there(client: RawClient) -> None:
    _create(client, "known")
    assert _list(client, "unknown-topic", LATEST) == (UNKNOWN_TOPIC, -1, -1, -1)
    assert _list(client, "", LATEST) == (UNKNOWN_TOPIC, -1, -1, -1)
    assert _list(client, "known", LATEST, partition=2) == (UNKNOWN_TOPIC, -1, -1, -1)
    assert _list(client, "known", LATEST, partition=-1) == (UNKNOWN_TOPIC, -1, -1, -1)


def test_the_leader_epoch_that_a_client_knows(client: RawClient) -> None:
    _create(client, "epochs")
    assert _list(client, "epochs", LATEST, epoch=0).error_code == 0
    assert _list(client, "epochs", LATEST, epoch=1).error_code == UNKNOWN_EPOCH
    assert _list(client, "epochs", LATEST, epoch=-2).error_code == FENCED_EPOCH


def test_a_partition_asked_for_twice_is_refused_once(client: RawClient) -> None:
    _create(client, "twice")
    asks = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in (0, 1, 0)]
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[ListOffsetsTopic(name="twice", partitions=asks)],
        timeout_ms=0,
    )
    answer = client.ask(request, 11, ListOffsetsResponse)
    codes = {one.partition_index: one.error_code for topic in answer.topics for one in topic.partitions}
    assert codes == {0: INVALID_REQUEST, 1: 0}
    assert sum(len(topic.partitions) for topic in answer.topics) == 2


# ---- bounds, which need a look inside --------------------------------------------------------------------


def _replica(broker: Broker, name: str) -> Replica:
    replicas = broker.node.services.replicas
    topic = broker.node.services.image.topic(name)
    assert topic is not None
    return broker.run(replicas.leader(topic, 0))


def test_a_consumer_is_shown_nothing_beyond_the_high_watermark(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    with RawClient(broker.port) as client:
        _create(client, "t")
        _produce(client, "t", TIMES)
        _replica(broker, "t").log.high_watermark = 1
        assert _list(client, "t", LATEST).offset == 1
        assert _list(client, "t", TIMES[0]).offset == 0
        assert _list(client, "t", TIMES[1]) == NOTHING
        assert _list(client, "t", MAX_TIMESTAMP) == NOTHING
        for replica_id in (-2, 7):
            assert _list(client, "t", LATEST, replica_id=replica_id).offset == 3
            assert _list(client, "t", TIMES[1], replica_id=replica_id).offset == 1


def test_who_reads_committed_records_is_shown_nothing_that_is_undecided(
    make_broker: Callable[..., Broker],
) -> None:
    broker = make_broker()
    with RawClient(broker.port) as client:
        _create(client, "t")
        _produce(client, "t", TIMES[:1])
        batch = build_batch(
            [Record(0, TIMES[1], None, b"in a transaction", ())],
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        broker.run(_replica(broker, "t").append(memoryview(batch), all_in_sync=False, guard=TRUSTED))
        assert _list(client, "t", LATEST, isolation=0).offset == 2
        assert _list(client, "t", LATEST, isolation=1).offset == 1
        assert _list(client, "t", TIMES[1], isolation=0).offset == 1
        assert _list(client, "t", TIMES[1], isolation=1) == NOTHING
        assert _list(client, "t", TIMES[0], isolation=1).offset == 0


# ---- epochs ----------------------------------------------------------------------------------------------


def _end(
    client: RawClient, name: str, epoch: int, *, version: int = 4, partition: int = 0, known_epoch: int = -1
) -> tuple[int, int, int]:
    ask = OffsetForLeaderPartition(partition=partition, current_leader_epoch=known_epoch, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=[ask])]
    )
    answer = client.ask(request, version, OffsetForLeaderEpochResponse)
    (topic,) = answer.topics
    (one,) = topic.partitions
    assert (topic.topic, one.partition) == (name, partition)
    return one.error_code, one.leader_epoch, one.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ended(client: RawClient, version: int) -> None:
    name = f"ends-{version}"
    _create(client, name)
    _produce(client, name, TIMES)
    assert _end(client, name, 0, version=version) == (0, 0, 3)
    assert _end(client, name, 1, version=version) == (0, -1, -1)
    assert _end(client, name, -1, version=version) == (0, -1, -1)
    assert _end(client, name, 0, version=version, partition=1) == (0, 0, 0)


def test_epochs_of_what_is_not_there(client: RawClient) -> None:
    _create(client, "some")
    assert _end(client, "none", 0) == (UNKNOWN_TOPIC, -1, -1)
    assert _end(client, "some", 0, partition=9) == (UNKNOWN_TOPIC, -1, -1)
    assert _end(client, "some", 0, known_epoch=0) == (0, 0, 0)
    assert _end(client, "some", 0, known_epoch=3) == (UNKNOWN_EPOCH, -1, -1)
