"""The quorum's own records, byte for byte as an independent implementation writes them."""

from __future__ import annotations

import importlib
import io
from random import Random
from typing import Any

import pytest

from barnabas.core.errors import InvalidRecord
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.schema import Message
from barnabas.raft.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    control_batch,
    read_control_batch,
)
from barnabas.records.batch import BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.control import ControlType, control_key
from barnabas.records.reader import read_batch
from barnabas.records.record import Record
from tests.support.messages import random_message

KIO = {
    LeaderChangeMessage: "leader_change_message",
    SnapshotHeaderRecord: "snapshot_header_record",
    SnapshotFooterRecord: "snapshot_footer_record",
    KRaftVersionRecord: "k_raft_version_record",
    VotersRecord: "voters_record",
}
CASES = [(cls, v) for cls in KIO for v in range(cls.__versions__[0], cls.__versions__[1] + 1)]


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_bytes_are_those_of_kio(cls: type[Message], version: int) -> None:
    from kio.serial import entity_reader, entity_writer

    theirs: Any = getattr(importlib.import_module(f"kio.schema.{KIO[cls]}.v{version}.data"), cls.__name__)
    random = Random(f"{cls.__name__} {version}")
    for _ in range(20):
        message = random_message(cls, version, random)
        data = encode(message, version)
        assert decode(cls, version, data) == message
        read = entity_reader(theirs)(data, 0)
        assert read[1] == len(data)
        again = io.BytesIO()
        entity_writer(theirs)(again, read[0])
        assert again.getvalue() == data


def test_a_leader_change_as_kafka_wrote_it() -> None:
    one = [LeaderChangeVoter(voter_id=1)]
    batch = control_batch([LeaderChangeMessage(leader_id=1, voters=one, granting_voters=one)], 1000)
    (record,) = read_batch(batch)
    assert record.key == bytes.fromhex("00000002")
    assert record.value == bytes.fromhex("0000 00000001 02 00000001 00 02 00000001 00 00")
    assert BatchHeader.parse(batch).is_control


def test_a_control_batch_is_read_back_with_its_offsets() -> None:
    messages: list[Message] = [
        SnapshotHeaderRecord(last_contained_log_timestamp=7),
        KRaftVersionRecord(k_raft_version=1),
        VotersRecord(voters=[]),
        SnapshotFooterRecord(),
    ]
    batch = control_batch(messages, 1000, base_offset=40, leader_epoch=3)
    assert read_control_batch(batch) == list(enumerate(messages, 40))
    assert BatchHeader.parse(batch).leader_epoch == 3


def control(kind: ControlType | int, value: bytes | None) -> bytearray:
    key = control_key(kind) if isinstance(kind, ControlType) else bytes((0, 0, 0, kind))
    return build_batch([Record(0, 0, key, value)], control=True)


def test_types_from_later_versions_are_left_out() -> None:
    assert read_control_batch(control(99, b"\0\0")) == []


@pytest.mark.parametrize("value", [None, b"\0", b"\0\1\0\0", b"\xff\xff\0\0"])
def test_a_record_of_unknown_version_is_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord, match="KRaftVersionRecord"):
        read_control_batch(control(ControlType.KRAFT_VERSION, value))
