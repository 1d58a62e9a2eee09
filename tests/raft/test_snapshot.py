"""Snapshots of the metadata log, and the batches they and the log are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.raft.batches import RECORD_OVERHEAD_BYTES, data_batches
from barnabas.raft.control_records import KRaftVersionRecord, SnapshotFooterRecord, control_batch
from barnabas.raft.snapshot import (
    CorruptSnapshot,
    Snapshot,
    SnapshotId,
    build_snapshot,
    parse_snapshot_name,
    read_snapshot,
)
from barnabas.records.batch import HEADER_BYTES
from barnabas.records.reader import read_batches, read_records


def test_names() -> None:
    snapshot = SnapshotId(12, 3)
    assert snapshot.name == "00000000000000000012-0000000003.checkpoint"
    assert parse_snapshot_name(snapshot.name) == snapshot
    for name in (snapshot.name + ".part", snapshot.name[1:], "bootstrap.checkpoint", "-.checkpoint", "x"):
        assert parse_snapshot_name(name) is None


def test_a_snapshot_is_read_back() -> None:
    controls = [KRaftVersionRecord(k_raft_version=1)]
    data = build_snapshot([b"a", b"b"], 1000, controls=controls, last_contained_ms=900, epoch=4)
    assert read_snapshot(data, "there") == Snapshot([*controls], [b"a", b"b"], 900)
    headers = [header for header, _ in read_batches(data)]
    assert [header.base_offset for header in headers] == [0, 2, 4]
    assert {header.leader_epoch for header in headers} == {4}


def test_what_was_not_finished_is_refused() -> None:
    whole = build_snapshot([b"a"], 1000)
    cuts = [position for _, position in read_batches(whole)]
    for cut in [*cuts, cuts[-1] + 5, len(whole) - 1]:
        with pytest.raises(CorruptSnapshot, match="/data/x"):
            read_snapshot(whole[:cut], "/data/x")
    with pytest.raises(CorruptSnapshot, match="no header"):
        read_snapshot(bytes(control_batch([SnapshotFooterRecord()], 0)), "there")


@given(st.lists(st.binary(max_size=60), max_size=30), st.integers(100, 300))
def test_batches_hold_everything_in_order_and_stay_small(values: list[bytes], max_bytes: int) -> None:
    batches = data_batches(values, 1000, base_offset=7, max_bytes=max_bytes)
    records = list(read_records(b"".join(batches)))
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(7, 7 + len(values)))
    assert all(len(batch) <= max(max_bytes, HEADER_BYTES + 60 + RECORD_OVERHEAD_BYTES) for batch in batches)
