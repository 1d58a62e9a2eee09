"""Other people's admin clients do with three nodes of Barnabas what they do with three of Apache Kafka.

The same steps as with one node (test_admin_side_by_side.py), and those for which it takes several. Franz-go,
kafkajs and the Java client get the address of one node, which does not lead the quorum: what they change is
forwarded. Which nodes hold a partition is chance, and made equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from tests.interop.python_admin import with_confluent, with_kafka_python
from tests.support import foreign
from tests.support.apache_kafka import VERSION
from tests.support.combined_cluster import BARNABAS, KAFKA, CombinedCluster
from tests.support.java_clients import PROGRAMS, run_java
from tests.support.targets import NO_RETENTION

pytestmark = [pytest.mark.java, pytest.mark.slow]  # two clusters of three nodes

# a change is answered before all brokers have read it, and clients ask any broker what came of it: what they
# are told may be out of date, which is chance, too
TRIES = 20
GONE = 9  # a broker that is registered, and nowhere
LOGGED = re.compile(r"\d{4}-\d\d-\d\d ")

T = TypeVar("T")

# where clients name a node, or several, by whatever names they have for that
_NODES = frozenset(
    ("leader", "leader_id", "replicas", "replica_nodes", "isr", "isr_nodes", "controller", "controller_id")
)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CombinedCluster, CombinedCluster]]:
    """Three nodes of Apache Kafka, and three of Barnabas."""
    root = tmp_path_factory.mktemp("clusters")
    with (
        CombinedCluster(KAFKA, root / KAFKA, settings=NO_RETENTION) as theirs,
        CombinedCluster(BARNABAS, root / BARNABAS, settings=NO_RETENTION) as ours,
    ):
        yield theirs, ours


def a_follower(cluster: CombinedCluster) -> str:
    """The address of a broker that is not in the process of the active controller."""
    leader = cluster.leader()
    return next(f"127.0.0.1:{cluster.ports[each]}" for each in cluster.ids if each != leader)


def comparable(value: Any) -> Any:
    """Which node it is does not count, nor in what order they come."""
    if isinstance(value, dict):
        return {str(key): _nodes(each) if key in _NODES else comparable(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(map(comparable, value), key=repr)
    return value


def _nodes(value: Any) -> Any:
    return [_nodes(each) for each in value] if isinstance(value, list) else value is None or value >= 0


def same(theirs: Callable[[], T], ours: Callable[[], T]) -> T:
    """What both say, once neither was asked of a broker that had not heard of the last change."""
    expected, told = theirs(), ours()
    for _ in range(TRIES):
        if told == expected:
            break
        expected, told = theirs(), ours()
    assert told == expected
    return told


def of_franz_go(bootstrap: str) -> list[dict[str, Any]]:
    steps = foreign.run_go(bootstrap)
    (listed,) = (step for step in steps if step["step"] == "list")
    for name, (leader, epoch, replicas, isr) in listed["result"].items():
        listed["result"][name] = {"leader": leader, "epoch": epoch, "replicas": replicas, "isr": isr}
    return steps


def of_kafkajs(bootstrap: str) -> list[dict[str, Any]]:
    return foreign.run_node("admin.js", bootstrap)


@pytest.mark.parametrize(
    "administer",
    [pytest.param(of_franz_go, marks=pytest.mark.go), pytest.param(of_kafkajs, marks=pytest.mark.node)],
)
def test_clients_that_know_one_node_administer_as_with_kafka(
    administer: Callable[[str], list[dict[str, Any]]], clusters: tuple[CombinedCluster, CombinedCluster]
) -> None:
    theirs, ours = clusters

    def administered(cluster: CombinedCluster) -> list[Any]:
        return [comparable(step) for step in administer(a_follower(cluster))]

    assert len(same(lambda: administered(theirs), lambda: administered(ours))) > 20


@pytest.mark.parametrize("administer", [with_confluent, with_kafka_python])
def test_clients_that_know_all_nodes_administer_as_with_kafka(
    administer: Callable[[str], dict[str, Any]], clusters: tuple[CombinedCluster, CombinedCluster]
) -> None:
    theirs, ours = clusters
    told = same(
        lambda: comparable(administer(theirs.bootstrap)), lambda: comparable(administer(ours.bootstrap))
    )
    assert len(told) > 15


def of_franz_go_for_nodes(bootstrap: str, gone: int) -> list[Any]:
    return foreign.run_go("cluster", bootstrap, str(gone))


def of_java_for_nodes(bootstrap: str, gone: int) -> list[Any]:
    lines = run_java(VERSION, PROGRAMS / "ClusterAdmin.java", bootstrap, str(gone))
    return [line for line in lines if not LOGGED.match(line)]


@pytest.mark.parametrize(
    "administer", [pytest.param(of_franz_go_for_nodes, marks=pytest.mark.go), of_java_for_nodes]
)
def test_nodes_are_administered_as_with_kafka(
    administer: Callable[[str, int], list[Any]], clusters: tuple[CombinedCluster, CombinedCluster]
) -> None:
    """Voters, features, settings of brokers, and a broker that is unregistered."""
    told = []
    for cluster in clusters:
        cluster.register_gone(GONE)
        told.append(administer(a_follower(cluster), GONE))
    theirs, ours = told
    assert ours == theirs
    assert len(theirs) > 20
