"""Deliberate bugs of coordinators that move are caught by directed simulations, clean without them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from barnabas.sim.scenario import REPLICATED
from tests.sim.bugs import BUGS
from tests.sim.bugs_switch import switched_on
from tests.sim.coordination.directed import (
    CONTROLLER,
    GROUPS,
    INPUT,
    OUTPUT,
    TRANSACTIONS,
    Script,
    Stage,
    direct,
)


async def read_after_a_move(stage: Stage) -> None:
    """What was committed is read from the next coordinator."""
    await stage.commit(0)
    await stage.lead(GROUPS, 3, 2, 4)
    await stage.look()


async def commit_under_way(stage: Stage) -> None:
    """A commit has reached one follower when the other one becomes the coordinator, and never counts."""
    await stage.commit(0)
    await _commit_that_lacks(stage)
    await stage.lead(GROUPS, 4, 3, 2)
    stage.begin(lambda: stage.commit(1))
    await stage.wait(0.3)
    stage.join(2, 4)
    await stage.wait(2.0)
    await stage.look()


async def _commit_that_lacks(stage: Stage) -> None:
    """A commit for partition 0 that node 3 has, and node 4 has not."""
    end = stage.end(GROUPS, 2)
    stage.cut(2, 4)
    stage.commit_aside(0)
    await stage.until(lambda: stage.end(GROUPS, 3) > end)


async def successor_with_more(stage: Stage) -> None:
    """The next coordinator has a commit that is not committed; the one after it has not."""
    await stage.commit(0)
    await stage.look()
    await _commit_that_lacks(stage)
    stage.cut(3, 4)
    stage.machine(2).crash("process", 20.0)
    await stage.until(lambda: stage.partition(GROUPS).leader == 3)
    stage.begin(stage.look)
    await stage.wait(1.5)
    stage.machine(3).crash("process", 1.0)
    await stage.until(lambda: stage.partition(GROUPS).leader == 4)
    await stage.wait(0.5)
    stage.join(3, 4)
    await stage.look()


async def full_disk(stage: Stage) -> None:
    """A commit cannot be written, for the coordinator's disk is full; then another node coordinates."""
    await stage.commit(0)
    await stage.look()
    stage.machine(2).drive.leave_free(0)
    stage.commit_aside(0)
    await stage.wait(0.3)
    stage.begin(stage.look)
    await stage.wait(1.0)
    stage.machine(2).drive.leave_free(None)
    await stage.lead(GROUPS, 3, 2, 4)
    await stage.look()


async def two_moves_in_one_load(stage: Stage) -> None:
    """A node leads, leads no more, and leads again while its load of the first time goes on."""
    if stage.partition(GROUPS).leader_epoch % 2:
        await stage.lead(GROUPS, 4, 2, 3)
        await stage.lead(GROUPS, 3, 2, 4)
        await stage.lead(GROUPS, 2, 3, 4)
    await stage.commit(0)
    await stage.look()
    await stage.lead(GROUPS, 3, 2, 4)
    await stage.wait(0.2)
    await stage.lead(GROUPS, 2, 3, 4)
    await stage.commit(0)
    await stage.lead(GROUPS, 3, 2, 4)
    await stage.wait(6.0)
    await stage.look()


async def open_transaction_times_out(stage: Stage) -> None:
    """A transaction is left open, and its coordinator moves."""
    await stage.begun()
    await stage.lead(TRANSACTIONS, 3, 2, 4)
    await stage.wait(12.0)
    await stage.stable()


async def epochs_after_a_move(stage: Stage) -> None:
    """Producers of one id begin one after another; the last one has another coordinator."""
    for _ in range(3):
        await stage.again(stage.producer().begin_life)
    await stage.lead(TRANSACTIONS, 3, 2, 4)
    await stage.again(stage.producer().begin_life)


async def offsets_in_a_transaction(stage: Stage) -> None:
    """Offsets are committed in a transaction, and the group's coordinator moves before it ends."""
    await stage.commit(0)
    producer = await stage.begun()
    await producer.commit_offsets("g", {(INPUT, 0): 77}, None)
    await stage.lead(GROUPS, 3, 2, 4)
    await stage.look(is_stable=False)
    await stage.wait(0.1)
    await producer.end(is_commit=True)
    await stage.drained(77)
    await stage.lead(GROUPS, 2, 3, 4)
    await stage.wait(1.0)
    await stage.drained(77)
    await stage.stable()


async def marker_for_an_old_leader(stage: Stage) -> None:
    """A coordinator that does not know of a move sends the marker to the leader of before."""
    await stage.lead(TRANSACTIONS, 3, 2, 4)
    producer = await stage.begun()
    stage.cut(CONTROLLER, 3)
    await stage.lead(OUTPUT, 4, 3, 2)
    stage.begin(lambda: producer.end(is_commit=True))
    await stage.wait(1.0)
    stage.join(CONTROLLER, 3)
    await stage.wait(10.0)
    await stage.stable()


async def decided_transaction_moves(stage: Stage) -> None:
    """The coordinator moves when a transaction is decided, and its marker cannot be committed yet."""
    producer = await stage.begun()
    await stage.lead(OUTPUT, 4, 3, 2)
    stage.cut(4, 2)
    stage.cut(4, 3)
    stage.begin(lambda: producer.end(is_commit=True))
    await stage.wait(0.5)
    await stage.lead(TRANSACTIONS, 3, 2, 4)
    stage.join(4, 2)
    stage.join(4, 3)
    await stage.wait(10.0)
    await stage.stable()


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


def test_every_bug_of_moving_coordinators_has_a_script() -> None:
    of_movers = {name for name, bug in BUGS.items() if bug.kind in REPLICATED}
    assert {name for name, _ in SCRIPTS} >= of_movers
