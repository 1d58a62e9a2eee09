"""A rebalance storm, played: four consumers of a group, what goes wrong with them, and what helps.

Broker and records are of this process, the members (confluent-kafka) are processes of their own, so that they
can be frozen and killed. Times are a hundredth or so of the usual ones, so that a storm takes seconds.

    slow       whatever records are worked on with gets slow, for one member more than for the others. It is
               later than max.poll.interval.ms, and its partitions go to others that have no time to spare ...
    pauses     members are frozen one after another, as by a garbage collection or a hypervisor
    restarts   a new version: members are stopped and started again, one after another, while another one is
               busy with a record that takes long
    crash      a member is killed, and nobody comes in its place

    python examples/rebalance_storm.py                                     the storm, with nothing against it
    python examples/rebalance_storm.py --remedy small-batches              one remedy
    python examples/rebalance_storm.py --trouble restarts --all            every remedy against one trouble
    python examples/rebalance_storm.py --trouble all --all --json          everything, as JSON; some minutes
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from storm_group import MEMBERS, Outcome, Remedy, StormGroup

CALM_S = 2.0
# a member has 120 records a second: from 8.3 ms a record on it cannot keep up
SLOW_COST_S, WORST_COST_S = 0.007, 0.025
FREEZE_S = 1.6
MOMENT_S = 0.2
BUSY_S = 1.2
NEXT_S = 3.5  # until it is the next member's turn
REMEDIES = {
    "none": Remedy({}),
    "poll-interval": Remedy({"max.poll.interval.ms": 20_000}),
    "small-batches": Remedy({}, batch=25),
    "session": Remedy({"session.timeout.ms": 2000}),
    "static": Remedy({"session.timeout.ms": 2000}, is_static=True),
    "cooperative": Remedy({"partition.assignment.strategy": "cooperative-sticky"}),
    "together": Remedy(
        {
            "max.poll.interval.ms": 20_000,
            "session.timeout.ms": 2000,
            "partition.assignment.strategy": "cooperative-sticky",
        },
        batch=25,
        is_static=True,
    ),
}


class Trouble(NamedTuple):
    """What goes wrong, and how long it is looked on."""

    play: Callable[[StormGroup], None]
    seconds: float


def slow(group: StormGroup) -> None:
    slow_ms, worst_ms = SLOW_COST_S * 1000, WORST_COST_S * 1000
    group.note(f"a record takes {slow_ms:.0f} ms from now on, and {worst_ms:.0f} ms with member-1")
    for number in range(MEMBERS):
        group.set_cost(number, SLOW_COST_S if number else WORST_COST_S)


def pauses(group: StormGroup) -> None:
    for number in range(MEMBERS - 1):
        group.note(f"member-{number + 1} is frozen for {FREEZE_S} s")
        with group.frozen(number):
            time.sleep(FREEZE_S)
        time.sleep(NEXT_S)


def restarts(group: StormGroup) -> None:
    for number in range(MEMBERS - 1):
        group.note(f"member-{number + 1} is restarted, member-{MEMBERS} busy for {BUSY_S} s")
        group.delay(MEMBERS - 1, BUSY_S)
        time.sleep(MOMENT_S)
        group.restart(number)
        time.sleep(NEXT_S)


def crash(group: StormGroup) -> None:
    group.note("member-1 is killed")
    group.kill(0)


TROUBLES = {
    "slow": Trouble(slow, 14.0),
    "pauses": Trouble(pauses, 16.0),
    "restarts": Trouble(restarts, 13.0),
    "crash": Trouble(crash, 6.0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="A rebalance storm, and what helps against it.")
    parser.add_argument("--trouble", choices=[*TROUBLES, "all"], default="slow", help="what goes wrong")
    parser.add_argument("--remedy", choices=list(REMEDIES), action="append", help="may be repeated")
    parser.add_argument("--all", action="store_true", help="every remedy, one after another")
    parser.add_argument("--seconds", type=float, help="how long each is looked on")
    parser.add_argument("--json", action="store_true", help="what came of it, as JSON")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    found = []
    for trouble in TROUBLES if options.trouble == "all" else [options.trouble]:
        names = list(REMEDIES) if options.all else options.remedy or ["none"]
        outcomes = {name: play(trouble, name, options.seconds, console) for name in names}
        found += [{"trouble": trouble, "remedy": name, **one._asdict()} for name, one in outcomes.items()]
        console.print(table(trouble, outcomes))
    if options.json:
        print(json.dumps(found, indent=2))
    return 0


def play(name: str, remedy: str, seconds: float | None, console: Console) -> Outcome:
    trouble = TROUBLES[name]
    console.print(f"\n[bold]{name}[/], remedy: [bold]{remedy}[/]")
    with StormGroup(REMEDIES[remedy], lambda line: console.print(line, highlight=False)) as group:
        group.wait_until(CALM_S)
        trouble.play(group)
        group.wait_until(CALM_S + (seconds or trouble.seconds))
        return group.outcome()


def table(trouble: str, outcomes: dict[str, Outcome]) -> Table:
    caption = (
        "gone: members that left or were thrown out; refused: commits; done, again: records, and how often "
        "one was worked on again; paused: partitions that brought nothing new, together and the longest; "
        "lag: records that are not committed at the end"
    )
    shown = Table("remedy", title=trouble, caption=caption)
    for title in ("rebalances", "gone", "refused", "done", "again", "paused", "longest", "lag"):
        shown.add_column(title, justify="right")
    for name, one in outcomes.items():
        shown.add_row(
            name,
            str(one.rebalances),
            str(one.gone),
            str(one.commits_refused),
            str(one.processed),
            str(one.processed_again),
            f"{one.paused_s:.1f} s",
            f"{one.longest_pause_s:.1f} s",
            str(one.lag),
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
