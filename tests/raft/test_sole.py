"""The core of the quorum, driven by hand: what it asks for, in which order, and what counts when."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.core.errors import InvariantViolation
from barnabas.raft.batches import data_batches
from barnabas.raft.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    read_control_batch,
)
from barnabas.raft.election import Election, State, VoterKey
from barnabas.raft.sole import NotLeader, Raft, ReplicaOffset, VoteGranted
from barnabas.records.batch import BatchHeader

ME, B, C = (VoterKey(number, UUID(int=number)) for number in (1, 2, 3))
FRESH = Election()


def new(*others: VoterKey, election: Election = FRESH, log_epoch: int = 0, end_offset: int = 0) -> Raft:
    return Raft(ME, {ME, *others}, election=election, log_epoch=log_epoch, end_offset=end_offset)


def settle(raft: Raft) -> list[Election]:
    """Do all that it asks for; returns the elections that were written."""
    written = []
    while ready := raft.ready():
        if ready.election is not None:
            written.append(ready.election)
        raft.advance(ready)
    return written


def leader(**options: object) -> Raft:
    raft = new(**options)  # type: ignore[arg-type]
    raft.tick(1000)
    settle(raft)
    assert raft.state is State.LEADER
    return raft


def batch(count: int = 1) -> list[bytearray]:
    return data_batches([b"value"] * count, 0)


def test_a_sole_voter_is_elected_by_its_first_tick() -> None:
    raft = new()
    assert not raft.ready()
    raft.tick(1000)
    assert settle(raft) == [Election(1, voted=ME), Election(1, leader_id=1)]
    assert (raft.state, raft.epoch, raft.leader_id) == (State.LEADER, 1, 1)
    raft.tick(2000)
    assert not raft.ready()


def test_its_own_vote_counts_only_once_it_is_written() -> None:
    raft = new()
    raft.tick(1000)
    ready = raft.ready()
    assert ready.election == Election(1, voted=ME)
    assert (raft.state, ready.batches) == (State.CANDIDATE, ())
    raft.tick(2000)
    assert raft.state is State.CANDIDATE
    raft.advance(ready)
    assert raft.state is State.LEADER


def test_an_epoch_begins_with_who_leads_it() -> None:
    raft = Raft(
        ME,
        {ME},
        election=Election(),
        log_epoch=0,
        end_offset=5,
        epoch_records=[KRaftVersionRecord(k_raft_version=1)],
    )
    raft.tick(1234)
    raft.advance(raft.ready())
    ready = raft.ready()
    (first,) = ready.batches
    assert (ready.epoch, ready.base_offset) == (1, 5)
    assert BatchHeader.parse(first).base_timestamp == 1234
    one = [LeaderChangeVoter(voter_id=1)]
    assert [message for _, message in read_control_batch(first)] == [
        LeaderChangeMessage(leader_id=1, voters=one, granting_voters=one),
        KRaftVersionRecord(k_raft_version=1),
    ]
    raft.advance(ready)
    assert raft.end_offset == raft.high_watermark == 7


def test_what_earlier_epochs_left_is_committed_with_the_first_record_of_this_one() -> None:
    raft = new(end_offset=10, log_epoch=3)
    raft.tick(0)
    raft.advance(raft.ready())
    raft.step(ReplicaOffset(ME, raft.epoch, 10))
    assert raft.high_watermark == 0
    settle(raft)
    assert raft.high_watermark == 11


@pytest.mark.parametrize(
    ("election", "log_epoch", "state"),
    [
        (Election(4, leader_id=1), 4, State.RESIGNED),
        (Election(4, voted=ME), 4, State.UNATTACHED),
        (Election(4, leader_id=1), 6, State.UNATTACHED),
        (Election(6), 2, State.UNATTACHED),
    ],
)
def test_every_start_is_a_new_epoch(election: Election, log_epoch: int, state: State) -> None:
    raft = new(election=election, log_epoch=log_epoch)
    assert raft.state is state
    raft.tick(0)
    settle(raft)
    assert raft.epoch == max(election.epoch, log_epoch) + 1


def test_a_proposal_is_committed_once_it_is_written() -> None:
    raft = leader()
    end = raft.end_offset
    assert raft.propose(batch(3)) == end + 3
    assert raft.propose(batch(2)) == end + 5
    ready = raft.ready()
    assert (raft.end_offset, raft.high_watermark) == (end, end)
    raft.propose(batch(1))
    raft.advance(ready)
    assert (raft.end_offset, raft.high_watermark) == (end + 5, end + 5)
    later = raft.ready()
    assert (later.base_offset, len(later.batches)) == (end + 5, 1)
    raft.advance(later)
    assert raft.high_watermark == end + 6


def test_a_withdrawn_proposal_leaves_no_trace() -> None:
    raft = leader()
    end = raft.end_offset
    raft.propose(batch(3))
    raft.withdraw()
    assert not raft.ready()
    assert raft.propose(batch()) == end + 1


def test_only_the_leader_proposes() -> None:
    raft = new()
    with pytest.raises(NotLeader, match="unattached"):
        raft.propose(batch())
    raft = leader()
    raft.resign()
    with pytest.raises(NotLeader, match="resigned"):
        raft.propose(batch())


def test_who_resigned_leads_again_only_in_a_new_epoch() -> None:
    raft = leader()
    raft.resign()
    assert not raft.ready()
    raft.step(VoteGranted(ME, raft.epoch))
    assert raft.state is State.RESIGNED
    with pytest.raises(InvariantViolation):
        raft.resign()
    raft.tick(0)
    settle(raft)
    assert (raft.state, raft.epoch) == (State.LEADER, 2)


def test_batches_written_while_the_epoch_moved_are_in_the_log_and_count_for_nothing() -> None:
    raft = leader()
    start = raft.end_offset
    raft.propose(batch(3))
    ready = raft.ready()
    raft.resign()
    raft.tick(0)
    assert raft.epoch == 2
    raft.advance(ready)
    assert (raft.end_offset, raft.next_offset, raft.high_watermark) == (start + 3, start + 3, start)
    settle(raft)
    assert (raft.state, raft.epoch) == (State.LEADER, 2)
    assert raft.high_watermark == raft.end_offset == start + 4  # with the leader change of the new epoch


def test_offsets_are_given_when_batches_are_proposed() -> None:
    raft = leader()
    start = raft.end_offset
    assert raft.propose(batch(2)) == raft.next_offset == start + 2
    ready = raft.ready()
    assert raft.propose(batch(1)) == start + 3  # while the first is being written
    raft.advance(ready)
    assert (raft.end_offset, raft.next_offset, raft.high_watermark) == (start + 2, start + 3, start + 2)
    assert raft.ready().base_offset == start + 2
    raft.withdraw()
    assert raft.next_offset == start + 2


def test_one_of_three_waits_for_the_votes_of_others() -> None:
    """Votes and offsets of others are counted where one's own are."""
    raft = new(B, C)
    raft.tick(0)
    assert raft.state is State.UNATTACHED  # an election among several begins with their messages
    raft._become(State.PROSPECTIVE)
    raft.step(VoteGranted(ME, 0, pre_vote=True))
    raft.step(VoteGranted(B, 0))
    assert raft.state is State.PROSPECTIVE
    raft.step(VoteGranted(B, 0, pre_vote=True))
    assert (raft.state, raft.epoch) == (State.CANDIDATE, 1)
    raft.advance(raft.ready())
    raft.step(VoteGranted(VoterKey(9), 1))
    raft.step(VoteGranted(C, 0))
    assert raft.state is State.CANDIDATE
    raft.step(VoteGranted(C, 1))
    assert raft.state is State.LEADER
    settle(raft)
    assert raft.high_watermark == 0
    raft.step(ReplicaOffset(B, 1, 1))
    assert raft.high_watermark == 1
    raft.step(ReplicaOffset(B, 1, 0))
    assert raft.high_watermark == 1
