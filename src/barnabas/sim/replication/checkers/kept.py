"""No committed record is ever lost or changed: every leader has all that was committed in its epoch, or
before.

A leader that was replaced and does not know it yet may lack what was committed after it, and nothing else.
"""

from __future__ import annotations

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Event
from barnabas.sim.replication.checkers.replay import Key, Log, Progress, Replay
from barnabas.sim.replication.events import ReplicaSeen, Sampled

NAME = "kept"


class Kept:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._compared = Progress()
        self._leaders: dict[Key, set[int]] = {}

    def take(self, replay: Replay, event: Event) -> None:
        if isinstance(event, ReplicaSeen):
            key = (event.topic_id, event.partition)
            self._compared.changed(key, event.node, event.same_until)
            leaders = self._leaders.setdefault(key, set())
            (leaders.add if event.is_leader else leaders.discard)(event.node)
        elif isinstance(event, Sampled):
            for key, nodes in self._leaders.items():
                for node in sorted(nodes):
                    log = replay.logs.get(key, {}).get(node)
                    if log is not None and not replay.is_doubtful(key):
                        self._judge(replay, event.at, key, node, log)

    def end(self, replay: Replay) -> None:
        """Everything was said."""

    def _judge(self, replay: Replay, at: float, key: Key, node: int, log: Log) -> None:
        committed, seen = replay.committed[key], log.seen
        assert seen is not None
        end = committed.end_of(seen.leader_epoch)
        lacks = f"ends at {log.end}, and {end} was committed" if log.end < end else None
        if lacks is None:
            difference = committed.compare(log, self._compared.of(key, node, committed), end)
            lacks = difference and f"has {difference.what} at offset {difference.offset}"
        if lacks is not None:
            what = f"{replay.name(key)} on node {node}, its leader in epoch {seen.leader_epoch}, {lacks}"
            self.violations.append(Violation(NAME, at, what))
        else:
            self._compared.reached(key, node, committed, end)
