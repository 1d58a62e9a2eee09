"""Some moves of coordinators in every test run; `python -m tests.broker.kill_coordinators` does more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.coordinator_load import differences
from tests.broker.kill_coordinators import run
from tests.broker.kill_replicas import Planned
from tests.broker.replica_faults import BOTH, KILL

# librdkafka may wait for a minute for a coordinator that it has forgotten
CLIENTS = ("aiokafka", "kafka-python")
QUICK = {
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.mark.slow  # nodes are killed and started again, and groups settle in between
def test_groups_and_transactions_go_on_while_coordinators_move(tmp_path: Path) -> None:
    planned = [Planned((KILL,), BOTH)]
    outcome = run(tmp_path, 1, planned, clients=CLIENTS, longest_s=1.0, settings=QUICK)
    assert outcome.replicas.rounds == len(planned)
    assert [each.client for each in outcome.counts] == list(CLIENTS)
    assert all(each.group_commits and each.transactions for each in outcome.counts)


def test_an_output_is_its_input_once_and_in_order() -> None:
    assert differences("out", ["a", "b"], ["a", "b"]) == []
    (missing,) = differences("out", ["a", "b"], ["a"])
    assert "missing ['b'], strange [], twice []" in missing
    (strange,) = differences("out", ["a"], ["a", "c"])
    assert "missing [], strange ['c'], twice []" in strange
    (twice,) = differences("out", ["a"], ["a", "a"])
    assert "missing [], strange [], twice ['a']" in twice
    assert differences("out", ["a", "b"], ["b", "a"])
