"""Requests that wait for a partition: producers for a commit, readers for data.

A wait is for an offset, never for a time alone. Producers with acks=all wait until the high watermark passes
their last record; DeleteRecords waits until the low watermark reaches its offset. A long poll waits on all
its partitions at once, until enough bytes arrived in any of them or its time is over. The kind of reader
decides what it waits for: a consumer waits for the high watermark (`watch`), a follower for the end of the
log (`watch_end`). A read_committed consumer looks again whenever the last stable offset has moved in a
partition that had open transactions (`watch_stable`). Nothing polls: the code that moves an offset calls
`Marks`, which wakes exactly the requests that wait for it.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.broker.replicas.follower_reads import Resting

PURGE_FROM = 1000  # from this many waits on, cancelled ones are looked for


class LongPoll:
    """A fetch that found too little, waiting on several partitions."""

    __slots__ = ("_missing_bytes", "_places", "_woken", "looks_again")

    def __init__(self, missing_bytes: int) -> None:
        self._missing_bytes = missing_bytes
        self._places: list[Marks] = []
        self.looks_again = False  # the fetch reads again, and waits on if that is too little
        self._woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def watch(self, marks: Marks) -> None:
        """Count data there when the high watermark passes it."""
        self._places.append(marks)
        marks.polls[self] = None

    def watch_end(self, marks: Marks) -> None:
        """Count data there when it is appended, committed or not."""
        self._places.append(marks)
        marks.end_polls[self] = None

    def watch_stable(self, marks: Marks, seen_offset: int) -> None:
        """Wake when the last stable offset there passes `seen_offset`."""
        self._places.append(marks)
        marks.stable_polls[self] = seen_offset

    def arrived(self, count: int) -> None:
        """`count` more bytes can be read."""
        self._missing_bytes -= count
        if self._missing_bytes <= 0:
            self.look_again()

    def wake(self) -> None:
        """End the wait: the fetch is answered with the data that there is."""
        self._end(True)

    def look_again(self) -> None:
        """End the wait: the data may be enough now."""
        self.looks_again = True
        self._end(True)

    async def wait(self, seconds: float) -> bool:
        """Wait for data, at most `seconds`; True if data arrived. Afterwards nothing is watched any more."""
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
    """Waits for offsets, the smallest first. Cancelled waits are removed when they are more than half: an
    offset that stands still for hours must not gather them."""

    __slots__ = ("_count", "_full_at", "entries")

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap
        self._count = 0
        self._full_at = PURGE_FROM

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, offset: int) -> asyncio.Future[None]:
        """A future that is done when the partition's offset reaches `offset`."""
        if len(self.entries) >= self._full_at:
            self.entries = [each for each in self.entries if not each[2].done()]
            heapify(self.entries)
            self._full_at = max(PURGE_FROM, 2 * len(self.entries))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1  # a tie-break: futures do not compare
        heappush(self.entries, (offset, self._count, future))
        return future

    def reached(self, offset: int) -> None:
        """Complete the waits up to `offset`."""
        waits = self.entries
        while waits and waits[0][0] <= offset:
            future = heappop(waits)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: BarnabasError) -> None:
        """Fail all waits: the offset will not move any more."""
        for _, _, future in self.entries:
            if not future.done():
                future.set_exception(error)
        self.entries.clear()


class Marks:
    """The waits at one partition, by the offset that they wait for."""

    __slots__ = ("commits", "deletions", "end_polls", "polls", "resting", "stable_polls")

    def __init__(self) -> None:
        self.polls: dict[LongPoll, None] = {}  # a set whose order does not depend on addresses
        self.end_polls: dict[LongPoll, None] = {}
        self.stable_polls: dict[LongPoll, int] = {}  # with the last stable offset that each has seen
        self.commits = OffsetWaits()  # for the high watermark
        self.deletions: OffsetWaits | None = None  # for the low watermark
        self.resting: dict[int, Resting] = {}  # by the id of a follower that is at rest here

    @property
    def commit_count(self) -> int:
        """How many requests wait for the high watermark."""
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
        """The high watermark has moved, and `new_bytes` became readable."""
        if self.commits.entries:
            self.commits.reached(high_watermark)
        if self.polls:
            for poll in list(self.polls):
                poll.arrived(new_bytes)
        if self.resting:
            self.wake_resting()

    def end_moved(self, new_bytes: int) -> None:
        """`new_bytes` were appended."""
        for poll in list(self.end_polls):
            poll.arrived(new_bytes)
        if self.resting:
            self.wake_resting(new_bytes)

    def wake_resting(self, new_bytes: int = 0) -> None:
        """Wake the followers at rest; `new_bytes` were appended."""
        resting, self.resting = self.resting, {}
        for node_id, one in resting.items():
            one.wake(node_id, new_bytes)

    def stable_moved(self, last_stable_offset: int) -> None:
        """The last stable offset has moved."""
        for poll, seen_offset in list(self.stable_polls.items()):
            if last_stable_offset > seen_offset:
                poll.look_again()

    def wake_readers(self) -> None:
        self.wake_resting()
        for poll in [*self.polls, *self.end_polls, *self.stable_polls]:
            poll.wake()

    def end(self, error: BarnabasError) -> None:
        """The leadership has ended: fail or answer all requests that wait."""
        self.commits.fail(error)
        if self.deletions is not None:
            self.deletions.fail(error)
        self.wake_readers()
