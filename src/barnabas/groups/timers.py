"""Timers that are mostly postponed again and again, such as a member's session with every heartbeat.

A postponed timer is only marked: its heap entry stays, and is moved when it reaches the top. So a heartbeat
costs no more than an assignment, and the heap has hardly more entries than there are timers.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from barnabas.groups.turn import Turn


class Timer:
    """A callback at a later time, which can be postponed or cancelled."""

    __slots__ = ("_queued_seconds", "due_seconds", "fire")

    def __init__(self, fire: Callable[[Turn], None]) -> None:
        self.fire = fire
        self.due_seconds: float | None = None
        self._queued_seconds: float | None = None  # the time of its valid heap entry

    def cancel(self) -> None:
        self.due_seconds = None


class Timers:
    """The timers of one shard by due time; those due at the same time in the order in which they were set."""

    __slots__ = ("_heap", "_set_count")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._set_count = 0

    def set(self, timer: Timer, due_seconds: float) -> None:
        """Let a timer fire at that time only."""
        timer.due_seconds = due_seconds
        queued = timer._queued_seconds
        if queued is None or due_seconds < queued:
            self._queue(timer, due_seconds)

    def take_due(self, now_seconds: float) -> Timer | None:
        """The next timer that is due, which is then unset; None if there is none."""
        while self._heap and self._heap[0][0] <= now_seconds:
            timer = self._take_first()
            if timer is not None and timer.due_seconds is not None:
                if timer.due_seconds <= now_seconds:
                    timer.due_seconds = None
                    return timer
                self._queue(timer, timer.due_seconds)
        return None

    def next_due_seconds(self) -> float | None:
        """A time before which nothing is due, None without any timer."""
        while self._heap:
            first_seconds, _, timer = self._heap[0]
            if timer._queued_seconds == first_seconds and timer.due_seconds is not None:
                return first_seconds
            self._take_first()
        return None

    def __len__(self) -> int:
        return len(self._heap)

    def _queue(self, timer: Timer, due_seconds: float) -> None:
        self._set_count += 1
        timer._queued_seconds = due_seconds
        heappush(self._heap, (due_seconds, self._set_count, timer))

    def _take_first(self) -> Timer | None:
        queued_seconds, _, timer = heappop(self._heap)
        if timer._queued_seconds != queued_seconds:
            return None  # an entry that was replaced by an earlier one
        timer._queued_seconds = None
        return timer
