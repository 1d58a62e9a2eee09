"""Simulated clusters: seeds that are always the same, some that nobody has run, and what they go through."""

from __future__ import annotations

import secrets
from collections import Counter

import pytest

from barnabas.sim.cluster.events import DONE, Answered, Asked, LogSeen, Published
from barnabas.sim.cluster.plan import FAULTS
from barnabas.sim.scenario import CLUSTER
from tests.sim.seeds import assert_same_in_other_processes, missed, run_clean

# seeds with many faults of all kinds
FIXED = (4, 36, 38, 60, 77, 80, 88, 112, 142, 150, 152, 163, 181, 199)
SECONDS = 25.0
# what the fixed seeds reach at the least, together
FLOORS = {
    "elections": 50,
    "leaders found gone": 45,
    "truncations": 3,
    "snapshot loads": 4,
    "roll-backs": 6,
    "voter changes": 20,
    "transactions": 80,
    "registrations": 70,
    "fencings": 25,
    "unfencings": 70,
    "kill drills": 4,
    "stop drills": 3,
    "newcomer drills": 1,
}


@pytest.mark.slow  # many simulations of several nodes
def test_fixed_seeds_keep_every_promise_and_reach_their_floors() -> None:
    reached: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    done: set[str] = set()
    for seed in FIXED:
        outcome = run_clean(seed, CLUSTER, SECONDS)
        reached.update(outcome.stats.reached)
        faults.update(outcome.stats.faults)
        asked = {each.number: each.what for each in outcome.history.of(Asked)}
        done |= {asked[each.number] for each in outcome.history.of(Answered) if each.error == DONE}
        nodes = {each.node for each in outcome.history.of(Published)}
        assert nodes == {each.node for each in outcome.history.of(LogSeen)}
        assert len(nodes) >= 3
    assert missed(reached, FLOORS) == {}
    assert FAULTS.keys() <= faults.keys()
    assert done == {"create", "delete", "partitions", "config"}


def test_a_fresh_seed_keeps_every_promise() -> None:
    run_clean(secrets.randbelow(1 << 31), CLUSTER)


def test_a_seed_goes_the_same_way_in_another_process_with_another_order_of_sets() -> None:
    assert_same_in_other_processes(2, CLUSTER, 15.0)
