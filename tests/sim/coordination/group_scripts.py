"""Scripts of groups and their offsets, whose coordinators move."""

from __future__ import annotations

from contextlib import suppress
from copy import copy

from barnabas.core.errors import BarnabasError
from barnabas.sim.workload.membership import Member
from tests.sim.coordination.directed import GROUPS, INPUTS, MEMBERS, Stage


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


async def members_through_moves(stage: Stage) -> None:
    """A member joins another one; one commits in the name of a generation that is over; one falls silent. In
    between the coordinator moves, also while a rebalance is under way."""
    one, two = stage.member("one"), stage.member("two")
    staying = stage.keep(one)
    await stage.owned_by(one)
    await stage.lead(GROUPS, 3, 2, 4)
    await stage.wait(1.0)
    before = copy(one)
    staying.cancel()
    stage.keep(two)
    await stage.wait(0.5)  # the rebalance waits for the first member
    await stage.lead(GROUPS, 4, 3, 2)
    staying = stage.keep(one)
    await stage.owned_by(one, two)
    await _commits_of_the_past(stage, one, before)
    await stage.lead(GROUPS, 2, 3, 4)
    await stage.wait(1.0)
    await _commits_of_the_past(stage, one, before)
    staying.cancel()
    await stage.settled(two=two)


async def _commits_of_the_past(stage: Stage, member: Member, before: Member) -> None:
    """A member commits as it was before, in a generation that is over: on its own and in a transaction."""
    offsets = dict.fromkeys(INPUTS, 5)
    with suppress(BarnabasError):
        await member.commit(offsets, before.generation)
    producer = await stage.begun("late")
    with suppress(BarnabasError):
        await producer.commit_offsets(MEMBERS.name, offsets, before)
