"""Replicas are equal, byte for byte, below the high watermark at all times, and wholly when all is well.

What stands below the high watermark of a replica, as its node has it, is committed: every other replica has
the same there, or nothing yet, or nothing any more below its start; and neither has a hole. Of a compacted
partition this is said of records, each replica being compacted by itself.

No high watermark is beyond the end of its log. In the end all replicas of a partition have the same end, and
all of it is committed on each.
"""

from __future__ import annotations

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Event, Finished
from barnabas.sim.replication.checkers.replay import Committed, Key, Log, Replay
from barnabas.sim.replication.events import ReplicaSeen

NAME = "equal"


class Equal:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._is_finished = False

    def take(self, replay: Replay, event: Event) -> None:
        wrong = replay.wrong
        if wrong is not None:
            what = (
                f"{replay.name(wrong.key)} on node {wrong.node} holds, below its high watermark, at offset "
                f"{wrong.difference.offset}: {wrong.difference.what}"
            )
            self.violations.append(Violation(NAME, wrong.at, what))
        if isinstance(event, ReplicaSeen) and event.high_watermark > event.end_offset:
            what = (
                f"{event.topic}-{event.partition} on node {event.node} ends at {event.end_offset}, with the "
                f"high watermark {event.high_watermark}"
            )
            self.violations.append(Violation(NAME, event.at, what))
        self._is_finished |= isinstance(event, Finished)

    def end(self, replay: Replay) -> None:
        if not self._is_finished:
            return
        for key, partition in replay.partitions.items():
            logs = replay.logs.get(key, {})
            missing = [node for node in partition.replicas if node not in logs]
            if missing:
                # a replica of which nobody has asked anything yet has no files
                if any(log.batches for log in logs.values()):
                    self._differ(replay, key, f"node {missing[0]} has no log of it")
                continue
            self._whole(replay, key, {node: logs[node] for node in partition.replicas})

    def _whole(self, replay: Replay, key: Key, logs: dict[int, Log]) -> None:
        committed = replay.committed[key]
        ends = {node: log.end for node, log in logs.items()}
        if len(set(ends.values())) > 1:
            self._differ(replay, key, f"its ends are {_by_node(ends)}")
            return
        marks = {node: log.seen.high_watermark for node, log in logs.items() if log.seen is not None}
        if set(marks.values()) != set(ends.values()):
            self._differ(replay, key, f"it ends at {_by_node(ends)}, with high watermarks {_by_node(marks)}")
            return
        self._same(replay, key, committed, logs)

    def _same(self, replay: Replay, key: Key, committed: Committed, logs: dict[int, Log]) -> None:
        for node, log in logs.items():
            difference = committed.compare(log, 0, log.end)
            if difference is not None:
                self._differ(replay, key, f"node {node} has {difference.what} at offset {difference.offset}")
                return

    def _differ(self, replay: Replay, key: Key, what: str) -> None:
        at = max((log.seen.at for log in replay.logs.get(key, {}).values() if log.seen), default=0.0)
        self.violations.append(Violation(NAME, at, f"{replay.name(key)} in the end: {what}"))


def _by_node(numbers: dict[int, int]) -> str:
    return ", ".join(f"{number} on node {node}" for node, number in sorted(numbers.items()))
