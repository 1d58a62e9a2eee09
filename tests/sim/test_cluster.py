"""Simulated clusters: seeds that are always the same, some that nobody has run, and what they go through."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections import Counter

import pytest

from barnabas.cli.sim import replay_command
from barnabas.sim.cluster.events import DONE, Answered, Asked, LogSeen, Published
from barnabas.sim.cluster.plan import FAULTS
from barnabas.sim.cluster.simulate import simulate_cluster
from barnabas.sim.history import Finished
from barnabas.sim.scenario import CLUSTER
from barnabas.sim.world import Outcome

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
REPLAY = """
import sys
from barnabas.sim.cluster.simulate import simulate_cluster
outcome = simulate_cluster(int(sys.argv[1]), seconds=float(sys.argv[2]))
print(outcome.trace_hash, len(outcome.history), outcome.violations)
"""


def run(seed: int, seconds: float | None = None) -> Outcome:
    outcome = simulate_cluster(seed, seconds=seconds)
    told = "\n".join([replay_command(seed, seconds, CLUSTER), *map(str, outcome.violations)])
    assert not outcome.violations, told
    assert list(outcome.history.of(Finished)), told
    return outcome


@pytest.mark.slow  # many simulations of several nodes
def test_fixed_seeds_keep_every_promise_and_reach_their_floors() -> None:
    reached: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    done: set[str] = set()
    for seed in FIXED:
        outcome = run(seed, SECONDS)
        reached.update(outcome.stats.reached)
        faults.update(outcome.stats.faults)
        asked = {each.number: each.what for each in outcome.history.of(Asked)}
        done |= {asked[each.number] for each in outcome.history.of(Answered) if each.error == DONE}
        nodes = {each.node for each in outcome.history.of(Published)}
        assert nodes == {each.node for each in outcome.history.of(LogSeen)}
        assert len(nodes) >= 3
    assert {what: reached[what] for what in FLOORS if reached[what] < FLOORS[what]} == {}
    assert FAULTS.keys() <= faults.keys()
    assert done == {"create", "delete", "partitions", "config"}


def test_a_fresh_seed_keeps_every_promise() -> None:
    run(secrets.randbelow(1 << 31))


def test_a_seed_goes_the_same_way_in_another_process_with_another_order_of_sets() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", REPLAY, "2", "15"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "4242")
    ]
    assert said[0] == said[1]
    assert len(said[0].split()[0]) == 32
