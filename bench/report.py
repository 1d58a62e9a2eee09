"""What a benchmark gives, and how it is shown: as a table, as JSON, as a page of the docs.

A number alone says little about another machine, so whatever can be is compared, in the same run, with
the bare operation it is built on; `ratio` is that comparison, and `note` says what it was compared with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table


class Row(NamedTuple):
    """One measurement."""

    name: str
    value: float
    unit: str
    note: str = ""
    ratio: float | None = None


class Section(NamedTuple):
    """What one benchmark module measured."""

    title: str
    rows: list[Row]


HEADINGS = ("what", "value", "unit", "ratio", "note")


def table(sections: Iterable[Section]) -> Table:
    """For the terminal."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in HEADINGS:
        shown.add_column(heading, justify="right" if heading in ("value", "ratio") else "left")
    for section in sections:
        shown.add_row(f"[bold]{section.title}")
        for row in section.rows:
            shown.add_row(*cells(row))
        shown.add_section()
    return shown


def markdown(sections: Iterable[Section], facts: dict[str, str]) -> str:
    """For docs/benchmarks.md: the circumstances first, for no number means anything without them."""
    lines = ["# Benchmarks", "", "Written by `make bench ARGS=--write`; not by hand.", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", f"| {' | '.join(HEADINGS)} |", "|---|---:|---|---:|---|"]
    lines += [
        f"| {section.title}: {' | '.join(cells(row))} |" for section in sections for row in section.rows
    ]
    return "\n".join(lines) + "\n"


def as_json(sections: Iterable[Section], facts: dict[str, str]) -> dict[str, object]:
    """For machines."""
    rows = [{"bench": section.title, **row._asdict()} for section in sections for row in section.rows]
    return {"facts": facts, "rows": rows}


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """A row as text, in the order of HEADINGS."""
    ratio = "" if row.ratio is None else number(row.ratio)
    return row.name, number(row.value), row.unit, ratio, row.note


def number(value: float) -> str:
    """Three significant digits for small numbers, thousands apart for large ones."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
