"""Responses that wait for their records to be committed, in the order of the log.

Each entry waits until the high watermark has passed it. Entries leave in order, so a response that depends on
earlier records never leaves before those are committed. A wait that takes longer than `timeout_seconds` is
answered with COORDINATOR_NOT_AVAILABLE, as in Kafka after offsets.commit.timeout.ms; its records stay in the
log, and count if they are committed later.

The waits belong to one leadership. When that ends `fail` is called, and nothing is delivered any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from barnabas.broker.coordinators.errors import CoordinatorNotAvailable
from barnabas.broker.replicas.replica import Replica
from barnabas.coordination.effects import Effects
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError

CHECK_SECONDS = 0.1  # at least, between two checks for expired waits


class _Entry:
    __slots__ = ("due", "effects", "offset")

    def __init__(self, offset: int, due: float, effects: Effects) -> None:
        self.offset, self.due, self.effects = offset, due, effects


class CommitWaits:
    """The effects of one host that are in the log, and not known to be committed yet."""

    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        timeout_seconds: Callable[[], float],
        *,
        deliver: Callable[[Effects], None],
        fail: Callable[[BarnabasError], None],
    ) -> None:
        self._replica = replica
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._deliver = deliver
        self._fail = fail
        self._entries: deque[_Entry] = deque()
        self._end_offset = 0  # of the last entry
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, effects: Sequence[Effects], end_offset: int) -> None:
        """Deliver the effects when everything before `end_offset` is committed, which may be at once."""
        is_new = end_offset > self._end_offset or not self._entries
        self._end_offset = end_offset = max(end_offset, self._end_offset)
        if not self._entries and self._replica.log.high_watermark >= end_offset:
            for each in effects:
                self._deliver(each)
            return
        due = self._clock.monotonic() + self._timeout_seconds()
        self._entries.extend(_Entry(end_offset, due, each) for each in effects)
        if self._replica.log.high_watermark >= end_offset:
            self._deliver_committed()
        elif is_new:
            self._replica.committed(end_offset).add_done_callback(self._moved)
        if self._entries and self._timer is None:
            self._arm(due)

    def add_behind(self, effects: Effects) -> None:
        """Deliver effects without records, after those that wait already."""
        self.add((effects,), self._end_offset)

    def clear(self) -> None:
        """Drop all waits: nothing is delivered any more."""
        self._entries.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _moved(self, committed: asyncio.Future[None]) -> None:
        if committed.cancelled():
            return
        error = committed.exception()
        if error is None:
            self._deliver_committed()
        elif isinstance(error, BarnabasError):
            self._fail(error)
        else:
            raise error

    def _deliver_committed(self) -> None:
        entries, high_watermark = self._entries, self._replica.log.high_watermark
        while entries and entries[0].offset <= high_watermark:
            self._deliver(entries.popleft().effects)
        if not entries and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- expired waits

    def _arm(self, due: float) -> None:
        wait_seconds = max(CHECK_SECONDS, due - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(wait_seconds, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        for entry in self._entries:
            if entry.due > now:
                self._arm(entry.due)
                return
            for reply, _ in entry.effects.replies:
                assert isinstance(reply, asyncio.Future)
                if not reply.done():
                    reply.set_exception(
                        CoordinatorNotAvailable("the records are not committed within the time for that")
                    )
