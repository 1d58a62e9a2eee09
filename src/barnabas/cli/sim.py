"""`barnabas sim`: the broker and its clients in virtual time, under faults, from a seed.

One seed (`--seed N`) prints its trace hash, which is the same in every run of the same code; `--trace` prints
everything that happens on the way. Many (`--seeds N`) run on all cores. Exit status: 0 where every promise
was kept, 1 where one was broken, with the command that replays it, 2 for a wrong command line, 130 where many
were stopped before all had run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from barnabas.sim.many import ALL_KINDS, Summary, Total, run_many, run_seed, total

_EXAMPLES = """examples:
  barnabas sim                      a fresh seed
  barnabas sim --seed 7             that one, the same every time
  barnabas sim --seed 7 --trace     and all that happens on the way
  barnabas sim --seeds 200          1 to 200, on all cores
"""
_FRESH_SEEDS = 1 << 31
_INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Run the seeds that were asked for; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.seeds is not None:
        if options.trace:
            parser.error("--trace is for one seed")
        return _many(options)
    seed = secrets.randbelow(_FRESH_SEEDS) if options.seed is None else options.seed
    with _ended_by("SIGINT", "SIGPIPE"):
        return _one(seed, options)


@contextmanager
def _ended_by(*names: str) -> Iterator[None]:
    """Let these signals end the process at once: an error in the middle of a simulation would tell of
    everything that was under way in it."""
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = [(number, signal.signal(number, signal.SIG_DFL)) for number in numbers]
    try:
        yield
        sys.stdout.flush()
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barnabas sim",
        description="Run a broker and its clients in virtual time, under faults, from a seed.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=_natural, metavar="N", help="one seed (default: a fresh one)")
    which.add_argument("--seeds", type=_positive, metavar="N", help="that many seeds, on all cores")
    parser.add_argument(
        "--first", type=_natural, default=1, metavar="N", help="the first of many (default: 1)"
    )
    parser.add_argument("--jobs", type=_positive, metavar="N", help="how many at a time (default: all cores)")
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="S",
        help="simulated seconds under faults; else the seed decides",
    )
    parser.add_argument("--kind", choices=ALL_KINDS, help="what it is about; else the seed decides")
    parser.add_argument("--trace", action="store_true", help="print everything that happens (one seed)")
    parser.add_argument("--json", action="store_true", help="the result for machines")
    return parser


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return int(text)


def _positive(text: str) -> int:
    number = _natural(text)
    if number == 0:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds")
    return seconds


def replay_command(seed: int, seconds: float | None, kind: str | None = None) -> str:
    """What runs a seed again, exactly."""
    command = f"barnabas sim --seed {seed}" + (f" --kind {kind}" if kind else "")
    return command if seconds is None else f"{command} --seconds {repr(seconds).removesuffix('.0')}"


def _one(seed: int, options: argparse.Namespace) -> int:
    summary = run_seed(seed, options.seconds, options.kind, _print_line if options.trace else None)
    if options.json:
        sys.stdout.write(json.dumps(_as_json(summary, options)) + "\n")
    else:
        _tell(summary, options)
    return 1 if summary.violations else 0


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")


def _as_json(one: Summary, options: argparse.Namespace) -> dict[str, object]:
    return {
        "seed": one.seed,
        "trace_hash": one.trace_hash,
        "violations": list(one.violations),
        "simulated_seconds": one.simulated_seconds,
        "real_seconds": one.real_seconds,
        "faults": one.faults,
        "records_acknowledged": one.records_acknowledged,
        "records_read": one.records_read,
        "reached": one.reached,
        "replay": replay_command(one.seed, options.seconds, options.kind),
    }


def _tell(one: Summary, options: argparse.Namespace) -> None:
    write = sys.stdout.write
    write(
        f"seed {one.seed}: {one.simulated_seconds:.0f} simulated seconds in {one.real_seconds:.1f}, "
        f"{one.records_acknowledged:,} records acknowledged, {one.records_read:,} read\n"
        f"faults: {_counts(one.faults)}\n"
    )
    if one.reached:
        write(f"reached: {_counts(one.reached)}\n")
    for violation in one.violations:
        write(f"VIOLATION: {violation}\n")
    if one.violations:
        write(f"replay: {replay_command(one.seed, options.seconds, options.kind)} --trace\n")
    write(f"trace hash: {one.trace_hash}\n")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none"


def _many(options: argparse.Namespace) -> int:
    jobs = options.jobs or os.cpu_count() or 1
    seeds = range(options.first, options.first + options.seeds)
    screen = Console(stderr=True, highlight=False)
    began = time.perf_counter()
    summaries: list[Summary] = []
    status = 0
    try:
        with closing(run_many(seeds, jobs=jobs, seconds=options.seconds, kind=options.kind)) as running:
            summaries.extend(_watched(running, len(seeds), screen, options))
    except KeyboardInterrupt:
        screen.print("[yellow]stopped; this is what has been run")
        status = _INTERRUPTED
    except BrokenProcessPool:
        screen.print("[red]a worker process was killed; this is what has been run")
        status = 1
    result, minutes = total(summaries), (time.perf_counter() - began) / 60
    if options.json:
        sys.stdout.write(json.dumps(_total_as_json(result, minutes, options)) + "\n")
    else:
        # a file or a pipe has no width to keep to
        Console(width=None if sys.stdout.isatty() else 160).print(_table(result, minutes, options.first))
    return 1 if result.violated else status


def _watched(
    running: Iterator[Summary], count: int, screen: Console, options: argparse.Namespace
) -> Iterator[Summary]:
    """Pass the summaries on, with a progress bar, and a word about each violation as it comes."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[violated]} violated"),
        TimeRemainingColumn(),
    )
    violated = 0
    with Progress(*columns, console=screen) as progress:
        task = progress.add_task("seeds", total=count, violated=0)
        for summary in running:
            if summary.violations:
                violated += 1
                progress.console.print(
                    f"[red]seed {summary.seed}[/]: {escape(summary.violations[0])}", soft_wrap=True
                )
                progress.console.print(
                    f"  {replay_command(summary.seed, options.seconds, options.kind)}", soft_wrap=True
                )
            progress.update(task, advance=1, violated=violated)
            yield summary


def _table(result: Total, minutes: float, first: int) -> Table:
    table = Table(title=f"{result.seeds:,} seeds from {first}", show_header=False)
    table.add_row("violated", f"[{'red' if result.violated else 'green'}]{len(result.violated):,}")
    table.add_row("seeds a minute", f"{result.seeds / minutes:,.0f}" if minutes else "-")
    table.add_row("simulated hours", f"{result.simulated_seconds / 3600:,.1f}")
    table.add_row("simulated seconds a second", f"{result.simulated_seconds / (60 * minutes):,.0f}")
    table.add_row("records acknowledged", f"{result.records_acknowledged:,}")
    table.add_row("records read", f"{result.records_read:,}")
    table.add_section()
    for kind, number in sorted(result.faults.items()):
        table.add_row(f"faults: {kind}", f"{number:,}")
    for kind, number in sorted(result.reached.items()):
        table.add_row(f"reached: {kind}", f"{number:,}")
    return table


def _total_as_json(result: Total, minutes: float, options: argparse.Namespace) -> dict[str, object]:
    return {
        "seeds": result.seeds,
        "first": options.first,
        "minutes": minutes,
        "simulated_seconds": result.simulated_seconds,
        "faults": dict(result.faults),
        "reached": dict(result.reached),
        "records_acknowledged": result.records_acknowledged,
        "records_read": result.records_read,
        "violated": [
            {
                "seed": one.seed,
                "violations": list(one.violations),
                "replay": replay_command(one.seed, options.seconds, options.kind),
            }
            for one in result.violated
        ],
    }
