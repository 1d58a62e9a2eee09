"""When what is due: one deadline a name, set anew or taken back at any time.

A heap keeps them in order. What was taken back stays in it until it comes up, and is passed over then; where
such leftovers outnumber the rest, the heap is made anew.
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
        """The earliest of them."""
        while self._heap:
            due, name = self._heap[0]
            if self._due.get(name) == due:
                return due
            heappop(self._heap)
        return None

    def take_due(self, now_seconds: float) -> list[str]:
        """The names whose time has come, earliest first; their deadlines are gone."""
        found = []
        while (due := self.next_seconds()) is not None and due <= now_seconds:
            name = heappop(self._heap)[1]
            del self._due[name]
            found.append(name)
        return found
