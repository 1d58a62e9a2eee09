"""What Apache Kafka's own DumpLogSegments says of the files in a data directory.

One run of the tool takes as many files as there are, since most of its time is the start of a JVM. What it
prints is kept by file: the lines under its `Dumping <file>`, and the complaints that it prints at the end, in
no particular order, each under a line that ends with the file's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.support.apache_kafka import tool

TOOL = "org.apache.kafka.tools.DumpLogSegments"
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
HEADING = "Dumping "
Dumped = dict[str, list[str]]


def files(
    data: Path, partitions: Iterable[str] | None = None, suffixes: Iterable[str] = SUFFIXES
) -> list[Path]:
    """The files of (these) partitions, by name."""
    folders = sorted(data.glob("*-*/")) if partitions is None else [data / name for name in partitions]
    wanted = tuple(suffixes)
    return sorted(file for folder in folders for file in folder.iterdir() if file.name.endswith(wanted))


def dump(data: Path, those: Iterable[Path], *options: str) -> Dumped:
    """What the tool prints for each file, by the file's path within `data`."""
    listed = ",".join(map(str, those))
    return sections(tool(TOOL, "--files", listed, *options), data)


def sections(printed: str, data: Path) -> Dumped:
    """The tool's output by file, with paths as they are within `data`."""
    found: Dumped = {}
    current: list[str] = []
    for line in printed.replace(f"{data}/", "").splitlines():
        if line.startswith(HEADING):
            current = found.setdefault(line.removeprefix(HEADING), [])
            continue
        if not line.startswith("|") and (named := line.split(" ")[-1].strip(":")) in found:
            current = found[named]
        current.append(line)
    return found
