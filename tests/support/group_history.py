"""What the members of a group told of themselves, and whether a group may behave like that.

Members run in processes of their own and stamp what they tell with the system's monotonic clock, which all
of them share: `assigned` in the callback that gives partitions, `revoked` and `lost` in the callback that
takes them, `read` before anything else is done with the records, `committed` when the broker has agreed, with
the time since when it was asked (one that hung may hear of it late). A member owns a partition from one
callback to the other; one that was killed, frozen, replaced by a namesake or has stopped polling owns nothing
from that moment on, whatever it does before it learns of it.

`History.faults` is the judge:

- no partition is owned by two members at one time, and nobody reads what is not theirs;
- within one ownership nothing is skipped or read again;
- every record is read, and, where that is asked for, read once;
- committed offsets never go back.
"""

from __future__ import annotations

import bisect
import itertools
import operator
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

NS = 1_000_000_000
ABSENT = ("killed", "frozen", "stalled", "replaced")
GONE = (*ABSENT, "left", "failed")
_AT = operator.attrgetter("at_ns")


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Event(NamedTuple):
    """One thing that a member told."""

    at_ns: int
    member: str
    did: str
    partitions: tuple[Partition, ...] = ()
    offsets: tuple[int, ...] = ()  # read: the first and the last; committed: one for each partition
    why: str = ""
    since_ns: int = 0  # committed: when it was asked for

    @classmethod
    def told(cls, line: Mapping[str, Any]) -> Event:
        """From the JSON of a member's program."""
        partitions = tuple(Partition(*each) for each in line.get("partitions", ()))
        return cls(
            int(line["at"]),
            line["member"],
            line["did"],
            partitions,
            tuple(map(int, line.get("offsets", ()))),
            line.get("why", ""),
            int(line.get("since", 0)),
        )


class Ownership(NamedTuple):
    """A member had a partition from one time to another; `reads` in its order."""

    partition: Partition
    member: str
    start_ns: int
    end_ns: float
    reads: tuple[Event, ...]

    def __str__(self) -> str:
        return f"{self.partition} of {self.member} from {self.start_ns} to {self.end_ns}"


class Pause(NamedTuple):
    """How long a member did not read a partition that it kept while others rebalanced."""

    seconds: float
    member: str
    partition: Partition

    def __str__(self) -> str:
        return f"{self.seconds * 1000:.0f} ms ({self.partition} of {self.member})"


class History:
    """All that the members of one group told, in any order; written to by many threads."""

    def __init__(self) -> None:
        self._by_kind: dict[str, list[Event]] = defaultdict(list)  # each by time
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        with self._lock:
            bisect.insort(self._by_kind[event.did], event, key=_AT)

    def events(self, *did: str, member: str | None = None) -> list[Event]:
        """What was told so far, by time."""
        with self._lock:
            kinds = [self._by_kind[kind] for kind in did] if did else list(self._by_kind.values())
            found = [event for kind in kinds for event in kind if member in (None, event.member)]
        return sorted(found, key=_AT)

    def owned(self) -> dict[str, set[Partition]]:
        """What each member has now, those that have something."""
        having: dict[str, set[Partition]] = defaultdict(set)
        for event in self.events("assigned", "revoked", "lost", *GONE):
            if event.did == "assigned":
                having[event.member].update(event.partitions)
            elif event.did in ("revoked", "lost"):
                having[event.member].difference_update(event.partitions)
            elif event.did in GONE:
                having[event.member].clear()
        return {member: partitions for member, partitions in having.items() if partitions}

    def read(self) -> dict[Partition, Counter[int]]:
        """How often each offset was read."""
        times: dict[Partition, Counter[int]] = defaultdict(Counter)
        for event in self.events("read"):
            first, last = event.offsets
            times[event.partitions[0]].update(range(first, last + 1))
        return times

    def read_since(self, at_ns: int) -> set[Partition]:
        """The partitions of which somebody has read something since then."""
        with self._lock:
            later = self._by_kind["read"]
            return {event.partitions[0] for event in later[bisect.bisect(later, at_ns, key=_AT) :]}

    def committed(self) -> dict[Partition, int]:
        """The highest commit of each partition."""
        highest: dict[Partition, int] = {}
        for event in self.events("committed"):
            for partition, offset in zip(event.partitions, event.offsets, strict=True):
                highest[partition] = max(offset, highest.get(partition, 0))
        return highest

    def ownerships(self) -> list[Ownership]:
        """Who had what and when, by partition and time."""
        found = []
        by_member = defaultdict(list)
        for event in self.events():
            by_member[event.member].append(event)
        for events in by_member.values():
            found += _ownerships(events)
        return sorted(found, key=lambda each: (each.partition, each.start_ns))

    def faults(self, produced: Mapping[Partition, int], *, once: bool = False) -> list[str]:
        """All that may not be; `produced`: how many records are in each partition."""
        ownerships = self.ownerships()
        return [
            *_owned_twice(ownerships),
            *_skips(ownerships),
            *self._strange_reads(),
            *self._unread(produced, once),
            *self._commits_that_go_back(),
        ]

    def _strange_reads(self) -> Iterator[str]:
        """Reads of what was not given, or no longer: an absent member may still hold some records."""
        having: dict[str, set[Partition] | None] = {}
        for event in self.events():
            mine = having.get(event.member, set())
            if event.did == "assigned":
                having[event.member] = (mine or set()) | set(event.partitions)
            elif event.did in ("revoked", "lost") and mine is not None:
                having[event.member] = mine - set(event.partitions)
            elif event.did in ABSENT:
                having[event.member] = None
            elif event.did == "read" and mine is not None and not mine.issuperset(event.partitions):
                yield f"{event.member} read {event.partitions[0]} {event.offsets}, and does not own it"

    def _unread(self, produced: Mapping[Partition, int], once: bool) -> Iterator[str]:
        times = self.read()
        for partition, count in produced.items():
            missing = [offset for offset in range(count) if not times[partition][offset]]
            if missing:
                yield f"never read: {partition} {missing[:10]} ({len(missing)} of {count})"
            again = sorted(offset for offset, often in times[partition].items() if often > 1)
            if once and again:
                yield f"read again: {partition} {again[:10]} ({len(again)} of {count})"

    def _commits_that_go_back(self) -> Iterator[str]:
        """Compared with the highest that was agreed to before it was asked for."""
        agreed: dict[Partition, list[tuple[int, int, str]]] = defaultdict(list)  # when, the highest, by
        for event in self.events("committed"):
            for partition, offset in zip(event.partitions, event.offsets, strict=True):
                highest = agreed[partition]
                at = bisect.bisect_left(highest, event.since_ns, key=operator.itemgetter(0))
                _, before, by = highest[at - 1] if at else (0, 0, "")
                if offset < before:
                    yield f"{event.member} committed {partition} {offset} after {by} committed {before}"
                if not highest or offset > highest[-1][1]:
                    highest.append((event.at_ns, offset, event.member))

    def longest_pauses(self) -> tuple[Pause | None, Pause | None]:
        """Of the partitions that stayed with their member through a change of somebody else's; and of all."""
        changes = [event.at_ns for event in self.events("assigned", "revoked", "lost") if event.partitions]
        ownerships = self.ownerships()
        kept = [
            Pause((after.at_ns - before.at_ns) / NS, each.member, each.partition)
            for each in ownerships
            for before, after in itertools.pairwise(each.reads)
            if any(before.at_ns < change < after.at_ns for change in changes)
        ]
        everybody = [
            Pause((after.at_ns - before.at_ns) / NS, after.member, partition)
            for partition, of_one in itertools.groupby(ownerships, key=lambda each: each.partition)
            for before, after in itertools.pairwise([read for each in of_one for read in each.reads])
        ]
        return max(kept, default=None), max(everybody, default=None)


def _ownerships(events: list[Event]) -> Iterator[Ownership]:
    """Those of one member."""
    open_: dict[Partition, tuple[int, list[Event]]] = {}

    def close(partition: Partition, end_ns: float) -> Iterator[Ownership]:
        if partition in open_:
            start_ns, reads = open_.pop(partition)
            yield Ownership(partition, events[0].member, start_ns, end_ns, tuple(reads))

    for event in events:
        if event.did == "assigned":
            for partition in event.partitions:
                open_.setdefault(partition, (event.at_ns, []))
        elif event.did in ("revoked", "lost"):
            for partition in event.partitions:
                yield from close(partition, event.at_ns)
        elif event.did in GONE:
            for partition in list(open_):
                yield from close(partition, event.at_ns)
        elif event.did == "read" and event.partitions[0] in open_:
            open_[event.partitions[0]][1].append(event)
    for partition in list(open_):
        yield from close(partition, float("inf"))


def _owned_twice(ownerships: list[Ownership]) -> Iterator[str]:
    for _, of_one in itertools.groupby(ownerships, key=lambda each: each.partition):
        for one, other in itertools.combinations(of_one, 2):
            if other.start_ns < one.end_ns:
                yield f"owned twice: {one} and {other}"


def _skips(ownerships: list[Ownership]) -> Iterator[str]:
    for each in ownerships:
        for before, after in itertools.pairwise(each.reads):
            if after.offsets[0] != before.offsets[1] + 1:
                yield f"{each.member} read {each.partition} {before.offsets} and then {after.offsets}"
