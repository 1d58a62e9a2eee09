"""The table of a local cluster that stays on the screen while `barnabas up` runs at a terminal.

Events are printed above it. It is drawn again with every event, and when the cluster was asked again: every
two seconds, or less often where asking takes long. Elsewhere than at a terminal none of this is loaded.
"""

from __future__ import annotations

import argparse
import asyncio
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from barnabas.cli.connecting import Session
from barnabas.cli.local_cluster.facts import COLUMNS, Facts, look, rows
from barnabas.cli.local_cluster.sessions import session_with
from barnabas.cli.local_cluster.state import SERVING
from barnabas.cli.local_cluster.supervisor import Event, Supervisor
from barnabas.cli.output import counted
from barnabas.core.clock import Clock

EVERY_S = 2.0
_TIMEOUT_S = 5.0
_SHARE = 10  # asking takes at most one of so many parts of the time
_RIGHT = frozenset(COLUMNS[3:])
_WIDE = 100
_STYLES = {SERVING: "green"}


class Board:
    """Draws, and asks the cluster, from `async with` to its end."""

    def __init__(self, supervisor: Supervisor, clock: Clock, console: Console | None = None) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self._now: Facts | None = None
        self._before: Facts | None = None
        self._asking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Board:
        self._live.start()
        self._draw()
        self._asking = asyncio.create_task(self._ask_again())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        self._draw()
        self._live.stop()

    def tell(self, event: Event) -> None:
        """Print what has happened above the table."""
        self._console.print(Text(event.text))
        self._draw()

    def _draw(self) -> None:
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        plan = self._supervisor.plan
        gap = 2 if self._console.width >= _WIDE else 1
        table = Table(box=None, padding=(0, gap, 0, 0), header_style="bold underline")
        table.title, table.title_justify = Text(f"clients connect to {plan.bootstrap}"), "left"
        table.caption, table.caption_justify = _caption(self._now), "left"
        for name in COLUMNS:
            table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=True)
        for line in rows(plan, self._supervisor.states, self._now, self._before):
            cells = [
                "-" if each is None else f"{each:,}" if isinstance(each, int) else str(each) for each in line
            ]
            style = _STYLES.get(cells[2], "yellow")
            table.add_row(*(Text(cell, style if at == 2 else "") for at, cell in enumerate(cells)))
        return table

    async def _ask_again(self) -> None:
        session: Session | None = None
        nodes = self._supervisor.plan.nodes
        try:
            while True:
                if session is None or nodes != self._supervisor.plan.nodes:
                    if session is not None:
                        await session.close()
                    nodes = self._supervisor.plan.nodes
                    session = session_with(argparse.Namespace(timeout=_TIMEOUT_S), nodes)
                began = self._clock.monotonic()
                if any(each.state == SERVING for each in self._supervisor.states.values()):
                    found = await look(session)
                    self._before, self._now = (self._now if found else None), found
                    self._draw()
                took_s = self._clock.monotonic() - began
                await self._clock.sleep(max(EVERY_S, took_s * _SHARE))
        finally:
            if session is not None:
                await session.close()


def _caption(facts: Facts | None) -> Text:
    if facts is None:
        return Text("partitions: not known now")
    return Text(f"{counted(facts.counts.total, 'partition')}: {facts.counts.text}")
