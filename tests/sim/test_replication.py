"""Simulated clusters with replicated partitions: seeds that are always the same, one that nobody has run, and
what they go through."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from barnabas.sim.scenario import REPLICATION
from tests.sim.seeds import missed, run_clean

# seeds with many faults, and what they reach together at the least
FIXED = (35, 1306951174)
FLOORS = {
    "ISR shrinks": 10,
    "ISR expands": 20,
    "ELR elections": 2,
    "last-known-leader elections": 1,
    "unclean elections": 1,
    "unclean restarts": 2,
    "divergent truncations": 1,
    "full re-fetches": 2,
    "reassignments": 4,
    "leader changes": 12,
}
# one with transactional producers
WRITING = 8
WRITTEN = {
    "transactions committed": 20,
    "transactions aborted": 8,
    "coordinators of transactions moved": 2,
    "leader changes": 6,
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
@pytest.mark.parametrize(
    ("seeds", "floors"), [(FIXED, FLOORS), ((WRITING,), WRITTEN)], ids=["logs", "transactions"]
)
def test_fixed_seeds_keep_every_promise_and_reach_their_floors(
    seeds: Sequence[int], floors: Mapping[str, int]
) -> None:
    reached: Counter[str] = Counter()
    for seed in seeds:
        reached.update(run_clean(seed, REPLICATION).stats.reached)
    assert missed(reached, floors) == {}


@pytest.mark.parametrize("seed", sorted({each for seeds in FOUND.values() for each in seeds} - set(FIXED)))
def test_seed_that_found_a_bug_stays_clean(seed: int) -> None:
    run_clean(seed, REPLICATION)


def test_a_fresh_seed_keeps_every_promise() -> None:
    run_clean(secrets.randbelow(1 << 31), REPLICATION)
