"""Bugs that seeds hardly ever show are caught by directed simulations, which are clean without them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.client.admin import NewTopic
from tests.sim.bugs import BUGS
from tests.sim.bugs_switch import switched_on
from tests.sim.replication.directed import TOPIC, Script, Stage, direct


async def leader_with_a_tail(stage: Stage, *, is_fenced: bool) -> None:
    """Node 3 leads, is cut off from the others and takes records that they never see; node 1 leads on and
    takes more. Node 3 comes back and finds that its log parts from the leader's: it is in sync still, or it
    was fenced meanwhile."""
    await stage.make_topic((1, 3, 2), {})
    stage.machine(1).restart(0.5)
    await stage.until(lambda: stage.partition.leader == 3)
    await stage.until(lambda: set(stage.partition.isr) == {1, 2, 3})
    await stage.send(3)
    await stage.until(lambda: all(stage.log(each).high_watermark == 3 for each in (1, 2, 3)))
    stage.cut(3, 1, 2)
    await stage.send(5, acks=1)
    if is_fenced:
        await stage.until(lambda: 3 not in stage.partition.isr)
    await stage.prefer()
    await stage.send(9, acks=1)
    if is_fenced:
        await stage.until(lambda: stage.log(1).high_watermark == 12)
    stage.is_close = True
    stage.join(3, 1, 2)
    await stage.client.clock.sleep(0.2)
    stage.is_close = False
    await stage.until(lambda: all(stage.log(each).high_watermark == 12 for each in (1, 2, 3)))


async def diverging_in_sync(stage: Stage) -> None:
    await leader_with_a_tail(stage, is_fenced=False)


async def diverging_out_of_sync(stage: Stage) -> None:
    await leader_with_a_tail(stage, is_fenced=True)


async def unclean_leader_with_nothing(stage: Stage) -> None:
    """Node 2 has seen nothing of what node 1 wrote, and leads when node 1 is gone: node 1 loses all of it."""
    await stage.make_topic((1, 2), {"unclean.leader.election.enable": "true"})
    stage.machine(2).crash("process", 14.0)
    await stage.until(lambda: stage.partition.isr == (1,))
    await stage.send(5)
    await stage.client.clock.sleep(6.0)  # its high watermark is in the checkpoint
    stage.machine(1).crash("process", 20.0)
    await stage.until(lambda: stage.partition.leader == 2)
    await stage.until(lambda: stage.machine(1).running is not None)
    stage.is_close = True
    await stage.until(lambda: set(stage.partition.isr) == {1, 2})
    stage.is_close = False


async def rebooted_before_it_joined(stage: Stage) -> None:
    """A leader cannot reach the controller, and asks for a follower to join the ISR. The follower loses its
    power, with all that was not synced, and registers anew. Then the controller hears of the request."""
    controller = stage.controller
    leader, follower = (each for each in (1, 2, 3) if each != controller)
    await stage.make_topic((leader, controller, follower), {})
    await stage.send(3)
    stage.machine(follower).crash("process", 0.3)
    await stage.until(lambda: follower not in stage.partition.isr)
    stage.cut(leader, follower)
    await stage.until(lambda: stage.machine(follower).running is not None)
    await stage.client.clock.sleep(1.0)
    stage.cut(leader, controller)
    stage.join(leader, follower)
    await stage.client.clock.sleep(0.6)
    stage.cut(leader, follower)
    stage.machine(follower).crash("power", 0.3)
    await stage.client.clock.sleep(0.1)
    await stage.until(lambda: stage.machine(follower).running is not None)
    await stage.client.clock.sleep(1.0)
    stage.join(leader, controller)
    await stage.client.clock.sleep(1.0)
    stage.join(leader, follower)
    await stage.until(lambda: set(stage.partition.isr) == {1, 2, 3})


async def topic_made_anew(stage: Stage) -> None:
    """The topic is deleted and created anew while node 3 is down."""
    await stage.make_topic((1, 2, 3), {})
    await stage.send(3)
    stage.machine(3).crash("process", 4.0)
    await stage.until(lambda: 3 not in stage.partition.isr)
    await stage.admin.delete_topics([TOPIC])
    await stage.client.clock.sleep(1.0)
    await stage.admin.create_topics([NewTopic(TOPIC, 1, 2, {})])
    await stage.send(5)
    await stage.admin.alter_reassignments({(TOPIC, 0): [1, 2, 3]})
    await stage.calm()


DIRECTED: list[tuple[str, Script, Mapping[str, str], str]] = [
    ("diverging-fetch-counts", diverging_in_sync, {}, "members"),
    ("high-watermark-before-the-cut", diverging_out_of_sync, {}, "equal"),
    ("empty-answer-forgets-epoch", diverging_out_of_sync, {}, "equal"),
    ("other-topics-files", topic_made_anew, {}, "healing"),
    ("high-watermark-kept", unclean_leader_with_nothing, {}, "equal"),
    ("rebooted-follower-joins", rebooted_before_it_joined, {}, "members"),
]


@pytest.mark.parametrize(("bug", "script", "settings", "checker"), DIRECTED, ids=[each[0] for each in DIRECTED])
def test_directed_simulation_catches_it(
    bug: str, script: Script, settings: Mapping[str, str], checker: str
) -> None:
    with switched_on(BUGS[bug]):
        found = direct(script, settings)
    assert checker in {each.checker for each in found}, [str(each) for each in found] or "nobody says so"
    assert [str(each) for each in direct(script, settings)] == []
