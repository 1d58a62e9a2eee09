"""Simulated clusters: seeds that are always the same, some that nobody has run, and what they go through."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys

import pytest

from barnabas.cli.sim import replay_command
from barnabas.sim.cluster.events import DONE, Answered, Asked, Led, LogSeen, Published
from barnabas.sim.cluster.simulate import simulate_cluster
from barnabas.sim.history import Finished
from barnabas.sim.scenario import CLUSTER
from barnabas.sim.world import Outcome

FIXED = (1, 2, 3)
REPLAY = """
import sys
from barnabas.sim.cluster.simulate import simulate_cluster
outcome = simulate_cluster(int(sys.argv[1]), seconds=float(sys.argv[2]))
print(outcome.trace_hash, len(outcome.history), outcome.violations)
"""


def run(seed: int) -> Outcome:
    outcome = simulate_cluster(seed)
    told = "\n".join([replay_command(seed, None, CLUSTER), *map(str, outcome.violations)])
    assert not outcome.violations, told
    assert list(outcome.history.of(Finished)), told
    return outcome


@pytest.mark.parametrize("seed", FIXED)
def test_a_seed_keeps_every_promise(seed: int) -> None:
    outcome = run(seed)
    history = outcome.history
    asked = {each.number: each.what for each in history.of(Asked)}
    done = {asked[each.number] for each in history.of(Answered) if each.error == DONE}
    assert done == {"create", "delete", "partitions", "config"}
    nodes = {each.node for each in history.of(Published)}
    assert nodes == {each.node for each in history.of(LogSeen)}
    assert len(nodes) >= 3
    assert list(history.of(Led))


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
