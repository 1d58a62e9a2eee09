"""A history of replicated partitions, gone through event by event: what each log holds, what is committed,
who is in sync, what is in doubt.

Committed is what stands below the high watermark of any replica that is open, from then on. While a partition
is in doubt (sim/checkers/budget.py) nothing of it is judged, and when that is over everything is learnt anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.sim.checkers.budget import Budget, facts_of
from barnabas.sim.history import Crash, Event, History, Started
from barnabas.sim.replication.events import (
    BatchKept,
    PartitionGone,
    PartitionSeen,
    ReplicaGone,
    ReplicaSeen,
)

# id of the topic, partition
Key = tuple[str, int]


class Log:
    """The log of one replica as it was seen last."""

    def __init__(self) -> None:
        self.batches: list[BatchKept] = []
        self.seen: ReplicaSeen | None = None

    def take(self, event: ReplicaSeen) -> None:
        batches = self.batches
        del batches[bisect_right(batches, event.same_until, key=_end) :]
        batches.extend(event.batches)
        first = bisect_right(batches, event.start_offset, key=_end)
        del batches[:first]
        self.seen = event

    @property
    def end(self) -> int:
        return 0 if self.seen is None else max(self.seen.disk_end, self.seen.end_offset)

    def between(self, start: int, end: int) -> Iterator[BatchKept]:
        """The batches that end behind `start` and begin before `end`."""
        batches = self.batches
        for index in range(bisect_right(batches, start, key=_end), len(batches)):
            if batches[index].base_offset >= end:
                return
            yield batches[index]


class Difference(NamedTuple):
    """Where a log does not hold what is committed."""

    offset: int
    what: str


class Committed:
    """What is committed of one partition. A compacted one is compared record by record: each replica compacts
    by itself, and so may lack what another has."""

    def __init__(self, *, is_compacted: bool) -> None:
        self.end = 0
        self._is_compacted = is_compacted
        self._batches: dict[int, BatchKept] = {}
        self._bases: list[int] = []
        self._records: dict[int, int] = {}
        # leader epochs, and where what was committed in them, or before, ends; records may be of earlier ones
        self._ends: list[tuple[int, int]] = []

    def end_of(self, epoch: int) -> int:
        """Where what was committed in this epoch, or before, ends."""
        index = bisect_right(self._ends, epoch, key=lambda each: each[0])
        return self._ends[index - 1][1] if index else 0

    def learn(self, batch: BatchKept, end: int, leader_epoch: int) -> Difference | None:
        """A batch of some replica that is committed up to `end` in that leader epoch, or before; or what
        another replica has there."""
        if (wrong := self._compare(batch, end)) is not None:
            return wrong
        if self._is_compacted:
            self._records.update(each for each in batch.records if each[0] < end)
        elif batch.end_offset <= end and batch.base_offset not in self._batches:
            self._batches[batch.base_offset] = batch
            self._bases.append(batch.base_offset)
        if batch.end_offset <= end:
            self._reached(max(batch.epoch, leader_epoch), batch.end_offset)
        return None

    def compare(self, log: Log, start: int, end: int) -> Difference | None:
        """The first difference of a log between two offsets, `end` being committed."""
        reached = None
        for batch in log.between(start, end):
            if (wrong := self._compare(batch, end)) is not None:
                return wrong
            if reached is not None and batch.base_offset != reached and not self._is_compacted:
                return Difference(reached, f"a hole up to {batch.base_offset}")
            reached = batch.end_offset
        return None

    def _compare(self, batch: BatchKept, end: int) -> Difference | None:
        if self._is_compacted:
            for offset, digest in batch.records:
                if offset < end and self._records.get(offset, digest) != digest:
                    return Difference(offset, "another record")
            return None
        known = self._batches.get(batch.base_offset)
        if known is not None and known != batch and batch.base_offset < end:
            return Difference(batch.base_offset, f"{_told(batch)}, not {_told(known)}")
        return None

    def _reached(self, epoch: int, end: int) -> None:
        self.end = max(self.end, end)
        ends = self._ends
        if ends and ends[-1][0] >= epoch:
            ends[-1] = (ends[-1][0], max(ends[-1][1], end))
        else:
            ends.append((epoch, end))


class Wrong(NamedTuple):
    """What a replica holds below its high watermark, and should not."""

    at: float
    key: Key
    node: int
    difference: Difference


class Replay:
    """The state after the event that was taken last. `logs` by partition and node; `dark` are nodes that lost
    power and have not started since."""

    def __init__(self, history: History) -> None:
        facts = facts_of(history)
        self._compacted = {topic for topic, each in facts.items() if each.is_compacted}
        self._history = history
        self._budget = Budget(facts)
        self.logs: dict[Key, dict[int, Log]] = {}
        self.committed: dict[Key, Committed] = {}
        self.partitions: dict[Key, PartitionSeen] = {}
        self.dark: set[int] = set()
        self.wrong: Wrong | None = None  # found with the last event
        self._doubtful: set[Key] = set()
        self._names: dict[Key, str] = {}
        self._learnt = Progress()

    def events(self) -> Iterator[Event]:
        """Each event, when it has been taken."""
        for event in self._history.events:
            self.wrong = None
            self._budget.take(event)
            if isinstance(event, ReplicaSeen):
                self._seen(event)
            elif isinstance(event, (PartitionSeen, PartitionGone, ReplicaGone)):
                self._changed(event)
            elif isinstance(event, Crash) and event.kind == "power":
                self.dark.add(event.node)
            elif isinstance(event, Started):
                self.dark.discard(event.node)
            if isinstance(event, (PartitionSeen, Crash, Started)):
                self._note_doubts()
            yield event

    def is_doubtful(self, key: Key) -> bool:
        """Whether committed records of a partition may be lost now."""
        return key in self._doubtful

    def name(self, key: Key) -> str:
        return f"{self._names.get(key, key[0])}-{key[1]}"

    def _changed(self, event: PartitionSeen | PartitionGone | ReplicaGone) -> None:
        key = (event.topic_id, event.partition)
        if isinstance(event, PartitionSeen):
            self.partitions[key] = event
            self._names[key] = event.topic
        elif isinstance(event, PartitionGone):
            self.partitions.pop(key, None)
        else:
            self.logs.get(key, {}).pop(event.node, None)
            self._learnt.forget(key, event.node)

    def _seen(self, event: ReplicaSeen) -> None:
        key = (event.topic_id, event.partition)
        self._names[key] = event.topic
        log = self.logs.setdefault(key, {}).setdefault(event.node, Log())
        log.take(event)
        committed = self.committed.get(key)
        if committed is None:
            committed = self.committed[key] = Committed(is_compacted=event.topic in self._compacted)
        self._learnt.changed(key, event.node, event.same_until)
        if not event.is_open or key in self._doubtful:
            return
        for batch in log.between(self._learnt.of(key, event.node, committed), event.high_watermark):
            difference = committed.learn(batch, event.high_watermark, event.leader_epoch)
            if difference is not None:
                self.wrong = Wrong(event.at, key, event.node, difference)
                return
        self._learnt.reached(key, event.node, committed, event.high_watermark)

    def _note_doubts(self) -> None:
        for key, partition in self.partitions.items():
            if self._budget.is_doubtful((partition.topic, partition.partition)):
                self._doubtful.add(key)
            elif key in self._doubtful:
                self._doubtful.discard(key)
                self.committed[key] = Committed(is_compacted=partition.topic in self._compacted)


class Progress:
    """Up to where logs have been gone through; what was learnt anew is gone through again."""

    def __init__(self) -> None:
        self._until: dict[tuple[Key, int], tuple[Committed, int]] = {}

    def of(self, key: Key, node: int, committed: Committed) -> int:
        known, until = self._until.get((key, node), (committed, 0))
        return until if known is committed else 0

    def reached(self, key: Key, node: int, committed: Committed, until: int) -> None:
        self._until[key, node] = committed, until

    def changed(self, key: Key, node: int, same_until: int) -> None:
        """The log is another one from there on."""
        known = self._until.get((key, node))
        if known is not None and known[1] > same_until:
            self._until[key, node] = known[0], same_until

    def forget(self, key: Key, node: int) -> None:
        self._until.pop((key, node), None)


def _end(batch: BatchKept) -> int:
    return batch.end_offset


def _told(batch: BatchKept) -> str:
    return f"offsets {batch.base_offset} to {batch.end_offset} of epoch {batch.epoch} ({batch.digest:08x})"
