"""The clock seam. The core never asks the operating system for the time; it is told."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall time for what users see, monotonic time for how long things take."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, which may jump in either direction."""

    def monotonic(self) -> float:
        """Seconds that only ever go forward."""

    async def sleep(self, seconds: float) -> None:
        """Return that much later."""
