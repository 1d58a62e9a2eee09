"""Small histories of a replicated partition told in a few words: partition 0 of one topic, three nodes."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Crash, Event, FaultsEnded, Finished, History, Started, TopicFacts, TopicMade
from barnabas.sim.replication.checkers.judge import Judge, judged
from barnabas.sim.replication.events import (
    BatchKept,
    PartitionGone,
    PartitionSeen,
    ReplicaGone,
    ReplicaSeen,
    Sampled,
)

TOPIC, TOPIC_ID = "t", "id of t"
FACTS = TopicFacts(replicas=3, min_in_sync=2)
NODES = (1, 2, 3)


def batches(*offsets: int, epoch: int = 1, digest: int = 7) -> tuple[BatchKept, ...]:
    """Batches of one record each."""
    return tuple(BatchKept(each, each + 1, epoch, digest + each) for each in offsets)


class Story:
    """Every method adds an event and gives the story back."""

    def __init__(self, facts: TopicFacts = FACTS) -> None:
        self.events: list[Event] = [TopicMade(0.0, TOPIC, facts)]
        self._offset = 0

    def add(self, *events: Event) -> Story:
        self.events += events
        return self

    def partition(
        self,
        at: float,
        leader: int,
        isr: Sequence[int] = NODES,
        *,
        epoch: int = 1,
        elr: Sequence[int] = (),
        last_known: Sequence[int] = (),
        replicas: Sequence[int] = NODES,
        adding: Sequence[int] = (),
        removing: Sequence[int] = (),
        is_recovering: bool = False,
        partition_epoch: int | None = None,
        topic_id: str = TOPIC_ID,
    ) -> Story:
        self._offset += 1
        lists = (tuple(replicas), tuple(isr), tuple(elr), tuple(last_known), tuple(adding), tuple(removing))
        epochs = (epoch, self._offset if partition_epoch is None else partition_epoch)
        place = (TOPIC, topic_id, 0)
        return self.add(PartitionSeen(at, 1, self._offset, *place, leader, *epochs, *lists, is_recovering))

    def gone(self, at: float) -> Story:
        return self.add(PartitionGone(at, 1, TOPIC, TOPIC_ID, 0))

    def log(
        self,
        at: float,
        node: int,
        new: Sequence[BatchKept] = (),
        *,
        high_watermark: int = 0,
        epoch: int = 1,
        is_leader: bool = False,
        same_until: int = 0,
        start: int = 0,
        end: int | None = None,
        is_open: bool = True,
    ) -> Story:
        end = new[-1].end_offset if end is None and new else end or same_until
        told = (epoch, start, high_watermark, end) if is_open else (-1, start, -1, -1)
        place = (TOPIC, TOPIC_ID, 0)
        return self.add(ReplicaSeen(at, node, *place, is_leader, *told, end, same_until, tuple(new)))

    def no_log(self, at: float, node: int) -> Story:
        return self.add(ReplicaGone(at, node, TOPIC, TOPIC_ID, 0))

    def sampled(self, at: float) -> Story:
        return self.add(Sampled(at))

    def power_lost(self, at: float, node: int) -> Story:
        return self.add(Crash(at, "power", node))

    def crashed(self, at: float, node: int) -> Story:
        return self.add(Crash(at, "process", node))

    def started(self, at: float, node: int) -> Story:
        return self.add(Started(at, node))

    def calm(self, at: float) -> Story:
        return self.add(FaultsEnded(at))

    def finished(self, at: float) -> Story:
        return self.add(Finished(at))

    @property
    def history(self) -> History:
        return History(events=self.events)

    def judged(self, judge: Judge) -> list[Violation]:
        return judged(self.history, [judge])


def only(violations: list[Violation]) -> Violation:
    """The one there is."""
    (violation,) = violations
    return violation
