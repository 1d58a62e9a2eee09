"""Every checker is shown to work: production code with a deliberate bug, run seed by seed until it is caught.

    python -m tests.sim.bugs --table              every bug, its first seed that catches it, as a table
    python -m tests.sim.bugs --bug tail-not-cut   one of them, and what the checkers say
    python -m tests.sim.bugs --pin                choose the seeds of tests/sim/test_bugs.py anew
    python -m tests.sim.bugs --replay tail-not-cut --seed 3 [--seconds S] [--trace]
    python -m tests.sim.bugs --directed pending-lost [--trace]

A bug counts as caught when a checker that is expected to says so, and the same seed is clean without it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from barnabas.sim.cluster.plan import draw_cluster
from barnabas.sim.coordination.plan import draw_coordination
from barnabas.sim.replication.writers import draw_replication
from barnabas.sim.scenario import CLUSTER, LOG, REPLICATED, REPLICATION, Scenario, draw_scenario
from barnabas.sim.world import Outcome, simulate
from tests.sim import (
    bugs_cluster,
    bugs_compaction,
    bugs_coordinators,
    bugs_disk,
    bugs_groups,
    bugs_in_sync,
    bugs_replication,
    bugs_state,
    bugs_transactions,
)
from tests.sim.bugs_switch import BUGS, Bug, switched_on

__all__ = [
    "BUGS",
    "SEEN",
    "Pin",
    "bugs_cluster",
    "bugs_compaction",
    "bugs_coordinators",
    "bugs_disk",
    "bugs_groups",
    "bugs_in_sync",
    "bugs_replication",
    "bugs_state",
    "bugs_transactions",
    "pins",
    "run",
]

PINS = Path(__file__).with_name("bugs_pins.json")
SEEDS = 100
SAID = 250  # characters of what is said
SEEN = [name for name, bug in BUGS.items() if not bug.unseen]
# how long a pinned run may be shortened to, in simulated seconds; None: as long as the seed likes
LENGTHS_S = (5.0, 10.0, 20.0, 40.0, None)
# how many seeds that catch a bug are tried for a pin, which costs what its run and that without the bug cost
PIN_CHOICES = 4


class Pin(NamedTuple):
    """A seed, and how long, that catches a bug."""

    bug: str
    seed: int
    seconds: float | None
    checkers: tuple[str, ...]
    kind: str = LOG


class Caught(NamedTuple):
    bug: str
    seed: int | None  # None: by none of them
    seeds: int  # how many were run
    checkers: tuple[str, ...]
    said: str
    took_s: float


def pins() -> list[Pin]:
    """The seeds that the tests run."""
    return [
        Pin(name, one["seed"], one["seconds"], tuple(one["checkers"]), BUGS[name].kind)
        for name, one in json.loads(PINS.read_text()).items()
    ]


def run(bug: Bug | None, seed: int, seconds: float | None = None, kind: str = LOG) -> Outcome:
    """A seed of a kind, with a bug or without."""
    with switched_on(bug):
        return simulate(seed, seconds=seconds, kind=kind)


def _scenario(seed: int, seconds: float | None, kind: str) -> Scenario:
    if kind == CLUSTER:
        return draw_cluster(seed, seconds)
    if kind in REPLICATED:
        return draw_coordination(seed, kind, seconds)
    return draw_replication(seed, seconds) if kind == REPLICATION else draw_scenario(seed, seconds, kind)


def checkers_of(outcome: Outcome) -> tuple[str, ...]:
    """Who said something, in the order in which it came up."""
    return tuple(dict.fromkeys(violation.checker for violation in outcome.violations))


def catch(bug: Bug, seed: int, seconds: float | None) -> tuple[tuple[str, ...], str]:
    """Who catches a bug with a seed, and the first thing said.

    Nobody where none of those expected to does, or where the seed is not clean without the bug.
    """
    if not bug.may_show(_scenario(seed, seconds, bug.kind)):
        return (), ""
    outcome = run(bug, seed, seconds, bug.kind)
    found = checkers_of(outcome)
    if not set(found) & set(bug.checkers) or run(None, seed, seconds, bug.kind).violations:
        return (), ""
    return found, next(str(said) for said in outcome.violations if said.checker in bug.checkers)


def hunt(name: str, seeds: Iterable[int], seconds: float | None = None) -> Caught:
    """Try one seed after another."""
    began, count = time.perf_counter(), 0
    for seed in seeds:
        count += 1
        found, said = catch(BUGS[name], seed, seconds)
        if found:
            return Caught(name, seed, count, found, said, time.perf_counter() - began)
    return Caught(name, None, count, (), "", time.perf_counter() - began)


def choose_pin(name: str, most: int) -> Pin:
    """The cheapest of the first seeds that catch a bug; one without checkers where there is none."""
    bug, best, best_s, tried = BUGS[name], None, 0.0, 0
    for seconds in LENGTHS_S:
        for seed in range(1, most + 1):
            began = time.perf_counter()
            found, _ = catch(bug, seed, seconds)
            took_s = time.perf_counter() - began
            if not found:
                continue
            tried += 1
            if best is None or took_s < best_s:
                best, best_s = Pin(name, seed, seconds, found, bug.kind), took_s
            if tried >= PIN_CHOICES:
                break
        if best is not None:
            return best
    return Pin(name, 0, None, ())


def _each(
    work: object, arguments: Iterable[tuple[object, ...]], jobs: int
) -> Iterator[Future[object]]:  # pragma: no cover - by hand
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(work, *each) for each in arguments]  # type: ignore[arg-type]
        yield from as_completed(futures)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.bugs", description=__doc__.split("\n")[0])
    parser.add_argument("--bug", metavar="NAME", action="append", choices=list(BUGS))
    parser.add_argument("--seeds", metavar="N", type=int, default=SEEDS, help="at most so many a bug")
    parser.add_argument("--first", metavar="N", type=int, default=1)
    parser.add_argument("--seconds", metavar="S", type=float)
    parser.add_argument("--jobs", metavar="N", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="as markdown")
    parser.add_argument("--pin", action="store_true", help=f"rewrite {PINS.name}")
    parser.add_argument("--replay", metavar="NAME", choices=list(BUGS))
    parser.add_argument("--directed", metavar="NAME", choices=list(BUGS), help="the script that shows it")
    parser.add_argument("--seed", metavar="N", type=int, default=1)
    parser.add_argument("--trace", action="store_true")
    args = parser.parse_args(arguments)
    if args.replay:
        return _replay(args.replay, args.seed, args.seconds, args.trace)
    if args.directed:
        return _direct(args.directed, args.trace)
    names = args.bug or SEEN
    if args.pin:
        return _pin(names, args.seeds, args.jobs)
    seeds = range(args.first, args.first + args.seeds)
    work = [(name, seeds, args.seconds) for name in names]
    caught: dict[str, Caught] = {}
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("bugs", total=len(work))
        for future in _each(hunt, work, args.jobs):
            one = future.result()
            assert isinstance(one, Caught)
            caught[one.bug] = one
            found = "not caught" if one.seed is None else f"seed {one.seed}: {one.said[:SAID]}"
            progress.console.print(f"{one.bug}: {found}", markup=False, highlight=False)
            progress.advance(bar)
    ordered = [caught[name] for name in names]
    if args.table:
        print(markdown(ordered))
    else:
        Console().print(_table(ordered))
    return 0 if all(one.seed is not None for one in ordered) else 1


def _table(caught: Iterable[Caught]) -> Table:
    table = Table("bug", "what is wrong", "caught by", "after seeds", "replay")
    for one in caught:
        by = ", ".join(one.checkers) or "[red]nobody[/red]"
        table.add_row(one.bug, BUGS[one.bug].what, by, str(one.seeds), _arguments(one))
    return table


def markdown(caught: Iterable[Caught]) -> str:
    """The table for the documents."""
    lines = ["| bug | what is wrong | caught by | after seeds |", "|---|---|---|---|"]
    for one in caught:
        by = ", ".join(one.checkers) or "nobody"
        lines.append(f"| `{one.bug}` | {BUGS[one.bug].what} | {by} | {one.seeds} |")
    return "\n".join(lines)


def _arguments(one: Caught) -> str:
    return "" if one.seed is None else f"--replay {one.bug} --seed {one.seed}"


def _pin(names: list[str], most: int, jobs: int) -> int:
    found = {pin.bug: pin for pin in pins()} if PINS.exists() else {}
    console = Console(stderr=True)
    missing = []
    for future in _each(choose_pin, [(name, most) for name in names], jobs):
        pin = future.result()
        assert isinstance(pin, Pin)
        console.print(str(pin), markup=False, highlight=False, soft_wrap=True)
        found[pin.bug] = pin
        if not pin.checkers:
            missing.append(pin.bug)
            del found[pin.bug]
        _write_pins([found[name] for name in SEEN if name in found])
    console.print(f"no seed for: {', '.join(missing)}" if missing else "all are pinned")
    return 1 if missing else 0


def _write_pins(ordered: list[Pin]) -> None:
    content = {
        pin.bug: {"seed": pin.seed, "seconds": pin.seconds, "checkers": list(pin.checkers)} for pin in ordered
    }
    PINS.write_text(json.dumps(content, indent=2) + "\n")


def _direct(name: str, trace: bool) -> int:
    """Run the directed simulations of a bug, and print the first violation of each checker."""
    from tests.sim.coordination.directed import direct
    from tests.sim.coordination.test_directed import SCRIPTS
    from tests.sim.replication.directed_bugs import DIRECTED

    on_line = print if trace else None
    runs = [partial(direct, script, on_line) for bug, script in SCRIPTS if bug == name]
    if name in DIRECTED:
        runs.append(partial(DIRECTED[name][0].play, on_line))
    if not runs:
        print(f"{name} has no script: seeds show it")
        return 2
    with switched_on(BUGS[name]):
        violations = [violation for run_it in runs for violation in run_it()]
    first = {violation.checker: violation for violation in reversed(violations)}
    for violation in reversed(first.values()):
        print(violation)
    return 1 if violations else 0


def _replay(name: str, seed: int, seconds: float | None, trace: bool) -> int:
    with switched_on(BUGS[name]):
        on_line = print if trace else None
        outcome = simulate(seed, seconds=seconds, kind=BUGS[name].kind, on_line=on_line)
    for violation in outcome.violations:
        print(violation)
    print(f"trace hash: {outcome.trace_hash}")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
