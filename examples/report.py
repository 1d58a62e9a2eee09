"""The end of the demo: tables that hold what came out against what had to, and say what it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import shorten
from typing import NamedTuple

from audit import Comparison, Findings, Lag
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from screen import Screen
from shop import ORDERS, PAYMENTS, POISON, Shop

EXAMPLE_WIDTH = 30
OK, BAD = "[green]exact[/]", "[bold red]wrong[/]"


def table_of(title: str, *columns: str) -> Table:
    """A table; a column whose name begins with `#` holds numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(
            name.removeprefix("#"), justify="right" if name.startswith("#") else "left", no_wrap=True
        )
    return table


class Step(NamedTuple):
    """What was done, how long it took, and to how many records, where that says something."""

    what: str
    seconds: float
    records: int | None = None


def comparisons(found: Sequence[Comparison]) -> Table:
    table = table_of("In, and out", "what", "#expected", "#found", "#lost", "#twice", "#other", "")
    for each in found:
        counts = (each.expected, each.found, each.lost, each.twice, each.other)
        table.add_row(each.what, *(f"{count:,}" for count in counts), OK if each.is_exact else BAD)
    return table


def orders_in_full(shop: Shop, findings: Findings) -> Table:
    """Where every single order went."""
    table = table_of("Where the orders went", "", "#orders")
    booked = sum(line.orders for line in findings.revenue.values())
    refused = sum(letter.topic == ORDERS for letter in findings.letters)
    for what, count in [
        ("in the Delta table, added up by product and hour", booked),
        ("    of these paid within half an hour: in the topic paid-orders", len(findings.paid)),
        ("in the dead letters", refused),
        ("of the next day, which is to close the books", 1),
    ]:
        table.add_row(what, f"{count:,}")
    table.add_section()
    table.add_row("sent", f"{shop.sent_to(ORDERS) + 1:,}")
    return table


def letters_by_reason(shop: Shop, findings: Findings) -> Table:
    columns = "", "#orders", "#payments", "#expected", "their header `error`, as in"
    table = table_of("Dead letters by reason", *columns)
    made = Counter(shop.poison.values())
    for kind in POISON:
        letters = [each for each in findings.letters if shop.poison.get((each.topic, each.value)) == kind]
        counts = Counter(each.topic for each in letters)
        example = shorten(letters[0].error, EXAMPLE_WIDTH, placeholder=" ...") if letters else ""
        table.add_row(
            kind, f"{counts[ORDERS]:,}", f"{counts[PAYMENTS]:,}", f"{made[kind]:,}", escape(example)
        )
    return table


def lags(found: Sequence[Lag]) -> Table:
    table = table_of("Lag, as every tool for Kafka sees it", "group", "topic", "#read", "#of", "#lag")
    for each in found:
        table.add_row(each.group, each.topic, f"{each.read:,}", f"{each.end:,}", f"{each.end - each.read:,}")
    return table


def steps(taken: Sequence[Step]) -> Table:
    table = table_of("What it took", "", "#seconds", "#records", "#records/s")
    for step in taken:
        count = "" if step.records is None else f"{step.records:,}"
        rate = "" if step.records is None else f"{step.records / step.seconds:,.0f}"
        table.add_row(step.what, f"{step.seconds:.1f}", count, rate)
    return table


def report(screen: Screen, shop: Shop, findings: Findings, taken: Sequence[Step]) -> bool:
    """Show it all; whether everything is as it had to be."""
    screen.turn_to("demo-tables")
    screen.show(orders_in_full(shop, findings))
    screen.show(letters_by_reason(shop, findings))
    screen.show(lags(findings.lags))
    screen.show(steps(taken))
    screen.turn_to("demo")
    screen.show(comparisons(findings.comparisons))
    behind = sum(lag.end - lag.read for lag in findings.lags)
    is_exact = all(each.is_exact for each in findings.comparisons) and not behind
    if is_exact:
        screen.say("verdict", "[bold green]nothing lost, nothing twice, nothing left to read[/]")
    else:
        screen.say("verdict", "[bold red]what came out is not what had to come out[/]")
    return is_exact
