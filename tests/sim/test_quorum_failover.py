"""A lost leader is followed by another that voters and brokers know: soon where its process has ended, by the
timeouts where it only looks dead."""

from __future__ import annotations

from statistics import median

import pytest

from barnabas.sim.quorum.failover import lose_leader

SEEDS = range(1, 9)


@pytest.mark.parametrize(("voters", "is_dynamic"), [(3, True), (3, False), (5, True)])
@pytest.mark.parametrize(
    ("loss", "median_s", "most_s"),
    [
        ("killed", 0.1, 0.4),
        ("stopped", 0.05, 0.4),
        ("without power", 2.2, 2.8),
        ("paused", 2.2, 2.8),
    ],
)
def test_every_survivor_soon_knows_the_next_leader(
    loss: str, median_s: float, most_s: float, voters: int, is_dynamic: bool
) -> None:
    taken = [lose_leader(seed, loss, voters=voters, is_dynamic=is_dynamic) for seed in SEEDS]
    assert median(each.all_s for each in taken) < median_s
    assert max(each.all_s for each in taken) < most_s


def test_brokers_learn_it_right_behind_the_voters() -> None:
    taken = [lose_leader(seed, "killed") for seed in SEEDS]
    assert all(each.observers_s < each.voters_s + 0.15 for each in taken)
