"""A move ends when those that come are in sync; where fewer come than go, everyone who stays has to be, too.

Else the ISR could be smaller afterwards than it was before. Judged by the change of the metadata with which
replicas leave, unless they leave because the move was given up: then those that were coming go.
"""

from __future__ import annotations

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Event
from barnabas.sim.replication.checkers.replay import Key, Replay
from barnabas.sim.replication.events import PartitionSeen

NAME = "moves"


class Moves:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._seen: dict[Key, PartitionSeen] = {}

    def take(self, replay: Replay, event: Event) -> None:
        if not isinstance(event, PartitionSeen):
            return
        key = (event.topic_id, event.partition)
        before = self._seen.get(key)
        self._seen[key] = event
        # two changes that were published together may be the end of a move and the loss of a broker
        if before is not None and event.partition_epoch == before.partition_epoch + 1:
            self._judge(replay.name(key), before, event)

    def end(self, replay: Replay) -> None:
        """Everything was said."""

    def _judge(self, name: str, before: PartitionSeen, after: PartitionSeen) -> None:
        gone = set(before.replicas) - set(after.replicas)
        if not gone or gone <= set(before.adding):
            return
        needed = set(after.replicas) if len(before.adding) < len(gone) else set(before.adding)
        lacks = (needed & set(after.replicas)) - set(after.isr)
        if lacks:
            what = (
                f"{name} has moved from {before.replicas} to {after.replicas}, and of these "
                f"{sorted(lacks)} are not in the ISR {after.isr}"
            )
            self.violations.append(Violation(NAME, after.at, what))
