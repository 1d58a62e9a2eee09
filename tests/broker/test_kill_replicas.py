"""Some faults of nodes under load in every test run; `python -m tests.broker.kill_replicas` does more."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.broker.kill_replicas import OTHERS, Outcome, Planned, deck, run, table
from tests.broker.replica_faults import BOTH, BROKER, ISOLATE, KILL, PAUSE, STOP, Measured
from tests.broker.replica_history import UNKNOWN, faults, parsed
from tests.interop.numbered_writer import value
from tests.support import node_networks
from tests.support.combined_cluster import BARNABAS, KAFKA
from tests.support.numbered_writers import CONFLUENT, Answer


@pytest.mark.java
@pytest.mark.slow  # nodes are killed and started again
def test_nothing_acknowledged_is_lost_while_nodes_are_killed_paused_and_cut_off(tmp_path: Path) -> None:
    planned = [
        Planned((KILL,), BROKER),
        Planned((KILL,), BOTH),
        Planned((KILL, KILL)),
        Planned((PAUSE, KILL)),
        *([Planned((ISOLATE, PAUSE))] if node_networks.missing() is None else []),
    ]
    outcome = run(tmp_path, 1, planned, longest_s=1.0)
    assert outcome.rounds == len(planned)
    assert len(outcome.measured) == 2
    assert all(count > 0 for count in outcome.acknowledged.values())
    assert outcome.problems == []


def answer(number: int, offset: int) -> Answer:
    return Answer(0, number, offset, 0, 0)


def test_a_log_with_everything_once_and_in_order_has_no_fault() -> None:
    log = [("a", 0), ("b", 0), ("a", 1), ("a", 3), ("b", 1)]
    answers = {"a": [answer(0, 0), answer(1, 2), answer(3, -1)], "b": [answer(0, 1)]}
    assert faults(log, answers) == []


def test_each_fault_of_a_log_is_found() -> None:
    log = [("a", 0), ("a", 1)]
    assert "holds nothing" in faults(log, {"a": [answer(2, 2)]})[0]
    assert "holds nothing" in faults(log, {"a": [answer(2, -1)]})[0]
    assert "holds ('a', 1)" in faults(log, {"a": [answer(0, 1)]})[0]
    assert "a has record 1 at offset 2, and 1 at offset 1" in faults([*log, ("a", 1)], {"a": []})
    assert "a has record 0 at offset 1, and 1 at offset 0" in faults([("a", 1), ("a", 0)], {"a": []})
    assert "offset 2 holds what nobody has sent: unknown bytes" in faults([*log, UNKNOWN], {"a": []})


def test_a_record_is_known_by_all_its_bytes() -> None:
    sent = value("a", 1, 12)
    assert parsed(1, sent) == ("a", 12)
    assert parsed(0, sent) == UNKNOWN
    assert parsed(1, sent[:-1]) == UNKNOWN
    assert parsed(1, b"") == UNKNOWN


def test_every_fault_comes_before_any_comes_again() -> None:
    rounds = deck(Random(1), BARNABAS, [KILL, PAUSE, ISOLATE])
    first = [next(rounds) for _ in range(16)]
    assert {kind for each in first for kind in each.kinds} == {KILL, PAUSE, ISOLATE, STOP}
    assert set(OTHERS) <= set(first)
    of_kafka = deck(Random(1), KAFKA, [KILL, PAUSE])
    assert all(each.role and each.kinds != (ISOLATE,) for each in (next(of_kafka) for _ in range(40)))


def test_systems_stand_side_by_side() -> None:
    killed = Planned((KILL,), BROKER)
    found = {killed: [Measured(100, {CONFLUENT: 300}, 2000), Measured(200, {CONFLUENT: 500}, 4000)]}
    outcome = Outcome(2, 2, {CONFLUENT: 70}, 71, [], found, 12.0)
    lines = table(
        {"barnabas": outcome, "kafka": outcome._replace(measured={}, problems=["one"])}
    ).splitlines()
    assert lines[0].startswith("barnabas: 2 rounds, 2 faults, 12 s; acknowledged 70 to confluent; 71 records")
    assert lines[1].endswith(": one")
    assert " ".join(lines[4].split()) == "kill broker replaced 150 200 2 - - 0"
    assert " ".join(lines[5].split()) == "kill broker confluent goes on 400 500 2 - - 0"
