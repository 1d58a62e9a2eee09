"""Who is in the ISR or the ELR, by the metadata that was published last, holds all that is committed.

On its disk, that is, whether it runs or not. A node that lost its power is asked only when it has started
again: the metadata does not know of the loss before.
"""

from __future__ import annotations

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Event
from barnabas.sim.replication.checkers.replay import Key, Progress, Replay
from barnabas.sim.replication.events import PartitionSeen, ReplicaSeen, Sampled

NAME = "members"


class Members:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._compared = Progress()
        self._changed: set[Key] = set()

    def take(self, replay: Replay, event: Event) -> None:
        if isinstance(event, ReplicaSeen):
            key = (event.topic_id, event.partition)
            self._compared.changed(key, event.node, event.same_until)
            self._changed.add(key)
        elif isinstance(event, PartitionSeen):
            self._changed.add((event.topic_id, event.partition))
        elif isinstance(event, Sampled):
            for key in sorted(self._changed):
                partition = replay.partitions.get(key)
                if partition is not None and key in replay.committed and not replay.is_doubtful(key):
                    self._judge(replay, event.at, key, partition)
            self._changed.clear()

    def end(self, replay: Replay) -> None:
        """Everything was said."""

    def _judge(self, replay: Replay, at: float, key: Key, partition: PartitionSeen) -> None:
        committed = replay.committed[key]
        for node in (*partition.isr, *partition.elr):
            if node in replay.dark or not committed.end:
                continue
            where = "ISR" if node in partition.isr else "ELR"
            log = replay.logs.get(key, {}).get(node)
            if log is None or log.end < committed.end:
                end = "has no log" if log is None else f"ends at {log.end}"
                lacks = f"{end}, and {committed.end} was committed"
            else:
                difference = committed.compare(log, self._compared.of(key, node, committed), committed.end)
                if difference is None:
                    self._compared.reached(key, node, committed, committed.end)
                    continue
                lacks = f"has {difference.what} at offset {difference.offset}"
            what = f"{replay.name(key)} on node {node}, in the {where} at offset {partition.offset}, {lacks}"
            self.violations.append(Violation(NAME, at, what))
