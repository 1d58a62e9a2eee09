"""How far a long command has come: a bar on standard error while it runs, a line of totals at its end.

The bar is drawn only where standard error is a terminal; a command that prints meanwhile asks for it only if
standard output is none, since they would mix.
"""

from __future__ import annotations

import sys
from typing import Any

from barnabas.cli.output import bytes_text, counted
from barnabas.core.clock import Clock

_REDRAW_S = 0.1


class Progress:
    """Counts records and bytes; `done` of `total` says how far, where a total is known."""

    def __init__(self, clock: Clock, *, total: int | None = None, is_shown: bool = False) -> None:
        self.records = 0
        self.size_bytes = 0
        self.done = 0
        self._total = total
        self._clock = clock
        self._began = self._redraw_at = clock.monotonic()
        self._bar: Any = None
        if is_shown and sys.stderr.isatty():
            self._draw()

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns: list[ProgressColumn] = [TextColumn("{task.description}")]
        if self._total:
            columns += [BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn()]
        self._bar = Bar(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
        self._bar.start()
        self._task = self._bar.add_task("", total=self._total)

    def add(self, records: int, size_bytes: int) -> None:
        """So much more."""
        self.records += records
        self.size_bytes += size_bytes
        if self._bar is not None and self._clock.monotonic() >= self._redraw_at:
            self._redraw_at = self._clock.monotonic() + _REDRAW_S
            text = f"{self.records:,} records, {bytes_text(self.size_bytes)}, {self._rate():,.0f}/s"
            self._bar.update(self._task, completed=self.done, description=text, refresh=True)

    def left(self, count: int) -> None:
        """So much is left of the total."""
        self.done = max(0, (self._total or 0) - count)

    def end(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _rate(self) -> float:
        return self.records / max(1e-9, self.seconds)

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return self._clock.monotonic() - self._began

    def totals(self) -> str:
        """What it came to, in a line."""
        return (
            f"{counted(self.records, 'record')}, {bytes_text(self.size_bytes)} "
            f"in {self.seconds:.1f} s ({self._rate():,.0f} records/s)"
        )
