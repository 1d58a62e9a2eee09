"""What commands print: tables and lines for people, JSON for machines.

At a terminal tables are drawn; in a pipe or a file they are plain columns, never cut and never coloured, so
that `awk` and `grep` can take them. With `--json` a command prints one document, or for streams one object a
line, and nothing else on standard output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.cli.failures import CommandFailed

_GAP = "  "


class Output:
    """Standard output, in the form that was asked for."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def document(self, value: Any) -> None:
        """The one JSON document of a command."""
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def item(self, value: Mapping[str, Any]) -> None:
        """One JSON object of a stream, on a line of its own, seen at once."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def line(self, text: str) -> None:
        """A line of a stream for people, seen at once."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def say(self, text: str = "") -> None:
        """A line for people."""
        sys.stdout.write(text + "\n")

    def done(self, value: Any, text: str) -> None:
        """What a command did: the document with --json, else a line."""
        if self.as_json:
            self.document(value)
        else:
            self.say(text)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table for people; numbers stand to the right, and a column's name is in small letters."""
        cells = [[_cell(value) for value in row] for row in rows]
        numbers = _number_columns(len(columns), rows=cells)
        if sys.stdout.isatty():
            _draw(columns, cells, numbers)
        else:
            sys.stdout.write(plain_table(columns, cells, numbers))


def plain_table(columns: Sequence[str], cells: Sequence[Sequence[str]], numbers: Sequence[bool]) -> str:
    """Columns side by side, as wide as they need to be."""
    lines = [[name.upper() for name in columns], *cells]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    return "".join(
        _GAP.join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, numbers, strict=True)
        ).rstrip()
        + "\n"
        for line in lines
    )


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]], numbers: Sequence[bool]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name, is_number in zip(columns, numbers, strict=True):
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    Console(highlight=False).print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "-"
    return str(value)


def _number_columns(count: int, rows: Sequence[Sequence[str]]) -> list[bool]:
    return [
        any(row[at] != "-" for row in rows) and all(_is_number(row[at]) for row in rows)
        for at in range(count)
    ]


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").removeprefix("-").replace(".", "", 1).isdecimal()


def counted(number: int, what: str) -> str:
    """`1 topic`, `1,200 topics`; `1 batch`, `2 batches`."""
    ending = "es" if what.endswith("ch") else "s"
    return f"{number:,} {what}{ending * (number != 1)}"


def bytes_text(count: int) -> str:
    """A number of bytes, for people: 1.5 GiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def tell_failure(prog: str, failure: CommandFailed, *, as_json: bool) -> None:
    """Say on standard error what is wrong and what to do."""
    if as_json:
        told: dict[str, str] = {"error": str(failure)}
        if failure.next_step:
            told["next"] = failure.next_step
        text = json.dumps(told, ensure_ascii=False) + "\n"
    else:
        text = f"{prog}: {failure}\n"
        if failure.next_step:
            text += f"  {failure.next_step}\n"
    sys.stderr.write(text)
