"""Batches that a leader sent as the raft core's entries."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.broker.quorum.log_entries import entries_of
from barnabas.core.errors import CorruptMessage
from barnabas.raft.batches import data_batches
from barnabas.raft.control_records import SnapshotFooterRecord, control_batch
from barnabas.raft.control_values import to_message
from barnabas.raft.election import VoterKey
from barnabas.raft.log_index import Control, KRaftVersion, LeaderChange
from barnabas.raft.voters import Endpoint, VoterInfo, VoterSet


def batches() -> list[bytes]:
    first = data_batches([b"a", b"b"], 1_000, base_offset=10, leader_epoch=3)
    second = data_batches([b"c"], 1_000, base_offset=12, leader_epoch=4)
    return [bytes(each) for each in (*first, *second)]


def test_batches_become_entries_with_their_bytes() -> None:
    made = batches()
    entries = entries_of(b"".join(made))
    assert [(each.base_offset, each.records, each.epoch) for each in entries] == [(10, 2, 3), (12, 1, 4)]
    assert [bytes(each.data) for each in entries] == made
    assert [each.control for each in entries] == [(), ()]


def test_last_batch_that_is_cut_short_is_left_out() -> None:
    first, second = batches()
    for size in range(len(second)):
        assert [each.base_offset for each in entries_of(first + second[:size])] == [10]
    assert entries_of(b"") == ()


@pytest.mark.parametrize("position", [8, 16, 17, 40, -1])
def test_whole_batch_that_is_damaged_is_an_error(position: int) -> None:
    first, second = batches()
    damaged = bytearray(first)
    damaged[position] ^= 0xFF
    with pytest.raises(CorruptMessage):
        entries_of(bytes(damaged) + second)


def test_control_records_are_told_to_the_core() -> None:
    voter = VoterInfo(VoterKey(1, UUID(int=9)), (Endpoint("CONTROLLER", "h", 9093),), 0, 1)
    told: list[Control] = [
        LeaderChange(1, (VoterKey(1),), (VoterKey(1),)),
        KRaftVersion(1),
        VoterSet([voter]),
    ]
    messages = [*map(to_message, told), SnapshotFooterRecord(version=0)]
    batch = control_batch(messages, 1_000, base_offset=5, leader_epoch=2)
    (entry,) = entries_of(batch)
    assert (entry.base_offset, entry.records, entry.epoch) == (5, 4, 2)
    assert entry.control == tuple(told)
    assert bytes(entry.data) == batch
