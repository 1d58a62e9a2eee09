"""Scripts of directed simulations about logs: how followers cut and append, and what a power loss leaves.

Each is clean as it is, and with the deliberate bugs that it is for (test_directed.py) a checker speaks. Where
a bug leaves a node in another state a script waits for a while, not until something has come.
"""

from __future__ import annotations

from barnabas.client.admin import NewTopic
from tests.sim.replication.directed import CONTROLLER, TOPIC, Stage

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
CHECKPOINT_S = 10.0  # log.flush.offset.checkpoint.interval.ms where a script counts on it


async def leader_with_a_tail(stage: Stage, *, is_fenced: bool) -> None:
    """Node 3 leads, is cut off from the others and takes records that they never see; node 1 leads on and
    takes more. Node 3 comes back and finds that its log parts from the leader's: it is in sync still, or it
    was fenced meanwhile."""
    await stage.make_topic((1, 3, 2), {})
    await stage.lead_second()
    await stage.send(3)
    await stage.until(lambda: stage.committed(1, 2, 3) == {3})
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
    await stage.wait(0.3)
    await stage.look_closely(0.2)
    await stage.until(lambda: stage.committed(1, 2, 3) == {12})


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
    await stage.wait(1.0)
    await stage.admin.create_topics([NewTopic(TOPIC, 1, 2, {})])
    await stage.send(5)
    await stage.admin.alter_reassignments({(TOPIC, 0): [1, 2, 3]})
    await stage.calm()


async def emptied_log(stage: Stage) -> None:
    """Node 2 has nothing and is elected uncleanly while node 1 cannot be reached. Node 1 has to give up all
    that it had committed alone."""
    await stage.make_topic((1, 2), {"unclean.leader.election.enable": "true"})
    stage.cut(1, 2)
    stage.machine(2).crash("process", 0.5)
    await stage.until(lambda: stage.partition.isr == (1,))
    await stage.send(5)
    await stage.until(lambda: stage.machine(2).running is not None)
    stage.cut(1, CONTROLLER)
    await stage.until(lambda: stage.partition.leader == 2)
    await stage.send(2)
    stage.join(1, 2, CONTROLLER)
    await stage.wait(3.0)


async def two_leaders_in_a_row(stage: Stage) -> None:
    """Node 3 has a tail that nobody has when node 1 leads and node 2 gets other records. Then node 3 leads
    again, without having heard from node 1: what it has of its earlier epoch is longer than what node 2 has
    of that and of the next one."""
    await stage.make_topic((1, 3, 2), {})
    await stage.lead_second()
    await stage.send(3)
    await stage.until(lambda: stage.committed(1, 2, 3) == {3})
    stage.cut(3, 1, 2)
    await stage.send(5, acks=1)
    await stage.prefer()
    await stage.send(2, acks=1)
    await stage.until(lambda: stage.log(2).end_offset == 5)
    stage.machine(1).crash("process", 20.0)
    await stage.until(lambda: stage.partition.leader == 3)
    stage.join(3, 2)
    await stage.wait(2.0)


async def late_divergence(stage: Stage) -> None:
    """Node 1 tells node 3 where their logs part. Before that arrives node 3 is elected, and what it was to
    cut is committed."""
    await stage.make_topic((3, 1, 2), {})
    await stage.make_others()
    await stage.send(3)
    await stage.until(lambda: stage.committed(1, 2, 3) == {3})
    stage.cut(3, 1, 2, CONTROLLER)
    await stage.send(5, acks=1)
    await stage.prefer_of(1, 3, 2)
    with stage.when_diverging(lambda: stage.hold(1, 3)) as told:
        stage.join(3, 1, 2, CONTROLLER)
        await told.wait()
    await stage.prefer_of(3, 1, 2)
    await stage.wait(6.0)
    stage.release(1, 3)
    await stage.wait(1.0)


async def cut_below_its_high_watermark(stage: Stage) -> None:
    """Node 1 has noted its high watermark on the disk and is cut below it by a leader that was elected
    uncleanly. All replicas are in sync again. Later it has records that are not committed, since another one
    lacks them, when its process dies."""
    await stage.make_topic((1, 2, 3), {"unclean.leader.election.enable": "true"})
    await stage.send(3)
    await stage.until(lambda: stage.committed(1, 2, 3) == {3})
    stage.cut(1, 2, 3)
    for node in (2, 3):
        stage.machine(node).crash("process", 0.5)
        await stage.until(lambda node=node: node not in stage.partition.isr)
        await stage.wait(1.0)
    await stage.send(7)
    await stage.wait(CHECKPOINT_S + 1)
    stage.machine(1).crash("process", 4.0)
    await stage.until(lambda: stage.partition.leader < 0)
    await stage.elect_uncleanly()
    await stage.send(2)
    stage.join(1, 2, 3)
    await stage.until(lambda: len(stage.partition.isr) == 3)
    leader, behind = stage.partition.leader, 5 - stage.partition.leader
    stage.cut(behind, leader, 1)
    await stage.send(7, acks=1)
    await stage.until(lambda: stage.log(1).end_offset == 12)
    stage.machine(1).crash("process", 0.5)
    await stage.wait(4.0)


async def power_lost_after_an_epoch(stage: Stage) -> None:
    """Node 1 begins an epoch, notes that, goes on to another segment, and loses its power. Node 3 has a tail
    of the epoch before, of which node 1 has to know the end when it leads again."""
    await stage.make_topic((1, 3, 2), {"min.insync.replicas": "2", "segment.ms": "4000", "flush.ms": "1000"})
    await stage.lead_second()
    await stage.send(3)
    await stage.until(lambda: stage.committed(1, 2, 3) == {3})
    stage.cut(3, 1, 2)
    await stage.send(5, acks=1)
    await stage.prefer()
    await stage.send(7, acks=1)
    await stage.until(lambda: 3 not in stage.partition.isr)
    await stage.wait(3.0)
    await stage.send(2)
    await stage.wait(3.0)
    stage.power_lost(1, 1.0)
    await stage.until(lambda: stage.partition.leader == 2)
    await stage.until(lambda: 1 in stage.partition.isr)
    await stage.prefer()
    stage.join(3, 1, 2)
    await stage.wait(5.0)


async def leader_without_records(stage: Stage) -> None:
    """Node 3 leads and takes nothing; then node 1 leads, which has a longer log and knows nothing of that
    epoch. Node 3 gets the records of the two epochs around it in one answer, node 2 those of the first one
    only. When node 3 leads again node 2 has to know from it where that epoch ends."""
    await stage.make_topic((1, 3, 2), {})
    await stage.send(3)
    await stage.until(lambda: stage.committed(1, 2, 3) == {3})
    stage.cut(1, 2, 3)
    await stage.send(5, acks=1)
    await stage.prefer_of(3, 1, 2)
    await stage.wait(0.3)
    await stage.prefer_of(1, 3, 2)
    stage.join(1, 2)
    await stage.until(lambda: stage.log(2).end_offset == 8)
    stage.cut(1, 2)
    await stage.send(2, acks=1)
    stage.join(1, 3)
    await stage.until(lambda: stage.log(3).high_watermark == 8)
    await stage.look_closely(0.0002)
    stage.machine(1).crash("process", 20.0)
    await stage.until(lambda: stage.partition.leader == 3)
    await stage.wait(0.3)


async def compacted_beginning_of_an_epoch(stage: Stage) -> None:
    """Node 3 has a tail of its epoch when node 1 leads. What node 1 writes first in its own epoch is
    compacted away before node 2 is back, which takes the first batch that is left for the beginning of that
    epoch. Node 2 leads next, and node 3 comes back."""
    await stage.make_topic((1, 3, 2), {**COMPACTED, "segment.ms": "1000"})
    await stage.lead_second()
    await stage.send(3, keys="xyz")
    await stage.until(lambda: stage.committed(1, 2, 3) == {3})
    stage.cut(3, 1, 2)
    await stage.send(3, acks=1, keys="abc")
    stage.machine(2).crash("process", 14.0)
    await stage.until(lambda: 2 not in stage.partition.isr)
    await stage.prefer()
    await stage.send(3, acks=1, keys="def")
    await stage.until(lambda: stage.log(1).high_watermark == 6)
    await stage.wait(1.5)
    await stage.send(3, keys="def")
    await stage.wait(1.5)
    await stage.send(1, keys="g")
    await stage.until(lambda: 2 in stage.partition.isr)
    await stage.wait(1.0)
    stage.machine(1).crash("process", 20.0)
    await stage.until(lambda: stage.partition.leader == 2)
    stage.join(3, 2)
    await stage.wait(3.0)
