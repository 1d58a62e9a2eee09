"""The placement of a new topic's replicas: striped over racks and brokers, from a random start.

Racks are in random order, and so are the brokers of each; brokers without a rack share one. A partition takes
its leader from the next rack and its other replicas from the following racks, one each, starting over if
there are fewer racks than replicas; each partition starts one rack and one broker after the previous one. So
leaders are spread evenly, replicas nearly so, and the loss of a rack affects as few replicas of a partition
as possible. After as many partitions as there are active brokers the order is drawn anew. Fenced brokers get
replicas only if their rack has no others left, and never lead. Brokers with all directories cordoned get
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from barnabas.controller.decisions import Refused
from barnabas.core.random import Random
from barnabas.metadata.directories import takes_new
from barnabas.metadata.parts import BrokerImage

T = TypeVar("T")


def place(
    brokers: Sequence[BrokerImage], partitions: int, replication_factor: int, random: Random
) -> list[list[int]]:
    """The replicas of each partition, the preferred leader first; Refused if there are too few brokers."""
    brokers = [broker for broker in brokers if takes_new(broker)]
    if not any(broker.is_active for broker in brokers):
        raise Refused(
            "INVALID_REPLICATION_FACTOR",
            f"Unable to replicate the partition {replication_factor} time(s): "
            "All brokers are currently fenced, or have all their log directories cordoned.",
        )
    if replication_factor > len(brokers):
        raise Refused(
            "INVALID_REPLICATION_FACTOR",
            f"Unable to replicate the partition {replication_factor} time(s): "
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered or some brokers have all their log directories "
            "cordoned.",
        )
    racks = _Racks(brokers, random)
    return [racks.place(replication_factor) for _ in range(partitions)]


class _Rack:
    """The brokers of one rack, each used once a partition."""

    def __init__(self, brokers: Sequence[BrokerImage]) -> None:
        self.active = sorted(broker.id for broker in brokers if broker.is_active)
        self.fenced = sorted(broker.id for broker in brokers if not broker.is_active)
        self._taken = 0

    def shuffle(self, random: Random) -> None:
        self.active = _shuffled(self.active, random)
        self.fenced = _shuffled(self.fenced, random)

    def begin(self, partition: int) -> None:
        """Start the next partition one broker later."""
        self._order = _turned(self.active, partition) + _turned(self.fenced, partition)
        self._taken = 0

    def next(self) -> int | None:
        """The next broker, active ones first; None if all have been used."""
        if self._taken == len(self._order):
            return None
        self._taken += 1
        return self._order[self._taken - 1]


class _Racks:
    def __init__(self, brokers: Sequence[BrokerImage], random: Random) -> None:
        members: dict[str, list[BrokerImage]] = {}
        for broker in brokers:
            members.setdefault(broker.rack or "", []).append(broker)
        self._racks = [_Rack(members[name]) for name in sorted(members)]
        self._active = sum(broker.is_active for broker in brokers)
        self._random = random
        self._partition = 0
        self._shuffle()

    def _shuffle(self) -> None:
        self._racks = _shuffled(self._racks, self._random)
        for rack in self._racks:
            rack.shuffle(self._random)

    def place(self, replication_factor: int) -> list[int]:
        """The replicas of the next partition, its leader first."""
        if self._partition == self._active > 1:
            self._shuffle()
            self._partition = 0
        for rack in self._racks:
            rack.begin(self._partition)
        order = _turned(self._racks, self._partition)
        first = next(rack for rack in order if rack.active)
        # the leader's rack has been used: it is skipped in the first round
        turn = [rack for rack in order if rack is not first]
        replicas = [first.next()]
        while len(replicas) < replication_factor:
            replicas += [rack.next() for rack in turn]
            replicas = [each for each in replicas if each is not None]
            turn = order
        self._partition += 1
        return [each for each in replicas[:replication_factor] if each is not None]


def _turned(items: list[T], start: int) -> list[T]:
    at = start % len(items) if items else 0
    return items[at:] + items[:at]


def _shuffled(items: list[T], random: Random) -> list[T]:
    items = list(items)
    for last in range(len(items) - 1, 0, -1):
        other = random.below(last + 1)
        items[last], items[other] = items[other], items[last]
    return items
