"""The metadata disk is full: changes of the metadata are refused, and clients go on when there is room.

The node has its metadata on a disk of its own (`metadata.log.dir`), which a test fills to the last byte and
frees again. Topics that exist are on another disk, and are not concerned. What clients were answered is known
from the node's metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka import admin as confluent_admin

from barnabas.testing import Broker
from tests.support.answered import AnsweredErrors
from tests.support.clients import (
    CLIENTS,
    DEADLINE_S,
    Client,
    Message,
    confluent_consumer,
    confluent_next,
    create_topic,
    kafka,
    until,
)
from tests.support.java_steps import java_steps
from tests.support.stepped import SteppedProcess
from tests.support.writers import ConfluentWriter, Reader

BETWEEN = 300  # messages that are acknowledged and read in each part of a test
TIMEOUT_MS = 2000  # of a client that is to give up
VALUES = ["a", "b", "c"]
SETTINGS = {
    "metadata.log.dir": "metadata",
    "barnabas.metrics.listen": "127.0.0.1:0",
    "offsets.topic.num.partitions": "3",
}


class Site:
    """A node whose metadata is on a disk of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.bootstrap = broker.bootstrap
        self.answered = AnsweredErrors(broker)
        self._disk = broker._disks[SETTINGS["metadata.log.dir"]]

    def fill(self) -> None:
        """Leave no room for anything more of the metadata."""

        async def fill() -> None:
            self._disk.capacity_bytes = self._disk.used_bytes

        self.broker.run(fill())

    def free(self) -> None:
        self._disk.capacity_bytes = None

    def topics(self) -> set[str]:
        """Those of users."""
        found = confluent_admin.AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(
            timeout=DEADLINE_S
        )
        return {name for name in found.topics if not name.startswith("__")}


@pytest.fixture
def site(make_broker: Callable[..., Broker]) -> Iterator[Site]:
    site = Site(make_broker(settings=SETTINGS))
    yield site
    site.free()  # for a clean stop


# --- clients


class Actor(Protocol):
    """What a client does here; both wait until it is done."""

    def produce(self, bootstrap: str, topic: str, values: Sequence[str]) -> list[int]:
        """Write to partition 0, with idempotence; the offsets."""
        ...

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        """Read that many from the beginning as a member of a group, and commit."""
        ...


class PythonActor:
    def __init__(self, client: Client) -> None:
        self._client = client

    def produce(self, bootstrap: str, topic: str, values: Sequence[str]) -> list[int]:
        messages = [Message(value.encode()) for value in values]
        return self._client.produce(bootstrap, topic, messages, idempotent=True)

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        found = MEMBERS[self._client.name](bootstrap, topic, group, count)
        return [value.decode() for value in found]


class JavaActor:
    def __init__(self, process: SteppedProcess) -> None:
        self._process = process

    def produce(self, bootstrap: str, topic: str, values: Sequence[str]) -> list[int]:
        offsets = self._process.do(f"produce {bootstrap} {topic} {' '.join(values)}")
        return [int(offset) for offset in offsets]

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        return self._process.do(f"consume {bootstrap} {topic} {group} {count}")


def _confluent_member(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    settings = {"group.id": group, "auto.offset.reset": "earliest"}
    with confluent_consumer(bootstrap, **settings) as consumer:
        consumer.subscribe([topic])
        found = [confluent_next(consumer).value or b"" for _ in range(count)]
        consumer.commit(asynchronous=False)
    return found


def _aiokafka_member(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    async def consume() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with asyncio.timeout(DEADLINE_S), consumer:
            found = [(await consumer.getone()).value for _ in range(count)]
            await consumer.commit()
        return found

    return asyncio.run(consume())


def _kafka_python_member(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=DEADLINE_S * 1000,
    )
    try:
        found = [next(consumer).value for _ in range(count)]
        consumer.commit()
    finally:
        consumer.close()
    return found


MEMBERS: dict[str, Callable[[str, str, str, int], list[bytes]]] = {
    "confluent": _confluent_member,
    "aiokafka": _aiokafka_member,
    "kafka-python": _kafka_python_member,
}


@pytest.fixture(scope="module")
def java() -> Iterator[SteppedProcess]:
    """One for all tests: a JVM is slow to start."""
    with java_steps() as process:
        yield process


@pytest.fixture(params=[*(client.name for client in CLIENTS), pytest.param("java", marks=pytest.mark.java)])
def actor(request: pytest.FixtureRequest) -> Actor:
    if request.param == "java":
        return JavaActor(request.getfixturevalue("java"))
    return PythonActor(next(client for client in CLIENTS if client.name == request.param))


# --- changes of the metadata that are asked for


@pytest.mark.java
def test_java_creates_a_topic_when_there_is_room(site: Site, java: SteppedProcess, topic: str) -> None:
    site.fill()
    step = f"create {site.bootstrap} {topic} {DEADLINE_S * 1000:.0f}"
    java.ask(step)
    site.answered.wait_for("CreateTopics", "NOT_CONTROLLER", 3)  # it tries again by itself
    assert site.topics() == set()
    site.free()
    java.given(step)
    assert site.topics() == {topic}
    site.broker.restart()
    assert site.topics() == {topic}


@pytest.mark.java
def test_java_gives_up_by_its_own_timeout(site: Site, java: SteppedProcess, topic: str) -> None:
    create = f"create {site.bootstrap} {topic}"
    java.do(f"{create}.before {DEADLINE_S * 1000:.0f}")
    site.fill()
    assert java.told(f"{create} {TIMEOUT_MS}") == "TimeoutException"
    assert site.answered.count("CreateTopics", "NOT_CONTROLLER") >= 1
    site.free()
    assert site.topics() == {f"{topic}.before"}
    java.do(f"{create} {DEADLINE_S * 1000:.0f}")
    assert site.topics() == {f"{topic}.before", topic}


def test_librdkafka_tells_its_user_why_a_topic_is_not_created(site: Site, topic: str) -> None:
    """It does not try CreateTopics again by itself, whatever the error is."""
    site.fill()
    with pytest.raises(confluent_kafka.KafkaException, match="No space left on device") as refusal:
        create_topic(site.bootstrap, topic)
    assert refusal.value.args[0].name() == "NOT_CONTROLLER"
    assert site.topics() == set()
    site.free()
    create_topic(site.bootstrap, topic)
    assert site.topics() == {topic}


# --- changes of the metadata that clients need on their way


def test_a_producer_waits_for_a_topic_that_is_created_for_it(site: Site, actor: Actor, topic: str) -> None:
    create_topic(site.bootstrap, f"{topic}.before")  # with it the node gets a block of producer ids
    CLIENTS[0].produce(site.bootstrap, f"{topic}.before", [Message(b"first")], idempotent=True)
    site.fill()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(actor.produce, site.bootstrap, topic, VALUES)
        site.answered.wait_for("Metadata", "LEADER_NOT_AVAILABLE", 3)
        site.free()
        assert writing.result(DEADLINE_S) == [0, 1, 2]
    assert _read(site.bootstrap, topic) == VALUES


def test_a_producer_waits_for_its_id(site: Site, actor: Actor, topic: str) -> None:
    create_topic(site.bootstrap, topic)
    site.fill()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(actor.produce, site.bootstrap, topic, VALUES)
        site.answered.wait_for("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", 2)
        site.free()
        assert writing.result(DEADLINE_S) == [0, 1, 2]
    assert _read(site.bootstrap, topic) == VALUES


def test_a_member_waits_for_its_coordinator(site: Site, actor: Actor, topic: str) -> None:
    create_topic(site.bootstrap, topic)
    CLIENTS[0].produce(site.bootstrap, topic, [Message(value.encode()) for value in VALUES])
    site.fill()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(actor.consume, site.bootstrap, topic, "readers", len(VALUES))
        site.answered.wait_for("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", 2)
        site.free()
        assert reading.result(DEADLINE_S) == VALUES
    site.broker.restart()
    with confluent_consumer(site.bootstrap, **{"group.id": "readers"}) as consumer:
        partition = confluent_kafka.TopicPartition(topic, 0)
        (committed,) = consumer.committed([partition], timeout=DEADLINE_S)
    assert committed.offset == len(VALUES)


def _read(bootstrap: str, topic: str) -> list[str]:
    found = CLIENTS[0].consume(bootstrap, topic, len(VALUES))
    assert CLIENTS[0].offsets(bootstrap, topic).end == len(VALUES)
    return [(one.value or b"").decode() for one in found]


# --- what does not change the metadata


@pytest.mark.parametrize("ending", ["room", "kill"])
def test_topics_that_exist_are_written_and_read_all_the_while(site: Site, topic: str, ending: str) -> None:
    create_topic(site.bootstrap, topic)
    with ConfluentWriter(site.bootstrap, topic) as writer:
        with Reader(site.bootstrap, topic) as reader:

            def go_on() -> None:
                wanted = writer.acknowledged + BETWEEN

                def has_gone_on() -> bool:
                    assert not writer.failures
                    return min(writer.acknowledged, len(reader.values)) >= wanted

                until(has_gone_on, f"{BETWEEN} more messages")

            go_on()
            site.fill()
            go_on()
            with pytest.raises(confluent_kafka.KafkaException):
                create_topic(site.bootstrap, f"{topic}.refused")
            if ending == "kill":
                site.broker.kill()
            site.free()
            if ending == "kill":
                site.broker.start()
            go_on()
            create_topic(site.bootstrap, f"{topic}.after")
            writer.finish()
            count = writer.acknowledged
            until(lambda: len(reader.values) >= count, f"{count} messages read")
        assert not writer.failures
    site.broker.restart()
    found: list[Any] = CLIENTS[0].consume(site.bootstrap, topic, count)
    assert [int(one.value) for one in found] == reader.values == list(range(count))
    assert CLIENTS[0].offsets(site.bootstrap, topic).end == count
    assert site.topics() == {topic, f"{topic}.after"}
