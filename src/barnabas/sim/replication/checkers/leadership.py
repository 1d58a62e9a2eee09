"""One leader an epoch and partition, and epochs never go back.

Who is elected is active: its broker is neither fenced nor shutting down. By the metadata, in the order of its
offsets; by the nodes, which know whether they lead; and by what they
wrote: at one offset of one epoch there is one batch, wherever it stands, committed or not, and in a log
epochs only go up.
"""

from __future__ import annotations

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Event
from barnabas.sim.replication.checkers.replay import Key, Replay
from barnabas.sim.replication.events import BatchKept, PartitionSeen, ReplicaSeen

NAME = "leadership"


class Leadership:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._seen: dict[Key, PartitionSeen] = {}
        self._leaders: dict[tuple[Key, int], int] = {}
        self._batches: dict[tuple[Key, int, int], BatchKept] = {}

    def take(self, replay: Replay, event: Event) -> None:
        if isinstance(event, PartitionSeen):
            self._published(replay, event)
        elif isinstance(event, ReplicaSeen):
            key = (event.topic_id, event.partition)
            if event.is_leader:
                self._leads(replay, event.at, key, event.leader_epoch, event.node)
            self._written(replay, key, event)

    def end(self, replay: Replay) -> None:
        """Everything was said."""

    def _published(self, replay: Replay, event: PartitionSeen) -> None:
        key = (event.topic_id, event.partition)
        before = self._seen.get(key)
        if before is not None:
            if event.offset < before.offset:
                return
            was, now = before.leader_epoch, event.leader_epoch
            if now < was:
                self._say(event.at, f"{replay.name(key)} goes back from leader epoch {was} to {now}")
            elif before.partition_epoch > event.partition_epoch:
                epochs = f"{before.partition_epoch} to {event.partition_epoch}"
                self._say(event.at, f"{replay.name(key)} goes back from partition epoch {epochs}")
        is_elected = before is None or event.leader_epoch > before.leader_epoch
        if is_elected and not event.is_leader_active:
            self._say(event.at, f"{replay.name(key)}: node {event.leader} is elected, and is not active")
        self._seen[key] = event
        self._leads(replay, event.at, key, event.leader_epoch, event.leader)

    def _leads(self, replay: Replay, at: float, key: Key, epoch: int, node: int) -> None:
        leader = self._leaders.setdefault((key, epoch), node)
        if leader != node:
            self._say(at, f"{replay.name(key)} is led by {leader} and by {node} in epoch {epoch}")

    def _written(self, replay: Replay, key: Key, event: ReplicaSeen) -> None:
        epoch = -1
        for batch in event.batches:
            where = f"{replay.name(key)} on node {event.node} at offset {batch.base_offset}"
            if batch.epoch < epoch:
                self._say(event.at, f"{where}: epoch {batch.epoch} comes after epoch {epoch}")
            epoch = batch.epoch
            if batch.records:
                continue  # of a compacted topic: what is left of a batch is another batch
            other = self._batches.setdefault((key, batch.base_offset, batch.epoch), batch)
            if other is not batch and other != batch:
                what = f"up to {batch.end_offset} ({batch.digest:08x})"
                told = f"up to {other.end_offset} ({other.digest:08x})"
                self._say(event.at, f"{where}: a batch {what} of epoch {batch.epoch}, elsewhere {told}")

    def _say(self, at: float, what: str) -> None:
        self.violations.append(Violation(NAME, at, what))
