"""Whole simulations, judged by every checker: some seeds that are always the same, some that nobody has run.

A fresh seed that fails is not a test that fails now and then: the message has the command that replays it.
"""

from __future__ import annotations

import secrets

import pytest

from barnabas.sim.scenario import GROUPS, KINDS, LOG, TRANSACTIONS
from tests.sim.seeds import run_clean

FIXED = {LOG: (1, 2, 3, 4), GROUPS: (1, 4), TRANSACTIONS: (1, 4)}
FRESH = 1  # of each kind

# Seeds that once ended in a violation, by the cause that was mended. A change of scenarios or clients makes
# another run of a seed; each cause has a unit test of its own as well.
FOUND = {
    "SyncGroup in a stable group did not renew the session": [
        (GROUPS, 8800084),
        (GROUPS, 8800223),
        (GROUPS, 8800255),
        (GROUPS, 8800409),
    ],
    "the checker of ownership took the late answer of a dead process for one of its successor": [
        (GROUPS, 95361559),
    ],
    "a coordinator loaded a commit that was written but not synced, told of it, and power was lost": [
        (GROUPS, 7700279),
    ],
    "a flush that ended during a roll moved the recovery point past indexes that were not synced": [
        (LOG, 7700358),
    ],
    "the checker of losses counted flush.ms through the time in which the broker was dead": [
        (LOG, 1006009966),
    ],
    "a stop while a leader became the active controller was logged as an error": [
        (LOG, 1082429764),
    ],
}


def run(seed: int, kind: str) -> None:
    assert run_clean(seed, kind).stats.records_acknowledged


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind, seeds in FIXED.items() for seed in seeds])
def test_a_seed_keeps_every_promise(kind: str, seed: int) -> None:
    run(seed, kind)


@pytest.mark.parametrize(("kind", "seed"), [each for seeds in FOUND.values() for each in seeds])
def test_seed_that_found_a_bug_stays_clean(kind: str, seed: int) -> None:
    run(seed, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_fresh_seeds_keep_every_promise(kind: str) -> None:
    for _ in range(FRESH):
        run(secrets.randbelow(1 << 31), kind)
