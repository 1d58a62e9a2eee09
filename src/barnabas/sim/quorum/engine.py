"""Virtual time: a queue of calls, each at its microsecond, and a running hash over what happens.

No event loop and no tasks: an election costs some hundred calls, and a core does hundreds of elections a
second. Two runs of a seed went the same way if and only if their hashes are equal.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable
from typing import Any

_MASK = (1 << 64) - 1
_KEY = re.compile(r"VoterKey\(id=(-?\d+), directory_id=UUID\('[0-9a-f-]*?0*([0-9a-f]*)'\)\)")
_ENDPOINT = re.compile(r"Endpoint\(listener='\w+', host='([\w-]+)', port=(\d+)\)")


def _brief(text: str) -> str:
    """Replicas as id/directory and endpoints as host:port."""
    return _ENDPOINT.sub(r"\1:\2", _KEY.sub(r"\1/\2", text))


class Engine:
    """`at` and `after` queue a call; of two at the same time, the one that was queued first comes first."""

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        self.now_us = 0
        self.calls = 0
        self.on_line = on_line
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._hash = 14695981039346656037

    def at(self, time_us: int, call: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (max(time_us, self.now_us), self._sequence, call, arguments))

    def after(self, delay_us: int, call: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_us + delay_us, self._sequence, call, arguments))

    def run(self, until_us: int, is_done: Callable[[], bool] | None = None) -> None:
        """Make the calls up to a time, or until `is_done` says so."""
        queue, pop = self._queue, heapq.heappop
        while queue and queue[0][0] <= until_us:
            self.now_us, _, call, arguments = pop(queue)
            self.calls += 1
            call(*arguments)
            if is_done is not None and is_done():
                return
        self.now_us = max(self.now_us, until_us)

    def note(self, node: int, what: int, value: int = 0) -> None:
        """Let the hash see that something happened to a node."""
        number = (self.now_us * 31 + node) * 1009 + what * 131 + value
        self._hash = ((self._hash ^ (number & _MASK)) * 1099511628211) & _MASK

    def line(self, actor: str, what: object) -> None:
        """A line of the trace; callers look at `on_line` first, for what it says costs time to make."""
        if self.on_line is not None:
            self.on_line(f"{self.now_us / 1e6:.6f} {actor} {_brief(str(what))}")

    @property
    def seconds(self) -> float:
        return self.now_us / 1e6

    @property
    def hash(self) -> str:
        return f"{self._hash:016x}{self.calls & 0xFFFFFFFF:08x}"
