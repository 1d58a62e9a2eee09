"""Bugs that seeds hardly ever show are caught by directed simulations, which are clean without them."""

from __future__ import annotations

import pytest

from barnabas.sim.scenario import REPLICATION
from tests.sim.bugs import BUGS
from tests.sim.bugs_switch import switched_on
from tests.sim.replication.directed_bugs import DIRECTED, KNOWN, Directed

SCRIPTS = {directed.name: directed for directed, _ in DIRECTED.values()}


@pytest.mark.parametrize("directed", SCRIPTS.values(), ids=SCRIPTS)
def test_directed_simulation_is_clean(directed: Directed) -> None:
    assert [str(each) for each in directed.play()] == []


@pytest.mark.parametrize("bug", DIRECTED)
def test_directed_simulation_catches_a_bug(bug: str) -> None:
    directed, checker = DIRECTED[bug]
    with switched_on(BUGS[bug]):
        found = directed.play()
    assert checker in BUGS[bug].checkers
    assert checker in {each.checker for each in found}, [str(each) for each in found] or "nobody says so"


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_to_be_wrong_is_seen(name: str) -> None:
    directed, checker = KNOWN[name]
    assert checker in {each.checker for each in directed.play()}, (
        "if it is mended: a script that must be clean"
    )


def test_every_bug_of_replication_without_a_seed_has_a_script() -> None:
    without = {name for name, bug in BUGS.items() if bug.kind == REPLICATION and bug.unseen}
    assert without == DIRECTED.keys()
