"""Requests that wait for a partition to move on: producers for a commit, readers for data.

A wait is by offset, never by time alone. Producers with acks=all wait until the high watermark passes their
last record; who deletes records waits until the low watermark has reached what is to go. A long poll waits on
all its partitions at once, until enough bytes came to any of them or its time is over. What it waits for
depends on how far it may read: a consumer waits for the high watermark (`watch`), a follower for the end of
the log (`watch_end`). A consumer that reads only committed transactions looks again whenever the last stable
offset has moved where something was undecided (`watch_stable`). Nothing polls: the code that moves a mark
calls `Marks`, which wakes exactly the requests that wait for that mark.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.broker.replicas.follower_reads import Resting

PURGE_FROM = 1000  # waits, before those are looked for that were given up


class LongPoll:
    """A fetch that found too little, waiting on several partitions."""

    __slots__ = ("_missing_bytes", "_places", "_woken", "looks_again")

    def __init__(self, missing_bytes: int) -> None:
        self._missing_bytes = missing_bytes
        self._places: list[Marks] = []
        self.looks_again = False  # and may wait on, if what it finds is too little
        self._woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def watch(self, marks: Marks) -> None:
        """Have data counted that the high watermark passes there."""
        self._places.append(marks)
        marks.polls[self] = None

    def watch_end(self, marks: Marks) -> None:
        """Have data counted that is appended there, committed or not."""
        self._places.append(marks)
        marks.end_polls[self] = None

    def watch_stable(self, marks: Marks, seen_offset: int) -> None:
        """Be woken when the last stable offset there is beyond the one that was seen."""
        self._places.append(marks)
        marks.stable_polls[self] = seen_offset

    def arrived(self, count: int) -> None:
        """So many bytes more can be read."""
        self._missing_bytes -= count
        if self._missing_bytes <= 0:
            self.look_again()

    def wake(self) -> None:
        """Be answered with whatever there is."""
        self._end(True)

    def look_again(self) -> None:
        """What there is may be enough now."""
        self.looks_again = True
        self._end(True)

    async def wait(self, seconds: float) -> bool:
        """Wait for data, or that long; True if data came. Afterwards nothing is watched any more."""
        timer = asyncio.get_running_loop().call_later(seconds, self._end, False)
        try:
            return await self._woken
        finally:
            timer.cancel()
            for marks in self._places:
                marks.polls.pop(self, None)
                marks.end_polls.pop(self, None)
                marks.stable_polls.pop(self, None)

    def _end(self, has_data: bool) -> None:
        if not self._woken.done():
            self._woken.set_result(has_data)


class OffsetWaits:
    """Waits for offsets, the smallest first. Those that were given up go when they are more than the others:
    a mark that stands still for hours must not gather them."""

    __slots__ = ("_count", "_full_at", "entries")

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap
        self._count = 0
        self._full_at = PURGE_FROM

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, offset: int) -> asyncio.Future[None]:
        """A future that is done when the mark reaches `offset`."""
        if len(self.entries) >= self._full_at:
            self.entries = [each for each in self.entries if not each[2].done()]
            heapify(self.entries)
            self._full_at = max(PURGE_FROM, 2 * len(self.entries))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1  # futures do not compare
        heappush(self.entries, (offset, self._count, future))
        return future

    def reached(self, offset: int) -> None:
        """The mark is there now."""
        waits = self.entries
        while waits and waits[0][0] <= offset:
            future = heappop(waits)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: BarnabasError) -> None:
        """The mark will not move any more."""
        for _, _, future in self.entries:
            if not future.done():
                future.set_exception(error)
        self.entries.clear()


class Marks:
    """What can be waited for at one partition."""

    __slots__ = ("commits", "deletions", "end_polls", "polls", "resting", "stable_polls")

    def __init__(self) -> None:
        self.polls: dict[LongPoll, None] = {}  # a set whose order does not depend on addresses
        self.end_polls: dict[LongPoll, None] = {}
        self.stable_polls: dict[LongPoll, int] = {}  # and the last stable offset that each has seen
        self.commits = OffsetWaits()  # for the high watermark
        self.deletions: OffsetWaits | None = None  # for the low watermark
        self.resting: dict[int, Resting] = {}  # by the id of the follower that knows everything

    @property
    def commit_count(self) -> int:
        """How many wait for the high watermark."""
        return len(self.commits)

    def committed(self, offset: int) -> asyncio.Future[None]:
        """A future that is done when the high watermark reaches `offset`."""
        return self.commits.add(offset)

    def deleted(self, offset: int) -> asyncio.Future[None]:
        """A future that is done when the low watermark reaches `offset`."""
        if self.deletions is None:
            self.deletions = OffsetWaits()
        return self.deletions.add(offset)

    def moved(self, high_watermark: int, new_bytes: int) -> None:
        """The high watermark is there now, and so many bytes became readable."""
        if self.commits.entries:
            self.commits.reached(high_watermark)
        if self.polls:
            for poll in list(self.polls):
                poll.arrived(new_bytes)
        if self.resting:
            self.wake_resting()

    def end_moved(self, new_bytes: int) -> None:
        """So many bytes were appended."""
        for poll in list(self.end_polls):
            poll.arrived(new_bytes)
        if self.resting:
            self.wake_resting(new_bytes)

    def wake_resting(self, new_bytes: int = 0) -> None:
        """Followers do not know everything any more; so many bytes were appended."""
        resting, self.resting = self.resting, {}
        for node_id, one in resting.items():
            one.wake(node_id, new_bytes)

    def stable_moved(self, last_stable_offset: int) -> None:
        """Everything before is decided now."""
        for poll, seen_offset in list(self.stable_polls.items()):
            if last_stable_offset > seen_offset:
                poll.look_again()

    def wake_readers(self) -> None:
        self.wake_resting()
        for poll in [*self.polls, *self.end_polls, *self.stable_polls]:
            poll.wake()

    def end(self, error: BarnabasError) -> None:
        """The partition is no longer led here: nobody needs to wait any more."""
        self.commits.fail(error)
        if self.deletions is not None:
            self.deletions.fail(error)
        self.wake_readers()
