"""The producer in virtual time, against a small cluster in memory that can be made to misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.batches import RecordMetadata
from barnabas.client.cluster import ClientConfig
from barnabas.client.errors import (
    BrokerError,
    BrokerNotReachable,
    ClientClosed,
    NoSuchPartition,
    RecordTooLarge,
    TimedOut,
    UnknownTopic,
)
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.core.network import WRITE_LIMIT_BYTES
from barnabas.core.random import SeededRandom
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema import Message
from barnabas.records.columnar import partition_of
from barnabas.records.compression import Codec
from barnabas.sim.loop import LoopClock, run
from tests.client.fake_broker import Drop, FakeBroker, FakeCluster, refuse_produce

Work = Callable[[FakeCluster, Producer], Awaitable[Any]]


def producing(
    work: Work, config: ProducerConfig | None = None, *, brokers: int = 1, partitions: int = 1, seed: int = 1
) -> FakeCluster:
    """Run `work` with a producer and a cluster that has topic t."""

    async def main() -> FakeCluster:
        cluster = FakeCluster(brokers)
        cluster.add_topic("t", partitions)
        await cluster.start()
        network = cluster.network.host("client")
        producer = Producer(network, LoopClock(), SeededRandom(seed), cluster.bootstrap, config)
        async with producer:
            await work(cluster, producer)
        return cluster

    return run(main())


def test_a_record_is_written_and_acknowledged() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        written = await producer.send(
            "t", b"v", key=b"k", headers=(("h", b"1"), ("n", None)), timestamp_ms=77
        )
        assert await written == RecordMetadata("t", 0, 0, 77)

    (record,) = producing(work).partition("t").records()
    assert (record.key, record.value, record.timestamp) == (b"k", b"v", 77)
    assert record.headers == (("h", b"1"), ("n", None))


def test_keys_go_where_kafka_puts_them() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        for number in range(50):
            key = b"key-%d" % number
            written = await (await producer.send("t", b"v", key=key))
            assert written.partition == partition_of(key, 7)

    producing(work, partitions=7)


def test_keyless_records_stick_and_then_move_on() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        sent = [await producer.send("t", b"x" * 100) for _ in range(400)]
        partitions = [(await each).partition for each in sent]
        runs = 1 + sum(1 for one, two in pairwise(partitions) if one != two)
        assert len(set(partitions)) == 4
        assert runs < 60

    producing(work, ProducerConfig(batch_bytes=1000), partitions=4)


def test_what_lingers_together_is_sent_together() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        first = await producer.send("t", b"a")
        await asyncio.sleep(0.09)
        second = await producer.send("t", b"b")
        assert not first.done()
        assert [(await each).offset for each in (first, second)] == [0, 1]

    cluster = producing(work, ProducerConfig(linger_ms=100))
    assert len(cluster.partition("t").batches) == 1


def test_a_full_batch_does_not_linger() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        before = asyncio.get_running_loop().time()
        sent = [await producer.send("t", b"x" * 400) for _ in range(3)]
        await asyncio.gather(*sent[:2])
        assert asyncio.get_running_loop().time() - before < 5

    cluster = producing(work, ProducerConfig(linger_ms=10_000, batch_bytes=1000))
    assert [header.record_count for header, _ in cluster.partition("t").batches] == [2, 1]


def test_flush_waits_for_nobody_who_comes_later() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        sent = [await producer.send("t", b"%d" % n) for n in range(10)]
        await producer.flush()
        assert all(each.done() for each in sent)
        await producer.flush()

    producing(work, ProducerConfig(linger_ms=60_000))


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(codec: Codec) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        for number in range(100):
            await producer.send("t", b"value %d" % number)

    cluster = producing(work, ProducerConfig(compression=codec))
    assert cluster.partition("t").values() == [b"value %d" % number for number in range(100)]
    assert {header.codec for header, _ in cluster.partition("t").batches} == {codec}


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acks(acks: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        sent = [await producer.send("t", b"%d" % number) for number in range(20)]
        offsets = [(await each).offset for each in sent]
        assert offsets == ([-1] * 20 if acks == 0 else list(range(20)))
        await asyncio.sleep(1)

    cluster = producing(work, ProducerConfig(acks=acks, idempotence=False, batch_bytes=100))
    assert cluster.partition("t").values() == [b"%d" % number for number in range(20)]
    assert {header.producer_id for header, _ in cluster.partition("t").batches} == {-1}


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (ProducerConfig(acks=1), "idempotence needs acks=ALL"),
        (ProducerConfig(acks=2, idempotence=False), "acks=2: must be"),
        (ProducerConfig(max_in_flight=6), "max_in_flight up to 5"),
        (ProducerConfig(max_in_flight=0), "must be at least 1"),
    ],
)
def test_settings_that_contradict_each_other(config: ProducerConfig, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        config.check()


def test_old_brokers_are_spoken_to_in_their_way() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.max_versions.update(
            ApiVersionsRequest=2, MetadataRequest=5, ProduceRequest=5, InitProducerIdRequest=1
        )
        assert (await (await producer.send("t", b"v"))).offset == 0

    cluster = producing(work)
    assert {version for _, name, version, _ in cluster.log if name == "ProduceRequest"} == {5}


def test_topics_without_an_id_go_by_name() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.add_topic("old", with_id=False)
        assert (await (await producer.send("old", b"v"))).offset == 0

    cluster = producing(work)
    assert {version for _, name, version, _ in cluster.log if name == "ProduceRequest"} == {12}


# ---- what goes wrong -------------------------------------------------------------------------------------


def every(request_count: int, act: Callable[[ProduceRequest], Message | None]) -> Any:
    """A rule for every n-th produce request."""
    seen = 0

    async def rule(broker: FakeBroker, request: Any, version: int) -> Message | None:
        nonlocal seen
        if isinstance(request, ProduceRequest):
            seen += 1
            if seen % request_count == 0:
                return act(request)
        return None

    return rule


def drop_after(request: ProduceRequest) -> Message | None:
    raise Drop(first=True)


def drop_before(request: ProduceRequest) -> Message | None:
    raise Drop


@pytest.mark.parametrize(
    "act",
    [
        drop_after,
        drop_before,
        lambda request: refuse_produce(request, 7),
        lambda request: refuse_produce(request, 19),
        lambda request: refuse_produce(request, 6),
    ],
    ids=["ack-lost", "request-lost", "timed-out", "not-enough-replicas", "not-leader"],
)
@pytest.mark.parametrize("nth", [2, 3, 7])
def test_nothing_is_lost_doubled_or_reordered(act: Any, nth: int) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.rules.append(every(nth, act))
        sent = [await producer.send("t", b"%d" % number) for number in range(200)]
        await producer.flush()
        for number, each in enumerate(sent):
            assert (await each).offset == number

    cluster = producing(work, ProducerConfig(batch_bytes=150))
    assert cluster.partition("t").values() == [b"%d" % number for number in range(200)]


def test_one_in_flight_keeps_order_without_numbers() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.rules.append(every(3, lambda request: refuse_produce(request, 7)))
        for number in range(100):
            await producer.send("t", b"%d" % number)

    config = ProducerConfig(acks=1, idempotence=False, max_in_flight=1, batch_bytes=150)
    assert producing(work, config).partition("t").values() == [b"%d" % number for number in range(100)]


def test_leaders_move() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        for number in range(300):
            if number % 50 == 25:
                cluster.move("t", 0, 1 + number // 50 % 3)
            await producer.send("t", b"%d" % number)
            if number % 10 == 0:
                await asyncio.sleep(0.01)

    cluster = producing(work, ProducerConfig(batch_bytes=200), brokers=3)
    assert cluster.partition("t").values() == [b"%d" % number for number in range(300)]


def test_a_broker_that_is_restarted() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        first = await (await producer.send("t", b"before"))
        cluster.brokers[1].stop()
        during = await producer.send("t", b"during")
        await asyncio.sleep(20)
        assert not during.done()
        await cluster.brokers[1].start()
        assert (first.offset, (await during).offset) == (0, 1)

    assert producing(work).partition("t").values() == [b"before", b"during"]


def test_a_broker_that_does_not_answer() -> None:
    """Requests time out, the connection is given up, and what was written is not written twice."""

    async def work(cluster: FakeCluster, producer: Producer) -> None:
        await (await producer.send("t", b"0"))
        cluster.network.hold("b1", "client")
        second = await producer.send("t", b"1")
        await asyncio.sleep(5)
        cluster.network.drop("b1", "client")
        cluster.network.release("b1", "client")
        assert (await second).offset == 1

    config = ProducerConfig(client=ClientConfig(request_timeout_ms=2_000))
    assert producing(work, config).partition("t").values() == [b"0", b"1"]


def test_too_old_is_given_up_and_the_next_is_not() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        await (await producer.send("t", b"before"))
        cluster.rules.append(every(1, lambda request: refuse_produce(request, 7)))
        late = await producer.send("t", b"late")
        with pytest.raises(
            TimedOut, match=r"not acknowledged within 3000 ms .*refused with REQUEST_TIMED_OUT"
        ):
            await late
        cluster.rules.clear()
        assert (await (await producer.send("t", b"after"))).offset == 1

    cluster = producing(work, ProducerConfig(delivery_timeout_ms=3_000))
    assert cluster.partition("t").values() == [b"before", b"after"]
    epochs = [header.producer_epoch for header, _ in cluster.partition("t").batches]
    assert epochs == [0, 1]  # the gap that the late one left is closed by a new epoch


def test_a_refused_batch_fails_and_the_ones_behind_it_do_not() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        async def refuse_third(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if isinstance(request, ProduceRequest):
                data = bytes(request.topic_data[0].partition_data[0].records)  # type: ignore[arg-type]
                if b"bad" in data:
                    return refuse_produce(request, 87)
            return None

        cluster.rules.append(refuse_third)
        values = [b"0", b"1", b"bad", b"3", b"4", b"5", b"6"]
        sent = [await producer.send("t", value) for value in values]
        await producer.flush()
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            await sent.pop(2)
        assert [(await each).offset for each in sent] == list(range(6))

    cluster = producing(work, ProducerConfig(batch_bytes=70))
    assert cluster.partition("t").values() == [b"0", b"1", b"3", b"4", b"5", b"6"]


def test_an_unknown_topic_is_told() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        with pytest.raises(UnknownTopic, match="create it first"):
            await producer.send("nowhere", b"v")

    producing(work, ProducerConfig(max_block_ms=1_000))


def test_a_topic_that_appears_meanwhile_is_used() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        asyncio.get_running_loop().call_later(3, cluster.add_topic, "late")
        assert (await (await producer.send("late", b"v"))).offset == 0

    producing(work)


def test_a_topic_that_is_made_anew_is_found() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        await (await producer.send("t", b"old"))
        cluster.add_topic("t")
        assert (await (await producer.send("t", b"new"))).offset == 0

    assert producing(work).partition("t").values() == [b"new"]


def test_nobody_there() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        config = ProducerConfig(max_block_ms=1_000)
        network = cluster.network.host("client")
        async with Producer(network, LoopClock(), SeededRandom(1), "b1:9092,b2:9092", config) as producer:
            with pytest.raises(BrokerNotReachable, match=r"b1:9092: .*b2:9092: .*check the addresses"):
                await producer.send("t", b"v")

    run(main())


def test_what_cannot_be_sent_is_refused_at_once() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        with pytest.raises(RecordTooLarge, match="max_request_bytes=1000"):
            await producer.send("t", b"x" * 1000)
        with pytest.raises(NoSuchPartition, match="has 1 partitions, no number 1"):
            await producer.send("t", b"x", partition=1)
        await producer.close()
        with pytest.raises(ClientClosed):
            await producer.send("t", b"x")

    producing(work, ProducerConfig(max_request_bytes=1000))


def test_what_is_no_record_leaves_no_trace() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        for _ in range(2):
            with pytest.raises(TypeError):
                await producer.send("t", "text")  # type: ignore[arg-type]
            await producer.flush()
            assert producer._accumulator.used_bytes == 0
            await (await producer.send("t", b"bytes"))

    cluster = producing(work)
    assert cluster.partition("t").values() == [b"bytes", b"bytes"]
    assert [header.record_count for header, _ in cluster.partition("t").batches] == [1, 1]


def test_closing_wakes_who_waits_for_metadata() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.network.hold("b1", "client")
        sending = asyncio.ensure_future(producer.send("t", b"v"))
        await asyncio.sleep(1)  # it has asked
        await producer.close()
        before = asyncio.get_running_loop().time()
        with pytest.raises(ClientClosed):
            await sending
        assert asyncio.get_running_loop().time() - before < 0.1

    producing(work)


def test_memory_is_bounded_without_acks_too() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send("t", b"first")
        await producer.flush()
        cluster.network.hold("client", "b1")
        taken = 0

        async def send_on() -> None:
            nonlocal taken
            while taken < 1000:
                await producer.send("t", b"x" * 10_000)
                taken += 1

        with pytest.raises(TimedOut, match="raise buffer_bytes"):
            await send_on()
        assert taken * 10_000 < WRITE_LIMIT_BYTES + 1_000_000
        cluster.network.release("client", "b1")
        await producer.flush()
        await asyncio.sleep(1)
        assert cluster.partition("t").end == 1 + taken

    config = ProducerConfig(acks=0, idempotence=False, buffer_bytes=100_000, max_block_ms=500)
    producing(work, config)


def test_memory_is_bounded_and_comes_back() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.network.hold("client", "b1")
        asyncio.get_running_loop().call_later(1, cluster.network.release, "client", "b1")
        for _ in range(100):
            await producer.send("t", b"x" * 1000)
            assert producer._accumulator.used_bytes <= 10_000

    cluster = producing(work, ProducerConfig(buffer_bytes=10_000, batch_bytes=2000))
    assert cluster.partition("t").end == 100


def test_memory_that_does_not_come_back_is_told() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        await producer.partitions_of("t")
        cluster.brokers[1].stop()
        sent = [await producer.send("t", b"x" * 1000) for _ in range(3)]
        with pytest.raises(TimedOut, match="raise buffer_bytes"):
            await producer.send("t", b"x" * 1000)
        await producer.close(timeout_ms=100)
        for each in sent:
            with pytest.raises(ClientClosed):
                await each

    producing(work, ProducerConfig(buffer_bytes=4_000, batch_bytes=2000, max_block_ms=500))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 1 << 32),
    faults=st.lists(st.sampled_from(["", "", "", "ack", "request", "7", "19", "6", "move"]), max_size=40),
    delays=st.lists(st.sampled_from([0, 0, 0, 0.01, 0.3, 3]), max_size=20),
    in_flight=st.integers(1, 5),
)
def test_whatever_happens_order_is_kept_and_nothing_doubled(
    seed: int, faults: list[str], delays: list[float], in_flight: int
) -> None:
    """With faults that end, all is written once, and in order in each partition."""

    async def work(cluster: FakeCluster, producer: Producer) -> None:
        script = iter(faults)
        pauses = iter(delays)

        async def rule(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if not isinstance(request, ProduceRequest):
                return None
            await asyncio.sleep(next(pauses, 0))
            fault = next(script, "")
            if fault in ("ack", "request"):
                raise Drop(first=fault == "ack")
            if fault == "move":
                data = request.topic_data[0].partition_data[0]
                cluster.move("t", data.index, 1 + (broker.node_id % len(cluster.brokers)))
            return refuse_produce(request, int(fault)) if fault.isdigit() else None

        cluster.rules.append(rule)
        sent = [await producer.send("t", b"%d" % number, partition=number % 3) for number in range(90)]
        await producer.flush()
        for number, each in enumerate(sent):
            assert (await each).offset == number // 3

    config = ProducerConfig(batch_bytes=100, linger_ms=0, max_in_flight=in_flight)
    cluster = producing(work, config, brokers=2, partitions=3, seed=seed)
    for partition in range(3):
        values = cluster.partition("t", partition).values()
        assert values == [b"%d" % number for number in range(partition, 90, 3)]
