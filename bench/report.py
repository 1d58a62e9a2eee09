"""What a benchmark gives, and how it is shown: as tables, as JSON, as a page of the docs.

A number alone says little about another machine. So whatever can be is compared, in the same run: a `Row`
with the bare operation it is built on (`ratio`, and a `note` that says which), a `Pair` with Apache Kafka
doing the same. On the page every section tells when, where and by what command it was measured; a run
replaces the sections that it measured and leaves the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


class Target(NamedTuple):
    """What is to be reached: by the ratio, or by Barnabas's own value."""

    sign: str
    bound: float
    of_ratio: bool = True

    def met(self, value: float) -> bool:
        return value >= self.bound if self.sign == "≥" else value <= self.bound


def at_least(ratio: float) -> Target:
    return Target("≥", ratio)


def at_most(ratio: float) -> Target:
    return Target("≤", ratio)


def value_at_most(bound: float) -> Target:
    return Target("≤", bound, of_ratio=False)


class Pair(NamedTuple):
    """The same thing measured on both; None for one that was not asked."""

    name: str
    unit: str
    barnabas: float | None
    kafka: float | None
    target: Target | None = None
    # the client's own part of both values, which the ratio leaves out
    floor: float = 0.0
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Barnabas over Kafka, above the floor."""
        if self.barnabas is None or self.kafka is None or self.kafka == self.floor:
            return None
        return (self.barnabas - self.floor) / (self.kafka - self.floor)

    @property
    def reached(self) -> bool | None:
        """None where there is no target, or nothing to judge by."""
        judged = self.barnabas if self.target and not self.target.of_ratio else self.ratio
        return None if self.target is None or judged is None else self.target.met(judged)


class Section(NamedTuple):
    """What one benchmark module measured: rows or pairs, not both."""

    title: str
    rows: Sequence[Row] | Sequence[Pair]


ROW_HEADINGS = ("what", "value", "unit", "ratio", "note")
PAIR_HEADINGS = ("what", "Barnabas", "Kafka", "unit", "ratio", "target", "reached", "note")
NUMERIC = frozenset(("value", "ratio", "Barnabas", "Kafka", "target"))
INTRODUCTION = """# Benchmarks

Written by `make bench ARGS=--write`; not by hand. Where two systems stand side by side, the ratio is Barnabas
over Apache Kafka on the same machine in the same run, of medians; for latencies it is that of what lies above
the client's own floor.
"""


def tables(sections: Iterable[Section]) -> Iterator[Table]:
    """For the terminal: one for what was measured alone, one for what was measured side by side."""
    by_headings: dict[tuple[str, ...], list[Section]] = {}
    for section in sections:
        by_headings.setdefault(headings(section), []).append(section)
    for columns, members in by_headings.items():
        yield _table(columns, members)


def _table(columns: Sequence[str], sections: Iterable[Section]) -> Table:
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in columns:
        shown.add_column(
            heading, justify="right" if heading in NUMERIC else "left", no_wrap=heading != "note"
        )
    for section in sections:
        shown.add_row(f"[bold]{section.title}")
        for row in section.rows:
            shown.add_row(*cells(row))
        shown.add_section()
    return shown


def page(old: str, sections: Iterable[Section], facts: Mapping[str, str], order: Sequence[str]) -> str:
    """docs/benchmarks.md with these sections new, and the others of `order` as they were."""
    parts = re.split(r"^## (.+)\n", old, flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))
    texts.update((section.title, markdown(section, facts)) for section in sections)
    kept = [f"## {title}\n\n{texts[title]}\n" for title in order if title in texts]
    return "\n".join([INTRODUCTION, *kept])


def markdown(section: Section, facts: Mapping[str, str]) -> str:
    """The circumstances first, for no number means anything without them."""
    columns = headings(section)
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", f"| {' | '.join(columns)} |"]
    lines += [f"|{'|'.join('---:' if each in NUMERIC else '---' for each in columns)}|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in section.rows]
    return "\n".join(lines)


def as_json(sections: Iterable[Section], facts: Mapping[str, str]) -> dict[str, object]:
    """For machines."""
    rows = [{"bench": section.title, **_plain(row)} for section in sections for row in section.rows]
    return {"facts": dict(facts), "rows": rows}


def _plain(row: Row | Pair) -> dict[str, object]:
    if isinstance(row, Row):
        return row._asdict()
    target = target_text(row)
    return {**row._asdict(), "target": target, "ratio": row.ratio, "reached": row.reached}


def headings(section: Section) -> tuple[str, ...]:
    return PAIR_HEADINGS if any(isinstance(row, Pair) for row in section.rows) else ROW_HEADINGS


def cells(row: Row | Pair) -> tuple[str, ...]:
    """A row as text, in the order of its headings."""
    ratio = "" if row.ratio is None else number(row.ratio)
    if isinstance(row, Row):
        return row.name, number(row.value), row.unit, ratio, row.note
    reached = {None: "", True: "yes", False: "no"}[row.reached]
    values = ("" if value is None else number(value) for value in (row.barnabas, row.kafka))
    return row.name, *values, row.unit, ratio, target_text(row), reached, row.note


def target_text(pair: Pair) -> str:
    if pair.target is None:
        return ""
    unit = "" if pair.target.of_ratio else f" {pair.unit}"
    return f"{pair.target.sign} {number(pair.target.bound)}{unit}"


def number(value: float) -> str:
    """Three significant digits for small numbers, thousands apart for large ones."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
