"""Control records: records that brokers write between those of clients.

A control record's key is a version and a type, its value a versioned message. The two types that end a
transaction are written and read here; those of the metadata quorum are recognised, and read there.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from barnabas.core.disk import Buffer
from barnabas.core.errors import InvalidRecord
from barnabas.records.batch import NO_LEADER_EPOCH, BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.reader import Record, read_batch

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    """The type in a control record's key; UNKNOWN stands for types of newer versions."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    type: ControlType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        return self.type is ControlType.COMMIT


def control_key(kind: ControlType) -> bytes:
    """The key of a control record of that type."""
    return _KEY.pack(_VERSION, kind)


def control_type(key: bytes | None) -> ControlType:
    """The type in a control record's key; later versions of the key may be longer."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord("a control record's key is shorter than its version and type")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"a control record's key has version {version}")
    return ControlType(number) if 0 <= number <= ControlType.KRAFT_VOTERS else ControlType.UNKNOWN


def build_end_transaction(
    kind: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The batch that commits or aborts a producer's transaction."""
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise ValueError(f"{kind.name} does not end a transaction")
    record = Record(0, timestamp, control_key(kind), _MARKER.pack(_VERSION, coordinator_epoch))
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def parse_marker(record: Record) -> EndTransactionMarker | None:
    """The transaction marker in a control record, or None if it has another type."""
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER.size:
        raise InvalidRecord("a transaction marker's value is shorter than its version and epoch")
    version, coordinator_epoch = _MARKER.unpack_from(record.value)
    if version < 0:
        raise InvalidRecord(f"a transaction marker has version {version}")
    return EndTransactionMarker(kind, coordinator_epoch)


def parse_end_transaction(
    buffer: Buffer, position: int = 0, header: BatchHeader | None = None
) -> EndTransactionMarker | None:
    """The marker in the control batch at `position`, or None if it is empty or of another type."""
    for record in read_batch(buffer, position, header):
        return parse_marker(record)
    return None
