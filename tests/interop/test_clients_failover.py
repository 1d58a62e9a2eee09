"""The node that clients use is killed, paused, cut off or restarted, and they go on with another one.

Three nodes in this process (barnabas.testing), and clients that find leader and coordinator by themselves.
What was acknowledged is read, once and in order, by a reader who was there all the time and by one who comes
afterwards. A node that is paused or cut off answers nothing, so clients have a request timeout of seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.testing import Cluster
from tests.support.clients import CLIENTS, create_topic, until
from tests.support.group_members import SETTINGS, Groups, Hosts
from tests.support.writers import (
    PATIENCE_S,
    AioKafkaWriter,
    ConfluentWriter,
    JavaWriter,
    KafkaPythonWriter,
    Reader,
    Writer,
)

BETWEEN = 200  # messages acknowledged from one fault to the next
REQUEST_TIMEOUT_MS = 2_000

# what is done to a node, and how it comes back
FAULTS: dict[str, tuple[Callable[[Cluster, int], None], Callable[[Cluster, int], None]]] = {
    "kill": (Cluster.kill, Cluster.restart),
    "pause": (Cluster.pause, Cluster.resume),
    "isolate": (Cluster.isolate, Cluster.heal),
    "stop": (Cluster.stop_node, Cluster.restart),
}


@pytest.mark.usefixtures("sockets_of_kafka_python_are_closed")
@pytest.mark.parametrize(
    "kind",
    [
        ConfluentWriter,
        AioKafkaWriter,
        KafkaPythonWriter,
        pytest.param(JavaWriter, marks=pytest.mark.java),
    ],
)
def test_producers_and_consumers_follow_the_leader(kind: type[Writer], cluster: Cluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, replicas=3)
    with (
        kind(cluster.bootstrap, topic, REQUEST_TIMEOUT_MS) as writer,
        Reader(cluster.bootstrap, topic, REQUEST_TIMEOUT_MS) as reader,
    ):

        def until_more() -> None:
            wanted = writer.acknowledged + BETWEEN

            def moved_on() -> bool:
                assert not writer.failures
                return writer.acknowledged >= wanted and len(reader.values) >= wanted

            until(moved_on, f"{BETWEEN} more messages", PATIENCE_S)

        until_more()
        for strike, recover in FAULTS.values():
            cluster.wait_until_in_sync(topic)
            leader = cluster.leader_of(topic)
            strike(cluster, leader)
            until_more()
            recover(cluster, leader)
        until_more()
        writer.finish()
        assert not writer.failures
        count = writer.acknowledged
        until(lambda: len(reader.values) >= count, f"{count} messages read", PATIENCE_S)
    found = CLIENTS[0].consume(cluster.bootstrap, topic, count)
    assert [int(one.value or b"") for one in found] == list(range(count))
    assert reader.values == list(range(count))
    assert CLIENTS[0].offsets(cluster.bootstrap, topic).end == count


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Processes in which members of groups live."""
    hosts = Hosts()
    yield hosts
    hosts.end()


@pytest.fixture
def group_cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """One in which all groups have one coordinator."""
    return make_cluster(settings={**SETTINGS, "offsets.topic.num.partitions": "1"})


@pytest.mark.parametrize("fault", FAULTS)
def test_groups_follow_their_coordinator(hosts: Hosts, group_cluster: Cluster, fault: str) -> None:
    cluster = group_cluster
    strike, recover = FAULTS[fault]
    clients = {"confluent": ["cooperative-sticky"], "aiokafka": ["roundrobin"]}
    if fault in ("kill", "stop"):  # kafka-python waits long for one that is silent
        clients["kafka-python"] = ["sticky"]
    with Groups(hosts, cluster.bootstrap, fault, clients, replicas=3) as all_:
        for client, group in zip(clients, all_.groups, strict=True):
            group.join(client, request_ms=REQUEST_TIMEOUT_MS)
            group.join(client, request_ms=REQUEST_TIMEOUT_MS)
        all_.settle()
        cluster.wait_until_in_sync()
        coordinator = cluster.coordinator_of("any")
        strike(cluster, coordinator)
        assert cluster.coordinator_of("any") != coordinator
        for client, group in zip(clients, all_.groups, strict=True):
            group.join(client, request_ms=REQUEST_TIMEOUT_MS)
        all_.settle()
        recover(cluster, coordinator)
        cluster.wait_until_in_sync()
        all_.finish(once=False)
