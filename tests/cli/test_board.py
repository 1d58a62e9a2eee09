"""The table of a local cluster: what each line shows of what a client was told."""

from __future__ import annotations

from pathlib import Path

from barnabas.cli.clusters.health import Health, counts_of
from barnabas.cli.local_cluster.facts import COLUMNS, Facts, rows
from barnabas.cli.local_cluster.plan import new_plan
from barnabas.cli.local_cluster.state import NodeState
from barnabas.client.admin import PartitionDescription, QuorumDescription, QuorumReplica
from barnabas.client.metadata import TopicPartition
from barnabas.core.random import SeededRandom

AT = TopicPartition("t", 0)


def facts(at_s: float, ends: dict[int, int], *, leader: int = 1, in_sync: tuple[int, ...] = (1, 2)) -> Facts:
    partition = PartitionDescription(0, leader, 0, [1, 2], list(in_sync))
    every = [Health(AT, partition, 1)]
    voters = [QuorumReplica(node, None, 9, None, None) for node in (1, 2)]
    quorum = QuorumDescription(2, 1, 9, voters, [], {})
    told = {(broker, AT): end for broker, end in ends.items()}
    return Facts(at_s, every, counts_of(every), frozenset((1, 2)), quorum, told, {1: 2048})


def shown(now: Facts | None, before: Facts | None = None) -> list[dict[str, object]]:
    plan = new_plan(Path("/d"), 4, 9092, SeededRandom(1))
    states = {1: NodeState(restarts=2)}
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows(plan, states, now, before)]


def test_what_is_not_known_is_left_open() -> None:
    first, *_, last = shown(None)
    assert first == {**dict.fromkeys(COLUMNS), "node": 1, "role": "voter", "state": "stopped", "restarts": 2}
    assert last["role"] == "broker"


def test_leaders_lag_rate_and_size() -> None:
    one, two, three, _ = shown(facts(12.0, {1: 500, 2: 480}), facts(10.0, {1: 300, 2: 300}))
    assert [each["role"] for each in (one, two, three)] == ["voter", "active", "observer"]
    assert (one["leads"], one["replicas"], one["behind"], one["records/s"]) == (1, 1, 0, 100)
    assert (two["leads"], two["replicas"], two["behind"], two["records/s"]) == (0, 1, 20, 0)
    assert (one["size"], two["size"], three["replicas"]) == ("2.0 KiB", None, 0)


def test_replicas_that_are_not_in_sync_are_counted_by_node() -> None:
    one, two, *_ = shown(facts(12.0, {1: 500}, in_sync=(1,)))
    assert (one["unsynced"], two["unsynced"], two["behind"]) == (0, 1, None)


def test_rate_goes_on_when_another_broker_leads() -> None:
    _, two, *_ = shown(facts(12.0, {2: 340}, leader=2), facts(10.0, {1: 300}))
    assert two["records/s"] == 20
