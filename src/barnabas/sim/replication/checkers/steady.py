"""A replica that joins the ISR stays in it for a while, unless its process dies or another leader is elected.

A leader that lets in a replica which is not caught up takes it out again with its next look at the lag, and
lets it in with the next fetch. Nothing is lost by that. But the ISR changes without end, and while it is
larger for a moment an append with acks=all is taken that cannot be committed.

Judged in directed simulations. Under faults a replica may rightly leave at once: it was caught up when it
joined, and then its disk or a link became slow.
"""

from __future__ import annotations

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Crash, Event
from barnabas.sim.replication.checkers.replay import Key, Replay
from barnabas.sim.replication.events import PartitionSeen

NAME = "steady"
STAYS_S = 1.5


class Steady:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._seen: dict[Key, PartitionSeen] = {}
        self._joined: dict[tuple[Key, int], PartitionSeen] = {}

    def take(self, replay: Replay, event: Event) -> None:
        if isinstance(event, Crash):
            self._joined = {key: each for key, each in self._joined.items() if key[1] != event.node}
        if not isinstance(event, PartitionSeen):
            return
        key = (event.topic_id, event.partition)
        before = self._seen.get(key)
        self._seen[key] = event
        if before is None:
            return
        for node in set(event.isr) - set(before.isr):
            self._joined[key, node] = event
        for node in set(before.isr) - set(event.isr):
            joined = self._joined.pop((key, node), None)
            if joined is not None:
                self._judge(replay.name(key), node, joined, event)

    def end(self, replay: Replay) -> None:
        """Everything was said."""

    def _judge(self, name: str, node: int, joined: PartitionSeen, left: PartitionSeen) -> None:
        stayed_s = left.at - joined.at
        if stayed_s < STAYS_S and left.leader_epoch == joined.leader_epoch and node in left.replicas:
            what = f"{name}: node {node} joins the ISR, and leaves it after {stayed_s:.3f} s"
            self.violations.append(Violation(NAME, left.at, what))
