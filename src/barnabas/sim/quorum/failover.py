"""How long a quorum takes to another leader that every survivor knows, in virtual time.

Nothing else happens meanwhile: the network delivers within a millisecond and disks write within one, so what
is measured is what the core decides: notices, staggering, timeouts, and how nodes look for a leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.raft.election import State
from barnabas.sim.quorum.node import Node
from barnabas.sim.quorum.plan import draw_plan
from barnabas.sim.quorum.world import QuorumWorld

SETTLED_US = 5_000_000
BOUND_US = 20_000_000
STOPS_AFTER_US = 50_000  # a leader that resigned tells the others before its process ends


class Failover(NamedTuple):
    """In seconds: until the last of the voters, and until the last of the observers knew the new leader."""

    voters_s: float
    observers_s: float

    @property
    def all_s(self) -> float:
        return max(self)


def _resign(world: QuorumWorld, leader: Node) -> None:
    assert leader.raft is not None
    leader.guarded(leader.raft.resign, leader.now_ms())
    world.engine.after(STOPS_AFTER_US, leader.stop)


# how a leader can be lost
LOSSES: dict[str, Callable[[QuorumWorld, Node], None]] = {
    "killed": lambda world, leader: leader.stop(),
    "stopped": _resign,
    "without power": lambda world, leader: leader.lose_power(),
    "paused": lambda world, leader: leader.pause(),
}


def lose_leader(
    seed: int, loss: str, *, voters: int = 3, observers: int = 2, is_dynamic: bool = True
) -> Failover:
    """Lose the leader of a quorum that is well; the observers are brokers without a controller listener."""
    plan = draw_plan(seed, 6.0)._replace(
        voters=voters,
        observers=observers,
        brokers=observers,
        is_dynamic=is_dynamic,
        has_auto_join=False,
        raises_kraft_version=False,
        proposals_s=0.1,
        snapshots_s=1e6,
        changes_s=1e6,
        fetch_entries=50,
        drifts=(1.0,) * (voters + observers),
        faults={},
    )
    world = QuorumWorld(plan)
    for node in world.nodes:
        node.start()
    world.operators.begin()
    world.engine.run(SETTLED_US + seed % 1000 * 997)
    (leader,) = (node for node in world.nodes if node.raft and node.raft.state is State.LEADER)
    return _wait(world, leader, loss)


def _wait(world: QuorumWorld, leader: Node, loss: str) -> Failover:
    assert leader.raft is not None
    began_us, epoch = world.engine.now_us, leader.raft.epoch
    knew_us: dict[int, int] = {}
    LOSSES[loss](world, leader)

    def is_done() -> bool:
        for node in world.nodes:
            raft = node.raft
            if node is not leader and raft and raft.epoch > epoch and raft.leader_id >= 0:
                knew_us.setdefault(node.id, world.engine.now_us - began_us)
        return len(knew_us) == len(world.nodes) - 1

    world.engine.run(began_us + BOUND_US, is_done)
    took_s = {node.id: knew_us.get(node.id, BOUND_US) / 1e6 for node in world.nodes if node is not leader}
    is_voter = {node.id: bool(node.config.endpoints) for node in world.nodes}
    return Failover(
        max(took for each, took in took_s.items() if is_voter[each]),
        max((took for each, took in took_s.items() if not is_voter[each]), default=0.0),
    )
