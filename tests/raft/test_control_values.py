"""The quorum's own records, from the core's values and back."""

from __future__ import annotations

import pytest

from barnabas.raft.control_records import SnapshotFooterRecord, control_batch, read_control_batch
from barnabas.raft.control_values import to_control, to_message
from barnabas.raft.election import VoterKey
from barnabas.raft.log_index import Control, KRaftVersion, LeaderChange
from tests.raft.nodes import A, B, C, voter, voters


@pytest.mark.parametrize(
    "control",
    [
        KRaftVersion(1),
        voters(A, B, C),
        voters(A).with_voter(voter(B)._replace(endpoints=(), max_kraft_version=3)),
        LeaderChange(1, (VoterKey(1), VoterKey(2)), (VoterKey(2),)),
    ],
)
def test_value_goes_through_a_batch_unchanged(control: Control) -> None:
    ((offset, message),) = read_control_batch(control_batch([to_message(control)], 0, base_offset=7))
    assert (offset, to_control(message)) == (7, control)


def test_other_records_tell_the_core_nothing() -> None:
    assert to_control(SnapshotFooterRecord()) is None
