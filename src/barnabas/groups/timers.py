"""Deadlines, most of which are put off again and again: a member's session at every heartbeat.

A timer that is put off is only marked. It stays where it was in the heap, and when that place comes up it is
put where it belongs by then. So a heartbeat costs no more than an assignment, and the heap holds hardly more
entries than there are timers.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from barnabas.groups.turn import Turn


class Timer:
    """Something that happens later, unless it is called off or put off."""

    __slots__ = ("_queued_seconds", "due_seconds", "fire")

    def __init__(self, fire: Callable[[Turn], None]) -> None:
        self.fire = fire
        self.due_seconds: float | None = None
        self._queued_seconds: float | None = None  # of its entry that counts

    def cancel(self) -> None:
        self.due_seconds = None


class Timers:
    """The timers of one shard, by when they are due; those due together in the order they were set."""

    __slots__ = ("_heap", "_set_count")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._set_count = 0

    def set(self, timer: Timer, due_seconds: float) -> None:
        """Let a timer fire then, and at no other time."""
        timer.due_seconds = due_seconds
        queued = timer._queued_seconds
        if queued is None or due_seconds < queued:
            self._queue(timer, due_seconds)

    def take_due(self, now_seconds: float) -> Timer | None:
        """The next timer that is due, which is not set any more; None where there is none."""
        while self._heap and self._heap[0][0] <= now_seconds:
            timer = self._take_first()
            if timer is not None and timer.due_seconds is not None:
                if timer.due_seconds <= now_seconds:
                    timer.due_seconds = None
                    return timer
                self._queue(timer, timer.due_seconds)
        return None

    def next_due_seconds(self) -> float | None:
        """When it is worth looking; nothing is due before that."""
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
            return None  # a place that it has left for an earlier one
        timer._queued_seconds = None
        return timer
