"""Following: fetches, truncation, snapshots, finding a leader, and leaders that are gone."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from barnabas.core.errors import InvariantViolation
from barnabas.raft.election import NO_NODE, Election, State, VoterKey
from barnabas.raft.log_index import Entry, EpochEnd
from barnabas.raft.messages import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    INVALID_VOTER_KEY,
    NONE,
    NOT_LEADER,
    SNAPSHOT_NOT_FOUND,
    AddRaftVoter,
    BeginQuorumEpoch,
    ConnectionLost,
    DialRefused,
    DialSucceeded,
    EndQuorumEpoch,
    Failed,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    Known,
    Received,
    Vote,
    VoteResponse,
)
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.states import NEVER
from barnabas.raft.voters import VoterSet
from tests.raft.nodes import A, B, C, D, Driven, E, endpoint, node, voters


def follower(*others: object, **options: object) -> Driven:
    driven = node(A, B, C, *others, **options)  # type: ignore[arg-type]
    driven.follow(B, epoch=max(1, driven.raft.epoch))
    return driven


def answered(driven: Driven, *entries: Entry, high_watermark: int = -1, **fields: object) -> None:
    known = driven.known(leader_id=B.id)
    driven.answer(B.id, FetchResponse(NONE, known, high_watermark, 0, entries=entries, **fields))  # type: ignore[arg-type]


def test_follower_fetches_from_the_end_of_its_log() -> None:
    driven = follower(epochs=[(1, 0)], end_offset=5)
    assert driven.requests(Fetch, B.id) == [Fetch(1, A, 5, 1, -1, 500, 1 << 20)]
    answered(driven, Entry(5, 2, 1, "x"), high_watermark=6)
    assert driven.requests(Fetch)[-1] == Fetch(1, A, 7, 1, 6, 500, 1 << 20)
    assert driven.raft.high_watermark == 6
    answered(driven, high_watermark=7)
    assert driven.raft.high_watermark == 7


def test_nothing_is_fetched_nor_counted_before_it_is_durable() -> None:
    driven = follower()
    raft = driven.raft
    response = FetchResponse(NONE, driven.known(leader_id=B.id), 2, 0, entries=(Entry(0, 2, 1),))
    raft.step(driven.answer_of(B.id, response), 0)
    ready = raft.ready()
    assert (ready.entries, ready.messages) == ((Entry(0, 2, 1),), ())
    assert (raft.high_watermark, raft.end_offset) == (0, 0)
    raft.tick(10)
    assert not raft.ready()  # one at a time
    raft.advance(ready, 10)
    assert (raft.high_watermark, raft.end_offset) == (2, 2)
    assert [type(each.request) for each in raft.ready().messages] == [Fetch]  # type: ignore[union-attr]


def test_high_watermark_is_at_most_the_end_of_the_log() -> None:
    driven = follower()
    answered(driven, Entry(0, 2, 1), high_watermark=50)
    assert driven.raft.high_watermark == 2
    answered(driven, Entry(2, 2, 1), high_watermark=50)
    assert driven.raft.high_watermark == 4
    answered(driven, high_watermark=1)
    assert driven.raft.high_watermark == 4  # it never falls


def test_diverging_follower_cuts_and_applies_nothing_else() -> None:
    driven = follower(epochs=[(1, 0), (2, 3)], end_offset=6, election=Election(3))
    answered(driven, diverging=EpochEnd(1, 2), high_watermark=6)
    assert driven.truncated == [2]
    assert driven.raft.high_watermark == 0
    assert driven.requests(Fetch)[-1][:4] == (3, A, 2, 1)


def test_follower_that_has_less_of_an_epoch_cuts_at_its_own_end_of_it() -> None:
    driven = follower(epochs=[(1, 0), (3, 2)], end_offset=6, election=Election(4))
    answered(driven, diverging=EpochEnd(2, 5))
    assert driven.truncated == [2]


def test_truncation_below_the_high_watermark_is_fatal() -> None:
    driven = follower(epochs=[(1, 0)], end_offset=6, election=Election(1))
    answered(driven, high_watermark=5)
    with pytest.raises(InvariantViolation, match="below the high watermark"):
        answered(driven, diverging=EpochEnd(1, 3))


def test_records_of_a_later_epoch_than_was_asked_for_are_refused() -> None:  # 18723
    driven = follower()
    answered(driven, Entry(0, 1, 1), Entry(1, 1, 9))
    assert driven.written == []
    answered(driven, Entry(4, 1, 1))  # nor such that leave a gap
    assert driven.written == []


def test_answers_of_others_than_the_leader_are_not_appended() -> None:
    driven = follower()
    response = FetchResponse(NONE, driven.known(leader_id=C.id), 5, 0, entries=(Entry(0, 1, 1),))
    driven.answer(B.id, response)
    assert driven.written == []


# --- snapshots


def load(driven: Driven) -> None:
    answered(driven, snapshot=SnapshotId(9, 1))
    assert driven.requests(FetchSnapshot)[-1] == FetchSnapshot(1, A, SnapshotId(9, 1), 0, 1 << 20)


def chunk(driven: Driven, position: int, data_bytes: int = 40) -> None:
    known = driven.known(leader_id=B.id)
    driven.answer(
        B.id, FetchSnapshotResponse(NONE, known, SnapshotId(9, 1), 100, position, 40, "data", data_bytes)
    )


def test_snapshot_is_fetched_by_position_and_then_the_log_behind_it() -> None:
    driven = follower()
    driven.installs = (voters(A, B), 1)
    load(driven)
    chunk(driven, 0)
    chunk(driven, 40)
    assert driven.requests(FetchSnapshot)[-1].position == 80
    chunk(driven, 80, 20)
    assert (driven.raft.log.start_offset, driven.raft.end_offset, driven.raft.high_watermark) == (9, 9, 9)
    assert driven.raft.voters == voters(A, B)
    assert driven.requests(Fetch)[-1][:5] == (1, A, 9, 1, 9)


def test_snapshot_that_is_gone_is_begun_again() -> None:
    driven = follower()
    load(driven)
    chunk(driven, 0)
    driven.answer(B.id, FetchSnapshotResponse(SNAPSHOT_NOT_FOUND, driven.known(leader_id=B.id)))
    driven.tick(driven.now_ms + 100)
    assert type(driven.sent[-1].request) is Fetch
    load(driven)
    chunk(driven, 40)  # an answer to what was not asked
    assert type(driven.sent[-1].request) is Fetch


# --- timers


def test_silent_leader_makes_a_voter_ask() -> None:
    driven = follower()
    answered(driven)
    driven.tick(1999)
    assert not driven.vote(C, 1, (0, 0), pre_vote=True).granted
    driven.tick(2000)
    assert driven.raft.state is State.FOLLOWER
    assert driven.vote(C, 1, (0, 0), pre_vote=True).granted
    driven.tick(2000 + 25)
    assert driven.raft.state is State.PROSPECTIVE
    assert driven.raft.election.leader_id == B.id


@pytest.mark.parametrize(("me", "rank"), [(A, 0), (C, 1), (D, 2)])
def test_voters_of_a_silent_leader_ask_by_their_rank(me: VoterKey, rank: int) -> None:
    driven = node(me, voter_set=voters(A, B, C, D))
    driven.follow(B)
    answered(driven)
    driven.ask_for_pre_votes()
    assert 2000 + rank * 75 <= driven.now_ms < 2000 + rank * 75 + 25


def test_silent_leader_that_accepts_connections_may_hang() -> None:
    driven = follower()
    answered(driven)
    driven.tick(2000)
    driven.step(ConnectionLost(B.id))
    driven.step(DialSucceeded(B.id))
    assert driven.raft.suspicion.is_gone
    driven.tick(2025)
    assert driven.raft.state is State.PROSPECTIVE


def test_leader_that_was_silent_and_answers_is_followed() -> None:
    driven = node(C, voter_set=voters(A, B, C))
    driven.follow(B)
    answered(driven)
    driven.tick(2000)
    driven.tick(2000)
    answered(driven)
    assert not driven.raft.suspicion.is_gone
    driven.tick(3999)
    assert driven.raft.state is State.FOLLOWER


def test_every_answer_of_the_leader_puts_the_timeout_off() -> None:
    driven = follower()
    for now_ms in range(1000, 10_000, 1000):
        driven.tick(now_ms)
        answered(driven)
    assert driven.raft.state is State.FOLLOWER


def test_errors_back_off_and_do_not_put_it_off() -> None:
    driven = follower()
    times = []
    while driven.raft.state is State.FOLLOWER:
        driven.answer(B.id, FetchResponse(NOT_LEADER, driven.known(leader_id=C.id)))
        driven.tick()
        times.append(driven.now_ms)
    assert 2000 <= driven.now_ms <= 2025
    assert times[:5] == [20, 60, 140, 300, 620]  # twice as long each time, up to a bound
    assert len(times) < 12


def test_observer_of_a_silent_leader_asks_others() -> None:
    driven = node(D, voter_set=voters(A, B, C), bootstrap=(endpoint(7),))
    driven.follow(B)
    driven.tick(2000)
    assert driven.raft.state is State.FOLLOWER
    assert [each.node_id for each in driven.sent] == [B.id, A.id]
    driven.answer(A.id, FetchResponse(NOT_LEADER, driven.known(4, C.id)))
    assert (driven.raft.state, driven.raft.leader_id, driven.raft.epoch) == (State.FOLLOWER, C.id, 4)


def test_observer_of_a_dead_leader_asks_the_others_at_once() -> None:  # 20514
    driven = node(D, voter_set=voters(A, B, C), bootstrap=(endpoint(B.id), endpoint(7)), endpoints=())
    driven.follow(B)
    answered(driven)
    notice(driven)
    asked = []
    for _ in range(12):
        asked.append((driven.now_ms, driven.sent[-1].node_id))
        known = driven.known(leader_id=B.id)
        if driven.sent[-1].node_id == B.id:
            driven.step(DialRefused(B.id))
            driven.step(Failed(driven.sent[-1].correlation))
        else:
            driven.answer(driven.sent[-1].node_id, FetchResponse(NOT_LEADER, known))
        driven.tick()
    others = [node_id for _, node_id in asked if node_id != B.id]
    assert others == [A.id, C.id, -3] * (len(others) // 3) + [A.id, C.id][: len(others) % 3]
    times = [now_ms for now_ms, node_id in asked if node_id != B.id]
    assert times[:6] == [0, 20, 40, 60, 80, 120]
    driven.answer(driven.sent[-1].node_id, FetchResponse(NOT_LEADER, driven.known(2, C.id)))
    assert (driven.raft.leader_id, driven.sent[-1].node_id) == (C.id, C.id)


def test_node_that_hangs_holds_nobody_up() -> None:
    driven = node(D, voter_set=voters(A, B, C), endpoints=())
    times = []
    for _ in range(6):
        driven.tick()
        times.append((driven.now_ms, driven.sent[-1].node_id))
        if driven.sent[-1].node_id != A.id:
            driven.answer(driven.sent[-1].node_id, FetchResponse(NOT_LEADER, driven.known()))
    assert times[:4] == [(0, A.id), (20, B.id), (40, C.id), (60, B.id)]
    assert times[-1][0] < 300


def test_nodes_that_all_refuse_are_not_asked_without_pause() -> None:
    driven = node(D, voter_set=voters(A, B, C), endpoints=())
    while driven.now_ms < 5000:
        driven.tick()
        driven.step(Failed(driven.sent[-1].correlation))
    assert len(driven.sent) < 3 * 22


def test_observer_never_stands() -> None:
    driven = node(D, voter_set=voters(A, B, C))
    for _ in range(50):
        driven.tick()
    assert driven.raft.state is State.UNATTACHED
    assert driven.requests(Vote) == []
    assert driven.now_ms > 5_000
    assert {each.node_id for each in driven.sent} == {1, 2, 3}


def test_node_that_looks_for_a_leader_does_not_ask_itself() -> None:
    driven = node(D, voter_set=VoterSet(()), bootstrap=(endpoint(D.id), endpoint(7)))
    driven.tick(0)
    assert {each.endpoint for each in driven.sent} == {endpoint(7)}


def test_observer_hears_the_leader_under_a_bootstrap_servers_id() -> None:
    driven = node(D, voter_set=VoterSet(()), bootstrap=(endpoint(2)._replace(host="any"),))
    driven.follow(B)
    driven.step(ConnectionLost(B.id))
    driven.step(DialRefused(B.id))
    assert driven.raft.suspicion.is_gone
    driven.tick()
    assert driven.sent[-1].node_id == -2
    driven.answer(-2, FetchResponse(NONE, driven.known(leader_id=B.id), 1, 0, entries=(Entry(0, 1, 1),)))
    assert driven.raft.end_offset == 1
    assert not driven.raft.suspicion.is_gone


# --- epochs begin and end


def test_begin_of_an_epoch_is_followed() -> None:
    driven = node(A, B, C)
    response = driven.ask(BeginQuorumEpoch(3, B.id, (endpoint(B.id, 1234),), A))
    assert (response.error, response.known) == (NONE, (3, B.id, (endpoint(B.id, 1234),)))
    assert driven.elections == [Election(3, B.id)]
    assert driven.sent[-1].endpoint == endpoint(B.id, 1234)
    assert driven.ask(BeginQuorumEpoch(2, C.id)).error == FENCED_LEADER_EPOCH
    assert driven.ask(BeginQuorumEpoch(3, B.id, (), C)).error == INVALID_VOTER_KEY
    assert driven.ask(BeginQuorumEpoch(5, C.id)).error == NONE  # its voters tell where it is
    assert driven.raft.leader_id == C.id


def test_leader_that_has_moved_is_followed_where_it_says_it_is() -> None:
    driven = node(A, B, C)
    driven.follow(B, 3)
    driven.ask(BeginQuorumEpoch(3, B.id, (endpoint(B.id, 1234),)))
    driven.ask_for_pre_votes()
    for each in (B, C):
        driven.answer(each.id, VoteResponse(NONE, driven.known(leader_id=B.id), False))
    assert driven.raft.state is State.FOLLOWER
    assert driven.sent[-1].endpoint == endpoint(B.id, 1234)  # not where the voters have it


def test_leader_that_refuses_is_looked_for_where_others_find_it() -> None:
    driven = node(A, B, C)
    driven.follow(B, 3)
    elsewhere = (endpoint(B.id, 1234),)
    driven.ask_for_pre_votes()
    driven.answer(C.id, VoteResponse(NONE, Known(3, B.id, elsewhere)))
    assert driven.raft.leader_endpoint == endpoint(B.id)  # what others say may be old
    driven.tick()
    driven.follow(B, 4)
    driven.step(DialRefused(B.id))
    driven.ask_for_pre_votes()
    driven.answer(C.id, VoteResponse(NONE, Known(4, B.id, elsewhere)))
    while driven.raft.state is State.PROSPECTIVE:
        driven.tick()
    assert driven.sent[-1].endpoint == elsewhere[0]


def test_leader_whose_address_is_not_known_is_only_remembered() -> None:
    driven = node(D, voter_set=VoterSet(()))
    driven.ask(BeginQuorumEpoch(3, B.id))
    assert (driven.raft.state, driven.raft.election) == (State.UNATTACHED, Election(3, B.id))
    assert not driven.vote(C, 3, (2, 9)).granted


@pytest.mark.parametrize(("place", "delay_ms"), [(0, 0), (1, 250), (2, 500), (None, 1000)])
def test_successors_of_a_leader_that_resigned_ask_one_behind_another(
    place: int | None, delay_ms: int
) -> None:
    driven = follower(D, E)
    answered(driven)
    order = [C, D, E]
    if place is not None:
        order[place] = A
    driven.ask(EndQuorumEpoch(1, B.id, tuple(order)))
    if delay_ms:
        assert driven.raft.state is State.FOLLOWER
        assert driven.vote(C, 1, (0, 0), pre_vote=True).granted  # though it has fetched (20895)
    driven.tick(delay_ms)
    assert driven.raft.state is State.PROSPECTIVE


def test_successor_asks_when_what_it_fetched_is_written() -> None:
    driven = follower()
    raft = driven.raft
    response = FetchResponse(NONE, driven.known(leader_id=B.id), -1, 0, entries=(Entry(0, 1, 1),))
    raft.step(driven.answer_of(B.id, response), 0)
    ready = raft.ready()
    assert ready.entries
    raft.step(Received(None, EndQuorumEpoch(1, B.id, (A, C))), 0)
    assert (raft.state, raft.next_deadline()) == (State.FOLLOWER, NEVER)
    raft.advance(ready, 3)
    driven.settle()
    assert {each.end_offset for each in driven.requests(Vote)} == {1}


def test_successor_on_another_directory_is_another_node() -> None:
    driven = node(A, B, C)
    driven.follow(B)
    former = VoterKey(A.id, UUID(int=99))
    driven.ask(EndQuorumEpoch(1, B.id, (former, C), (endpoint(B.id),)))
    assert driven.raft.next_deadline() == 1000
    driven.ask(EndQuorumEpoch(1, B.id, (C, VoterKey(A.id)), (endpoint(B.id),)))  # as kraft.version 0 says it
    assert driven.raft.next_deadline() == 500


@pytest.mark.parametrize("kind", [BeginQuorumEpoch, EndQuorumEpoch])
def test_epoch_of_no_leader_is_invalid(kind: Any) -> None:
    driven = node(A, B, C)
    assert driven.ask(kind(3, -1)).error == INVALID_REQUEST
    assert driven.raft.epoch == 0


def test_end_of_an_earlier_epoch_is_fenced() -> None:
    driven = follower()
    driven.follow(C, epoch=4)
    assert driven.ask(EndQuorumEpoch(1, B.id)).error == FENCED_LEADER_EPOCH
    assert driven.raft.leader_id == C.id


def test_leader_that_says_it_does_not_lead_has_resigned() -> None:
    driven = follower()
    answered(driven)
    driven.answer(B.id, FetchResponse(NOT_LEADER, driven.known(leader_id=NO_NODE)))
    assert driven.raft.suspicion.is_gone
    driven.tick(100)
    assert driven.raft.state is State.PROSPECTIVE


# --- dead leaders, by the socket


def notice(driven: Driven, leader_id: int = B.id) -> None:
    driven.step(ConnectionLost(leader_id))
    driven.step(DialRefused(leader_id))


def test_dead_leader_is_noticed_by_the_socket() -> None:
    driven = follower()
    answered(driven)
    driven.step(ConnectionLost(B.id))
    driven.tick(100)
    assert driven.raft.state is State.FOLLOWER  # a suspicion, no more
    driven.step(DialRefused(B.id))
    assert driven.vote(C, 1, (0, 0), pre_vote=True).granted
    driven.tick(driven.now_ms + 25)
    assert driven.raft.state is State.PROSPECTIVE


@pytest.mark.parametrize(("me", "rank"), [(A, 0), (C, 1), (D, 2)])
def test_survivors_ask_by_their_rank(me: object, rank: int) -> None:
    driven = node(me, voter_set=voters(A, B, C, D))  # type: ignore[arg-type]
    driven.follow(B)
    answered(driven)
    notice(driven)
    assert rank * 75 <= driven.raft.next_deadline() < rank * 75 + 25


def test_notices_about_others_than_the_leader_mean_nothing() -> None:
    driven = follower()
    answered(driven)
    notice(driven, C.id)
    assert not driven.raft.suspicion.is_gone
    assert not driven.vote(C, 1, (0, 0), pre_vote=True).granted


def test_dial_that_succeeds_takes_it_back() -> None:
    driven = follower()
    answered(driven)
    notice(driven)
    driven.step(DialSucceeded(B.id))
    driven.tick(500)
    assert driven.raft.state is State.FOLLOWER
    assert not driven.vote(C, 1, (0, 0), pre_vote=True).granted


def test_voter_asks_again_with_back_off_while_the_dial_is_refused() -> None:
    driven = follower()
    answered(driven)
    notice(driven)
    asked = []
    for _ in range(5):
        while driven.raft.state is State.FOLLOWER:
            for each in [each.correlation for each in driven.sent if each.node_id == B.id]:
                driven.step(Failed(each))
            driven.tick()
        asked.append(driven.now_ms)
        driven.answer(C.id, VoteResponse(NONE, driven.known(leader_id=B.id), False))
        while driven.raft.state is State.PROSPECTIVE:
            driven.tick()  # the dead leader does not answer
    gaps = [after - before for before, after in pairwise(asked)]
    assert gaps == sorted(gaps)
    assert 75 <= gaps[0] < 400
    assert gaps[-1] <= 3000


def test_new_epoch_begins_without_suspicion() -> None:
    driven = follower()
    notice(driven)
    driven.follow(C, epoch=2)
    answered(driven)
    assert not driven.raft.suspicion.is_gone


def test_voter_that_starts_without_a_leader_asks_by_its_rank() -> None:
    for key, rank in ((A, 0), (B, 1), (C, 2)):
        driven = node(key, voter_set=voters(A, B, C))
        while driven.raft.state is State.UNATTACHED:
            driven.tick()
        assert rank * 75 <= driven.now_ms < rank * 75 + 25


def test_voter_that_starts_with_a_leader_that_refuses_asks_soon() -> None:
    driven = node(A, B, C, election=Election(4, B.id))
    driven.tick(0)
    assert driven.raft.state is State.FOLLOWER
    driven.step(DialRefused(B.id))
    driven.tick(25)
    assert driven.raft.state is State.PROSPECTIVE


# --- joining


def test_node_joins_by_itself_once() -> None:
    driven = node(D, voter_set=voters(A, B, C), auto_join=True)
    driven.follow(B)
    assert driven.requests(AddRaftVoter) == [AddRaftVoter(D, (endpoint(D.id),), ack_when_committed=False)]
    answered(driven, Entry(0, 1, 1, None, (voters(A, B, C, D),)), Entry(1, 1, 1, None, (voters(A, B, C),)))
    driven.tick(10_000)
    assert len(driven.requests(AddRaftVoter)) == 1  # it was a voter, and was removed
