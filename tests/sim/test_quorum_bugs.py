"""Every deliberate bug of the raft core is caught by a checker, and the same seed is clean without it.

The seeds are pinned in quorum_bugs_pins.json; `python -m tests.sim.quorum_bugs --pin` chooses them anew when
plans have changed so much that a seed has become another one.
"""

from __future__ import annotations

import pytest

from barnabas.raft import invariants
from barnabas.raft.core import Raft
from barnabas.sim.quorum import checkers, stability
from tests.sim.quorum_bugs import BUGS, checkers_of, pins, run, switched_on

PIN_AGAIN = "if plans have changed: python -m tests.sim.quorum_bugs --pin"
CHECKERS = {
    checkers.LEADERS,
    checkers.VOTES,
    checkers.COMMITTED,
    checkers.PREFIX,
    checkers.WATERMARK,
    checkers.VOTERS,
    checkers.LIVENESS,
    checkers.BUSY,
    stability.DISTURBED,
    stability.FAILOVER,
    stability.LAG,
}


@pytest.mark.parametrize(("name", "seed"), pins().items(), ids=list(pins()))
def test_it_is_caught(name: str, seed: int) -> None:
    bug = BUGS[name]
    found = checkers_of(run(bug, seed))
    assert set(found) & set(bug.checkers), f"{bug.what}: {found or 'nobody'} says so; {PIN_AGAIN}"
    assert [str(each) for each in run(None, seed).violations] == []


def test_every_bug_has_its_seed() -> None:
    assert list(pins()) == list(BUGS), PIN_AGAIN


def test_every_checker_is_expected_to_catch_something() -> None:
    assert {checker for bug in BUGS.values() for checker in bug.checkers} >= CHECKERS


def test_a_switch_leaves_nothing_behind() -> None:
    before = invariants.require, Raft.ready, Raft.voters, Raft.become_prospective
    for bug in BUGS.values():
        with switched_on(bug):
            assert invariants.require is not before[0]
    assert (invariants.require, Raft.ready, Raft.voters, Raft.become_prospective) == before
