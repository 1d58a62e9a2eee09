"""Whether each number that went in came out once, in order, and nothing is left over.

What is known of a batch is in Spark's checkpoint: `offsets/<batch>` has where in the input it ends, and
`commits/<batch>` is there when it is through.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.spark.kills_query import INPUT

SHOWN = 5  # of each kind of problem


class Place(NamedTuple):
    """Of a record in the input."""

    partition: int
    offset: int


class Copy(NamedTuple):
    """A record of the output: of which key, and of what it is the copy."""

    key: bytes
    number: int
    place: Place


def copy_of(key: bytes, value: bytes) -> Copy:
    number, partition, offset = map(int, value.split())
    return Copy(key, number, Place(partition, offset))


class Checkpoint:
    """What Spark has noted of a query's batches."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begun(self) -> int:
        """The newest batch that has begun; -1 before the first."""
        return self._newest("offsets")

    def committed(self) -> int:
        """The newest batch that is through; -1 before the first."""
        return self._newest("commits")

    def ends(self, batch: int) -> dict[int, int]:
        """Where a batch ends, by partition of the input."""
        if batch < 0:
            return {}
        offsets = json.loads((self._directory / "offsets" / str(batch)).read_text().splitlines()[-1])
        return {int(partition): end for partition, end in offsets[INPUT].items()}

    def batches_of(self, places: Iterable[Place]) -> Counter[int | None]:
        """Whose records those are, and how many of each; None where no batch has come so far."""
        ends = [self.ends(batch) for batch in range(self.begun() + 1)]
        return Counter(
            next(
                (batch for batch, end in enumerate(ends) if end.get(place.partition, 0) > place.offset), None
            )
            for place in places
        )

    def last_batch_s(self) -> float:
        """How long the newest one that is through took."""
        batch = self.committed()
        if batch < 0:
            return 0.0
        began, ended = (
            (self._directory / kind / str(batch)).stat().st_mtime for kind in ("offsets", "commits")
        )
        return max(0.0, ended - began)

    def _newest(self, kind: str) -> int:
        directory = self._directory / kind
        files = directory.iterdir() if directory.exists() else ()
        return max((int(each.name) for each in files if each.name.isdecimal()), default=-1)


def judge(fed: Mapping[Place, int], found: Iterable[Sequence[Copy]], checkpoint: Checkpoint) -> list[str]:
    """What is wrong with the output, given in the order in which each partition of it has it."""
    partitions = list(found)
    times = Counter(copy.place for partition in partitions for copy in partition)
    numbers = {copy.place: copy.number for partition in partitions for copy in partition}
    lost = [place for place in fed if place not in times]
    twice = [place for place, count in times.items() if count > 1]
    others = [place for place, number in numbers.items() if fed.get(place) != number]
    return [
        *_told("lost", lost, checkpoint),
        *_told("there more than once", twice, checkpoint),
        *_told("there and never fed", others, checkpoint),
        *_told("out of order", _out_of_order(partitions), checkpoint),
    ]


def _out_of_order(partitions: Iterable[Sequence[Copy]]) -> list[Place]:
    """Copies that come before or beside an older one of their key."""
    wrong = []
    homes: defaultdict[bytes, set[int]] = defaultdict(set)
    for index, partition in enumerate(partitions):
        by_key: defaultdict[bytes, list[Copy]] = defaultdict(list)
        for copy in partition:
            by_key[copy.key].append(copy)
            homes[copy.key].add(index)
        for copies in by_key.values():
            wrong += [after.place for before, after in pairwise(copies) if after.number < before.number]
    assert all(len(each) == 1 for each in homes.values()), f"a key is in several partitions: {dict(homes)}"
    return wrong


def _told(what: str, places: list[Place], checkpoint: Checkpoint) -> list[str]:
    if not places:
        return []
    some = ", ".join(f"{place.partition}@{place.offset}" for place in sorted(places)[:SHOWN])
    batches = dict(checkpoint.batches_of(places))
    return [f"{len(places)} records {what}: {some} ...; of batches (and how many) {batches}"]
