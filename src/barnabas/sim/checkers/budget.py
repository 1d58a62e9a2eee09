"""When committed records of a partition may be lost: what replication promises, and what is beyond it.

Between two moments at which every replica of a partition is in sync, min.insync.replicas - 1 of the nodes
that have one may lose their page cache (their power), and any number of processes may crash: nothing that is
committed is lost. When one node more loses its power, everything is in doubt until the partition is whole
again: what was lost may vanish later, when one without it is elected. So is it from an unclean election on,
and from the election of the last known leader where nobody was eligible any more.

A partition is whole when the metadata says that all replicas are in sync, and all nodes that have one run
since they last lost power: until a node has started again, the metadata tells of what it had before.

Where nothing is replicated each power loss is beyond the budget, for the moment of the loss.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.metadata.names import INTERNAL_TOPICS
from barnabas.sim.history import Crash, History, Started, TopicFacts, TopicMade
from barnabas.sim.replication.events import PartitionGone, PartitionSeen
from barnabas.sim.transaction_events import OutputMade

Place = tuple[str, int]  # topic, partition

FOREVER = float("inf")
POWER = "power"
COORDINATORS = TopicFacts(is_compacted=True, replicas=3, min_in_sync=2)


class Doubt(NamedTuple):
    """From when to when committed records of a partition may be lost."""

    since: float
    until: float


class Doubts:
    """The doubts about one partition, in the order of time; none overlaps another."""

    def __init__(self, doubts: list[Doubt]) -> None:
        self.all = doubts
        self._begins = [each.since for each in doubts]
        self._ends = [each.until for each in doubts]

    def has_any(self, since: float, until: float) -> bool:
        """Whether one of them lies between the two, themselves included, or reaches into it."""
        return self.era_after(since) < self.era_until(until)

    def era_after(self, since: float) -> int:
        """How many ended before that."""
        return bisect_left(self._ends, since)

    def era_until(self, until: float) -> int:
        """How many began up to then; the same as `era_after(since)` if there is none between."""
        return bisect_right(self._begins, until)

    def first(self, since: float) -> float | None:
        """When the first of those that go on at that time, or come later, begins."""
        return next((each.since for each in self.all[self.era_after(since) :]), None)


NONE = Doubts([])


class _Partition:
    """What is known of one partition while time goes on. `members`: who has had a replica since it was whole
    last; `lost`: those of them that lost their power since."""

    def __init__(self) -> None:
        self.last: PartitionSeen | None = None
        self.members: set[int] = set()
        self.fewest = 1 << 30  # replicas since it was whole last
        self.lost: set[int] = set()
        self.doubt_since: float | None = None
        self.doubts: list[Doubt] = []

    def spare(self, min_in_sync: int) -> int:
        """How many more power losses nothing is lost by; below 0: it is in doubt."""
        return min(min_in_sync, self.fewest) - 1 - len(self.lost)


class Budget:
    """Follows a history event by event; `facts` are those of the topics."""

    def __init__(self, facts: Mapping[str, TopicFacts]) -> None:
        self._facts = facts
        self._partitions: dict[Place, _Partition] = {}
        self._dark: set[int] = set()  # nodes that have not started since they lost power

    def take(self, event: object) -> None:
        """The next event."""
        if isinstance(event, PartitionSeen):
            self._seen(event)
        elif isinstance(event, PartitionGone):
            self._gone(event)
        elif isinstance(event, Crash) and event.kind == POWER:
            self._power_lost(event)
        elif isinstance(event, Started) and event.node in self._dark:
            self._dark.discard(event.node)
            for partition in self._partitions.values():
                self._maybe_whole(partition, event.at)

    def doubts(self) -> dict[Place, Doubts]:
        """What is in doubt so far, by partition."""
        found = {}
        for place, partition in self._partitions.items():
            open_doubt = [] if partition.doubt_since is None else [Doubt(partition.doubt_since, FOREVER)]
            found[place] = Doubts([*partition.doubts, *open_doubt])
        return found

    def is_doubtful(self, place: Place) -> bool:
        """Whether a partition is in doubt now."""
        partition = self._partitions.get(place)
        return partition is not None and partition.doubt_since is not None

    def would_exceed(self, node: int) -> bool:
        """Whether a power loss of that node now would be beyond the budget of a partition that has one."""
        return any(
            node in partition.members
            and node not in partition.lost
            and self._min_in_sync(place) > 1
            and partition.fewest > 1
            and partition.doubt_since is None
            and partition.spare(self._min_in_sync(place)) < 1
            for place, partition in self._partitions.items()
        )

    def _min_in_sync(self, place: Place) -> int:
        facts = self._facts.get(place[0])
        return 1 if facts is None else facts.min_in_sync

    def _seen(self, event: PartitionSeen) -> None:
        partition = self._partitions.setdefault((event.topic, event.partition), _Partition())
        before, partition.last = partition.last, event
        partition.members.update(event.replicas)
        partition.fewest = min(partition.fewest, len(event.replicas))
        if before is not None and before.topic_id == event.topic_id and _is_unclean(before, event):
            self._doubt(partition, event.at)
        self._maybe_whole(partition, event.at)

    def _gone(self, event: PartitionGone) -> None:
        """Its topic may be created anew: that is another partition."""
        place = (event.topic, event.partition)
        partition = self._partitions.get(place)
        if partition is not None and partition.last is not None and partition.last.topic_id == event.topic_id:
            del self._partitions[place]

    def _power_lost(self, event: Crash) -> None:
        self._dark.add(event.node)
        for place, partition in self._partitions.items():
            if event.node in partition.members:
                partition.lost.add(event.node)
                if partition.spare(self._min_in_sync(place)) < 0:
                    self._doubt(partition, event.at)

    @staticmethod
    def _doubt(partition: _Partition, at: float) -> None:
        if partition.doubt_since is None:
            partition.doubt_since = at

    def _maybe_whole(self, partition: _Partition, at: float) -> None:
        last = partition.last
        if last is None or not last.is_whole or not self._dark.isdisjoint(last.replicas):
            return
        if partition.doubt_since is not None:
            partition.doubts.append(Doubt(partition.doubt_since, at))
            partition.doubt_since = None
        partition.lost.clear()
        partition.members = set(last.replicas)
        partition.fewest = len(last.replicas)


def _is_unclean(before: PartitionSeen, after: PartitionSeen) -> bool:
    """Whether one that may lack records has been elected."""
    is_elected = after.leader >= 0 and after.leader_epoch != before.leader_epoch
    return is_elected and after.is_recovering


def facts_of(history: History) -> dict[str, TopicFacts]:
    """What is promised of each topic, by its settings; those of coordinators are replicated as a cluster of
    several nodes has them."""
    facts = dict.fromkeys(INTERNAL_TOPICS, COORDINATORS)
    facts |= {event.topic: event.facts for event in history.of(TopicMade)}
    return facts | {
        event.topic: TopicFacts(replicas=event.replicas, min_in_sync=event.min_in_sync)
        for event in history.of(OutputMade)
    }


def doubts_of(history: History) -> dict[Place, Doubts] | None:
    """The doubts about each partition that was seen; None where nothing is replicated."""
    events = history.events
    if not any(isinstance(event, PartitionSeen) for event in events):
        return None
    budget = Budget(facts_of(history))
    for event in events:
        budget.take(event)
    return budget.doubts()


def doubts_of_one(history: History) -> Doubts:
    """Where nothing is replicated: every power loss."""
    return Doubts([Doubt(each.at, each.at) for each in history.of(Crash) if each.kind == POWER])
