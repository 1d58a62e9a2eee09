"""Whether two data directories hold the same, file by file.

Segments and indexes are compared to the byte. Three kinds of file are compared by what they say, since Kafka
writes them in the order of a hash table: checkpoints, line by line, and producer snapshots, entry by entry.
Segments that end before the log's start are left out: their records are deleted, and while Kafka removes the
files at its next check of the retention, Barnabas does when it opens the partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from barnabas.log.snapshots import decode_snapshot
from tests.interop.barnabas_log import batches_in

BY_THE_BYTE = (".log", ".index", ".timeindex", ".txnindex", "partition.metadata")
LOG_START = "log-start-offset-checkpoint"
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", LOG_START)


def different_files(theirs: Path, ours: Path, topics: Iterable[str] | None = None) -> list[str]:
    """What differs, one line for each file; nothing where all is the same."""
    if topics is None:
        folders = sorted(
            folder.name for folder in theirs.glob("*-0") if folder.name != "__cluster_metadata-0"
        )
    else:
        folders = [f"{topic}-0" for topic in topics]
    starts = {f"{topic}-{number}": int(start) for topic, number, start in _lines(theirs / LOG_START)}
    found = []
    for folder in folders:
        deleted = _before(theirs / folder, starts.get(folder, 0))
        lines = _partition(theirs / folder, ours / folder)
        found += [
            line for line in lines if not line.startswith(tuple(f"{folder}/{name}" for name in deleted))
        ]
    for name in CHECKPOINTS:
        wanted = {line for line in _lines(theirs / name) if topics is None or line[0] in topics}
        found += [f"{name}: {line}" for line in sorted(wanted ^ _lines(ours / name))]
    return found


def different_epochs(theirs: Path, ours: Path, *, last_epochs: bool = False) -> list[str]:
    """Where the leader epochs differ; unless asked for, apart from epochs in which nothing was written.

    A leader notes its epoch when it begins, and forgets it at the next start if it wrote nothing.
    """
    found = []
    for checkpoint in sorted(theirs.glob("*-0/leader-epoch-checkpoint")):
        name = f"{checkpoint.parent.name}/{checkpoint.name}"
        if name.startswith("__cluster_metadata"):
            continue
        one, other = _epochs(checkpoint), _epochs(ours / name)
        if not last_epochs:
            batches = batches_in(checkpoint.parent)
            end_offset = batches[-1].header.next_offset if batches else 0
            one, other = ([entry for entry in entries if entry[1] < end_offset] for entries in (one, other))
        if one != other:
            found.append(f"{name}: {one} in theirs, {other} in ours")
    return found


def _epochs(checkpoint: Path) -> list[tuple[int, int]]:
    lines = checkpoint.read_text().splitlines()
    assert [lines[0], int(lines[1])] == ["0", len(lines) - 2]
    return [(int(epoch), int(offset)) for epoch, offset in (line.split(" ") for line in lines[2:])]


def _before(partition: Path, start_offset: int) -> list[str]:
    """The stems of the files of segments that end before that offset."""
    stems = sorted(file.stem for file in partition.glob("*.log"))
    return [stem for stem, following in pairwise(stems) if int(following) <= start_offset]


def _partition(theirs: Path, ours: Path) -> list[str]:
    found = []
    names = {
        file.name for folder in (theirs, ours) for file in folder.iterdir() if file.name.endswith(BY_THE_BYTE)
    }
    for name in sorted(names):
        one, other = _bytes(theirs / name), _bytes(ours / name)
        if one != other:
            found.append(f"{ours.name}/{name}: {_sizes(one, other)}")
    return found + _snapshots(theirs, ours)


def _snapshots(theirs: Path, ours: Path) -> list[str]:
    found = []
    for name in sorted({file.name for folder in (theirs, ours) for file in folder.glob("*.snapshot")}):
        one, other = _bytes(theirs / name), _bytes(ours / name)
        if one is None or other is None:
            found.append(f"{ours.name}/{name}: {_sizes(one, other)}")
            continue
        wanted, got = set(decode_snapshot(one, name)), set(decode_snapshot(other, name))
        found += [f"{ours.name}/{name}: {entry}" for entry in sorted(wanted ^ got)]
    return found


def _bytes(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def _sizes(one: bytes | None, other: bytes | None) -> str:
    if one is None or other is None:
        return "missing in " + ("theirs" if one is None else "ours")
    return f"{len(one)} bytes in theirs, {len(other)} in ours, {one[:60]!r} against {other[:60]!r}"


def _lines(checkpoint: Path) -> set[tuple[str, ...]]:
    lines = checkpoint.read_text().splitlines()
    assert [lines[0], int(lines[1])] == ["0", len(lines) - 2]
    return {tuple(line.split(" ")) for line in lines[2:]}
