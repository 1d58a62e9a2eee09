"""Markers on their way: partitions that cannot be written, or are gone, and a broker that dies."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.coordinators.ends import End
from barnabas.broker.handlers import fetch
from barnabas.coordination.effects import Producer, TopicPartition
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.testing import Broker
from tests.broker.test_compaction import create
from tests.support.logs import read_all
from tests.support.raw_client import RawClient, fetch_request, wait_until
from tests.support.raw_transactions import (
    COMMITTED,
    OLD_PRODUCE,
    UNCOMMITTED,
    Transactor,
    create_topic,
    find_coordinator,
    latest,
    name_of,
    see,
    write_marker,
)

MakeBroker = Callable[..., Broker]
LONG_MS = 60_000  # longer than a client waits for an answer


def _break(broker: Broker, path_glob: str) -> None:
    assert broker._memory is not None
    broker._memory.fail("append", errno.ENOSPC, path_glob=path_glob)


def _heal(broker: Broker) -> None:
    assert broker._memory is not None
    broker._memory.heal()


@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_that_cannot_be_written_gets_its_marker_later(
    broker: Broker, commit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with RawClient(broker.port) as client:
        create_topic(client, "t", 2)
        one = Transactor(client, "x")
        assert one.produce("t", b"a") == "NONE"
        assert one.produce("t", b"b", partition=1) == "NONE"
        _break(broker, "*t-0/*.log")
        assert one.end(commit=commit) == "NONE"
        wait_until(lambda: latest(client, "t", COMMITTED, 1) == 2, "the marker of the other partition")
        assert latest(client, "t", COMMITTED) == 0
        # the transaction is decided, and not complete
        assert one.produce("t", b"c", partition=1) == "CONCURRENT_TRANSACTIONS"
        assert one.produce("t", b"c", partition=1, version=OLD_PRODUCE) == "NOT_ENOUGH_REPLICAS"
        assert caplog.text.count("t-0 gets its markers later") == 1  # although it was tried again and again
        _heal(broker)
        wait_until(lambda: latest(client, "t", COMMITTED) == 2, "the marker")
        assert see(client, "t").values == ([b"a"] if commit else [])
        wait_until(lambda: one.produce("t", b"c") == "NONE", "the next transaction")


@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_is_ended_after_a_crash(make_broker: MakeBroker, commit: bool) -> None:
    broker = make_broker()
    with RawClient(broker.port) as client:
        create_topic(client, "t", 2)
        one = Transactor(client, "x")
        assert one.produce("t", b"a") == "NONE"
        assert one.produce("t", b"b", partition=1) == "NONE"
        _break(broker, "*t-0/*.log")
        assert one.end(commit=commit) == "NONE"
        wait_until(lambda: latest(client, "t", COMMITTED, 1) == 2, "the marker of the other partition")
        late = one.epoch - 1
    broker.kill()
    _heal(broker)
    broker.start()
    with RawClient(broker.port) as client:
        one.client = client
        # nobody asks for it
        wait_until(lambda: latest(client, "t", COMMITTED) == 2, "the marker")
        assert see(client, "t").values == ([b"a"] if commit else [])
        assert see(client, "t", partition=1).values == ([b"b"] if commit else [])
        # the other partition may have got it a second time
        assert latest(client, "t", COMMITTED, 1) in (2, 3)
        assert one.produce("t", b"late", epoch=late, sequence=1) == "INVALID_PRODUCER_EPOCH"
        wait_until(lambda: one.produce("t", b"c") == "NONE", "the next transaction")
        assert one.end() == "NONE"
        wait_until(lambda: b"c" in see(client, "t").values, "its end")


def test_an_open_transaction_is_still_open_after_a_crash(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        one = Transactor(client, "x")
        assert one.produce("t", b"a") == "NONE"
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        one.client = client
        assert see(client, "t").last_stable_offset == 0
        assert one.produce("t", b"b") == "NONE"
        assert one.end() == "NONE"
        wait_until(lambda: see(client, "t").values == [b"a", b"b"], "the commit")


# one partition: what is lost with the one of "other" is lost with that of "x"
ONE_SHARD = {"transaction.state.log.num.partitions": "1"}


def _lose_the_shard(broker: Broker, client: RawClient) -> None:
    """By a write that fails; nobody asks for it afterwards."""
    _break(broker, "*__transaction_state*/*.log")
    request = InitProducerIdRequest(transactional_id="other", transaction_timeout_ms=1000)
    answer = client.ask(request, 5, InitProducerIdResponse)
    assert name_of(answer.error_code) == "COORDINATOR_NOT_AVAILABLE"
    _heal(broker)


def test_a_decided_transaction_is_ended_although_its_coordinator_lost_it(make_broker: MakeBroker) -> None:
    broker = make_broker(settings=ONE_SHARD)
    with RawClient(broker.port) as client:
        create_topic(client, "t", 2)
        one = Transactor(client, "x")
        assert one.produce("t", b"a") == "NONE"
        assert one.produce("t", b"b", partition=1) == "NONE"
        _break(broker, "*t-0/*.log")
        assert one.end() == "NONE"
        wait_until(lambda: latest(client, "t", COMMITTED, 1) == 2, "the marker of the other partition")
        _lose_the_shard(broker, client)
        wait_until(lambda: see(client, "t").values == [b"a"], "the marker")


def test_an_open_transaction_times_out_although_its_coordinator_lost_it(make_broker: MakeBroker) -> None:
    broker = make_broker(settings=ONE_SHARD)
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        one = Transactor(client, "x", timeout_ms=500)
        assert one.produce("t", b"a") == "NONE"
        _lose_the_shard(broker, client)
        wait_until(lambda: see(client, "t").aborted == [(one.producer_id, 0)], "the abort")


def test_a_transaction_of_too_many_partitions_is_refused_and_harms_no_other(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(settings={**ONE_SHARD, "message.max.bytes": "700"})
    with RawClient(broker.port) as client:
        topics = [letter * 249 for letter in "abc"]
        for topic in topics:
            create_topic(client, topic)
        one = Transactor(client, "x")
        assert [one.produce(topic, b"") for topic in topics] == ["NONE", "NONE", "RECORD_LIST_TOO_LARGE"]
        assert one.end() == "NONE"
        wait_until(lambda: latest(client, topics[0], COMMITTED) == 2, "the marker")
    assert "loaded anew" not in caplog.text


def test_one_partition_does_not_hold_up_the_transactions_of_others(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        find_coordinator(client, "group")
        slow, quick = Transactor(client, "slow"), Transactor(client, "quick")
        assert slow.produce("t", b"slow") == "NONE"
        assert slow.commit_offset("group", "t", 5) == "NONE"
        _break(broker, "*__consumer_offsets*/*.log")
        assert slow.end() == "NONE"
        for number in range(3):
            assert quick.produce("t", b"%d" % number) == "NONE"
            assert quick.end() == "NONE"
        wait_until(lambda: see(client, "t").values == [b"slow", b"0", b"1", b"2"], "the quick one")
        assert slow.produce("t", b"x") == "CONCURRENT_TRANSACTIONS"
        _heal(broker)
        wait_until(lambda: slow.produce("t", b"more") == "NONE", "the end of the slow one")


def test_a_topic_that_is_gone_needs_no_marker(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        create_topic(client, "gone")
        one = Transactor(client, "x")
        assert one.produce("t", b"a") == "NONE"
        assert one.produce("gone", b"b") == "NONE"
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=10_000)
        assert client.ask(request, 6, DeleteTopicsResponse).responses[0].error_code == 0
        assert one.end() == "NONE"
        wait_until(lambda: see(client, "t").values == [b"a"], "the marker")
        assert one.produce("t", b"b") == "NONE"
        assert one.end() == "NONE"
        wait_until(lambda: see(client, "t").values == [b"a", b"b"], "the next transaction")


def test_a_partition_that_heard_of_a_later_epoch_is_not_told_any_more(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        create_topic(client, "t", 2)
        one = Transactor(client, "x")
        assert one.produce("t", b"a") == "NONE"
        assert one.produce("t", b"a", partition=1) == "NONE"
        assert write_marker(client, "t", one.producer_id, one.epoch + 5) == "NONE"
        assert one.end() == "NONE"
        wait_until(
            lambda: see(client, "t", partition=1).values == [b"a"], "the marker of the other partition"
        )
        assert one.produce("t", b"b") == "INVALID_PRODUCER_EPOCH"
        assert one.produce("t", b"b", partition=1) == "CONCURRENT_TRANSACTIONS"
        assert latest(client, "t", UNCOMMITTED) == 2


def test_markers_of_several_producers_share_an_append(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        several = [Transactor(client, f"x{number}") for number in range(3)]
        for one in several:
            assert one.produce("t", b"a") == "NONE"
        ends = [End(Producer(one.producer_id, one.epoch + 1), True, 0, 2) for one in several]
        place = TopicPartition("t", 0)

        async def write(given: list[End]) -> tuple[list[str], int]:
            services = broker.node.services
            topic = services.image.topic("t")
            assert topic is not None
            replica = await services.replicas.leader(topic, 0)
            appends = 0
            append = type(replica).append_own

            async def counted(self, data, **named):  # type: ignore[no-untyped-def]
                nonlocal appends
                appends += 1
                return await append(self, data, **named)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(replica), "append_own", counted)
                failures = await services.marker_writes.write({place: given})
            found = [failures[place, one] for one in given]
            return [name_of(0 if one is None else one.wire.code) for one in found], appends

        # one that is late does not keep the others out
        late = ends[1]._replace(producer=Producer(several[1].producer_id, several[1].epoch))
        assert broker.run(write([ends[0], late])) == (["NONE", "INVALID_PRODUCER_EPOCH"], 3)
        assert broker.run(write(ends)) == (["NONE"] * 3, 1)
        assert latest(client, "t", COMMITTED) == 3 + 1 + 3
        assert see(client, "t").values == [b"a"] * 3


def test_producers_that_end_at_once(broker: Broker) -> None:
    """Twenty transactions over four partitions, all ended before the first answer is read."""
    with RawClient(broker.port) as client:
        create_topic(client, "t", 4)
        several = [Transactor(client, f"x{number}") for number in range(20)]
        for one in several:
            for partition in range(4):
                assert one.produce("t", one.name.encode(), partition=partition) == "NONE"
        clients = [RawClient(broker.port) for _ in several]
        try:
            threads = []
            for one, own in zip(several, clients, strict=True):
                one.client = own
                threads.append(asyncio.to_thread(one.end))

            async def end_all() -> list[str]:
                return await asyncio.gather(*threads)

            assert asyncio.run(end_all()) == ["NONE"] * 20
        finally:
            for own in clients:
                own.close()
        for partition in range(4):
            wait_until(lambda at=partition: latest(client, "t", COMMITTED, at) == 40, "all markers")  # type: ignore[misc]
            assert len(see(client, "t", partition=partition).values) == 20


def test_verification_can_be_switched_off(make_broker: MakeBroker) -> None:
    broker = make_broker(settings={"transaction.partition.verification.enable": "false"})
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        one = Transactor(client, "x")
        assert one.produce("t", b"hanging", version=OLD_PRODUCE) == "NONE"
        assert see(client, "t").last_stable_offset == 0
        assert one.end(version=3) == "INVALID_TXN_STATE"  # nobody knows of it
        # whoever adds partitions asks all the same
        assert one.produce("t", b"x", epoch=one.epoch + 1, sequence=0) == "INVALID_PRODUCER_EPOCH"
        assert write_marker(client, "t", one.producer_id, one.epoch) == "NONE"
        assert see(client, "t").aborted == [(one.producer_id, 0)]


# ---- who waits for what is committed ----------------------------------------------------------------------


def test_a_reader_who_waits_for_much_does_not_look_at_every_batch_that_comes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = [], fetch._read_partitions

    async def counted(*given: Any, **options: Any) -> Any:
        looks.append(1)
        return await look(*given, **options)

    monkeypatch.setattr(fetch, "_read_partitions", counted)
    with RawClient(broker.port) as client, RawClient(broker.port) as other, RawClient(broker.port) as reader:
        create_topic(client, "t", 2)
        one = Transactor(client, "x")
        request = fetch_request("t", max_wait_ms=LONG_MS, min_bytes=2_000)
        request.isolation_level = COMMITTED
        reader.send(request, 12)
        wait_until(lambda: bool(looks), "a reader who waits")
        for number in range(20):
            assert one.produce("t", b"x" * 100, transactional=False) == "NONE"
            assert latest(other, "t", COMMITTED) == number + 1  # every connection has had its turn
        (found,) = reader.receive_response(FetchResponse, 12, flexible=True)[1].responses[0].partitions
        assert found.records is not None
        assert len(found.records) >= 2_000
    assert len(looks) <= 3


# ---- what becomes of segments -----------------------------------------------------------------------------


def test_compaction_leaves_what_is_undecided_and_takes_what_was_aborted(make_broker: MakeBroker) -> None:
    broker = make_broker(settings={"log.cleaner.backoff.ms": "5", "log.cleaner.min.cleanable.ratio": "0.01"})
    log = create(broker, "t", cleanup_policy="compact")
    with RawClient(broker.port) as client:
        first, second = Transactor(client, "first"), Transactor(client, "second")
        for value in (b"1", b"2"):  # 0 to 3, with their markers
            assert first.produce("t", value, key=b"k") == "NONE"
            assert first.end() == "NONE"
        wait_until(lambda: latest(client, "t", UNCOMMITTED) == 4, "the markers")
        broker.run(log.roll())
        assert second.produce("t", b"open", key=b"k") == "NONE"  # 4
        assert first.produce("t", b"3", key=b"k") == "NONE"  # 5 and 6
        assert first.end() == "NONE"
        wait_until(lambda: latest(client, "t", UNCOMMITTED) == 7, "the markers")
        broker.run(log.roll())
        wait_until(lambda: log.cleaned_offset == 4, "everything before is compacted")
        assert [record.offset for record in broker.run(read_all(log))] == [2, 4, 5]
        assert see(client, "t").values == [b"2"]
        assert second.end(commit=False) == "NONE"  # 7
        wait_until(lambda: latest(client, "t", COMMITTED) == 8, "the marker")
        broker.run(log.roll())
        wait_until(lambda: log.cleaned_offset == 8, "the rest is compacted")
        assert [record.offset for record in broker.run(read_all(log))] == [5]
        assert see(client, "t").values == [b"3"]
        assert second.produce("t", b"4", key=b"k") == "NONE"
        assert second.end() == "NONE"
        wait_until(lambda: see(client, "t", offset=8).values == [b"4"], "the next transaction")


def test_records_that_are_deleted_leave_their_transaction_open(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        one = Transactor(client, "x")
        assert one.produce("t", b"a", b"b", b"c") == "NONE"
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
            ],
            timeout_ms=5000,
        )
        answer = client.ask(request, 2, DeleteRecordsResponse).topics[0].partitions[0]
        assert (answer.error_code, answer.low_watermark) == (0, 2)
        assert latest(client, "t", COMMITTED) == 2
        assert see(client, "t", offset=2).values == []
        assert one.produce("t", b"d") == "NONE"
        assert one.end() == "NONE"
        wait_until(lambda: see(client, "t", offset=2).values == [b"c", b"d"], "the commit")


def test_a_mistake_on_the_way_of_markers_ends_the_node(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mistaken(*_: object) -> None:
        raise KeyError("for a test")

    with RawClient(broker.port) as client:
        create_topic(client, "t", 1)
        one = Transactor(client, "x")
        assert one.produce("t", b"a") == "NONE"
        monkeypatch.setattr("barnabas.broker.coordinators.ends._write_all", mistaken)
        assert one.end(commit=True) == "NONE"
        assert isinstance(broker.run(broker.node.failed()), KeyError)
