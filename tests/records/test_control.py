"""Control records: markers to the byte, and types known and unknown."""

from __future__ import annotations

import pytest

from barnabas.core.errors import InvalidRecord
from barnabas.records import kernel
from barnabas.records.builder import build_batch
from barnabas.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction,
    control_key,
    control_type,
    parse_end_transaction,
    parse_marker,
)
from barnabas.records.reader import read_records
from barnabas.records.record import Record


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_the_end_of_a_transaction(kind: ControlType) -> None:
    batch = build_end_transaction(
        kind,
        producer_id=9,
        producer_epoch=2,
        coordinator_epoch=77,
        timestamp=5,
        base_offset=30,
        leader_epoch=4,
    )
    header = kernel.check_batch(batch, 0, len(batch))
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (30, 4, 1)
    (record,) = read_records(batch, control=True)
    assert record.key == bytes([0, 0, 0, kind])
    assert record.value == bytes([0, 0, 0, 0, 0, 77])
    marker = parse_end_transaction(batch)
    assert marker == EndTransactionMarker(kind, 77)
    assert marker.is_commit == (kind is ControlType.COMMIT)


def test_control_batches_are_left_out_of_records_unless_asked_for() -> None:
    marker = build_end_transaction(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=1
    )
    data = build_batch([Record(0, 0, None, b"data")]) + marker
    assert [record.offset for record in read_records(data)] == [0]
    assert [record.offset for record in read_records(data, control=True)] == [0, 1]


@pytest.mark.parametrize("kind", [kind for kind in ControlType if kind > ControlType.COMMIT])
def test_records_of_the_metadata_quorum_are_recognised(kind: ControlType) -> None:
    assert control_type(control_key(kind)) is kind
    assert parse_marker(Record(0, 0, control_key(kind), b"anything")) is None
    with pytest.raises(ValueError, match="does not end a transaction"):
        build_end_transaction(kind, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0)


def test_types_and_versions_from_the_future() -> None:
    assert control_type(b"\x00\x00\x00\x63") is ControlType.UNKNOWN
    assert control_type(b"\x00\x05\x00\x01 and more") is ControlType.COMMIT
    assert parse_marker(Record(0, 0, control_key(ControlType.ABORT), b"\x00\x01\x00\x00\x00\x03 more")) == (
        0,
        3,
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00\x00\x00", b""),
        (b"\xff\xff\x00\x01", bytes(6)),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", bytes(5)),
        (b"\x00\x00\x00\x01", b"\xff\xff" + bytes(4)),
    ],
)
def test_malformed_markers(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        parse_marker(Record(0, 0, key, value))
