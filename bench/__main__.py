"""`python -m bench`: run the benchmarks and show one table.

The modules are listed, not discovered: the table's order is part of how it is read. Each has
`run(small: bool)` and gives rows; `small` runs everything on tiny input, to show that it still works, and
its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench.report import Row, Section, as_json, markdown, table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
MODULES = ("kernel", "log")


def main(arguments: Sequence[str]) -> None:
    options = parse(arguments)
    progress = Console(stderr=True)
    sections = []
    for section in measure(options.only or MODULES, small=options.small):
        progress.print(f"[dim]measured {section.title}: {len(section.rows)} rows")
        sections.append(section)
    facts = circumstances(arguments)
    if options.json:
        print(json.dumps(as_json(sections, facts), indent=2))
    else:
        Console().print(table(sections))
    if options.write:
        PAGE.write_text(markdown(sections, facts))
        progress.print(f"wrote {PAGE.relative_to(ROOT)}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Barnabas on this machine.")
    parser.add_argument("--only", action="append", choices=MODULES, help="one benchmark; may be repeated")
    parser.add_argument("--small", action="store_true", help="tiny input: shows that it runs, not how fast")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of the table")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md as well")
    options = parser.parse_args(arguments)
    if options.write and (options.small or options.only):
        parser.error("--write is for a full run: leave out --small and --only")
    return options


def measure(names: Iterable[str], *, small: bool) -> Iterator[Section]:
    """Run the named benchmarks, one after another."""
    for name in names:
        module = importlib.import_module(f"bench.{name}")
        yield Section(name, [Row(*row) for row in module.run(small)])


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
    main(sys.argv[1:])
