"""The core as a whole: its start, its transitions, the turn of a Ready, and the quorum of one."""

from __future__ import annotations

import subprocess
import sys
from uuid import UUID

import pytest

from barnabas.core.errors import InvariantViolation
from barnabas.core.random import SeededRandom
from barnabas.raft.config import RaftConfig
from barnabas.raft.core import NotLeader, Raft
from barnabas.raft.election import TRANSITIONS, Election, State, VoterKey
from barnabas.raft.log_index import Entry, LeaderChange, LogState
from barnabas.raft.messages import (
    BeginQuorumEpoch,
    DialRefused,
    Fetch,
    FetchResponse,
    Received,
    Send,
    Vote,
    VoteResponse,
)
from barnabas.raft.ready import NOTHING
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.voters import VoterSet
from tests.raft.nodes import A, B, C, Driven, endpoint, node, static_voters, voters


def sole(**options: object) -> Driven:
    """A sole voter that leads; its first record names it, and its voters where they were not in the log."""
    driven = node(A, **options)  # type: ignore[arg-type]
    driven.lead()
    return driven


# --- starts


@pytest.mark.parametrize(
    ("election", "log_epoch", "state", "after"),
    [
        (Election(), 0, State.UNATTACHED, Election()),
        (Election(4), 2, State.UNATTACHED, Election(4)),
        (Election(4, -1, B), 2, State.UNATTACHED, Election(4, -1, B)),
        (Election(4, A.id), 4, State.RESIGNED, Election(4, A.id)),  # 10527
        (Election(4, -1, A), 3, State.CANDIDATE, Election(4, -1, A)),
        (Election(4, B.id), 4, State.FOLLOWER, Election(4, B.id)),
        (Election(4, 9), 4, State.UNATTACHED, Election(4, 9)),  # a leader that nobody knows where to find
        (Election(4, A.id, A), 6, State.UNATTACHED, Election(6)),  # the log knows of a later epoch
    ],
)
def test_starts(election: Election, log_epoch: int, state: State, after: Election) -> None:
    epochs = [(log_epoch, 0)] if log_epoch else []
    raft = node(A, B, C, election=election, epochs=epochs, end_offset=len(epochs)).raft
    assert (raft.state, raft.election) == (state, after)


def test_what_a_snapshot_stands_for_is_committed() -> None:
    raft = Raft(
        A,
        election=Election(),
        log=LogState(voters(A, B), 1, (), 2, 9, [(1, 2)], [(SnapshotId(2, 1), 5), (SnapshotId(6, 1), 5)], 5),
        config=RaftConfig(),
        random=SeededRandom(1),
    )
    assert raft.high_watermark == 6


def test_own_vote_without_a_directory_is_recognised() -> None:
    """kraft.version 0 does not keep the directory of a vote."""
    voter_set = static_voters(A, B, C)
    raft = node(A, voter_set=voter_set, kraft_version=0, election=Election(4, -1, VoterKey(A.id))).raft
    assert raft.state is State.CANDIDATE


def test_vote_for_a_former_directory_is_no_vote_for_oneself() -> None:
    former = VoterKey(A.id, UUID(int=99))
    driven = node(A, B, C, election=Election(4, -1, former))
    assert driven.raft.state is State.UNATTACHED
    assert not driven.vote(B, 4, (3, 9)).granted


def test_observer_with_a_vote_for_itself_does_not_stand() -> None:
    assert node(A, voter_set=voters(B, C), election=Election(4, -1, A)).raft.state is State.UNATTACHED


def test_resigned_leader_begins_anew_soon_after_its_start() -> None:
    driven = node(A, B, C, election=Election(4, A.id))
    driven.tick(25)
    assert (driven.raft.state, driven.raft.epoch) == (State.PROSPECTIVE, 5)


# --- transitions


LEGAL = {
    State.UNATTACHED: {State.UNATTACHED, State.PROSPECTIVE, State.FOLLOWER},
    State.PROSPECTIVE: {State.CANDIDATE, State.FOLLOWER, State.UNATTACHED},
    State.CANDIDATE: {State.LEADER, State.PROSPECTIVE, State.UNATTACHED, State.FOLLOWER},
    State.LEADER: {State.RESIGNED, State.UNATTACHED, State.FOLLOWER},
    State.FOLLOWER: {State.PROSPECTIVE, State.FOLLOWER, State.UNATTACHED},
    State.RESIGNED: {State.UNATTACHED, State.FOLLOWER, State.PROSPECTIVE},  # the last: a sole voter
}


def test_transitions_are_those_of_the_table() -> None:
    assert {state: set(after) for state, after in TRANSITIONS.items()} == LEGAL


def test_only_a_candidate_raises_the_epoch_by_voting() -> None:
    driven = node(A, B, C)
    driven.ask_for_pre_votes()
    assert driven.raft.epoch == 0
    assert driven.elections == []  # Prospective is memory only
    driven.stand()
    assert driven.raft.epoch == 1


def test_leader_of_the_same_epoch_does_not_follow_another() -> None:
    driven = sole()
    driven.ask(BeginQuorumEpoch(driven.raft.epoch, B.id, (endpoint(B.id),)))
    assert driven.raft.state is State.LEADER


def test_two_leaders_of_one_epoch_break_an_invariant() -> None:
    driven = node(A, B, C)
    driven.follow(B, 3)
    with pytest.raises(InvariantViolation, match="both lead epoch 3"):
        driven.raft.become_follower(3, C.id, endpoint(C.id), 0)


def test_move_inside_an_epoch_keeps_the_vote() -> None:
    driven = node(A, B, C)
    driven.vote(B, 3, (0, 0))
    driven.follow(B, 3)
    assert driven.elections[-1] == Election(3, B.id, B)
    driven.follow(C, 4)
    assert driven.elections[-1] == Election(4, C.id)


# --- the turn of a Ready


def test_there_is_one_ready_at_a_time() -> None:
    driven = sole()
    raft = driven.raft
    raft.propose([("x", 1)])
    ready = raft.ready()
    raft.propose([("y", 1)])
    assert raft.ready() is NOTHING
    raft.advance(ready, 0)
    assert [entry.data for entry in raft.ready().entries] == ["y"]


def test_messages_come_with_the_election_that_they_rest_on() -> None:
    raft = node(A, B, C).raft
    raft.step(Received("token", BeginQuorumEpoch(3, B.id, (endpoint(B.id),))), 0)
    ready = raft.ready()
    assert ready.election == Election(3, B.id)
    assert len(ready.messages) == 2  # the answer, and the first fetch
    assert ready.entries == ()


def test_message_of_an_earlier_state_is_sent_with_the_later_election() -> None:
    """A vote in epoch 3 and then a leader of epoch 4, both before the driver looks: once epoch 4 is on the
    disk, no other vote can be given in epoch 3."""
    raft = node(A, B, C).raft
    raft.step(Received("one", Vote(3, B, 0, 0)), 0)
    raft.step(Received("two", BeginQuorumEpoch(4, C.id, (endpoint(C.id),))), 0)
    ready = raft.ready()
    assert ready.election == Election(4, C.id)
    assert any(getattr(each, "token", None) == "one" for each in ready.messages)


def test_ready_may_be_done_in_part() -> None:
    driven = sole()
    raft = driven.raft
    end = raft.end_offset
    raft.propose([("x", 1), ("y", 2), ("z", 1)])
    ready = raft.ready()
    raft.advance(ready._replace(entries=ready.entries[:2]), 0)
    assert (raft.end_offset, raft.next_offset, raft.high_watermark) == (end + 3, end + 4, end + 3)
    assert [entry.data for entry in raft.ready().entries] == ["z"]


def test_commit_is_told_once() -> None:
    raft = sole().raft
    end = raft.propose([("x", 1)])
    raft.advance(raft.ready(), 0)
    assert raft.ready().high_watermark == end
    raft.advance(raft._writing or NOTHING, 0)
    assert raft.ready() is NOTHING


def test_withdrawn_entries_were_never_proposed() -> None:
    raft = sole().raft
    end = raft.end_offset
    raft.propose([("x", 3)])
    ready = raft.ready()
    raft.propose([("y", 1)])
    raft.withdraw(ready, 0)
    assert raft.ready() is NOTHING
    assert (raft.state, raft.propose([("z", 1)])) == (State.LEADER, end + 1)


def test_leader_that_cannot_write_its_first_record_resigns() -> None:
    driven = node(A, B, C)
    driven.stand()
    raft = driven.raft
    raft.step(driven.answer_of(B.id, VoteResponse(0, driven.known(), True)), 0)
    ready = raft.ready()
    assert isinstance(ready.entries[0].control[0], LeaderChange)
    raft.withdraw(ready, 0)
    assert raft.state is State.RESIGNED
    assert raft.end_offset == 0


def test_follower_that_cannot_write_fetches_again_later() -> None:
    driven = node(A, B, C)
    driven.follow(B)
    raft = driven.raft
    response = FetchResponse(0, driven.known(leader_id=B.id), -1, 0, entries=(Entry(0, 1, 1),))
    raft.step(driven.answer_of(B.id, response), 0)
    raft.withdraw(raft.ready(), 0)
    assert raft.end_offset == 0
    assert raft.ready() is NOTHING
    driven.tick(20)
    assert driven.requests(Fetch)[-1].offset == 0


def test_entries_written_while_the_lead_was_lost_are_in_the_log_and_count_for_nothing() -> None:
    driven = node(A, B, C)
    driven.lead()
    raft = driven.raft
    end = raft.end_offset
    raft.propose([("x", 2)])
    ready = raft.ready()
    raft.step(Received("token", BeginQuorumEpoch(7, C.id, (endpoint(C.id),))), driven.now_ms)
    assert not any(isinstance(each, Send) for each in raft.ready().messages)
    raft.advance(ready, driven.now_ms)
    assert (raft.end_offset, raft.high_watermark, raft.state) == (end + 2, 0, State.FOLLOWER)
    driven.settle()
    assert driven.requests(Fetch)[-1][2:4] == (end + 2, 1)


def test_deadline_is_always_ahead() -> None:
    """A core that wants to be told of a time that has passed would keep its driver busy (17751)."""
    for driven in (node(A, B, C), node(A), node(A, voter_set=voters(B, C))):
        for _ in range(200):
            driven.tick()
            assert driven.raft.next_deadline() > driven.now_ms
    assert node(A, voter_set=VoterSet(())).raft.next_deadline() == 0


# --- the quorum of one


def test_sole_voter_is_elected_by_its_first_tick() -> None:
    driven = node(A)
    assert driven.raft.ready() is NOTHING
    driven.tick(0)
    assert driven.elections == [Election(1, -1, A), Election(1, A.id)]
    assert (driven.raft.state, driven.raft.epoch, driven.raft.leader_id) == (State.LEADER, 1, A.id)
    assert driven.raft.high_watermark == driven.raft.end_offset == 3
    assert driven.sent == []
    driven.tick(100_000)
    assert driven.raft.state is State.LEADER


ALONE = """
import sys
from barnabas.core.random import SeededRandom
from barnabas.raft.config import RaftConfig
from barnabas.raft.core import Raft
from barnabas.raft.election import Election, VoterKey
from barnabas.raft.log_index import LogState
from barnabas.raft.voters import VoterInfo, VoterSet

me = VoterKey(1)
state = LogState(VoterSet([VoterInfo(me)]), 0)
raft = Raft(me, election=Election(), log=state, config=RaftConfig(), random=SeededRandom(1))
raft.tick(0)
while ready := raft.ready():
    raft.advance(ready, 0)
end_offset = raft.propose([(b"", 1)])
while ready := raft.ready():
    raft.advance(ready, 0)
assert raft.high_watermark == end_offset
raft.resign(1)
print(*(name for name in sys.modules if name.startswith("barnabas.raft.")))
"""


def test_quorum_of_one_needs_no_messages() -> None:
    told = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True).stdout
    needless = ("messages", "stepping", "following", "serving", "voting", "voter_changes")
    assert {f"barnabas.raft.{name}" for name in needless}.isdisjoint(told.split())
    assert "barnabas.raft.leading" in told.split()


def test_own_vote_of_a_sole_voter_counts_when_it_is_durable() -> None:
    raft = node(A).raft
    raft.tick(0)
    ready = raft.ready()
    assert (ready.election, raft.state) == (Election(1, -1, A), State.CANDIDATE)
    raft.tick(2000)
    assert raft.state is State.CANDIDATE
    raft.advance(ready, 2000)
    assert raft.state is State.LEADER


@pytest.mark.parametrize(
    ("election", "epoch"),
    [(Election(4, A.id), 5), (Election(4, -1, A), 4), (Election(4), 5), (Election(), 3)],
)
def test_sole_voter_leads_an_epoch_that_it_has_not_led(election: Election, epoch: int) -> None:
    driven = node(A, election=election, epochs=[(2, 0)], end_offset=3, controls=[(0, voters(A))])
    driven.tick(0)
    assert (driven.raft.state, driven.raft.epoch) == (State.LEADER, epoch)
    assert driven.raft.high_watermark == 4  # with its first record, everything before it


def test_proposal_is_committed_when_it_is_durable() -> None:
    raft = sole().raft
    end = raft.end_offset
    assert raft.propose([("x", 3)]) == end + 3
    assert raft.propose([("y", 2)]) == end + 5
    ready = raft.ready()
    assert (raft.end_offset, raft.high_watermark) == (end, end)
    raft.advance(ready, 0)
    assert (raft.end_offset, raft.high_watermark) == (end + 5, end + 5)


def test_sole_voter_that_resigned_leads_again_in_a_new_epoch() -> None:
    driven = sole()
    driven.raft.resign(0)
    with pytest.raises(NotLeader):
        driven.raft.propose([("x", 1)])
    driven.settle()
    assert driven.raft.state is State.RESIGNED
    driven.tick(0)
    assert (driven.raft.state, driven.raft.epoch) == (State.LEADER, 2)


def test_resigning_twice_breaks_an_invariant() -> None:
    driven = node(A, B, C)
    with pytest.raises(InvariantViolation, match="cannot become resigned"):
        driven.raft.resign(0)


def test_snapshots_hold_only_what_is_committed() -> None:
    raft = sole().raft
    assert raft.snapshot_id(raft.high_watermark).end_offset == raft.high_watermark
    raft.propose([("x", 1)])
    with pytest.raises(InvariantViolation, match="beyond the high watermark"):
        raft.snapshot_id(raft.next_offset)


def test_notices_in_other_states_mean_nothing() -> None:
    driven = sole()
    driven.step(DialRefused(A.id))
    assert driven.raft.state is State.LEADER
