"""The files beside the batches: indexes, producer snapshots, checkpoints, ids. Each as a list of facts."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from barnabas.cli.dump.facts import Facts
from barnabas.core.errors import StorageError
from barnabas.core.settings.properties import parse_properties
from barnabas.log import names
from barnabas.log.checkpoints import parse_checkpoint
from barnabas.log.snapshots import decode_snapshot
from barnabas.log.txn_index import ENTRY as TXN_ENTRY
from barnabas.raft.quorum_state import QUORUM_STATE

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class Unreadable(StorageError):
    """A file that is not what its name says; the message says why."""


def offset_index(path: Path) -> list[Facts]:
    """Offset and position of every entry that is in use: the rest of an active index is zeros."""
    base = _base(path, names.INDEX)
    return [
        {"offset": base + offset, "position": position}
        for offset, position in _ascending(path, _OFFSET_ENTRY)
    ]


def time_index(path: Path) -> list[Facts]:
    """Timestamp and offset of every entry that is in use."""
    base = _base(path, names.TIME_INDEX)
    return [
        {"timestamp": timestamp, "offset": base + offset}
        for timestamp, offset in _ascending(path, _TIME_ENTRY)
    ]


def _ascending(path: Path, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    data = path.read_bytes()
    whole = len(data) - len(data) % entry.size
    last = -1
    for first, second in entry.iter_unpack(memoryview(data)[:whole]):
        if first == 0 and second == 0 and last >= 0:
            break
        if entry is _OFFSET_ENTRY and first == 0 and second == 0:
            break  # the first batch of a segment is never indexed: this is room made in advance
        if entry is _TIME_ENTRY and first == 0 and second == 0 and not any(data):
            break
        if first <= last:
            raise Unreadable(f"{path}: entry {first} follows upon {last}; restart the node to rebuild it")
        yield first, second
        last = first
    if whole != len(data):
        raise Unreadable(
            f"{path}: {len(data)} bytes are no whole number of entries; restart the node to rebuild it"
        )


def transaction_index(path: Path) -> list[Facts]:
    """The aborted transactions whose markers stand in the segment."""
    data = path.read_bytes()
    if len(data) % TXN_ENTRY.size:
        raise Unreadable(
            f"{path}: {len(data)} bytes are no whole number of entries; restart the node to rebuild it"
        )
    fields = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    return [dict(zip(fields, values, strict=True)) for values in TXN_ENTRY.iter_unpack(data)]


def producer_snapshot(path: Path) -> list[Facts]:
    """The producers that the partition knew at the offset in the file's name."""
    return [
        {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": None if entry.txn_first_offset < 0 else entry.txn_first_offset,
            "last_timestamp": entry.timestamp,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "offset_delta": entry.offset_delta,
        }
        for entry in decode_snapshot(path.read_bytes(), str(path))
    ]


def offset_checkpoint(path: Path) -> list[Facts]:
    """An offset for each partition."""

    def parse(fields: list[str]) -> Facts:
        topic, partition, offset = fields
        return {"topic": topic, "partition": int(partition), "offset": int(offset)}

    return parse_checkpoint(path.read_bytes(), str(path), parse)


def epoch_checkpoint(path: Path) -> list[Facts]:
    """Where each leader epoch began."""

    def parse(fields: list[str]) -> Facts:
        epoch, start_offset = fields
        return {"epoch": int(epoch), "start_offset": int(start_offset)}

    return parse_checkpoint(path.read_bytes(), str(path), parse)


def properties(path: Path) -> list[Facts]:
    """`meta.properties`, and `partition.metadata`, which has the same form."""
    return [dict(parse_properties(path.read_text(encoding="latin-1")))]


def json_file(path: Path) -> list[Facts]:
    """`quorum-state` and `.kafka_cleanshutdown`."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise Unreadable(f"{path} is no JSON: {error}") from None
    return [content if isinstance(content, dict) else {"content": content}]


def _base(path: Path, suffix: str) -> int:
    stem = path.name.partition(".")[0]
    base = names.parse_offset(stem + suffix, suffix)
    if base is None:
        raise Unreadable(f"{path}: the name of an index is its segment's first offset, in twenty digits")
    return base


# what a whole file is called, and how it is read
BY_NAME: dict[str, tuple[str, Callable[[Path], list[Facts]]]] = {
    names.LEADER_EPOCH_CHECKPOINT: ("leader epochs", epoch_checkpoint),
    names.PARTITION_METADATA: ("partition metadata", properties),
    names.RECOVERY_POINT_CHECKPOINT: ("recovery points", offset_checkpoint),
    names.REPLICATION_CHECKPOINT: ("high watermarks", offset_checkpoint),
    names.LOG_START_CHECKPOINT: ("log start offsets", offset_checkpoint),
    names.CLEANER_CHECKPOINT: ("cleaned up to", offset_checkpoint),
    names.META_PROPERTIES: ("owner of the directory", properties),
    names.CLEAN_SHUTDOWN: ("clean stop", json_file),
    QUORUM_STATE: ("quorum state", json_file),
}
BY_SUFFIX: dict[str, tuple[str, Callable[[Path], list[Facts]]]] = {
    names.INDEX: ("offset index", offset_index),
    names.TIME_INDEX: ("time index", time_index),
    names.TXN_INDEX: ("transaction index", transaction_index),
    names.SNAPSHOT: ("producer snapshot", producer_snapshot),
}
