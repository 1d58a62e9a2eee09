"""Bugs that seeds hardly ever show are caught by directed simulations, which are clean without them."""

from __future__ import annotations

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
    await stage.look_closely(0.0002)
    stage.join(3, 1, 2)
    await stage.client.clock.sleep(0.3)
    await stage.look_closely(0.2)
    await stage.until(lambda: all(stage.log(each).high_watermark == 12 for each in (1, 2, 3)))


async def diverging_in_sync(stage: Stage) -> None:
    await leader_with_a_tail(stage, is_fenced=False)


async def diverging_out_of_sync(stage: Stage) -> None:
    await leader_with_a_tail(stage, is_fenced=True)


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


DIRECTED: list[tuple[str, Script, str]] = [
    ("diverging-fetch-counts", diverging_in_sync, "members"),
    ("high-watermark-before-the-cut", diverging_out_of_sync, "equal"),
    ("empty-answer-forgets-epoch", diverging_out_of_sync, "equal"),
    ("other-topics-files", topic_made_anew, "healing"),
]


@pytest.mark.parametrize(("bug", "script", "checker"), DIRECTED, ids=[each[0] for each in DIRECTED])
def test_directed_simulation_catches_it(bug: str, script: Script, checker: str) -> None:
    with switched_on(BUGS[bug]):
        found = direct(script)
    assert checker in {each.checker for each in found}, [str(each) for each in found] or "nobody says so"
    assert [str(each) for each in direct(script)] == []
