"""Some faults of nodes under groups and transactions in every test run; `python -m
tests.broker.kill_coordinators` does more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.coordinator_outputs import differences
from tests.broker.kill_coordinators import prepare, run
from tests.broker.kill_replicas import Planned
from tests.broker.replica_faults import ISOLATE, KILL, PAUSE, STOP
from tests.support import node_networks
from tests.support.group_members import NEW_JAVA
from tests.support.numbered_writers import CONFLUENT

CLIENTS = (CONFLUENT, "aiokafka", NEW_JAVA)
SLOW_TICK_MS = 1_000


@pytest.mark.java
@pytest.mark.slow  # nodes are killed and started again
def test_groups_and_transactions_go_on_while_nodes_are_killed_paused_and_cut_off(tmp_path: Path) -> None:
    planned = [
        Planned((KILL,)),
        Planned((KILL, PAUSE)),
        Planned((ISOLATE if node_networks.missing() is None else PAUSE,)),
        Planned((STOP,)),
    ]
    prepare(CLIENTS)
    settings = {"group.initial.rebalance.delay.ms": "0"}
    outcome = run(
        tmp_path, 1, planned, clients=CLIENTS, longest_s=1.0, tick_ms=SLOW_TICK_MS, settings=settings
    )
    assert outcome.replicas.rounds == len(planned)
    assert [each.client for each in outcome.counts] == list(CLIENTS)
    for each in outcome.counts:
        assert each.group_commits > 0
        assert each.transactions > 0
        assert each.copied == outcome.replicas.records > 0


def test_an_output_is_its_input_once_and_in_order() -> None:
    assert differences("out", ["a", "b"], ["a", "b"]) == []
    (missing,) = differences("out", ["a", "b"], ["a"])
    assert "missing ['b'], strange [], twice []" in missing
    (strange,) = differences("out", ["a"], ["a", "c"])
    assert "missing [], strange ['c'], twice []" in strange
    (twice,) = differences("out", ["a"], ["a", "a"])
    assert "missing [], strange [], twice ['a']" in twice
    assert differences("out", ["a", "b"], ["b", "a"])
