"""Which brokers get a replica more of which internal partition: a pure plan.

Partitions keep their replicas and the leader that they prefer; what is added goes behind them. A broker whose
rack the partition lacks is chosen first, then the one with the fewest replicas of these topics. With
`spreads_leaders` the replicas are put in an order in which every broker is preferred about as often: a topic
that was made on one node has all its leaders there.

A partition is left alone that has no leader, has a replica that is not in sync, or is on its way to other
brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.admin import PartitionDescription
from barnabas.client.metadata import TopicPartition


class Step(NamedTuple):
    """One partition, and the replicas that it is to have."""

    at: TopicPartition
    before: tuple[int, ...]
    replicas: tuple[int, ...]

    @property
    def added(self) -> tuple[int, ...]:
        """The brokers that get a replica."""
        return tuple(each for each in self.replicas if each not in self.before)


class Plan(NamedTuple):
    """What is to be done, and what cannot be done now."""

    steps: list[Step]
    left_alone: dict[TopicPartition, str]  # and why


def plan_growth(
    partitions: Mapping[TopicPartition, PartitionDescription],
    racks: Mapping[int, str | None],
    replicas: int,
    *,
    moving: Iterable[TopicPartition] = (),
    spreads_leaders: bool = False,
) -> Plan:
    """Partitions with fewer than `replicas` get more, on the brokers in `racks`, which are there."""
    target = min(replicas, len(racks))
    counts = Counter(dict.fromkeys(racks, 0))
    counts.update(broker for each in partitions.values() for broker in each.replicas)
    first: Counter[int] = Counter()
    plan, on_their_way = Plan([], {}), set(moving)
    for at, partition in sorted(partitions.items()):
        reason = _reason(partition, at in on_their_way)
        now = tuple(partition.replicas)
        if len(now) < target and reason is not None:
            plan.left_alone[at] = reason
        chosen = now
        if reason is None:
            while len(chosen) < target:
                chosen += (_next(chosen, racks, counts),)
                counts[chosen[-1]] += 1
            if spreads_leaders:
                preferred = min(chosen, key=lambda each: (first[each], chosen.index(each)))
                chosen = (preferred, *(each for each in chosen if each != preferred))
        if chosen:
            first[chosen[0]] += 1
        if chosen != now:
            plan.steps.append(Step(at, now, chosen))
    return plan


def _reason(partition: PartitionDescription, is_moving: bool) -> str | None:
    """Why a partition is left alone."""
    if partition.leader < 0:
        return "no broker leads it"
    if is_moving:
        return "it is on its way to other brokers"
    missing = sorted(set(partition.replicas) - set(partition.in_sync))
    if missing:
        return f"its replicas on {', '.join(map(str, missing))} are not in sync"
    return None


def _next(chosen: Sequence[int], racks: Mapping[int, str | None], counts: Mapping[int, int]) -> int:
    used = {racks.get(each) for each in chosen} - {None}
    return min(
        (each for each in racks if each not in chosen),
        key=lambda each: (racks[each] in used, counts[each], each),
    )
