"""Groups and transactions on several nodes: seeds that are always the same, and in which states groups and
transactions were when their coordinators moved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from barnabas.cli.sim import replay_command
from barnabas.sim.history import Finished
from barnabas.sim.scenario import REPLICATED, REPLICATED_GROUPS, REPLICATED_TRANSACTIONS
from barnabas.sim.world import Outcome, simulate

SECONDS = 15.0
# seeds with many faults of all kinds
FIXED = {REPLICATED_GROUPS: (1, 26, 82, 106), REPLICATED_TRANSACTIONS: (10, 82, 97, 220)}
# what the fixed seeds of a kind reach at the least, together
FLOORS = {
    REPLICATED_GROUPS: {
        "coordinators of groups moved": 10,
        "moved with groups in Empty": 5,
        "moved with groups in PreparingRebalance": 1,
        "moved with groups in Stable": 1,
    },
    REPLICATED_TRANSACTIONS: {
        "coordinators of groups moved": 8,
        "coordinators of transactions moved": 10,
        "moved with transactions in Empty": 3,
        "moved with transactions in Ongoing": 3,
        "moved with transactions in PrepareCommit": 1,
        "moved with transactions in PrepareAbort": 1,
        "moved with transactions in CompleteCommit": 1,
        "moved with transactions in CompleteAbort": 2,
    },
}
REPLAY = """
import sys
from barnabas.sim.world import simulate
outcome = simulate(int(sys.argv[1]), seconds=float(sys.argv[2]), kind=sys.argv[3])
print(outcome.trace_hash, len(outcome.history), outcome.violations)
"""


def run(seed: int, kind: str, seconds: float | None = None) -> Outcome:
    outcome = simulate(seed, seconds=seconds, kind=kind)
    told = "\n".join([replay_command(seed, seconds, kind), *map(str, outcome.violations)])
    assert not outcome.violations, told
    assert list(outcome.history.of(Finished)), told
    assert outcome.stats.records_acknowledged, told
    return outcome


@pytest.mark.slow  # several simulations of several nodes
@pytest.mark.parametrize("kind", REPLICATED)
def test_coordinators_move_in_every_state(kind: str) -> None:
    reached: Counter[str] = Counter()
    for seed in FIXED[kind]:
        reached.update(run(seed, kind, SECONDS).stats.reached)
    floors = FLOORS[kind]
    assert {what: reached[what] for what in floors if reached[what] < floors[what]} == {}


def test_a_seed_goes_the_same_way_with_another_order_of_sets() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", REPLAY, "26", "5", REPLICATED_GROUPS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        for hash_seed in ("1", "4242")
    ]
    assert said[0] == said[1]
    assert len(said[0].split()[0]) == 32
