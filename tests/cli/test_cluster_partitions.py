"""`barnabas cluster partitions`: which partitions are not as they should be, and how far followers lag.

What it says of three nodes, of Barnabas and of Apache Kafka, is compared in tests/interop.
"""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli.clusters.health import Health, counts_of
from barnabas.cli.clusters.lag import ReplicaLag, lags_of
from barnabas.cli.clusters.watch import changes
from barnabas.client.admin import Admin, PartitionDescription, Reassignment
from barnabas.client.errors import BrokerError, BrokerNotReachable
from barnabas.client.metadata import TopicPartition
from barnabas.core.clock import ManualClock
from barnabas.core.errors import wire_error
from tests.cli.running import Commands

REPLICAS = [1, 2, 3]


def health(
    in_sync: list[int],
    *,
    leader: int = 1,
    min_in_sync: int | None = 2,
    replicas: list[int] = REPLICAS,
    move: Reassignment | None = None,
) -> Health:
    partition = PartitionDescription(0, leader, 0, replicas, in_sync)
    return Health(TopicPartition("t", 0), partition, min_in_sync, move)


@pytest.mark.parametrize(
    ("found", "states"),
    [
        (health([1, 2, 3]), []),
        (health([1, 3]), ["at min ISR", "under-replicated"]),
        (health([1, 3], min_in_sync=1), ["under-replicated"]),
        (health([1]), ["under min ISR", "under-replicated"]),
        (health([], leader=-1), ["no leader", "under-replicated"]),
        (health([1, 2, 3], leader=-1), ["no leader"]),
        (health([1], replicas=[1], min_in_sync=2), []),
        (health([1], min_in_sync=None), ["under-replicated"]),
        (
            health([1, 2], replicas=[3, 1, 2], move=Reassignment([3, 1, 2], [3], [1])),
            ["moving +3 -1"],
        ),
        (
            health([1], replicas=[3, 1, 2], move=Reassignment([3, 1, 2], [3], [1])),
            ["under min ISR", "under-replicated", "moving +3 -1"],
        ),
    ],
)
def test_the_states_of_a_partition(found: Health, states: list[str]) -> None:
    assert found.states == states
    assert found.is_as_it_should_be == (not states)


def test_partitions_are_counted_as_kafka_counts_them() -> None:
    every = [health([1, 2, 3]), health([1, 3]), health([1]), health([], leader=-1), health([1], replicas=[1])]
    counts = counts_of(every)
    assert counts._asdict() == {
        "total": 5,
        "under_replicated": 3,
        "under_min_isr": 2,
        "at_min_isr": 2,  # one of them has no other replica
        "offline": 1,
        "reassigning": 0,
    }


class _Nodes:
    """Three brokers; the ends of their logs, and the time of the record at an offset."""

    def __init__(self, ends: dict[int, int | BrokerError]) -> None:
        self._ends = ends

    async def replica_ends(self, node_id: int, partitions: list[TopicPartition]) -> dict[TopicPartition, Any]:
        if node_id not in self._ends:
            raise BrokerNotReachable(f"broker {node_id} is paused")
        return dict.fromkeys(partitions, self._ends[node_id])

    async def timestamp_at(
        self, node_id: int, at: TopicPartition, topic_id: bytes, offset: int
    ) -> int | None:
        assert (node_id, at, topic_id) == (1, ("t", 0), b"id")
        return 60_000 + offset if offset != 8 else None


def lags(
    ends: dict[int, int | BrokerError], live: tuple[int, ...] = (1, 2, 3), **of: Any
) -> list[ReplicaLag]:
    session: Any = SimpleNamespace(admin=_Nodes(ends), clock=ManualClock(start_ms=90_000))
    found = asyncio.run(lags_of(session, [health([1], **of)], {"t": b"id"}, live))
    return found.get(TopicPartition("t", 0), [])


def test_followers_lag_by_records_and_by_the_age_of_the_first_that_they_lack() -> None:
    assert lags({1: 1000, 2: 1000, 3: 500}) == [ReplicaLag(2, 0, 0.0), ReplicaLag(3, 500, 29.5)]
    assert lags({1: 10, 2: 12, 3: 8}) == [ReplicaLag(2, 0, 0.0), ReplicaLag(3, 2, None)]
    assert [each.text for each in lags({1: 9000, 2: 8, 3: 1000})] == ["2: 8,992", "3: 8,000 29 s"]


def test_what_no_broker_tells_is_not_known() -> None:
    unknown = [ReplicaLag(2, None, None), ReplicaLag(3, 0, 0.0)]
    assert lags({1: 5, 3: 5}) == unknown
    assert lags({1: 5, 2: 5, 3: 5}, live=(1, 3)) == unknown
    refused = BrokerError(wire_error("NOT_LEADER_OR_FOLLOWER"), "an older broker")
    assert lags({1: 5, 2: refused, 3: 5}) == unknown
    assert lags({2: 5, 3: 5}) == [ReplicaLag(2, None, None), ReplicaLag(3, None, None)]
    assert unknown[0].text == "2: not known"
    assert lags({1: 5, 2: 5, 3: 5}, leader=-1) == []


def test_a_cluster_of_one_has_nothing_to_tell(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "p-topic", "--partitions", 2)
    lines = anywhere.ok("cluster", "partitions", "p-*").decode().splitlines()
    assert len(lines) == 1
    assert "0 without a leader, 0 under min ISR" in lines[0]
    shown = json.loads(anywhere.ok("cluster", "partitions", "p-*", "--all", "--json"))["shown"]
    assert [(each["topic"], each["partition"], each["leader"]) for each in shown] == [
        ("p-topic", 0, 1),
        ("p-topic", 1, 1),
    ]
    assert (shown[0]["at_min_isr"], shown[0]["under_replicated"], shown[0]["followers"]) == (True, False, [])
    table = anywhere.ok("cluster", "partitions", "p-*", "--at-min-isr").decode().splitlines()
    assert table[2].split() == ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "MIN", "STATE", "BEHIND"]
    assert table[3].split() == ["p-topic-0", "1", "1", "1", "1", "ok", "-"]
    assert json.loads(anywhere.ok("cluster", "partitions", "--lagging", "--json"))["shown"] == []


def test_moves_are_left_out_where_no_controller_answers(
    anywhere: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for_ever(admin: Admin) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Admin, "list_reassignments", wait_for_ever)
    monkeypatch.setattr("barnabas.cli.clusters.partitions.CONTROLLER_S", 0.01)
    assert json.loads(anywhere.ok("cluster", "partitions", "--json"))["reassigning"] is None


def change_texts(old: Health, new: Health) -> list[str]:
    return [each.text for each in changes({old.at: old}, {new.at: new})]


def test_changes_of_partitions_are_told() -> None:
    whole, move = health([1, 2, 3]), Reassignment([3, 1, 2], [3], [1])
    assert change_texts(whole, whole) == []
    assert change_texts(whole, health([3, 2, 1])) == []  # another order
    assert change_texts(whole, health([1, 3])) == ["t-0 ISR shrunk 1,2,3 -> 1,3"]
    assert change_texts(health([1]), whole) == ["t-0 ISR expanded 1 -> 1,2,3"]
    assert change_texts(health([1, 2]), health([2, 3], leader=2)) == [
        "t-0 leader 1 -> 2",
        "t-0 ISR replaced 1,2 -> 2,3",
    ]
    assert change_texts(health([1]), health([], leader=-1)) == [
        "t-0 leader 1 -> none",
        "t-0 ISR shrunk 1 -> -",
    ]
    assert change_texts(whole, health([1, 2, 3], move=move)) == ["t-0 moves to 3,2"]
    assert change_texts(health([1, 2, 3], move=move), whole) == ["t-0 moves no more"]
    assert list(changes({}, {whole.at: whole})) == []


def test_a_cluster_is_watched_until_its_time_is_over(anywhere: Commands) -> None:
    text = anywhere.ok("cluster", "watch", "no-such-*", "--every", 0.01, "--for", 0.05).decode()
    assert text.startswith("ISRs: 0 shrinks, 0 expands; leaders: 0 changes in ")
    assert anywhere.ok("cluster", "watch", "--every", 0.01, "--for", 0.05, "--json") == b""
