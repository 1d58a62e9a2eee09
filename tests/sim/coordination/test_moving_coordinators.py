"""Groups and transactions on several nodes: seeds that are always the same, and in which states groups and
transactions were when their coordinators moved."""

from __future__ import annotations

import secrets
from collections import Counter

import pytest

from barnabas.sim.scenario import REPLICATED, REPLICATED_GROUPS, REPLICATED_TRANSACTIONS
from tests.sim.seeds import assert_same_in_other_processes, missed, run_clean

SECONDS = 15.0
# seeds with many faults of all kinds
FIXED = {REPLICATED_GROUPS: (6, 10, 11, 18), REPLICATED_TRANSACTIONS: (10, 82, 97, 220)}
# what the fixed seeds of a kind reach at the least, together
FLOORS = {
    REPLICATED_GROUPS: {
        "coordinators of groups moved": 15,
        "moved with groups in Empty": 6,
        "moved with groups in PreparingRebalance": 1,
        "moved with groups in CompletingRebalance": 2,
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


@pytest.mark.slow  # several simulations of several nodes
@pytest.mark.parametrize("kind", REPLICATED)
def test_coordinators_move_in_every_state(kind: str) -> None:
    reached: Counter[str] = Counter()
    for seed in FIXED[kind]:
        stats = run_clean(seed, kind, SECONDS).stats
        assert stats.records_acknowledged
        reached.update(stats.reached)
    assert missed(reached, FLOORS[kind]) == {}


@pytest.mark.parametrize("kind", REPLICATED)
def test_fresh_seeds_keep_every_promise(kind: str) -> None:
    run_clean(secrets.randbelow(1 << 31), kind)


def test_a_seed_goes_the_same_way_with_another_order_of_sets() -> None:
    assert_same_in_other_processes(26, REPLICATED_GROUPS, 5.0)
