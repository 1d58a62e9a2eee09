"""The quorum's own records: leader changes, voters, kraft.version, and the header and footer of snapshots.

They are in control batches. A record's key is its type; its value is the message, whose first field is its
own version, so that it can be read without further framing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from barnabas.core.disk import Buffer
from barnabas.core.errors import InvalidRecord
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.schema import (
    NO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
)
from barnabas.records.batch import BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.control import ControlType, control_key, control_type
from barnabas.records.reader import read_batch
from barnabas.records.record import Record


class LeaderChangeVoter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid = field(1, default=NO_UUID)


class LeaderChangeMessage(Message, key=ControlType.LEADER_CHANGE, versions=(0, 1), flexible=0):
    version: Int16 = field(default=0)
    leader_id: Int32
    voters: list[LeaderChangeVoter]
    granting_voters: list[LeaderChangeVoter]


class SnapshotHeaderRecord(Message, key=ControlType.SNAPSHOT_HEADER, flexible=0):
    version: Int16 = field(default=0)
    last_contained_log_timestamp: Int64


class SnapshotFooterRecord(Message, key=ControlType.SNAPSHOT_FOOTER, flexible=0):
    version: Int16 = field(default=0)


class KRaftVersionRecord(Message, key=ControlType.KRAFT_VERSION, flexible=0):
    version: Int16 = field(default=0)
    k_raft_version: Int16


class VoterEndpoint(Struct):
    name: String
    host: String
    port: UInt16


class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16


class Voter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: list[VoterEndpoint]
    k_raft_version_feature: KRaftVersionFeature


class VotersRecord(Message, key=ControlType.KRAFT_VOTERS, flexible=0):
    version: Int16 = field(default=0)
    voters: list[Voter]


_BY_TYPE: dict[int, type[Message]] = {
    cls.__key__: cls
    for cls in (
        LeaderChangeMessage,
        SnapshotHeaderRecord,
        SnapshotFooterRecord,
        KRaftVersionRecord,
        VotersRecord,
    )
}
_INT16 = struct.Struct(">h")


def control_batch(
    messages: Iterable[Message], timestamp_ms: int, *, base_offset: int = 0, leader_epoch: int = -1
) -> bytearray:
    """One control batch of these messages, each in the version that its field names."""
    records = [Record(0, timestamp_ms, _key(message), _value(message)) for message in messages]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, control=True)


def read_control_batch(
    buffer: Buffer, position: int = 0, header: BatchHeader | None = None
) -> list[tuple[int, Message]]:
    """The quorum's messages in a control batch with their offsets; types of later versions are skipped."""
    found = []
    for record in read_batch(buffer, position, header):
        cls = _BY_TYPE.get(control_type(record.key))
        if cls is not None:
            found.append((record.offset, _message(cls, record.value)))
    return found


def _key(message: Message) -> bytes:
    return control_key(ControlType(message.__key__))


def _value(message: Any) -> bytes:
    return encode(message, message.version)


def _message(cls: type[Message], value: bytes | None) -> Message:
    if value is None or len(value) < _INT16.size:
        raise InvalidRecord(f"a control record of type {cls.__name__} is shorter than its version")
    (version,) = _INT16.unpack_from(value)
    lowest, highest = cls.__versions__
    if not lowest <= version <= highest:
        raise InvalidRecord(f"{cls.__name__} of version {version} is not known, only {lowest} to {highest}")
    return decode(cls, version, value)
