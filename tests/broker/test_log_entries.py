"""Batches of the metadata log as the raft core's entries, and control records as its values."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.quorum.log_entries import control_messages, entries_of
from barnabas.core.errors import CorruptMessage
from barnabas.raft.batches import data_batches
from barnabas.raft.control_records import (
    LeaderChangeMessage,
    SnapshotFooterRecord,
    VotersRecord,
    control_batch,
)
from barnabas.raft.election import VoterKey
from barnabas.raft.log_index import Control, KRaftVersion, LeaderChange
from barnabas.raft.voters import Endpoint, VoterInfo, VoterSet

LISTENER = "CONTROLLER"
PORT = 9093


def batches() -> list[bytes]:
    first = data_batches([b"a", b"b"], 1_000, base_offset=10, leader_epoch=3)
    second = data_batches([b"c"], 1_000, base_offset=12, leader_epoch=4)
    return [bytes(each) for each in (*first, *second)]


def test_batches_become_entries_with_their_bytes() -> None:
    made = batches()
    entries = entries_of(b"".join(made), LISTENER)
    assert [(each.base_offset, each.records, each.epoch) for each in entries] == [(10, 2, 3), (12, 1, 4)]
    assert [bytes(each.data) for each in entries] == made
    assert [each.control for each in entries] == [(), ()]


def test_a_last_batch_that_is_cut_short_is_left_out() -> None:
    first, second = batches()
    for size in range(len(second)):
        assert [each.base_offset for each in entries_of(first + second[:size], LISTENER)] == [10]
    assert entries_of(b"", LISTENER) == ()


@pytest.mark.parametrize("position", [8, 16, 17, 40, -1])
def test_a_whole_batch_that_is_damaged_is_an_error(position: int) -> None:
    first, second = batches()
    damaged = bytearray(first)
    damaged[position] ^= 0xFF
    with pytest.raises(CorruptMessage):
        entries_of(bytes(damaged) + second, LISTENER)


keys = st.builds(VoterKey, st.integers(0, 9), st.uuids())
bare_keys = st.integers(0, 9).map(VoterKey)  # a LeaderChange names no directories
changes = st.builds(
    LeaderChange,
    st.integers(0, 9),
    st.lists(bare_keys, max_size=3).map(tuple),
    st.lists(bare_keys, max_size=3).map(tuple),
)


@st.composite
def voter_sets(draw: st.DrawFn) -> VoterSet:
    found = {key.id: key for key in draw(st.lists(keys, max_size=5))}
    other = draw(st.booleans())
    endpoints = (Endpoint(LISTENER, "h", PORT), Endpoint("B", "h", 1))[: 1 + other]
    return VoterSet(VoterInfo(key, endpoints, 0, draw(st.integers(0, 2))) for key in found.values())


def through_a_batch(values: list[Any]) -> tuple[Control, ...]:
    batch = control_batch(control_messages(values), 1_000, base_offset=5, leader_epoch=2)
    (entry,) = entries_of(batch, LISTENER)
    assert (entry.base_offset, entry.records, entry.epoch) == (5, len(values), 2)
    return entry.control


@given(st.lists(changes | voter_sets() | st.just(KRaftVersion(1)), min_size=1, max_size=4))
def test_control_records_are_told_as_they_were_written(values: list[Any]) -> None:
    assert through_a_batch(values) == tuple(values)


def test_leader_change_is_written_as_kafka_reads_it_and_read_in_both_versions() -> None:
    change = LeaderChange(1, (VoterKey(1, UUID(int=9)),), ())
    (message,) = control_messages([change])
    assert isinstance(message, LeaderChangeMessage)
    assert message.version == 0
    message.version = 1
    (entry,) = entries_of(control_batch([message], 1_000), LISTENER)
    assert entry.control == (change,)


def test_voters_are_reached_at_the_controller_listener_first() -> None:
    endpoints = (Endpoint("A", "h", 1), Endpoint("controller", "h", PORT))
    values = [VoterSet([VoterInfo(VoterKey(1), endpoints)])]
    (found,) = through_a_batch(values)
    assert isinstance(found, VoterSet)
    assert found.voters[0].endpoints == (Endpoint(LISTENER, "h", PORT), Endpoint("A", "h", 1))


def test_bounds_of_a_snapshot_tell_the_core_nothing() -> None:
    batch = control_batch([SnapshotFooterRecord(version=0), VotersRecord(version=0, voters=[])], 1_000)
    (entry,) = entries_of(batch, LISTENER)
    assert entry.control == (VoterSet([]),)
