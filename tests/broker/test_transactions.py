"""Transactions at the partition, by single requests; `--target=kafka` says whether this is right."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.raw_client import RawClient, produce_request, wait_until
from tests.support.raw_transactions import (
    ABORTABLE_PRODUCE,
    ADDING_PRODUCE,
    COMMITTED,
    OLD_PRODUCE,
    UNCOMMITTED,
    Transactor,
    create_topic,
    latest,
    name_of,
    see,
    transactional_batch,
    write_marker,
)

VERIFYING = (OLD_PRODUCE, ABORTABLE_PRODUCE)
LONG_MS = 60_000  # longer than the client waits for an answer


@pytest.fixture
def port(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])


@pytest.fixture
def client(port: int) -> Iterator[RawClient]:
    with RawClient(port) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions, of this test alone; the name serves for transactional ids as well."""
    name = request.node.name.replace("[", "-").replace("]", "")
    create_topic(client, name, 2)
    return str(name)


def _plain(client: RawClient, topic: str, value: bytes) -> None:
    batch = transactional_batch([value], -1, -1, -1, transactional=False)
    request = produce_request(topic, [value])
    request.topic_data[0].partition_data[0].records = memoryview(batch)
    answer = client.ask(request, 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0


def _sees(client: RawClient, topic: str, *values: bytes, partition: int = 0) -> None:
    """Markers are written after EndTxn is answered."""
    wait_until(
        lambda: see(client, topic, partition=partition).values == list(values), f"{values} to be committed"
    )


# ---- what a reader sees -----------------------------------------------------------------------------------


def test_a_commit_becomes_visible_at_once_and_an_abort_never(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    assert one.produce(topic, b"a", b"b") == "NONE"
    assert one.produce(topic, b"c") == "NONE"
    open_ = see(client, topic)
    assert (open_.values, open_.aborted, open_.high_watermark, open_.last_stable_offset) == ([], [], 3, 0)
    assert see(client, topic, UNCOMMITTED).values == [b"a", b"b", b"c"]
    assert see(client, topic, UNCOMMITTED).aborted is None
    assert (latest(client, topic, COMMITTED), latest(client, topic, UNCOMMITTED)) == (0, 3)
    assert one.end() == "NONE"
    _sees(client, topic, b"a", b"b", b"c")
    assert latest(client, topic, COMMITTED) == 4  # with the marker
    assert one.produce(topic, b"d") == "NONE"
    assert one.end(commit=False) == "NONE"
    wait_until(lambda: latest(client, topic, COMMITTED) == 6, "the marker")
    assert see(client, topic).values == [b"a", b"b", b"c"]
    assert see(client, topic).aborted == [(one.producer_id, 4)]
    assert see(client, topic, UNCOMMITTED).values == [b"a", b"b", b"c", b"d"]


def test_interleaved_transactions_and_aborts_by_their_first_offsets(client: RawClient, topic: str) -> None:
    first, second, third = (Transactor(client, f"{topic}-{n}") for n in range(3))
    ids = [one.producer_id for one in (first, second, third)]
    assert first.produce(topic, b"1a") == "NONE"  # 0
    assert second.produce(topic, b"2a") == "NONE"  # 1
    _plain(client, topic, b"plain")  # 2
    assert third.produce(topic, b"3a") == "NONE"  # 3
    assert first.produce(topic, b"1b") == "NONE"  # 4
    assert third.end(commit=False) == "NONE"  # 5
    wait_until(lambda: see(client, topic, UNCOMMITTED).high_watermark == 6, "the first marker")
    assert see(client, topic).last_stable_offset == 0
    assert second.end() == "NONE"  # 6
    wait_until(lambda: see(client, topic, UNCOMMITTED).high_watermark == 7, "the second marker")
    assert see(client, topic).values == []
    assert first.end(commit=False) == "NONE"  # 7
    wait_until(lambda: latest(client, topic, COMMITTED) == 8, "the third marker")
    seen = see(client, topic)
    assert seen.values == [b"2a", b"plain"]
    # the markers stand the other way round
    assert seen.aborted == [(ids[0], 0), (ids[2], 3)]
    assert see(client, topic, offset=6).aborted == [(ids[0], 0)]


def test_a_long_poll_for_what_is_committed_waits_for_the_marker(
    client: RawClient, port: int, topic: str
) -> None:
    one = Transactor(client, topic)
    assert one.produce(topic, b"early") == "NONE"
    found = []

    def poll() -> None:
        with RawClient(port) as reader:
            found.append(see(reader, topic, max_wait_ms=LONG_MS))

    thread = threading.Thread(target=poll)
    thread.start()
    for _ in range(3):
        assert one.produce(topic, b"more") == "NONE"  # bytes come, and are of no use to it
    assert one.end() == "NONE"
    thread.join(20)
    assert [seen.values for seen in found] == [[b"early", b"more", b"more", b"more"]]


def test_a_long_poll_that_wants_more_than_one_commit_brings(client: RawClient, port: int, topic: str) -> None:
    one = Transactor(client, topic)
    found = []

    def poll() -> None:
        with RawClient(port) as reader:
            found.append(see(reader, topic, max_wait_ms=LONG_MS, min_bytes=4000))

    thread = threading.Thread(target=poll)
    thread.start()
    for _ in range(3):
        assert one.produce(topic, bytes(1000)) == "NONE"
        assert one.end() == "NONE"
    wait_until(lambda: latest(client, topic, COMMITTED) == 6, "three transactions")
    assert not found
    assert one.produce(topic, bytes(1000)) == "NONE"
    assert one.end() == "NONE"
    thread.join(20)
    assert [len(seen.values) for seen in found] == [4]


# ---- verification -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERIFYING)
def test_old_clients_add_their_partitions_first(client: RawClient, topic: str, version: int) -> None:
    refused = "INVALID_TXN_STATE" if version == OLD_PRODUCE else "TRANSACTION_ABORTABLE"
    one = Transactor(client, topic)
    assert one.produce(topic, b"unknown", version=version) == refused
    assert one.add(topic) == "NONE"
    assert one.produce(topic, b"a", version=version) == "NONE"
    assert one.produce(topic, b"elsewhere", partition=1, version=version) == refused
    assert one.produce(topic, b"b", version=version) == "NONE"
    assert one.end(version=3) == "NONE"
    _sees(client, topic, b"a", b"b")
    # the epoch is the same in the next transaction, of which the partition is no part yet
    assert one.produce(topic, b"late", version=version) in (refused, "NOT_ENOUGH_REPLICAS")
    assert one.add(topic) == "NONE"
    assert one.produce(topic, b"c", version=version) == "NONE"
    assert one.end(version=3) == "NONE"
    _sees(client, topic, b"a", b"b", b"c")


def test_new_clients_need_not_add_them(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    assert one.produce(topic, b"a") == "NONE"
    assert one.produce(topic, b"b", partition=1) == "NONE"
    assert one.end() == "NONE"
    _sees(client, topic, b"a")
    _sees(client, topic, b"b", partition=1)
    assert one.produce(topic, b"c") == "NONE"  # at once, though the markers may still be written
    assert one.end() == "NONE"
    _sees(client, topic, b"a", b"c")


def test_topics_may_go_by_their_ids(client: RawClient) -> None:
    topic_id = create_topic(client, "by-id")
    one = Transactor(client, "by-id")
    assert one.produce("by-id", b"a", version=13, topic_id=topic_id) == "NONE"
    assert one.produce("by-id", b"b", version=13, topic_id=bytes(15) + b"x") == "UNKNOWN_TOPIC_ID"
    assert one.end() == "NONE"
    _sees(client, "by-id", b"a")


def test_a_late_batch_does_not_land_in_the_next_transaction(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    before = one.epoch
    assert one.produce(topic, b"a") == "NONE"
    assert one.end() == "NONE"
    _sees(client, topic, b"a")
    assert one.epoch == before + 1
    assert one.produce(topic, b"late", epoch=before, sequence=1) == "INVALID_PRODUCER_EPOCH"
    assert one.produce(topic, b"late", epoch=before, sequence=1, partition=1) == "INVALID_PRODUCER_EPOCH"
    assert one.produce(topic, b"b") == "NONE"
    assert one.produce(topic, b"late", epoch=before, sequence=1) == "INVALID_PRODUCER_EPOCH"
    assert one.end() == "NONE"
    _sees(client, topic, b"a", b"b")


def test_an_end_that_comes_late_does_not_end_the_next_transaction(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    before = one.epoch
    assert one.produce(topic, b"a") == "NONE"
    assert one.end() == "NONE"
    _sees(client, topic, b"a")
    assert one.produce(topic, b"b") == "NONE"
    current = one.epoch
    assert one.end(epoch=before) != "NONE"
    assert one.epoch == current
    assert see(client, topic).values == [b"a"]
    assert one.end() == "NONE"
    _sees(client, topic, b"a", b"b")


@pytest.mark.parametrize("version", [*VERIFYING, ADDING_PRODUCE])
def test_a_zombie_is_fenced(client: RawClient, topic: str, version: int) -> None:
    zombie = Transactor(client, topic)
    assert zombie.add(topic) == "NONE"
    assert zombie.produce(topic, b"lost", version=version) == "NONE"
    one = Transactor(client, topic)
    assert zombie.produce(topic, b"lost", version=version) == "INVALID_PRODUCER_EPOCH"
    assert zombie.produce(topic, b"lost", partition=1, version=version) == "INVALID_PRODUCER_EPOCH"
    assert one.add(topic) == "NONE"
    assert one.produce(topic, b"a", version=version) == "NONE"
    assert zombie.produce(topic, b"lost", version=version) == "INVALID_PRODUCER_EPOCH"
    assert one.end(version=3) == "NONE"
    _sees(client, topic, b"a")


def test_ids_that_nobody_was_given(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    known = one.producer_id
    for version in (*VERIFYING, ADDING_PRODUCE):
        one.producer_id = known + 1_000_000
        assert one.produce(topic, b"a", version=version) == "INVALID_PRODUCER_ID_MAPPING"
        one.producer_id = known
        assert one.produce(topic, b"a", version=version, epoch=one.epoch + 1) == "INVALID_PRODUCER_EPOCH"
    assert see(client, topic, UNCOMMITTED).high_watermark == 0


def test_sequences_begin_with_zero_where_the_epoch_is_new(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    assert one.produce(topic, b"a", sequence=5) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert one.produce(topic, b"a", sequence=0) == "NONE"
    assert one.produce(topic, b"c", sequence=2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert one.produce(topic, b"a", sequence=0) == "NONE"  # sent again
    assert one.produce(topic, b"b", sequence=1) == "NONE"
    assert one.end() == "NONE"
    _sees(client, topic, b"a", b"b")
    assert one.produce(topic, b"c", sequence=2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert one.produce(topic, b"c", sequence=0) == "NONE"


def test_batches_that_do_not_fit_their_transaction(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    assert one.produce(topic, b"nobody's", named=False) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    assert one.produce(topic, b"plain", transactional=False) == "NONE"
    assert one.produce(topic, b"a") == "NONE"
    assert one.produce(topic, b"plain", transactional=False) == "INVALID_TXN_STATE"
    assert one.produce(topic, b"b", acks=1) == "NONE"
    assert one.end() == "NONE"
    _sees(client, topic, b"plain", b"a", b"b")


def test_a_request_is_of_one_producer(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    data = [
        PartitionProduceData(
            index=index,
            records=memoryview(transactional_batch([b"x"], one.producer_id + index, one.epoch, 0)),
        )
        for index in (0, 1)
    ]
    asked = ProduceRequest(
        transactional_id=one.name,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    answers = client.ask(asked, 12, ProduceResponse).responses[0].partition_responses
    assert [name_of(found.error_code) for found in answers] == ["INVALID_PRODUCER_ID_MAPPING"] * 2
    assert see(client, topic, UNCOMMITTED).high_watermark == 0


def test_topics_that_are_not_there(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    assert one.produce(topic, b"a") == "NONE"
    assert one.produce("nothing-of-the-kind", b"x") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert one.produce(topic, b"x", partition=7) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert one.end() == "NONE"
    _sees(client, topic, b"a")


# ---- markers by request, and what a partition tells of its producers --------------------------------------


def _producers(client: RawClient, topic: str, partition: int = 0) -> list[ProducerState]:
    asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
    (found,) = client.ask(asked, 0, DescribeProducersResponse).topics[0].partitions
    assert found.error_code == 0
    return found.active_producers


def test_an_open_transaction_is_described(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    _plain(client, topic, b"plain")
    assert one.produce(topic, b"a", b"b") == "NONE"
    (told,) = _producers(client, topic)
    assert (told.producer_id, told.producer_epoch, told.last_sequence) == (one.producer_id, one.epoch, 1)
    assert (told.coordinator_epoch, told.current_txn_start_offset) == (-1, 1)
    sent_ms = told.last_timestamp
    assert sent_ms > 1_700_000_000_000
    assert one.end() == "NONE"
    wait_until(lambda: _producers(client, topic)[0].current_txn_start_offset == -1, "the marker")
    (told,) = _producers(client, topic)
    assert (told.producer_id, told.producer_epoch, told.last_sequence) == (one.producer_id, one.epoch, -1)
    assert told.coordinator_epoch >= 0
    assert told.last_timestamp >= sent_ms


def test_a_transaction_is_aborted_by_a_tool(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    assert one.produce(topic, b"a") == "NONE"
    assert one.end() == "NONE"
    _sees(client, topic, b"a")
    assert one.produce(topic, b"hanging") == "NONE"
    assert write_marker(client, topic, one.producer_id, one.epoch - 1) == "INVALID_PRODUCER_EPOCH"
    assert latest(client, topic, COMMITTED) == 2
    assert write_marker(client, topic, one.producer_id, one.epoch) == "NONE"
    assert latest(client, topic, COMMITTED) == 4
    assert see(client, topic).aborted == [(one.producer_id, 2)]
    assert write_marker(client, topic, one.producer_id, one.epoch) == "NONE"  # nothing is open any more
    assert latest(client, topic, COMMITTED) == 5


def test_markers_that_are_late(client: RawClient, topic: str) -> None:
    one = Transactor(client, topic)
    assert one.produce(topic, b"a") == "NONE"
    # from version 2 on a marker bears the next epoch
    late = write_marker(client, topic, one.producer_id, one.epoch, commit=True, transaction_version=2)
    assert late == "INVALID_PRODUCER_EPOCH"
    assert see(client, topic).last_stable_offset == 0
    marked = write_marker(
        client,
        topic,
        one.producer_id,
        one.epoch + 1,
        commit=True,
        coordinator_epoch=9,
        transaction_version=2,
    )
    assert marked == "NONE"
    assert see(client, topic).values == [b"a"]
    again = write_marker(
        client,
        topic,
        one.producer_id,
        one.epoch + 1,
        commit=True,
        coordinator_epoch=9,
        transaction_version=2,
    )
    assert again == "NONE"
    zombie = write_marker(client, topic, one.producer_id, one.epoch + 2, coordinator_epoch=8)
    assert zombie == "TRANSACTION_COORDINATOR_FENCED"


def test_markers_for_partitions_that_are_not_there(client: RawClient, topic: str) -> None:
    assert write_marker(client, "nothing-of-the-kind", 5, 0) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert write_marker(client, topic, 5, 0, partition=9) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_producer_without_transactions_is_not_concerned(client: RawClient, topic: str) -> None:
    one, other = Transactor(client, topic), Transactor(client, f"{topic}-other")
    assert one.produce(topic, b"open") == "NONE"
    for number in range(3):
        assert other.produce(topic, b"%d" % number, transactional=False, named=False, version=9) == "NONE"
    assert other.produce(topic, b"2", transactional=False, named=False, version=9, sequence=2) == "NONE"
    assert see(client, topic, UNCOMMITTED).values == [b"open", b"0", b"1", b"2"]
    assert one.end(commit=False) == "NONE"
    _sees(client, topic, b"0", b"1", b"2")
