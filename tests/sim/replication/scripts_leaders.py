"""Scripts of directed simulations about leaders and in-sync replicas: which join, count, and are elected."""

from __future__ import annotations

from tests.sim.replication.directed import CONTROLLER, Stage

MIN_TWO = {"min.insync.replicas": "2"}


async def laggard_first_in_line(stage: Stage) -> None:
    """Node 3, out of sync, is the next replica when the leader dies."""
    await stage.make_topic((1, 3, 2), {})
    stage.cut(3, 1, 2)
    await stage.send(3, acks=1)
    await stage.until(lambda: 3 not in stage.partition.isr)
    await stage.until(lambda: stage.committed(1, 2) == {3})
    stage.machine(1).crash("process", 20.0)
    await stage.until(lambda: stage.partition.leader in (2, 3))
    await stage.wait(1.0)


async def joined_unknown_to_the_leader(stage: Stage) -> None:
    """Node 3 is let into the ISR; the leader, which has asked for that, does not hear of it, and node 3 gets
    nothing more."""
    await stage.make_topic((1, 2, 3), MIN_TWO)
    stage.cut(1, 3)
    await stage.send(1, acks=1)
    await stage.until(lambda: 3 not in stage.partition.isr)
    await stage.wait(0.5)
    stage.hold(CONTROLLER, 1)
    stage.join(1, 3)
    await stage.until(lambda: 3 in stage.partition.isr)
    stage.cut(1, 3)
    await stage.send(5, acks=1)
    await stage.wait(4.0)


async def behind_the_high_watermark(stage: Stage) -> None:
    """Node 3 has records that it does not know to be committed when the leader dies."""
    await stage.make_topic((1, 2, 3), {})
    await stage.send(3)
    await stage.until(lambda: stage.committed(1, 2, 3) == {3})
    stage.cut(1, 2)
    await stage.send(5, acks=1)
    await stage.until(lambda: stage.log(3).end_offset == 8)
    await stage.wait(0.1)
    stage.hold(1, 3)
    stage.join(1, 2)
    await stage.until(lambda: stage.log(1).high_watermark == 8)
    await stage.look_closely(0.0002)
    stage.machine(1).crash("process", 20.0)
    await stage.until(lambda: stage.partition.leader == 2)
    await stage.wait(0.3)


async def power_lost_while_eligible(stage: Stage) -> None:
    """Node 1 leads with one follower left, and loses its power and what was not synced."""
    await stage.make_topic((1, 2, 3), MIN_TWO)
    stage.machine(3).crash("process", 40.0)
    await stage.until(lambda: 3 not in stage.partition.isr)
    await stage.send(20)
    stage.power_lost(1, 1.0)
    await stage.wait(3.0)


async def last_leader_loses_power(stage: Stage) -> None:
    """Node 1 is the only replica in sync. Its process dies, then its power fails: none is eligible now."""
    await stage.make_topic((1, 2), {})
    stage.machine(2).crash("process", 60.0)
    await stage.until(lambda: stage.partition.isr == (1,))
    await stage.send(3)
    await stage.wait(2.0)
    stage.machine(1).crash("process", 2.0)
    await stage.until(lambda: stage.partition.leader < 0)
    stage.power_lost(1, 2.0)
    await stage.wait(4.0)


async def join_asked_before_a_reboot(stage: Stage) -> None:
    """Node 3 has caught up and the leader asks for it to join. Before the controller hears of that node 3
    dies, loses what was not synced, and is registered anew."""
    await stage.make_topic((1, 2, 3), MIN_TWO)
    stage.cut(1, 3)
    await stage.send(20, acks=1)
    await stage.until(lambda: 3 not in stage.partition.isr)
    await stage.wait(0.5)
    stage.hold(1, CONTROLLER)
    stage.join(1, 3)
    await stage.until(lambda: stage.log(3).high_watermark == 20)
    await stage.wait(0.1)
    stage.machine(3).crash("process", 1.0)
    await stage.wait(0.1)
    stage.power_lost(3, 1.0)
    stage.cut(3, 1, 2)
    await stage.until(lambda: stage.machine(3).running is not None)
    await stage.wait(1.0)
    stage.release(1, CONTROLLER)
    await stage.wait(1.0)


async def fetch_from_two_epochs_ago(stage: Stage) -> None:
    """A fetch of node 3 is under way to node 1 while node 2 leads, which has node 3 cut what that fetch says
    it has. It arrives when node 1 leads again."""
    await stage.make_topic((2, 1, 3), {})
    await stage.make_others()
    await stage.lead_second()
    await stage.send(3)
    await stage.until(lambda: stage.committed(1, 2, 3) == {3})
    stage.cut(1, 2)
    await stage.send(5, acks=1)
    await stage.until(lambda: stage.log(3).end_offset == 8)
    stage.hold(3, 1)
    await stage.wait(1.0)
    await stage.prefer()
    await stage.send(1, acks=1)
    await stage.until(lambda: stage.log(3).end_offset == 4)
    stage.hold(1, 3)
    stage.hold(CONTROLLER, 3)
    stage.machine(2).crash("process", 20.0)
    await stage.until(lambda: stage.partition.leader == 1)
    await stage.until(lambda: stage.log(1).leader_epoch == stage.partition.leader_epoch)
    stage.release(3, 1)
    await stage.wait(2.0)


async def slow_follower_under_min(stage: Stage) -> None:
    """Fewer replicas are in sync than min.insync.replicas, and the high watermark is old. A slow follower is
    beyond it and far behind the end."""
    await stage.make_topic((1, 2), MIN_TWO)
    await stage.send(3)
    stage.machine(2).crash("process", 1.0)
    await stage.until(lambda: stage.partition.isr == (1,))
    await stage.send(30, acks=1)
    await stage.until(lambda: stage.machine(2).running is not None)
    stage.machine(2).drive.slow = 0.5
    await stage.wait(20.0)
    stage.machine(2).drive.slow = 0.0
    await stage.until(lambda: set(stage.partition.isr) == {1, 2})
    await stage.wait(3.0)
