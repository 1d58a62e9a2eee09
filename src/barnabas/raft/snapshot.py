"""Snapshots of the metadata log as bytes: `<end offset>-<epoch>.checkpoint`, and `bootstrap.checkpoint`.

A snapshot stands for everything in the log below its end offset. It is a file of batches: a control batch
that begins with the snapshot's header (the quorum's own records, voters and version, stand in it too), the
records, and a control batch with the footer. Without a footer it was never finished. Offsets inside it run
from 0 and mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.core.errors import CorruptMessage, InvalidRecord, StorageError
from barnabas.log.names import OFFSET_DIGITS
from barnabas.protocol.schema import Message
from barnabas.raft.batches import data_batches
from barnabas.raft.control_records import (
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    control_batch,
    read_control_batch,
)
from barnabas.records.batch import BatchHeader
from barnabas.records.reader import read_batch, read_batches

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
CHECKPOINT = ".checkpoint"
_EPOCH_DIGITS = 10


class CorruptSnapshot(StorageError):
    """A metadata snapshot that no program finished like this."""


class SnapshotId(NamedTuple):
    """How far a snapshot goes, and the epoch of the last record in it."""

    end_offset: int
    epoch: int

    @property
    def name(self) -> str:
        return f"{self.end_offset:0{OFFSET_DIGITS}d}-{self.epoch:0{_EPOCH_DIGITS}d}{CHECKPOINT}"


class Snapshot(NamedTuple):
    """What is in one: the quorum's own records, and the values of the others."""

    controls: list[Message]
    values: list[bytes]


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """What a file's name says; None where it is no snapshot's."""
    offset, _, epoch = name.removesuffix(CHECKPOINT).partition("-")
    if not (offset.isascii() and offset.isdecimal() and epoch.isascii() and epoch.isdecimal()):
        return None
    parsed = SnapshotId(int(offset), int(epoch))
    return parsed if parsed.name == name else None


def build_snapshot(
    values: Sequence[bytes],
    timestamp_ms: int,
    *,
    controls: Iterable[Message] = (),
    last_contained_ms: int = 0,
    epoch: int = 0,
) -> bytes:
    """The bytes of a snapshot; `last_contained_ms` is the time of the last record that it stands for."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_ms)
    batches = [control_batch([header, *controls], timestamp_ms, leader_epoch=epoch)]
    batches += data_batches(values, timestamp_ms, base_offset=_after(batches), leader_epoch=epoch)
    footer = [SnapshotFooterRecord()]
    batches.append(control_batch(footer, timestamp_ms, base_offset=_after(batches), leader_epoch=epoch))
    return b"".join(batches)


def read_snapshot(data: bytes, where: str) -> Snapshot:
    """The contents of a snapshot that was found at `where`."""
    controls: list[Message] = []
    values: list[bytes] = []
    try:
        for header, position in read_batches(data):
            if header.is_control:
                controls += (message for _, message in read_control_batch(data, position, header))
            else:
                values += (record.value or b"" for record in read_batch(data, position, header))
    except (CorruptMessage, InvalidRecord) as error:
        raise CorruptSnapshot(f"{where} is corrupt: {error}; restore the file from a copy") from error
    ends = controls[:1] + controls[-1:]
    if [type(message) for message in ends] != [SnapshotHeaderRecord, SnapshotFooterRecord]:
        raise CorruptSnapshot(f"{where} has no header or no footer: it was not written to its end")
    return Snapshot(controls[1:-1], values)


def _after(batches: Sequence[bytearray]) -> int:
    return BatchHeader.parse(batches[-1]).next_offset
