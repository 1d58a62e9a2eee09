"""What a leader knows of its followers, and the rule by which the high watermark follows from it.

The high watermark is the smallest log end among the in-sync replicas. It stands still while the end of one of
them is not known, and while the ISR is smaller than min.insync.replicas. A leader without other replicas has
no `Followers`: its own end decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from barnabas.broker.replicas.roles import Leading

UNKNOWN_END = -1


def high_watermark_of(leading: Leading, own_end: int, ends: Mapping[int, int]) -> int:
    """The leader's rule; UNKNOWN_END where the high watermark stays where it is."""
    if leading.is_under_min:
        return UNKNOWN_END
    in_sync = (each for each in leading.followers if each in leading.isr)
    return min((own_end, *(ends.get(each, UNKNOWN_END) for each in in_sync)))


class Followers:
    """The log ends of the other replicas, and the bytes that wait for the high watermark to pass them."""

    __slots__ = ("_uncommitted", "ends", "own_end")

    def __init__(self, own_end: int, uncommitted_bytes: int) -> None:
        self.own_end = own_end
        self.ends: dict[int, int] = {}
        self._uncommitted: deque[tuple[int, int]] = deque()
        if uncommitted_bytes:
            self._uncommitted.append((own_end, uncommitted_bytes))

    def appended(self, end_offset: int, size_bytes: int) -> None:
        """The leader has appended so many bytes, up to `end_offset`."""
        self.own_end = max(self.own_end, end_offset)
        if size_bytes:
            self._uncommitted.append((end_offset, size_bytes))

    def keep(self, followers: Iterable[int]) -> None:
        """Forget the log ends of nodes that have no replica any more."""
        self.ends = {each: self.ends[each] for each in followers if each in self.ends}

    def committed_bytes(self, high_watermark: int) -> int:
        """How many bytes the high watermark has passed since the last call."""
        count = 0
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            count += self._uncommitted.popleft()[1]
        return count
