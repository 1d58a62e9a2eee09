"""The client against a real broker: what it says is understood, what it hears it understands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.client.admin import NewTopic, ResourceType
from barnabas.client.batches import RecordMetadata
from barnabas.client.cluster import ClientConfig
from barnabas.client.errors import BrokerError, TopicExists, UnknownTopic
from barnabas.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from barnabas.client.producer import ProducerConfig
from barnabas.records.columnar import partition_of
from barnabas.records.compression import Codec
from barnabas.testing import Broker
from tests.client.real import EARLIEST as FROM_THE_START
from tests.client.real import Clients, real
from tests.support.apache_kafka import ApacheKafka


@pytest.mark.parametrize("codec", list(Codec))
def test_produce_and_consume(bootstrap: str, codec: Codec) -> None:
    async def work(clients: Clients) -> None:
        topic = await clients.topic(f"codec-{codec.name}", 3)
        async with clients.producer(ProducerConfig(compression=codec, batch_bytes=2000)) as producer:
            sent = [
                await producer.send(
                    topic, b"value %d" % n, key=b"key %d" % (n % 20), headers=(("n", b"%d" % n),)
                )
                for n in range(500)
            ]
            written = [await each for each in sent]
        records = await clients.read(topic, 500, partitions=3)
        assert {(r.partition, r.offset): r.value for r in records} == {
            (w.partition, w.offset): b"value %d" % n for n, w in enumerate(written)
        }
        for record in records:
            assert record.key is not None
            assert record.partition == partition_of(record.key, 3)
            assert record.headers == (("n", b"" + record.value.split()[1]),)  # type: ignore[union-attr]

    real(bootstrap, work)


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acks(bootstrap: str, acks: int) -> None:
    async def work(clients: Clients) -> None:
        topic = await clients.topic(f"acks-{acks}")
        async with clients.producer(ProducerConfig(acks=acks, idempotence=False)) as producer:
            sent = [await producer.send(topic, b"%d" % n) for n in range(100)]
            offsets = [(await each).offset for each in sent]
        assert offsets == ([-1] * 100 if acks == 0 else list(range(100)))
        assert [r.value for r in await clients.read(topic, 100)] == [b"%d" % n for n in range(100)]

    real(bootstrap, work)


def test_many_batches_in_flight_stay_in_order(bootstrap: str) -> None:
    async def work(clients: Clients) -> None:
        topic = await clients.topic("order")
        async with clients.producer(ProducerConfig(batch_bytes=300, linger_ms=0)) as producer:
            sent = [await producer.send(topic, b"%d" % n) for n in range(3000)]
            assert [(await each).offset for each in sent] == list(range(3000))
        async with clients.consumer(FROM_THE_START._replace(partition_max_bytes=5000)) as consumer:
            consumer.assign([(topic, 0)])
            values: list[bytes] = []
            while len(values) < 3000:
                for fetched in await consumer.poll_batches(10_000):
                    values += fetched.columns().to_arrow().column("value").to_pylist()
        assert values == [b"%d" % n for n in range(3000)]

    real(bootstrap, work)


def test_offsets_and_seeking(bootstrap: str) -> None:
    async def work(clients: Clients) -> None:
        topic = await clients.topic("seek", 2)
        async with clients.producer() as producer:
            for n in range(100):
                await producer.send(topic, b"%d" % n, partition=0, timestamp_ms=1_700_000_000_000 + n)
        first = (topic, 0)
        async with clients.consumer() as consumer:
            consumer.assign([first])
            consumer.seek_to_time(1_700_000_000_042)
            assert (await consumer.poll(10_000))[0].offset == 42
            consumer.seek_to_end()
            assert await consumer.position(first) == 100
            consumer.seek_to_beginning(first)
            assert (await consumer.poll(10_000, max_records=1))[0].offset == 0
            consumer.seek(first, 5000)  # beyond the end: reset to the earliest
            assert (await consumer.poll(10_000))[0].offset == 0
            assert await consumer.end_offsets(first, (topic, 1)) == {first: 100, (topic, 1): 0}
        async with clients.admin() as admin:
            found = await admin.list_offsets({first: MAX_TIMESTAMP, (topic, 1): EARLIEST})
            assert found[topic, 0][:2] == (99, 1_700_000_000_099)
            found = await admin.list_offsets({first: LATEST})
            assert found[topic, 0].offset == 100

    real(bootstrap, work)


def test_many_partitions_of_many_topics(bootstrap: str) -> None:
    async def work(clients: Clients) -> None:
        topics = [await clients.topic(f"many-{n}", 20) for n in range(3)]
        async with clients.producer() as producer:
            for topic in topics:
                for partition in range(20):
                    await producer.send(topic, b"v", partition=partition)
        async with clients.consumer() as consumer:
            consumer.assign([(topic, partition) for topic in topics for partition in range(20)])
            seen = set()
            while len(seen) < 60:
                seen |= {(record.topic, record.partition) for record in await consumer.poll(10_000)}
            assert await consumer.poll(700) == []  # the session goes on without news
            async with clients.producer() as producer:
                await producer.send(topics[1], b"news", partition=7)
            (record,) = await consumer.poll(10_000)
            assert (record.topic, record.partition, record.value) == (topics[1], 7, b"news")

    real(bootstrap, work)


def test_topics_come_and_go(bootstrap: str) -> None:
    async def work(clients: Clients) -> None:
        async with clients.admin() as admin:
            (created,) = await admin.create_topics([NewTopic("life", 2, 1, {"retention.ms": "123456"})])
            assert (created.partitions, created.replication_factor) == (2, 1)
            with pytest.raises(TopicExists):
                await admin.create_topics([NewTopic("life")])
            with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
                await admin.create_topics([NewTopic("no/slash")])
            described = (await admin.describe_topics(["life"]))["life"]
            assert described.topic_id == created.topic_id
            assert [p.partition for p in described.partitions] == [0, 1]
            configs = await admin.describe_configs(ResourceType.TOPIC, "life")
            assert configs["retention.ms"].value == "123456"
            cluster = await admin.describe_cluster()
            assert [str(broker.address) for broker in cluster.brokers] == [clients.bootstrap]
            node_id = cluster.brokers[0].node_id
            assert described.partitions[0].leader == node_id
            of_broker = await admin.describe_configs(ResourceType.BROKER, str(node_id), ["num.partitions"])
            assert list(of_broker) == ["num.partitions"]
            await admin.delete_topics(["life"])
            with pytest.raises(UnknownTopic):
                await admin.delete_topics(["life"])
            async with asyncio.timeout(20):  # Kafka's brokers hear of it a little later
                while True:
                    if "life" not in await admin.describe_topics():
                        break
                    await asyncio.sleep(0.02)

    real(bootstrap, work)


def test_errors_have_names(bootstrap: str) -> None:
    async def work(clients: Clients) -> None:
        topic = await clients.topic("strict", cleanup_policy="compact", max_message_bytes="2000")
        finds_only = ClientConfig(allow_auto_topic_creation=False)
        async with clients.producer(ProducerConfig(max_block_ms=500, client=finds_only)) as producer:
            with pytest.raises(UnknownTopic, match="create it first"):
                await producer.send("nowhere", b"v")
            with pytest.raises(BrokerError, match=r"INVALID_RECORD.*needs a key"):
                await (await producer.send(topic, b"without a key"))
            with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
                await (await producer.send(topic, b"x" * 5000, key=b"k"))
            assert await (await producer.send(topic, b"v", b"k", timestamp_ms=1)) == RecordMetadata(
                topic, 0, 0, 1
            )

    real(bootstrap, work)


@pytest.mark.java
def test_aborted_transactions_are_not_seen(apache_kafka: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def work(clients: Clients) -> None:
        topic = await clients.topic("transactions")
        other = AIOKafkaProducer(bootstrap_servers=apache_kafka, transactional_id="tx")
        await other.start()
        for number in range(6):
            await other.begin_transaction()
            for n in range(3):
                await other.send_and_wait(topic, b"%d.%d" % (number, n))
            await (other.abort_transaction() if number % 2 else other.commit_transaction())
        await other.stop()
        committed = [b"%d.%d" % (number, n) for number in (0, 2, 4) for n in range(3)]
        config = FROM_THE_START._replace(read_committed=True)
        assert [r.value for r in await clients.read(topic, 9, config=config)] == committed
        assert len(await clients.read(topic, 18)) == 18
        async with clients.consumer(config) as consumer:
            consumer.assign([(topic, 0)])
            values: list[bytes] = []
            while len(values) < 9:
                for fetched in await consumer.poll_batches(10_000):
                    values += fetched.columns().to_arrow().column("value").to_pylist()
            assert values == committed

    real(apache_kafka, work)


class Killed:
    """A broker that is killed and comes back, of one kind or the other."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kafka = ApacheKafka(directory) if kind == "apache_kafka" else None
        self._barnabas = Broker(directory) if kind == "barnabas" else None

    def __enter__(self) -> Killed:
        for broker in (self._kafka, self._barnabas):
            if broker is not None:
                broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in (self._kafka, self._barnabas):
            if broker is not None:
                broker.stop()

    @property
    def bootstrap(self) -> str:
        broker = self._kafka or self._barnabas
        assert broker is not None
        return broker.bootstrap

    def kill(self) -> None:
        for broker in (self._kafka, self._barnabas):
            if broker is not None:
                broker.kill()

    def back(self) -> None:
        if self._kafka is not None:
            self._kafka.start()
        if self._barnabas is not None:
            self._barnabas.restart()


@pytest.mark.parametrize(
    "kind",
    [
        "barnabas",
        # slow: it takes that broker some seconds to come back
        pytest.param("apache_kafka", marks=[pytest.mark.java, pytest.mark.slow]),
    ],
)
def test_a_broker_that_is_killed_in_mid_stream(kind: str, tmp_path: Path) -> None:
    count = 4000

    async def work(clients: Clients, broker: Killed) -> None:
        topic = await clients.topic("killed")
        config = ProducerConfig(batch_bytes=400, client=ClientConfig(request_timeout_ms=5_000))
        async with clients.producer(config) as producer:
            sent = []
            for n in range(count):
                sent.append(await producer.send(topic, b"%d" % n))
                if n == count // 2:
                    await asyncio.to_thread(broker.kill)
                    back = asyncio.create_task(asyncio.to_thread(broker.back))
            await back
            offsets = [(await each).offset for each in sent]
        assert offsets == list(range(count))
        assert [r.value for r in await clients.read(topic, count)] == [b"%d" % n for n in range(count)]

    with Killed(kind, tmp_path) as broker:
        real(broker.bootstrap, lambda clients: work(clients, broker))
