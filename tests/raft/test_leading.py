"""Leading: the first records of an epoch, the high watermark, fetches that wait, snapshots, check-quorum."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.raft.core import NotLeader
from barnabas.raft.election import Election, State
from barnabas.raft.log_index import EpochEnd, KRaftVersion, LeaderChange
from barnabas.raft.messages import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NONE,
    NOT_LEADER,
    POSITION_OUT_OF_RANGE,
    SNAPSHOT_NOT_FOUND,
    UNKNOWN_LEADER_EPOCH,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochResponse,
    Failed,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    Known,
    LogTrimmed,
    Read,
    SnapshotTaken,
    Vote,
)
from barnabas.raft.replication import Leadership
from barnabas.raft.snapshot import SnapshotId
from tests.raft.nodes import A, B, C, D, Driven, E, endpoint, node, static_voters, voter, voters

IN_LOG = [(0, voters(A, B, C))]


def leader(*others: Any, **options: Any) -> Driven:
    """Of three voters that stand in the log; its first record ends at 2."""
    options = {"epochs": [(1, 0)], "end_offset": 1, "controls": IN_LOG, **options}
    driven = node(A, *(others or (B, C)), **options)
    driven.lead()
    return driven


def propose(driven: Driven, count: int = 1) -> int:
    end_offset = driven.raft.propose([("record", 1)] * count)
    driven.settle()
    return end_offset


# --- the first records


def test_epoch_begins_with_who_leads_it() -> None:
    driven = leader()
    (first,) = driven.written
    assert first.control == (LeaderChange(A.id, (A, B, C), (A, B)),)
    assert (first.base_offset, first.records, first.epoch, first.data) == (1, 1, 2, None)
    assert driven.elections[-1] == Election(2, A.id)


def test_voters_of_the_bootstrap_checkpoint_go_into_the_log() -> None:
    driven = node(A, B, C)
    driven.lead()
    (first,) = driven.written
    assert first.control[1:] == (KRaftVersion(1), voters(A, B, C))
    assert driven.raft.log.voters.latest_offset == 2


def test_leader_that_has_moved_says_so_first() -> None:
    driven = leader(endpoints=(endpoint(A.id, 777),))
    assert driven.written[0].control[1:] == (
        KRaftVersion(1),
        voters(A, B, C).with_voter(voter(A, 777)),
    )


def test_voters_of_the_settings_stay_out_of_the_log() -> None:
    driven = node(A, voter_set=static_voters(A, B, C), kraft_version=0)
    driven.lead()
    assert len(driven.written[0].control) == 1


# --- the high watermark


def test_high_watermark_is_unknown_until_a_record_of_the_epoch_is_replicated() -> None:
    driven = leader()
    role = driven.raft.role
    assert isinstance(role, Leadership)
    assert role.high_watermark == -1
    driven.fetch(B, 1, 1)
    assert role.high_watermark == -1  # a majority has 1, which is of an earlier epoch
    driven.fetch(C, 2)
    assert (role.high_watermark, driven.raft.high_watermark) == (2, 2)


def test_high_watermark_is_what_a_majority_holds() -> None:
    driven = leader(B, C, D, E, controls=[(0, voters(A, B, C, D, E))])
    propose(driven, 10)
    for replica, offset, high_watermark in ((B, 5, 0), (C, 4, 4), (D, 9, 5), (E, 12, 9), (B, 3, 9)):
        driven.fetch(replica, offset)
        assert driven.raft.high_watermark == high_watermark


@given(st.lists(st.tuples(st.sampled_from((B, C, D, E)), st.integers(1, 12)), max_size=30))
def test_high_watermark_never_falls_nor_outruns_a_majority(fetches: list[tuple[Any, int]]) -> None:
    driven = leader(B, C, D, E, controls=[(0, voters(A, B, C, D, E))])
    propose(driven, 10)
    held, before = {A: driven.raft.end_offset}, 0
    for replica, offset in fetches:
        driven.fetch(replica, offset, 1 if offset == 1 else None)
        held[replica] = max(offset, held.get(replica, 0))
        assert driven.raft.high_watermark >= before
        before = driven.raft.high_watermark
        assert before == 0 or sum(each >= before for each in held.values()) >= 3


def test_leaders_own_end_counts_when_it_is_durable() -> None:
    driven = node(A, B)
    driven.lead()
    driven.fetch(B, driven.raft.end_offset)
    raft = driven.raft
    committed = raft.high_watermark
    raft.propose([("x", 1)])
    ready = raft.ready()
    assert raft.high_watermark == committed
    assert driven.fetch(B, raft.end_offset) is None  # nothing that is not durable is served
    raft.advance(ready, 0)
    driven.settle()
    answer = driven.replies[-1].response
    assert isinstance(answer, FetchResponse)
    assert answer.read == Read(committed, committed + 1, 1 << 20)


def test_observers_do_not_count() -> None:
    driven = leader()
    driven.fetch(D, 2)
    driven.fetch(E, 2)
    assert driven.raft.high_watermark == 0


def test_voter_on_another_directory_does_not_count() -> None:
    driven = leader()
    driven.fetch(B._replace(directory_id=E.directory_id), 2)
    assert driven.raft.high_watermark == 0


def test_voters_of_the_settings_count_by_their_ids() -> None:
    driven = node(A, voter_set=static_voters(A, B, C), kraft_version=0)
    driven.lead()
    driven.fetch(B, 1)
    assert driven.raft.high_watermark == 1


# --- fetches


@pytest.mark.parametrize(("epoch", "error"), [(1, FENCED_LEADER_EPOCH), (3, UNKNOWN_LEADER_EPOCH), (2, NONE)])
def test_fetch_is_for_the_leader_of_an_epoch(epoch: int, error: int) -> None:
    response = leader().ask(Fetch(epoch, B, 1, 1))
    assert (response.error, response.known) == (error, Known(2, A.id, (endpoint(A.id),)))


@pytest.mark.parametrize(("offset", "last_epoch"), [(-1, 0), (1, -1), (1, 3)])
def test_fetch_that_makes_no_sense_is_invalid(offset: int, last_epoch: int) -> None:
    assert leader().fetch(B, offset, last_epoch).error == INVALID_REQUEST


def test_follower_says_who_leads() -> None:
    driven = node(A, B, C)
    driven.follow(B, 3)
    response = driven.fetch(C, 0)
    assert (response.error, response.known) == (NOT_LEADER, Known(3, B.id, (endpoint(B.id),)))


def test_fetch_is_answered_at_once_with_records() -> None:
    driven = leader()
    response = driven.fetch(B, 1, 1, max_bytes=77)
    assert (response.error, response.read, response.log_start_offset) == (NONE, Read(1, 2, 77), 0)


def test_fetch_is_answered_at_once_where_logs_part() -> None:
    driven = leader(epochs=[(1, 0), (2, 4)], end_offset=6, election=Election(4))
    assert driven.fetch(B, 9, 3).diverging == EpochEnd(2, 6)
    assert driven.fetch(B, 5, 1).diverging == EpochEnd(1, 4)
    assert driven.raft.high_watermark == 0  # and counts for nothing


def test_fetch_waits_for_records() -> None:
    driven = leader()
    assert driven.fetch(B, 2, high_watermark=2) is None
    propose(driven)
    response = driven.replies[-1].response
    assert isinstance(response, FetchResponse)
    assert response.read == Read(2, 3, 1 << 20)


def test_fetch_waits_at_most_so_long() -> None:
    driven = leader()
    began_ms = driven.now_ms
    assert driven.fetch(B, 2, high_watermark=2, max_wait_ms=300) is None
    driven.tick(began_ms + 299)
    before = len(driven.replies)
    driven.tick(began_ms + 300)
    response = driven.replies[before].response
    assert isinstance(response, FetchResponse)
    assert (response.error, response.read, response.high_watermark) == (NONE, None, 2)


def test_high_watermark_wakes_replicas_that_do_not_know_it() -> None:  # 13959
    driven = leader()
    assert driven.fetch(D, 2, high_watermark=-1) is None  # an observer: there is none yet
    assert driven.fetch(E, 2) is None  # of a version that does not say what it knows
    before = len(driven.replies)
    assert driven.fetch(B, 2, high_watermark=-1).high_watermark == 2
    assert len(driven.replies) == before + 2  # B, and D that waited


def test_replica_that_knows_the_high_watermark_goes_on_waiting() -> None:
    driven = leader()
    driven.fetch(B, 2, high_watermark=-1)
    assert driven.fetch(B, 2, high_watermark=2) is None
    assert driven.fetch(C, 2, high_watermark=1).high_watermark == 2


def test_lost_lead_answers_what_waits() -> None:
    driven = leader()
    assert driven.fetch(B, 2, high_watermark=2) is None
    driven.vote(C, 9, (8, 0))
    response = next(each.response for each in driven.replies if isinstance(each.response, FetchResponse))
    assert response.error == NOT_LEADER
    assert driven.raft.state is State.UNATTACHED


# --- snapshots


def with_snapshot() -> Driven:
    driven = leader()
    propose(driven, 5)
    driven.fetch(B, 7)
    taken = driven.raft.snapshot_id(5)
    assert taken == SnapshotId(5, 2)
    driven.step(SnapshotTaken(taken, 100))
    return driven


def test_snapshot_is_served_by_position() -> None:
    driven = with_snapshot()
    request = FetchSnapshot(2, C, SnapshotId(5, 2), 60, 1 << 10)
    response = driven.ask(request)
    assert (response.error, response.size_bytes, response.position, response.max_bytes) == (0, 100, 60, 1024)
    for position, error in ((-1, POSITION_OUT_OF_RANGE), (100, POSITION_OUT_OF_RANGE), (99, NONE)):
        assert driven.ask(request._replace(position=position)).error == error
    assert driven.ask(request._replace(snapshot=SnapshotId(4, 2))).error == SNAPSHOT_NOT_FOUND
    assert driven.ask(request._replace(epoch=1)).error == FENCED_LEADER_EPOCH


@pytest.mark.parametrize(("asked", "served"), [(-1, 1), (0, 1), (77, 77), ((1 << 31) - 1, 8 << 20)])
def test_answers_have_a_limit_whatever_is_asked_for(asked: int, served: int) -> None:
    driven = with_snapshot()
    assert driven.fetch(C, 6, max_bytes=asked).read == Read(6, 7, served)
    assert driven.ask(FetchSnapshot(2, C, SnapshotId(5, 2), 60, asked)).max_bytes == served


def test_checkpoint_of_an_empty_log_is_not_served() -> None:
    driven = leader()
    driven.step(SnapshotTaken(SnapshotId(0, 0), 100))
    assert driven.ask(FetchSnapshot(2, B, SnapshotId(0, 0), 0)).error == SNAPSHOT_NOT_FOUND


def test_replica_that_begins_gets_the_snapshot() -> None:
    driven = with_snapshot()
    assert driven.fetch(C, 0).snapshot == SnapshotId(5, 2)
    assert driven.fetch(C, 3).read is not None  # the log still has it
    driven.step(LogTrimmed(SnapshotId(5, 2)))
    assert driven.fetch(C, 3).snapshot == SnapshotId(5, 2)
    assert driven.fetch(C, 5).read == Read(5, 7, 1 << 20)


# --- being heard of


def test_voters_are_told_of_the_epoch_until_they_know() -> None:
    driven = leader()
    began = driven.requests(BeginQuorumEpoch)
    assert began == [BeginQuorumEpoch(2, A.id, (endpoint(A.id),), key) for key in (B, C)]
    driven.step(Failed(driven.sent[-1].correlation))
    driven.tick(driven.now_ms + 20)
    assert len(driven.requests(BeginQuorumEpoch, C.id)) == 2
    driven.answer(C.id, EpochResponse(NONE, driven.known(leader_id=A.id)))
    driven.answer(B.id, EpochResponse(NONE, driven.known(leader_id=A.id)))
    driven.tick(driven.now_ms + 979)
    driven.fetch(C, 2)
    assert len(driven.requests(BeginQuorumEpoch)) == 3
    driven.tick(driven.now_ms + 1)
    assert driven.requests(BeginQuorumEpoch)[3:] == [began[0]]  # only to the one that does not fetch


def test_leader_that_too_few_fetch_from_resigns() -> None:
    driven = leader(B, C, D, E, controls=[(0, voters(A, B, C, D, E))])
    began_ms = driven.now_ms
    driven.tick(began_ms + 1000)
    driven.fetch(B, 2)
    driven.tick(began_ms + 2000)
    driven.ask(FetchSnapshot(2, C, SnapshotId(9, 9), 0))  # that is a sign of life, too
    driven.tick(began_ms + 3999)
    assert driven.raft.state is State.LEADER
    driven.tick(began_ms + 4000)
    assert driven.raft.state is State.RESIGNED


def test_sole_voter_never_resigns_for_that() -> None:
    driven = node(A)
    driven.lead()
    driven.tick(100_000)
    assert driven.raft.state is State.LEADER


def test_observers_with_one_id_that_are_gone_together_are_forgotten() -> None:
    driven = node(A)
    driven.lead()
    other = D._replace(directory_id=E.directory_id)
    for key in (D, other, D):
        driven.fetch(key, driven.raft.end_offset)
    driven.tick(driven.now_ms + driven.raft.config.observer_session_ms + 1)
    assert isinstance(driven.raft.role, Leadership)
    assert driven.raft.role.replicas == {}


def test_resigned_leader_names_its_successors() -> None:
    driven = leader(B, C, D, controls=[(0, voters(A, B, C, D))])
    propose(driven, 3)
    driven.fetch(D, 5)
    driven.fetch(C, 3)
    driven.raft.resign(driven.now_ms)
    driven.settle()
    ended = driven.requests(EndQuorumEpoch)
    assert ended == [EndQuorumEpoch(2, A.id, (D, C, B), (endpoint(A.id),))] * 3
    assert driven.raft.leader_id == -1
    driven.answer(B.id, EpochResponse(NONE, driven.known()))
    driven.tick(driven.now_ms + 2000)
    assert driven.raft.epoch == 3


def test_leader_that_resigned_tells_nobody_that_it_leads() -> None:
    """In no answer, and to no replica that waits (17333)."""
    driven = leader()
    assert driven.fetch(B, driven.raft.end_offset) is None
    driven.raft.resign(driven.now_ms)
    driven.settle()
    assert driven.replies[-1].response == FetchResponse(NOT_LEADER, Known(2))
    assert driven.fetch(C, 1, 1).known == Known(2)
    assert driven.vote(C, 2, (1, 99), pre_vote=True).known == Known(2)


def test_resigned_leader_goes_on_in_the_next_epoch() -> None:
    driven = leader()
    driven.raft.resign(driven.now_ms)
    driven.settle()
    assert not driven.vote(C, 2, (1, 99)).granted  # not in the epoch that it has led
    while driven.raft.state is State.RESIGNED:
        driven.tick()
    assert driven.raft.epoch == 3
    assert driven.elections[-1] == Election(3)
    assert driven.raft.state is State.PROSPECTIVE
    assert driven.requests(Vote)[-1].epoch == 3


def test_later_epoch_takes_the_lead_away() -> None:
    driven = leader()
    driven.raft.propose([("x", 1)])
    driven.ask(BeginQuorumEpoch(5, C.id, (endpoint(C.id),)))
    assert (driven.raft.state, driven.raft.leader_id) == (State.FOLLOWER, C.id)
    with pytest.raises(NotLeader, match="follower"):
        driven.raft.propose([("x", 1)])
    assert driven.raft.next_offset == driven.raft.end_offset == 2
