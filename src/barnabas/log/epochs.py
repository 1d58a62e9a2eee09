"""Which leader epoch wrote which offsets: the start offset of every epoch that the log holds data of.

Followers truncate by this, and consumers find out by it that they read something that is no longer there.
Invariant: epochs and start offsets both ascend strictly, from one entry to the next. An epoch ends where the
next one starts, the last one at the end of the log. Nothing here touches a disk: a call that says it changed
something obliges its owner (the partition) to write the checkpoint before the recovery point moves on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.core.errors import InvariantViolation

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset that it wrote."""

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
        """Note that `epoch` begins at `start_offset`; True where that was news.

        A later start of the latest epoch is no news. What contradicts the new entry gives way to it: it
        describes data that a truncation has removed, or an epoch that wrote nothing.
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

        For the latest epoch that is the end of the log. Before the first known epoch the data is gone: the
        requested epoch is answered with the first known start. Beyond the last, or for an undefined epoch,
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
        """The epoch that wrote `offset`; None before the first known one."""
        index = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[index - 1].epoch if index else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that begin at or after `end_offset`; True where there were any."""
        keep = bisect_left(self._entries, end_offset, key=_start_offset)
        if keep == len(self._entries):
            return False
        self._entries = self._entries[:keep]
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget what lies before `start_offset`; the epoch covering it begins there now. True if changed."""
        before = bisect_right(self._entries, start_offset, key=_start_offset)
        if not before or (before == 1 and self._entries[0].start_offset == start_offset):
            return False
        straddling = EpochEntry(self._entries[before - 1].epoch, start_offset)
        self._entries = (straddling, *self._entries[before:])
        return True

    def clear(self) -> bool:
        """Forget everything; True where there was something."""
        changed = bool(self._entries)
        self._entries = ()
        return changed
