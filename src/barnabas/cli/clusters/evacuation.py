"""Where the partitions of a broker go before it leaves the cluster: a pure plan.

Every replica of that broker is replaced, at its place among the replicas, by one on a broker that has none:
in a rack that the partition lacks first, then on the broker with the fewest replicas. A partition for which
there is no such broker keeps fewer replicas if that is allowed, and is refused otherwise. So is one that
cannot be copied: nobody leads it, or it is on its way to other brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.cli.clusters.growth import Step
from barnabas.cli.clusters.health import Health
from barnabas.client.metadata import TopicPartition


class Evacuation(NamedTuple):
    """Which partitions go where, and those that cannot, and why."""

    steps: list[Step]
    stuck: dict[TopicPartition, str]

    @property
    def reasons(self) -> dict[str, list[TopicPartition]]:
        """The partitions that cannot go, by the reason."""
        found: dict[str, list[TopicPartition]] = {}
        for at, reason in self.stuck.items():
            found.setdefault(reason, []).append(at)
        return found


def plan_evacuation(
    partitions: Iterable[Health], racks: Mapping[int, str | None], leaving: int, *, may_have_fewer: bool
) -> Evacuation:
    """Move the replicas of `leaving` to the brokers in `racks`, which are there and stay."""
    every = list(partitions)
    counts = Counter(dict.fromkeys(racks, 0))
    counts.update(broker for each in every for broker in each.partition.replicas)
    plan = Evacuation([], {})
    for each in every:
        now = tuple(each.partition.replicas)
        if leaving not in now:
            continue
        reason = _reason(each)
        chosen = _target(now, leaving, racks, counts)
        if reason is None and chosen is None:
            chosen = tuple(broker for broker in now if broker != leaving)
            if not chosen or not may_have_fewer:
                others = len(set(racks) | set(chosen))
                reason = f"{len(now)} replicas need as many brokers, and {others} would be left"
        if reason is not None:
            plan.stuck[each.at] = reason
        elif chosen is not None:
            counts.update(set(chosen) - set(now))
            plan.steps.append(Step(each.at, now, chosen))
    return plan


def _reason(each: Health) -> str | None:
    """Why a partition cannot be copied now."""
    if each.is_offline:
        return "no broker leads it"
    return "it is on its way to other brokers" if each.is_moving else None


def _target(
    now: Sequence[int], leaving: int, racks: Mapping[int, str | None], counts: Mapping[int, int]
) -> tuple[int, ...] | None:
    """The replicas with another broker in the place of `leaving`; None where there is no other."""
    free = [broker for broker in racks if broker not in now]
    if not free:
        return None
    used = {racks.get(broker) for broker in now if broker != leaving} - {None}
    other = min(free, key=lambda broker: (racks[broker] in used, counts[broker], broker))
    return tuple(other if broker == leaving else broker for broker in now)
