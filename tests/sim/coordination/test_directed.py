"""Deliberate bugs of coordinators are caught by directed simulations in which coordinators move; without the
bug these are clean."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from barnabas.sim.scenario import GROUPS, REPLICATED, TRANSACTIONS
from tests.sim.bugs import BUGS
from tests.sim.bugs_switch import switched_on
from tests.sim.coordination.directed import Script, direct
from tests.sim.coordination.group_scripts import (
    commit_under_way,
    full_disk,
    members_through_moves,
    read_after_a_move,
    successor_with_more,
    two_moves_in_one_load,
)
from tests.sim.coordination.transaction_scripts import (
    decided_transaction_moves,
    epochs_after_a_move,
    late_requests,
    marker_for_an_old_leader,
    offsets_in_a_transaction,
    open_through_moves,
    open_transaction_times_out,
)

SCRIPTS: Sequence[tuple[str, Script]] = (
    ("deposed-acknowledges", commit_under_way),
    ("loaded-uncommitted", successor_with_more),
    ("overtaken-load-used", two_moves_in_one_load),
    ("timeouts-not-kept", open_transaction_times_out),
    ("bumps-lost", epochs_after_a_move),
    ("pending-lost", offsets_in_a_transaction),
    ("old-leader-takes-markers", marker_for_an_old_leader),
    # those of one node
    ("commits-not-replayed", read_after_a_move),
    ("answered-before-written", commit_under_way),
    ("pending-offsets-visible", offsets_in_a_transaction),
    ("pending-offsets-dropped", offsets_in_a_transaction),
    ("ends-not-replayed", offsets_in_a_transaction),
    ("epoch-not-raised", epochs_after_a_move),
    ("transactions-not-replayed", open_transaction_times_out),
    ("never-timed-out", open_transaction_times_out),
    ("marker-missing", offsets_in_a_transaction),
    ("prepared-left", decided_transaction_moves),
    ("failed-write-kept", full_disk),
    ("session-never-over", members_through_moves),
    ("session-over-early", members_through_moves),
    ("rebalance-without-waiting", members_through_moves),
    ("generation-not-checked", members_through_moves),
    ("old-commit-accepted", members_through_moves),
    ("assignments-mixed-up", members_through_moves),
    ("groups-not-replayed", members_through_moves),
    ("generation-stays", members_through_moves),
    ("zombie-member-commits", members_through_moves),
    ("late-end-accepted", late_requests),
    ("epoch-for-ever", late_requests),
    ("not-verified", late_requests),
    ("aborted-not-told", late_requests),
    ("timed-out-commits", open_through_moves),
    ("open-taken-over", open_through_moves),
    ("stable-is-high-watermark", open_through_moves),
    ("open-forgotten", open_through_moves),
)


@cache
def _said_without_any(script: Script) -> list[str]:
    return [str(violation) for violation in direct(script)]


@pytest.mark.parametrize(("name", "script"), SCRIPTS, ids=[name for name, _ in SCRIPTS])
def test_a_bug_of_coordinators_that_move_is_caught(name: str, script: Script) -> None:
    assert _said_without_any(script) == []
    with switched_on(BUGS[name]):
        found = {violation.checker for violation in direct(script)}
    assert found & set(BUGS[name].checkers), f"{BUGS[name].what}: {found or 'nobody'} says so"


def test_every_bug_of_coordinators_has_a_script() -> None:
    kinds = (GROUPS, TRANSACTIONS, *REPLICATED)
    assert {name for name, bug in BUGS.items() if bug.kind in kinds} == {name for name, _ in SCRIPTS}
