"""A clean stop, seen by producers that write all the while: nothing lost, nothing twice, no fatal error.

A stop begins with the controlled shutdown, during which the listeners still answer: producers are told that
nobody leads, and keep what they have. Then the listeners close, and producers connect again until the node is
back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.broker.cluster.membership import Membership
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.testing import Broker, BrokerFailed
from tests.support.answered import AnsweredErrors
from tests.support.apache_kafka import free_ports
from tests.support.clients import CLIENTS, DEADLINE_S, create_topic, until
from tests.support.raw_client import RawClient, metadata_request
from tests.support.serve_process import ServeProcess
from tests.support.writers import AioKafkaWriter, ConfluentWriter, JavaWriter, KafkaPythonWriter, Writer

STOPS = 2
BETWEEN = 300  # messages acknowledged from one stop to the next
JAVA_WRITER = pytest.param(JavaWriter, marks=pytest.mark.java)

pytestmark = pytest.mark.usefixtures("sockets_of_kafka_python_are_closed")


def go_on(writer: Writer) -> None:
    """Wait until more messages are acknowledged."""
    wanted = writer.acknowledged + BETWEEN

    def has_gone_on() -> bool:
        assert not writer.failures
        return writer.acknowledged >= wanted

    until(has_gone_on, f"{BETWEEN} more messages")


def finish(writer: Writer) -> None:
    """Stop writing: what was acknowledged is in the partition, once and in order."""
    writer.finish()
    assert not writer.failures
    count = writer.acknowledged
    found = CLIENTS[0].consume(writer.bootstrap, writer.topic, count)
    assert [int(one.value or b"") for one in found] == list(range(count))
    assert CLIENTS[0].offsets(writer.bootstrap, writer.topic).end == count


class HeldShutdown:
    """Controlled shutdowns that are done, and held before what follows: the listeners still answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._over = asyncio.Event()
        leave = Membership.leave

        async def leave_and_wait(membership: Membership) -> None:
            await leave(membership)
            await self._over.wait()

        monkeypatch.setattr(Membership, "leave", leave_and_wait)

    def release(self, broker: Broker) -> None:
        async def release() -> None:
            self._over.set()

        broker.run(release())


@pytest.fixture
def shutdown(monkeypatch: pytest.MonkeyPatch) -> HeldShutdown:
    return HeldShutdown(monkeypatch)


@pytest.fixture
def broker(make_broker: Callable[..., Broker], shutdown: HeldShutdown) -> Iterator[Broker]:
    broker = make_broker(settings={"barnabas.metrics.listen": "127.0.0.1:0"})
    yield broker
    with contextlib.suppress(BrokerFailed):  # a test that failed in between has none that runs
        shutdown.release(broker)


@pytest.mark.parametrize("kind", [ConfluentWriter, AioKafkaWriter, KafkaPythonWriter, JAVA_WRITER])
def test_producers_are_answered_during_the_controlled_shutdown(
    kind: type[Writer], broker: Broker, shutdown: HeldShutdown, topic: str
) -> None:
    create_topic(broker.bootstrap, topic)
    with kind(broker.bootstrap, topic) as writer:
        go_on(writer)
        answered = AnsweredErrors(broker)
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(broker.stop)
            answered.wait_for("Produce", "NOT_LEADER_OR_FOLLOWER")
            answered.wait_for("Metadata", "LEADER_NOT_AVAILABLE")
            assert leaders_told_to_newcomers(broker.port, topic) == [-1]
            shutdown.release(broker)
            stopping.result(DEADLINE_S)
        assert not writer.failures
        broker.start()
        assert broker.node.storage.logs.was_clean
        go_on(writer)
        finish(writer)


def leaders_told_to_newcomers(port: int, topic: str) -> list[int]:
    """The leader of each partition, as a client learns it that connects now."""
    with RawClient(port) as client:
        (described,) = client.ask(metadata_request(topic), 9, MetadataResponse).topics
    return [partition.leader_id for partition in described.partitions]


@pytest.mark.parametrize("kind", [ConfluentWriter, JAVA_WRITER])
def test_a_node_stops_cleanly_under_producers(kind: type[Writer], tmp_path: Path, topic: str) -> None:
    port, controller_port = free_ports(2)
    address = f"127.0.0.1:{port}"
    listeners = f"PLAINTEXT://{address},CONTROLLER://127.0.0.1:{controller_port}"
    with ServeProcess(tmp_path / "data", "--set", f"listeners={listeners}", listen=None) as node:
        create_topic(address, topic)
        with kind(address, topic) as writer:
            for _ in range(STOPS):
                go_on(writer)
                assert node.stop() == 0
                assert said_last(node).endswith(" stopped cleanly")
                node.start()
            go_on(writer)
            finish(writer)
        assert node.stop() == 0
        assert said_last(node).endswith(" stopped cleanly")
        trouble = [line for line in node.log_file.read_text().splitlines() if is_trouble(line)]
    assert trouble == []


def said_last(node: ServeProcess) -> str:
    return node.log().splitlines()[-1]


def is_trouble(line: str) -> bool:
    return any(word in line for word in ("WARNING", "ERROR", "CRITICAL", "Traceback"))
