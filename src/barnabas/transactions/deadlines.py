"""Deadlines by name, which can be reset or removed at any time.

A heap orders them. Removed entries stay in it until they reach the top, and are skipped then; when they
outnumber the others, the heap is rebuilt.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

_FEW = 64


class Deadlines:
    """Deadlines by name, in seconds of monotonic time."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def set(self, name: str, due_seconds: float) -> None:
        self._due[name] = due_seconds
        heappush(self._heap, (due_seconds, name))
        if len(self._heap) > 2 * len(self._due) + _FEW:
            self._heap = [(due, one) for one, due in self._due.items()]
            heapify(self._heap)

    def discard(self, name: str) -> None:
        self._due.pop(name, None)

    def next_seconds(self) -> float | None:
        """The earliest deadline."""
        while self._heap:
            due, name = self._heap[0]
            if self._due.get(name) == due:
                return due
            heappop(self._heap)
        return None

    def take_due(self, now_seconds: float) -> list[str]:
        """The names whose deadlines have passed, earliest first; their deadlines are removed."""
        found = []
        while (due := self.next_seconds()) is not None and due <= now_seconds:
            name = heappop(self._heap)[1]
            del self._due[name]
            found.append(name)
        return found
