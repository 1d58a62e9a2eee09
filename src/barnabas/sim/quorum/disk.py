"""The disk of a simulated voter: the log, `quorum-state` and snapshots, as values, through crashes.

A node does one thing at a time with its disk, and every change of the log ends in a flush. So a crash finds
at most one operation under way: it is then there, or not, or (an append) in part. What a dead process has
appended and not flushed is seen by the next one, and a loss of power may still take it away: a node flushes
its log before it counts anything in it.

Each entry has a chain: a number that stands for it and everything before it. Equal chains, equal logs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.core.random import Random
from barnabas.raft.election import Election
from barnabas.raft.log_index import Control, Entry, LogState
from barnabas.raft.ready import Ready
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.voters import VoterSet

_MASK = (1 << 64) - 1


def chained(chain: int, entry: Entry) -> int:
    """The chain behind an entry."""
    value = entry.data if entry.data is not None else -sum(map(_number, entry.control))
    number = (chain ^ entry.epoch ^ value << 20 ^ entry.records << 50) & _MASK
    return (number * 6364136223846793005 + 1442695040888963407) & _MASK


def _number(control: Control) -> int:
    return sum(1 << each for each in control.ids) if isinstance(control, VoterSet) else 3


class Snapshot(NamedTuple):
    """What it holds is the chain of everything that was applied."""

    id: SnapshotId
    chain: int
    voters: VoterSet
    kraft_version: int
    size_bytes: int


class Log:
    """Entries with their ends and chains, from `start_offset` on."""

    def __init__(self) -> None:
        self.begin_anew(0, 0)

    def begin_anew(self, start_offset: int, chain: int) -> None:
        self.start_offset = start_offset
        self.base_chain = chain
        self.entries: list[Entry] = []
        self.ends: list[int] = []
        self.chains: list[int] = []
        self.flushed = 0  # so many entries survive a loss of power

    @property
    def end_offset(self) -> int:
        return self.ends[-1] if self.ends else self.start_offset

    def append(self, entry: Entry) -> None:
        self.chains.append(chained(self.chains[-1] if self.chains else self.base_chain, entry))
        self.entries.append(entry)
        self.ends.append(entry.base_offset + entry.records)

    def truncate(self, end_offset: int) -> None:
        keep = bisect_right(self.ends, end_offset)
        for kept in (self.entries, self.ends, self.chains):
            del kept[keep:]
        self.flushed = min(self.flushed, keep)

    def flush(self) -> None:
        self.flushed = len(self.entries)

    def trim(self, start_offset: int) -> None:
        drop = bisect_right(self.ends, start_offset)
        if drop:
            self.base_chain = self.chains[drop - 1]
        for kept in (self.entries, self.ends, self.chains):
            del kept[:drop]
        self.start_offset = start_offset
        self.flushed = max(0, self.flushed - drop)

    def chain_at(self, offset: int) -> int | None:
        """The chain of everything below; None where no entry ends there."""
        if offset == self.start_offset:
            return self.base_chain
        index = bisect_left(self.ends, offset)
        return self.chains[index] if index < len(self.ends) and self.ends[index] == offset else None

    def between(self, offset: int, end_offset: int, most: int) -> tuple[Entry, ...]:
        """At most so many entries from `offset` on that end at or before `end_offset`."""
        first = bisect_right(self.ends, offset)
        last = min(bisect_right(self.ends, end_offset), first + most)
        return tuple(self.entries[first:last])


class Disk:
    """What is there when a process starts."""

    def __init__(self, voters: VoterSet, kraft_version: int) -> None:
        self.election = Election()
        self.log = Log()
        self.snapshots: dict[SnapshotId, Snapshot] = {}
        self._voters = voters
        self._kraft_version = kraft_version

    def write(self, ready: Ready) -> None:
        """Change the log as a Ready says, and flush it."""
        log = self.log
        if ready.truncate_to is not None:
            log.truncate(ready.truncate_to)
        if ready.chunk is not None and ready.chunk.is_last:
            snapshot: Snapshot = ready.chunk.data
            self.snapshots = {ready.chunk.snapshot: snapshot}
            log.begin_anew(ready.chunk.snapshot.end_offset, snapshot.chain)
        for entry in ready.entries:
            log.append(entry)
        log.flush()

    def write_in_part(self, ready: Ready, random: Random) -> None:
        """The process died meanwhile: all of it, some of it, or nothing is there, and not flushed."""
        if random.below(2):
            return
        flushed = self.log.flushed
        self.write(ready._replace(entries=ready.entries[: random.below(len(ready.entries) + 1)]))
        self.log.flushed = min(flushed, len(self.log.entries)) if ready.entries else self.log.flushed

    def lose_power(self, random: Random) -> None:
        """What was not flushed is there, or not, from some point on."""
        log = self.log
        loose = len(log.entries) - log.flushed
        if loose:
            keep = log.flushed + random.below(loose + 1)
            log.truncate(log.ends[keep - 1] if keep else log.start_offset)

    def state(self) -> LogState:
        """What a start finds."""
        log = self.log
        voters, kraft_version = self._voters, self._kraft_version
        for snapshot in self.snapshots.values():
            if snapshot.id.end_offset == log.start_offset:
                voters, kraft_version = snapshot.voters, snapshot.kraft_version
        epochs: list[tuple[int, int]] = []
        controls: list[tuple[int, Control]] = []
        for entry in log.entries:
            if not epochs or entry.epoch > epochs[-1][0]:
                epochs.append((entry.epoch, entry.base_offset))
            for index, control in enumerate(entry.control):
                controls.append((entry.base_offset + index, control))
        sizes = [(each.id, each.size_bytes) for each in self.snapshots.values()]
        return LogState(
            voters,
            kraft_version,
            controls,
            log.start_offset,
            log.end_offset,
            epochs,
            sorted(sizes),
            log.start_offset - 1,
        )

    def latest_voters(self) -> VoterSet:
        """The voters in force by what is on this disk."""
        state = self.state()
        found = [control for _, control in state.controls if isinstance(control, VoterSet)]
        return found[-1] if found else state.voters


def values_of(entries: Sequence[Entry]) -> list[int]:
    return [entry.data for entry in entries if entry.data is not None]
