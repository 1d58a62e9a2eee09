"""Clients and operators of a simulated quorum: records, snapshots, and changes of the voters.

An operator changes the voters through the leader, as `kafka-metadata-quorum` does: it adds observers, removes
voters, and replaces one whose disk was lost by the same node with an empty one. It loses no second disk, and
moves no second address, before the quorum has got over the first: more than that no quorum survives. Nor does
it lose or move anything while the leader is at work on a change of the voters.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.core.errors import BarnabasError
from barnabas.raft.core import Raft
from barnabas.raft.election import State, VoterKey
from barnabas.raft.messages import (
    AddRaftVoter,
    Received,
    RemoveRaftVoter,
    Response,
    VoterChangeResponse,
)
from barnabas.raft.voters import VoterSet
from barnabas.sim.chance import pick, stream
from barnabas.sim.quorum.disk import Disk
from barnabas.sim.quorum.node import Node

if TYPE_CHECKING:
    from barnabas.sim.quorum.world import QuorumWorld

SECOND_US = 1_000_000
LAST_PROPOSALS_S = 0.1


class Operators:
    """`begin` starts them; they stop changing things when the faults end, and go on proposing."""

    def __init__(self, world: QuorumWorld) -> None:
        self.world = world
        self.engine = world.engine
        self.random = stream(world.plan.seed, "quorum operators")
        self.is_over = False
        self._values = 0
        self._changing: tuple[Node, int, int] | None = None  # the leader that was asked, its life and epoch

    def begin(self) -> None:
        plan = self.world.plan
        self._every(plan.proposals_s, self.propose)
        self._every(plan.snapshots_s, self._snapshot)
        if plan.is_dynamic:
            self._every(plan.changes_s, self._change)
        if plan.raises_kraft_version:
            self._every(plan.changes_s * 2, self._raise)

    def finish(self) -> None:
        """Change nothing any more, and propose often."""
        self.is_over = True
        self._every(LAST_PROPOSALS_S, self.propose)

    def _every(self, mean_s: float, what: Callable[[], None]) -> None:
        delay_us = int(-log(1 - self.random.uniform()) * mean_s * SECOND_US)
        self.engine.after(delay_us + 1, self._do, mean_s, what)

    def _do(self, mean_s: float, what: Callable[[], None]) -> None:
        if self.is_over and what != self.propose:
            return
        what()
        self._every(mean_s, what)

    def leader(self) -> tuple[Node, Raft] | None:
        """A node that takes itself for the leader."""
        found = [each for each in self.world.nodes if each.raft and each.raft.state is State.LEADER]
        node = pick(self.random, found) if found else None
        return None if node is None or node.raft is None or node.is_paused else (node, node.raft)

    def propose(self) -> None:
        if (found := self.leader()) is not None:
            self._values += 1
            found[0].propose(self._values)

    def _snapshot(self) -> None:
        pick(self.random, self.world.nodes).take_snapshot()

    # --- voters

    def _change(self) -> None:
        if (found := self.leader()) is None:
            return
        node, raft = found
        gone = [each for each in raft.voters.voters if each.key != self.world.by_id[each.key.id].key]
        if gone:
            self._ask(node, RemoveRaftVoter(gone[0].key))
            return
        if any(
            self.world.by_id[each.key.id].config.endpoints != each.endpoints for each in raft.voters.voters
        ):
            return  # one has moved, and could not tell yet
        outside = [each for each in self.world.controllers if not raft.voters.has(each.key)]
        choice = self.random.below(5)
        if choice == 0 and len(raft.voters) > 2:
            self._replace(raft.voters)
        elif choice == 1:
            self._move()
        elif outside and (choice == 2 or len(raft.voters) < 3):
            added = pick(self.random, outside)
            self._ask(node, AddRaftVoter(added.key, added.config.endpoints, 5_000))
        elif len(raft.voters) > 1:
            self._ask(node, RemoveRaftVoter(pick(self.random, raft.voters.keys)))

    def _ask(self, node: Node, request: AddRaftVoter | RemoveRaftVoter) -> None:
        self.world.change_asked(request)
        if node.raft is not None:
            self._changing = node, node.life, node.raft.epoch
        token = lambda response: self._answered(request, response)  # noqa: E731 - called with the answer
        node.receive(node.life, Received(token, request))

    def _answered(self, request: AddRaftVoter | RemoveRaftVoter, response: Response) -> None:
        self._changing = None
        if isinstance(response, VoterChangeResponse) and response.error == 0:
            self.world.count("voter changes")

    def _is_calm(self, voters: VoterSet) -> bool:
        """Whether no change is under way, every disk tells the same voters, and every voter is the node that
        it names."""
        if self._changing is not None:
            leader, life, epoch = self._changing
            if leader.life == life and leader.raft is not None and leader.raft.epoch == epoch:
                return False
        if any(node.disk.latest_voters() != voters for node in self.world.nodes):
            return False
        nodes = self.world.by_id
        return all(
            nodes[each.key.id].key == each.key and nodes[each.key.id].config.endpoints == each.endpoints
            for each in voters.voters
        )

    def _replace(self, voters: VoterSet) -> None:
        """A disk is lost; the node comes back on an empty one, as another replica."""
        if not self._is_calm(voters):
            return
        node = self.world.by_id[pick(self.random, voters.ids)]
        node.lose_power()
        node.key = VoterKey(node.id, UUID(int=node.key.directory_id.int + 1000))
        node.disk = Disk(VoterSet(()), 1)
        self.world.count("disks lost")
        self.world.operated()
        self.engine.after(SECOND_US // 2, node.regain_power)

    def _move(self) -> None:
        """A node comes back at another address."""
        node = pick(self.random, self.world.controllers)
        if node.raft is None or len(node.raft.voters) < 3 or not self._is_calm(node.raft.voters):
            return  # of two voters, the one with less could not tell the other where it is
        node.stop()
        node.move += 1
        node.config = node.config._replace(endpoints=self.world.endpoints_of(node.id, node.move))
        self.world.count("moves")
        self.world.operated()
        self.engine.after(SECOND_US // 5, node.start)

    def _raise(self) -> None:
        if (found := self.leader()) is None or found[1].kraft_version > 0:
            return
        node, raft = found
        try:
            raft.raise_kraft_version(1)
        except BarnabasError:
            return
        node.guarded(lambda: None)
        self.world.count("kraft.version raised")
