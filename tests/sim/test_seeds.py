"""Whole simulations, judged by every checker: some seeds that are always the same, some that nobody has run.

A fresh seed that fails is not a test that fails now and then: the message has the command that replays it.
"""

from __future__ import annotations

import secrets

import pytest

from barnabas.cli.sim import replay_command
from barnabas.sim.history import Finished
from barnabas.sim.world import simulate

FIXED = (1, 2, 3, 4, 5)
FRESH = 3


def run(seed: int) -> None:
    outcome = simulate(seed)
    told = "\n".join([replay_command(seed, None), *map(str, outcome.violations)])
    assert not outcome.violations, told
    assert list(outcome.history.of(Finished)), told
    assert outcome.stats.records_acknowledged, told


@pytest.mark.parametrize("seed", FIXED)
def test_a_seed_keeps_every_promise(seed: int) -> None:
    run(seed)


def test_fresh_seeds_keep_every_promise() -> None:
    for _ in range(FRESH):
        run(secrets.randbelow(1 << 31))
