"""What happened in a story, and when: printed as it happens, and drawn at the end.

A moment belongs to a lane (a node, the producer, a group's member). What a lane is from a moment on
(`serves`, `dead`, `cut off`) is told with it; the picture draws it as a bar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.core.clock import Clock

SERVES, DEAD, CUT_OFF, LEADS, GONE = "serves", "dead", "cut off", "leads", "gone"


class Moment(NamedTuple):
    """One thing that happened; `becomes` says what the lane is from now on, None what it was."""

    at_s: float
    lane: str
    text: str
    becomes: str | None = None

    def document(self) -> dict[str, Any]:
        """The same for machines."""
        return {"at_s": round(self.at_s, 3), "lane": self.lane, "text": self.text, "becomes": self.becomes}


class Timeline:
    """The moments of one story; times count from `begin`."""

    def __init__(self, clock: Clock, tell: Callable[[Moment], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._began_s = clock.monotonic()
        self.moments: list[Moment] = []
        self.quiet: list[Moment] = []  # drawn, and not told
        self.marks: dict[str, list[float]] = {}  # by lane: acknowledgements, records that were read

    def begin(self) -> None:
        """The cluster is up: what counts begins now."""
        self._began_s = self._clock.monotonic()

    def now_s(self) -> float:
        """Seconds since the beginning."""
        return self._clock.monotonic() - self._began_s

    def add(self, lane: str, text: str, becomes: str | None = None) -> Moment:
        """Something has happened."""
        moment = Moment(self.now_s(), lane, text, becomes)
        self.moments.append(moment)
        self._tell(moment)
        return moment

    def turn(self, lane: str, becomes: str) -> None:
        """A lane is something else from now on; the picture shows it, nothing is printed."""
        self.quiet.append(Moment(self.now_s(), lane, "", becomes))

    def mark(self, lane: str) -> None:
        """One record was acknowledged or read."""
        self.marks.setdefault(lane, []).append(self.now_s())
