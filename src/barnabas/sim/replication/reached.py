"""What a simulation with replicated partitions went through, counted from its history.

A truncation is divergent where batches are gone from a log's end, or others stand in their place, while no
power was lost: a process that crashes takes none of them away. Logs of compacted topics are not counted. A
full re-fetch is a log that begins with nothing where other replicas have records, or begins anew behind its
end.
"""

from __future__ import annotations

from collections import Counter

from barnabas.metadata.names import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from barnabas.sim.coordination.events import CoordinatorMoved
from barnabas.sim.history import Crash, Event, History, Started, TopicMade
from barnabas.sim.replication.checkers.replay import Key
from barnabas.sim.replication.events import DrillBegan, PartitionSeen, ReplicaGone, ReplicaSeen
from barnabas.sim.transaction_events import TxnEnded

DIVERGENT = "divergent truncations"
FULL_FETCH = "full re-fetches"
COORDINATED = {CONSUMER_OFFSETS: "groups", TRANSACTION_STATE: "transactions"}


def reached(history: History) -> Counter[str]:
    """How often which thing was reached, before the drill."""
    counting = _Counting()
    for event in history.events:
        if isinstance(event, DrillBegan):
            break
        counting.take(event)
    return counting.found


class _Counting:
    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._partitions: dict[Key, PartitionSeen] = {}
        self._leaders: dict[Key, int] = {}  # who has led last
        self._logs: dict[tuple[Key, int], ReplicaSeen] = {}
        self._lost_power_at: dict[int, float] = {}
        self._dark: set[int] = set()
        self._ends: dict[Key, int] = {}  # high watermarks
        self._compacted: set[str] = set(INTERNAL_TOPICS)

    def take(self, event: Event) -> None:
        if isinstance(event, CoordinatorMoved):
            self._coordinator(event)
        elif isinstance(event, PartitionSeen):
            self._partition(event)
        elif isinstance(event, ReplicaSeen):
            self._log(event)
        elif isinstance(event, ReplicaGone):
            self._logs.pop(((event.topic_id, event.partition), event.node), None)
        elif isinstance(event, Crash) and event.kind == "power":
            self._lost_power_at[event.node] = event.at
            self._dark.add(event.node)
        elif isinstance(event, Started) and event.node in self._dark:
            self._dark.discard(event.node)
            self.found["unclean restarts"] += 1
        elif isinstance(event, TxnEnded):
            self.found["transactions committed" if event.is_commit else "transactions aborted"] += 1
        elif isinstance(event, TopicMade) and event.facts.is_compacted:
            self._compacted.add(event.topic)

    def _coordinator(self, event: CoordinatorMoved) -> None:
        what = COORDINATED[event.topic]
        self.found[f"coordinators of {what} moved"] += 1
        for state in dict.fromkeys(event.states):
            self.found[f"moved with {what} in {state}"] += 1

    def _partition(self, event: PartitionSeen) -> None:
        key = (event.topic_id, event.partition)
        before = self._partitions.get(key)
        self._partitions[key] = event
        if before is not None:
            self._changed(key, before, event)
        if event.leader >= 0:
            self._leaders[key] = event.leader

    def _changed(self, key: Key, before: PartitionSeen, event: PartitionSeen) -> None:
        found = self.found
        was, now = set(before.isr), set(event.isr)
        if event.leader >= 0 and event.leader_epoch != before.leader_epoch:
            if self._leaders.get(key, event.leader) != event.leader:
                found["leader changes"] += 1
            self._elected(before, event)
        elif now < was:
            found["ISR shrinks"] += 1
        if was < now:
            found["ISR expands"] += 1
        if before.leader >= 0 and event.leader < 0:
            found["partitions without leader"] += 1
        was_moving, is_moving = bool(before.adding or before.removing), bool(event.adding or event.removing)
        if was_moving and not is_moving:
            found["reassignments" if not set(before.adding) - set(event.replicas) else "moves given up"] += 1

    def _elected(self, before: PartitionSeen, event: PartitionSeen) -> None:
        if event.is_recovering:
            is_last = event.leader in before.last_known
            self.found["last-known-leader elections" if is_last else "unclean elections"] += 1
        elif event.leader in before.elr and event.leader not in before.isr:
            self.found["ELR elections"] += 1

    def _log(self, event: ReplicaSeen) -> None:
        key = (event.topic_id, event.partition)
        before = self._logs.get((key, event.node))
        self._logs[key, event.node] = event
        if before is None:
            if event.disk_end <= event.start_offset < self._ends.get(key, 0):
                self.found[FULL_FETCH] += 1
        elif event.start_offset > before.disk_end:
            self.found[FULL_FETCH] += 1
        elif event.same_until < before.disk_end and not self._may_be_lost(event.node, before.at):
            partition = self._partitions.get(key)
            is_copied = partition is not None and len(partition.replicas) > 1
            if is_copied and event.topic not in self._compacted:
                self.found[DIVERGENT] += 1
        self._ends[key] = max(self._ends.get(key, 0), event.high_watermark)

    def _may_be_lost(self, node: int, since: float) -> bool:
        return self._lost_power_at.get(node, -1.0) >= since
