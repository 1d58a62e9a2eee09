"""Snapshots of the metadata log as bytes: `<end offset>-<epoch>.checkpoint`, and `bootstrap.checkpoint`.

A snapshot represents everything in the log below its end offset. It is a file of batches: a control batch
that begins with the snapshot's header (and also has the quorum's own records, voters and version), the
records, and a control batch with the footer. Without a footer it is incomplete. Offsets inside it run from 0
and mean nothing. It is built piece by piece (`SnapshotBuilder`), so that a large one does not block the loop.
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
# the endings while it is being written, when it is to be removed (by Kafka), and when it was found corrupt
PART, DELETED, CORRUPT = ".part", ".deleted", ".corrupt"
_EPOCH_DIGITS = 10


class CorruptSnapshot(StorageError):
    """A malformed or incomplete metadata snapshot."""


class SnapshotId(NamedTuple):
    """The end offset of a snapshot, and the epoch of its last record."""

    end_offset: int
    epoch: int

    @property
    def name(self) -> str:
        return f"{self.end_offset:0{OFFSET_DIGITS}d}-{self.epoch:0{_EPOCH_DIGITS}d}{CHECKPOINT}"


class Snapshot(NamedTuple):
    """The contents of a snapshot: the quorum's own records, and the values of the others."""

    controls: list[Message]
    values: list[bytes]
    last_contained_ms: int = 0  # the timestamp of the last record that it represents


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """The id in a file's name; None if it is not a snapshot's."""
    offset, _, epoch = name.removesuffix(CHECKPOINT).partition("-")
    if not (offset.isascii() and offset.isdecimal() and epoch.isascii() and epoch.isdecimal()):
        return None
    parsed = SnapshotId(int(offset), int(epoch))
    return parsed if parsed.name == name else None


class SnapshotBuilder:
    """Builds the batches of a snapshot one by one: `begin`, any number of `add`, `end`."""

    def __init__(self, timestamp_ms: int, *, last_contained_ms: int = 0, epoch: int = 0) -> None:
        """`last_contained_ms` is the timestamp of the last record that the snapshot represents."""
        self._timestamp_ms = timestamp_ms
        self._last_contained_ms = last_contained_ms
        self._epoch = epoch
        self._next_offset = 0

    def begin(self, controls: Iterable[Message] = ()) -> bytes:
        """The header, with the quorum's own records."""
        return self._control(
            [SnapshotHeaderRecord(last_contained_log_timestamp=self._last_contained_ms), *controls]
        )

    def add(self, values: Iterable[bytes]) -> bytes:
        """The next records, in batches of their own."""
        return self._placed(
            data_batches(values, self._timestamp_ms, base_offset=self._next_offset, leader_epoch=self._epoch)
        )

    def end(self) -> bytes:
        """The footer, without which the snapshot is incomplete."""
        return self._control([SnapshotFooterRecord()])

    def _control(self, messages: list[Message]) -> bytes:
        batch = control_batch(
            messages, self._timestamp_ms, base_offset=self._next_offset, leader_epoch=self._epoch
        )
        return self._placed([batch])

    def _placed(self, batches: Sequence[bytearray]) -> bytes:
        if batches:
            self._next_offset = BatchHeader.parse(batches[-1]).next_offset
        return b"".join(batches)


def build_snapshot(
    values: Sequence[bytes],
    timestamp_ms: int,
    *,
    controls: Iterable[Message] = (),
    last_contained_ms: int = 0,
    epoch: int = 0,
) -> bytes:
    """The bytes of a small snapshot, in one call."""
    builder = SnapshotBuilder(timestamp_ms, last_contained_ms=last_contained_ms, epoch=epoch)
    return b"".join((builder.begin(controls), builder.add(values), builder.end()))


def read_snapshot(data: bytes, where: str) -> Snapshot:
    """The contents of the snapshot at `where`."""
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
    header_record = controls[0]
    assert isinstance(header_record, SnapshotHeaderRecord)
    return Snapshot(controls[1:-1], values, header_record.last_contained_log_timestamp)


def read_last_contained_ms(data: bytes) -> int:
    """The timestamp of the last record in a snapshot, from its first bytes; -1 if they lack it."""
    try:
        for header, position in read_batches(data):
            for _, message in read_control_batch(data, position, header):
                if isinstance(message, SnapshotHeaderRecord):
                    return message.last_contained_log_timestamp
            break
    except (CorruptMessage, InvalidRecord):
        pass
    return -1
