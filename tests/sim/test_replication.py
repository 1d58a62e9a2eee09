"""Simulated clusters with replicated partitions: seeds that are always the same, one that nobody has run, and
what they go through."""

from __future__ import annotations

import secrets
from collections import Counter

import pytest

from barnabas.sim.scenario import REPLICATION
from tests.sim.seeds import missed, run_clean

# a seed with many faults, and what it reaches at the least
FIXED = (1306951174,)
FLOORS = {
    "ISR shrinks": 8,
    "ISR expands": 15,
    "ELR elections": 1,
    "reassignments": 1,
    "leader changes": 8,
}
# Seeds that once ended in a violation, by the cause that was mended
FOUND = {
    "a log that was deleted during a round of flushes was reported as an error": [35],
    "the checker of look-ups took what one replica had compacted away for missing": [803225323],
    "the watch kept batches that were cut where the leader's log had a gap": [803225371],
    "acks=1 counted as a promise while a partition moved": [25],
    "the checker of compacted topics knew no unclean elections": [1306951174],
}


@pytest.mark.slow  # several simulations of several nodes
def test_fixed_seeds_keep_every_promise_and_reach_their_floors() -> None:
    reached: Counter[str] = Counter()
    for seed in FIXED:
        reached.update(run_clean(seed, REPLICATION).stats.reached)
    assert missed(reached, FLOORS) == {}


@pytest.mark.parametrize("seed", sorted({each for seeds in FOUND.values() for each in seeds} - set(FIXED)))
def test_seed_that_found_a_bug_stays_clean(seed: int) -> None:
    run_clean(seed, REPLICATION)


def test_a_fresh_seed_keeps_every_promise() -> None:
    run_clean(secrets.randbelow(1 << 31), REPLICATION)
