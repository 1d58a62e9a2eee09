"""The leader epochs of a log: the start offset of every epoch that has records in it.

Followers truncate by these, and consumers detect by them that the log was truncated. Invariant: epochs and
start offsets both ascend strictly, from one entry to the next. An epoch ends where the next one starts, the
last one at the end of the log. Nothing here touches a disk: after a call that reports a change, the owner
(the partition) must write the checkpoint before the recovery point advances.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.core.errors import InvariantViolation

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch


def _start_offset(entry: EpochEntry) -> int:
    return entry.start_offset


class LeaderEpochs:
    """The epochs of one partition's log."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        # a tuple: changes are rare, and ten thousand empty logs share one
        self._entries: tuple[EpochEntry, ...] = ()
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    @property
    def latest(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    @property
    def latest_epoch(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`; returns whether anything changed.

        A later start of the latest epoch changes nothing. Entries that contradict the new one are removed:
        they describe records that a truncation has removed, or an epoch in which nothing was written.
        """
        if epoch < 0 or start_offset < 0:
            raise InvariantViolation(f"leader epoch {epoch} cannot begin at offset {start_offset}")
        latest = self.latest
        if latest is not None and latest.epoch == epoch and latest.start_offset <= start_offset:
            return False
        keep = len(self._entries)
        while keep:
            last = self._entries[keep - 1]
            if last.epoch < epoch and last.start_offset < start_offset:
                break
            keep -= 1
        self._entries = (*self._entries[:keep], EpochEntry(epoch, start_offset))
        return True

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> EpochEntry:
        """The largest epoch up to the requested one, and the offset where it ends.

        For the latest epoch that is the end of the log. A requested epoch before the first known one gets the
        first known start offset, since its records are gone. Beyond the last epoch, or for an undefined one,
        the answer is undefined: -1, -1.
        """
        if requested_epoch == UNDEFINED_EPOCH:
            return EpochEntry(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if requested_epoch == self.latest_epoch:
            return EpochEntry(requested_epoch, log_end_offset)
        higher = bisect_right(self._entries, requested_epoch, key=_epoch)
        if higher == len(self._entries):
            return EpochEntry(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        found = self._entries[higher - 1].epoch if higher else requested_epoch
        return EpochEntry(found, self._entries[higher].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which `offset` was written; None before the first known one."""
        index = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[index - 1].epoch if index else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Remove epochs that begin at or after `end_offset`; returns whether there were any."""
        keep = bisect_left(self._entries, end_offset, key=_start_offset)
        if keep == len(self._entries):
            return False
        self._entries = self._entries[:keep]
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove epochs before `start_offset`; the epoch that covers it now begins there. Returns whether it
        changed."""
        before = bisect_right(self._entries, start_offset, key=_start_offset)
        if not before or (before == 1 and self._entries[0].start_offset == start_offset):
            return False
        straddling = EpochEntry(self._entries[before - 1].epoch, start_offset)
        self._entries = (straddling, *self._entries[before:])
        return True

    def clear(self) -> bool:
        """Remove all entries; returns whether there were any."""
        changed = bool(self._entries)
        self._entries = ()
        return changed
