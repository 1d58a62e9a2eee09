"""The files of a partition's replica on disk, as far as replicas have to be equal, whichever system wrote
them.

Every replica has the same batches, byte for byte, from its log start offset to its end, and the same
`leader-epoch-checkpoint` up to the last epoch that has records: a leader enters its epoch when it is elected,
a follower with the first batch. What each broker decides for itself is not compared: where segments begin (a
broker rolls by its own clock and size), batches below the log start offset that are still in a segment, and
the files that are derived from the batches (indexes, producer snapshots). Read these files when the nodes
have stopped: the log start offset is written to its checkpoint then.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from barnabas.records.reader import read_batches


class ReplicaFiles(NamedTuple):
    """Batches by base offset."""

    start_offset: int
    batches: dict[int, bytes]
    epochs: list[tuple[int, int]]

    @property
    def end_offset(self) -> int:
        last = max(self.batches, default=None)
        if last is None:
            return self.start_offset
        ((header, _),) = read_batches(self.batches[last])
        return header.last_offset + 1


def read_replica(data: Path, topic: str, partition: int = 0) -> ReplicaFiles:
    """That replica, in a log directory whose broker has stopped."""
    folder = data / f"{topic}-{partition}"
    segments = sorted(folder.glob("*.log"))
    kept = _checkpoint(data / "log-start-offset-checkpoint").get((topic, partition), 0)
    start_offset = max(kept, int(segments[0].stem))
    batches: dict[int, bytes] = {}
    for file in segments:
        content = file.read_bytes()
        for header, position in read_batches(content):
            assert header.base_offset not in batches, f"{file} has offset {header.base_offset} again"
            if header.last_offset >= start_offset:
                batches[header.base_offset] = content[position : position + header.size_bytes]
    epochs = [
        (int(epoch), int(start)) for epoch, start in map(str.split, _rows(folder / "leader-epoch-checkpoint"))
    ]
    return ReplicaFiles(start_offset, batches, epochs)


def difference(one: ReplicaFiles, other: ReplicaFiles) -> str:
    """Where two replicas differ, in words; empty where they are equal."""
    if one.start_offset != other.start_offset:
        return f"log start offsets {one.start_offset} and {other.start_offset}"
    if one.batches != other.batches:
        offsets = sorted(set(one.batches) | set(other.batches))
        first = next(each for each in offsets if one.batches.get(each) != other.batches.get(each))
        missing = [len(offsets) - len(each.batches) for each in (one, other)]
        return (
            f"the batch at offset {first}; {missing} batches are missing; "
            f"log end offsets {one.end_offset} and {other.end_offset}"
        )
    end_offset = min(one.end_offset, other.end_offset)
    epochs = [[each for each in replica.epochs if each[1] < end_offset] for replica in (one, other)]
    if epochs[0] != epochs[1]:
        return f"leader epochs {one.epochs} and {other.epochs}"
    return ""


def _checkpoint(file: Path) -> dict[tuple[str, int], int]:
    rows = map(str.split, _rows(file))
    return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def _rows(file: Path) -> list[str]:
    """The lines of a checkpoint behind its version and count."""
    return file.read_text().splitlines()[2:] if file.exists() else []
