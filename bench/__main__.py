"""`python -m bench`: run the benchmarks and show one table.

The modules are listed, not discovered: the table's order is part of how it is read. Each has `run(options)`
and gives rows, or pairs where two systems stand side by side. A single cell, quickly:

    python -m bench --only produce --client confluent --match "1 partition, 100 B" --rounds 1
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench.options import Options
from bench.report import Section, as_json, page, tables

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
ALONE = ("kernel", "log", "metadata", "quorum", "fixture")
SIDE_BY_SIDE = (
    "produce",
    "consume",
    "latency",
    "startup",
    "scale",
    "cluster",
    "replication",
    "pressure",
    "compaction",
    "groups",
    "transactions",
    "coordinators",
    "spark",
)
MODULES = ALONE + SIDE_BY_SIDE
SYSTEMS = ("barnabas", "kafka")
CLIENTS = ("confluent", "java")


def main(arguments: Sequence[str]) -> None:
    given = parse(arguments)
    # however it is ended, brokers and their data end with it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    progress = Console(stderr=True)
    facts = circumstances(arguments)
    sections: list[Section] = []
    try:
        for section in measure(given.only, options(given)):
            progress.print(f"[dim]measured {section.title}: {len(section.rows)} rows")
            sections.append(section)
            if given.write:
                PAGE.write_text(page(PAGE.read_text(), [section], facts, MODULES))
    finally:
        # what was measured before a failure is worth as much
        show(sections, facts, as_text=not given.json)


def show(sections: Sequence[Section], facts: Mapping[str, str], *, as_text: bool) -> None:
    if as_text:
        # a file or a pipe has no width to keep to
        Console(width=None if sys.stdout.isatty() else 160).print(*tables(sections))
    else:
        print(json.dumps(as_json(sections, facts), indent=2))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Barnabas on this machine.")
    parser.add_argument("--only", action="extend", type=_modules, help=f"of {', '.join(MODULES)}: a,b,c")
    parser.add_argument("--system", choices=(*SYSTEMS, "both"), default="both")
    parser.add_argument("--client", choices=(*CLIENTS, "both"), default="both")
    parser.add_argument(
        "--match",
        default="",
        help="only cells of produce, consume, replication and spark with this in their name",
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each takes its turn (3)")
    parser.add_argument("--small", action="store_true", help="tiny input: shows that it runs, not how fast")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of the table")
    parser.add_argument("--write", action="store_true", help="put what was measured into docs/benchmarks.md")
    given = parser.parse_args(arguments)
    given.only = given.only or MODULES
    if given.write and (given.small or given.match or (given.system, given.client) != ("both", "both")):
        parser.error("--write is for a full run: leave out --small, --match, --system and --client")
    return given


def _modules(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in MODULES]:
        raise argparse.ArgumentTypeError(f"no such benchmark: {', '.join(unknown)}")
    return names


def options(given: argparse.Namespace) -> Options:
    return Options(
        small=given.small,
        systems=SYSTEMS if given.system == "both" else (given.system,),
        clients=CLIENTS if given.client == "both" else (given.client,),
        rounds=given.rounds,
        match=given.match,
    )


def measure(names: Iterable[str], options: Options) -> Iterator[Section]:
    """Run the named benchmarks, one after another."""
    for name in names:
        module = importlib.import_module(f"bench.{name}")
        yield Section(name, module.run(options))


def circumstances(arguments: Sequence[str]) -> dict[str, str]:
    """What a reader has to know to judge the numbers."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "commit": commit(),
        "command": " ".join(["python", "-m", "bench", *arguments]),
    }


def processor() -> str:
    """The CPU's name; Linux keeps it where the platform module does not look."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown CPU"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit() -> str:
    """The commit measured, and whether the tree had other changes."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("ended before all was measured")
