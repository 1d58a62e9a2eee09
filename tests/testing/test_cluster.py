"""The cluster that users have in their tests: what becomes of a node, as clients and other nodes see it."""

from __future__ import annotations

import gc
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.core.settings.definition import InvalidSetting
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.testing import Cluster, ClusterFailed
from tests.support.raw_client import RawClient, fetch_request, metadata_request, produce_request

TOPIC = "letters"


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """With a topic."""
    with client_of(cluster, 1) as client:
        client.ask(metadata_request(TOPIC), 9, MetadataResponse)
    cluster.leader_of(TOPIC)
    return cluster


def client_of(cluster: Cluster, node: int) -> RawClient:
    return RawClient(port_of(cluster, node))


def port_of(cluster: Cluster, node: int) -> int:
    return int(cluster.address_of(node).rpartition(":")[2])


def write(cluster: Cluster, value: bytes = b"dear sir") -> int:
    """Have a record acknowledged by all in-sync replicas; its offset."""
    with client_of(cluster, cluster.leader_of(TOPIC)) as client:
        answer = client.ask(produce_request(TOPIC, [value], acks=-1), 9, ProduceResponse)
    (done,) = answer.responses[0].partition_responses
    assert done.error_code == 0, done
    return done.base_offset


def has_answer(client: RawClient) -> bool:
    return bool(select.select([client._socket], [], [], 0)[0])


def others(cluster: Cluster, node: int) -> list[int]:
    return [each for each in cluster.nodes if each != node]


# --- kill


def test_kill_closes_connections_refuses_new_ones_and_loses_nothing(cluster: Cluster) -> None:
    leader = cluster.leader_of(TOPIC)
    assert write(cluster) == 0
    with client_of(cluster, leader) as client:
        cluster.kill(leader)
        with pytest.raises((EOFError, ConnectionResetError)):
            client.receive()
    with pytest.raises(ConnectionRefusedError):
        client_of(cluster, leader)
    assert cluster.leader_of(TOPIC) != leader
    assert leader not in cluster.in_sync(TOPIC)
    assert write(cluster) == 1
    cluster.restart(leader)
    cluster.wait_until_in_sync(TOPIC)
    assert set(cluster.in_sync(TOPIC)) == set(cluster.nodes)


def test_all_may_be_killed_and_restarted_together(cluster: Cluster) -> None:
    for expected in range(2):
        assert write(cluster) == expected
        cluster.kill(*cluster.nodes)
        cluster.restart(*cluster.nodes)
        cluster.wait_until_in_sync()


def test_controller_is_replaced(cluster: Cluster) -> None:
    active = cluster.controller()
    cluster.kill(active)
    assert cluster.controller() != active
    cluster.wait_until_fenced(active)
    assert write(cluster) == 0


@pytest.mark.parametrize("is_paused", [True, False], ids=["paused", "isolated"])
def test_node_that_does_not_answer_can_be_killed(cluster: Cluster, is_paused: bool) -> None:
    leader = cluster.leader_of(TOPIC)
    (cluster.pause if is_paused else cluster.isolate)(leader)
    cluster.kill(leader)
    assert write(cluster) == 0
    if not is_paused:
        cluster.heal(leader)
    cluster.restart(leader)
    cluster.wait_until_in_sync()


# --- pause


def test_paused_node_keeps_its_connections_and_answers_later(cluster: Cluster) -> None:
    leader = cluster.leader_of(TOPIC)
    with client_of(cluster, leader) as before:
        cluster.pause(leader)
        before.send(metadata_request(TOPIC), 9)
        with client_of(cluster, leader) as meanwhile:  # the kernel accepts
            meanwhile.send(metadata_request(TOPIC), 9)
            cluster.wait_until_fenced(leader)
            assert write(cluster) == 0
            assert not has_answer(before)
            assert not has_answer(meanwhile)
            cluster.resume(leader)
            assert before.receive()
            assert meanwhile.receive()
    cluster.wait_until_serving()
    cluster.wait_until_in_sync()


# --- isolation


def test_isolated_node_is_heard_of_after_healing(cluster: Cluster) -> None:
    leader = cluster.leader_of(TOPIC)
    with client_of(cluster, leader) as before:
        cluster.isolate(leader)
        before.send(metadata_request(TOPIC), 9)
        cluster.wait_until_fenced(leader)
        assert write(cluster) == 0
        assert not has_answer(before)
        cluster.heal(leader)
        assert before.receive()
    cluster.wait_until_serving()
    cluster.wait_until_in_sync()


def test_node_isolated_from_others_alone_answers_its_clients(cluster: Cluster) -> None:
    leader = cluster.leader_of(TOPIC)
    with client_of(cluster, leader) as client:
        cluster.isolate(leader, keep_clients=True)
        cluster.wait_until_fenced(leader)
        assert cluster.leader_of(TOPIC) != leader
        answer = client.ask(fetch_request(TOPIC), 11, FetchResponse)
        assert answer.responses[0].partitions[0].error_code == 0  # it still believes that it leads
        cluster.heal(leader)
    cluster.wait_until_in_sync()
    assert write(cluster) == 0


def test_minority_acknowledges_nothing(cluster: Cluster) -> None:
    leader = cluster.leader_of(TOPIC)
    cluster.isolate(leader, keep_clients=True)
    with client_of(cluster, leader) as client:
        client.send(produce_request(TOPIC, [b"unheard"], acks=-1), 9)
        cluster.wait_until_fenced(leader)
        assert write(cluster, b"heard") == 0
        assert not has_answer(client)
        cluster.heal(leader)
        assert client.receive()  # an error by now
    cluster.wait_until_in_sync()
    with client_of(cluster, cluster.leader_of(TOPIC)) as client:
        records = client.ask(fetch_request(TOPIC), 11, FetchResponse).responses[0].partitions[0].records
    assert b"heard" in bytes(records)  # type: ignore[arg-type]
    assert b"unheard" not in bytes(records)  # type: ignore[arg-type]


# --- who does what


def test_coordinators_are_found(cluster: Cluster) -> None:
    for find in (cluster.coordinator_of, cluster.transaction_coordinator_of):
        first = find("castle")
        cluster.wait_until_in_sync()
        cluster.kill(first)
        assert find("castle") != first
        cluster.restart(first)


def test_node_stopped_cleanly_leads_nothing(cluster: Cluster) -> None:
    leader = cluster.leader_of(TOPIC)
    cluster.stop_node(leader)
    assert cluster.leader_of(TOPIC) != leader
    assert write(cluster) == 0
    cluster.restart(leader)
    cluster.restart(leader)  # stops it, too
    cluster.wait_until_in_sync()


def test_it_can_be_used_by_other_threads(cluster: Cluster) -> None:
    first, *rest = cluster.nodes
    threads = [threading.Thread(target=cluster.pause, args=(first,))]
    threads += [threading.Thread(target=cluster.leader_of, args=(TOPIC,)) for _ in rest]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    cluster.resume(first)
    cluster.wait_until_serving()


# --- errors and the end


def test_what_cannot_be_done_is_told(cluster: Cluster) -> None:
    with pytest.raises(ClusterFailed, match="already running"):
        cluster.start()
    with pytest.raises(ClusterFailed, match="there is no node 4; the nodes are 1, 2, 3"):
        cluster.kill(4)
    with pytest.raises(ClusterFailed, match="not paused: it is running"):
        cluster.resume(1)
    with pytest.raises(ClusterFailed, match="not isolated"):
        cluster.heal(1)
    with pytest.raises(ClusterFailed, match=r"no node leads elsewhere-0 within 0\.1 s; node 1 is running"):
        cluster.leader_of("elsewhere", timeout=0.1)
    with pytest.raises(ClusterFailed, match=r"not in sync: elsewhere \(no such topic\)"):
        cluster.wait_until_in_sync("elsewhere", timeout=0.1)
    cluster.kill(1)
    with pytest.raises(ClusterFailed, match="cannot be killed: it is not running"):
        cluster.kill(1)
    with pytest.raises(ClusterFailed, match="cannot be paused: it is not running"):
        cluster.pause(1)
    cluster.kill(2, 3)
    with pytest.raises(ClusterFailed, match="no majority of 3"):
        cluster.restart(2)
    cluster.restart(2, wait=False)
    cluster.restart(3)
    cluster.wait_until_serving(2, 3)
    cluster.wait_until_in_sync()
    assert write(cluster) == 0


def test_bad_settings_are_told_and_leave_nothing_behind() -> None:
    cluster = Cluster(settings={"num.partitions": "many"})
    with pytest.raises(InvalidSetting, match=r"num\.partitions"):
        cluster.start()
    with pytest.raises(ClusterFailed, match="1 to 9 nodes, not 0"):
        Cluster(nodes=0)


def test_directory_must_be_empty(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear sir")
    with pytest.raises(ClusterFailed, match="is not empty"):
        Cluster(tmp_path)


@pytest.fixture
def ends(make_cluster: Callable[..., Cluster]) -> Iterator[Cluster]:
    before = threading.active_count()
    cluster = make_cluster()
    yield cluster
    cluster.stop()
    cluster.stop()  # harmless
    assert threading.active_count() == before
    for each in cluster.nodes:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port_of(cluster, each)))
    gc.collect()  # what was left open is complained of now


def test_end_with_nodes_in_all_states(ends: Cluster) -> None:
    ends.kill(1)
    ends.pause(2)
    ends.isolate(3)


def test_end_while_nodes_start(ends: Cluster) -> None:
    ends.kill(*ends.nodes)
    ends.restart(1, wait=False)


def test_data_and_ports_stay_from_one_life_to_the_next(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "data")
    ports = set()
    for life in range(2):
        with cluster:
            with client_of(cluster, 2) as client:
                client.ask(metadata_request(TOPIC), 9, MetadataResponse)
            cluster.wait_until_in_sync()
            assert write(cluster) == life
            ports.add(cluster.bootstrap)
    assert len(ports) == 1
    assert sorted(each.name for each in (tmp_path / "data").iterdir()) == ["1", "2", "3"]


def test_nodes_may_be_one_or_five(make_cluster: Callable[..., Cluster]) -> None:
    for count in (1, 5):
        cluster = make_cluster(nodes=count)
        with client_of(cluster, 1) as client:
            client.ask(metadata_request(TOPIC), 9, MetadataResponse)
        assert write(cluster) == 0
        assert len(cluster.in_sync(TOPIC)) == min(3, count)
