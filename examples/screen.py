"""What the demo shows: lines and tables on the terminal, bars that move below them, and pictures of all that.

A picture (SVG) is drawn from what was really said, at a width of its own; it asks no web server for fonts.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.terminal_theme import DIMMED_MONOKAI

PICTURE_WIDTH = 88
NAME_WIDTH = 9
INDENT = 7 + NAME_WIDTH
FONTS = "ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace"


class Screen:
    """The terminal, and its pictures."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(32), MofNCompleteColumn(), console=self.console
        )
        self._began = time.perf_counter()
        self._tasks: dict[str, TaskID] = {}
        self._album: dict[str, Console] = {}
        self.turn_to("demo")

    def turn_to(self, page: str) -> None:
        """What is shown from now on belongs to the picture of that name."""
        if page in self._album:
            self._album[page].print()
        else:
            self._album[page] = Console(
                record=True,
                file=io.StringIO(),
                width=PICTURE_WIDTH,
                force_terminal=True,
                color_system="truecolor",
                highlight=False,
            )
        self._page = self._album[page]

    def say(self, who: str, what: str) -> None:
        """A line of the story, with how many seconds into it."""
        seconds = time.perf_counter() - self._began
        self._show(f"[dim]{seconds:5.1f}[/]  [bold]{who:<{NAME_WIDTH}}[/]{what}")

    def show(self, table: Table) -> None:
        self._show(table)

    def _show(self, what: RenderableType) -> None:
        self.console.print(what, soft_wrap=isinstance(what, str))
        self._page.print(what)

    # ---- bars --------------------------------------------------------------------------------------------

    def start_bars(self, totals: Mapping[str, int]) -> None:
        """Bars by name, each with where it ends."""
        for name, total in totals.items():
            self._tasks[name] = self._bars.add_task(f"{' ' * INDENT}{name:<16}", total=total)
        if self.console.is_terminal:
            self._bars.start()

    def move_bar(self, name: str, to: int) -> None:
        self._bars.update(self._tasks[name], completed=to)

    def keep_bars(self) -> None:
        """The bars as they are now become part of the picture."""
        self._page.print(self._bars.get_renderable())

    def stop_bars(self) -> None:
        self._bars.stop()
        self.keep_bars()

    # ---- pictures ----------------------------------------------------------------------------------------

    def draw(self, directory: Path, title: str) -> None:
        """One file a page."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, console in self._album.items():
            drawn = console.export_svg(title=title, theme=DIMMED_MONOKAI, unique_id=name)
            drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
            drawn = drawn.replace("Fira Code, monospace", FONTS)
            (directory / f"{name}.svg").write_text(drawn)
