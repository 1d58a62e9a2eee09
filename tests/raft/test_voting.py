"""Votes and pre-votes: grants and errors in every state, and what becomes of a node that asks."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.raft.election import NO_DIRECTORY, Election, State, VoterKey
from barnabas.raft.messages import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    INVALID_VOTER_KEY,
    NONE,
    Failed,
    FetchResponse,
    Received,
    Reply,
    Vote,
    VoteResponse,
)
from tests.raft.nodes import A, B, C, D, Driven, E, node, static_voters

UP_TO_DATE, BEHIND = (1, 5), (1, 4)


def with_log(state: State) -> Driven:
    """A node of three, in epoch 2 or later, whose log ends in epoch 1 at offset 5, in that state."""
    driven = node(A, B, C, epochs=[(1, 0)], end_offset=5, election=Election(2))
    raft = driven.raft
    if state is State.PROSPECTIVE:
        driven.ask_for_pre_votes()
    elif state is State.CANDIDATE:
        driven.stand()
    elif state in (State.LEADER, State.RESIGNED):
        driven.lead()
        if state is State.RESIGNED:
            raft.resign(driven.now_ms)
            driven.settle()
    elif state is State.FOLLOWER:
        driven.follow(B, epoch=2)
    assert raft.state is state
    return driven


@pytest.mark.parametrize(
    ("state", "granted"),
    [
        (State.UNATTACHED, True),
        (State.PROSPECTIVE, True),
        (State.CANDIDATE, True),
        (State.RESIGNED, True),
        (State.FOLLOWER, True),  # until its first fetch
        (State.LEADER, False),
    ],
)
def test_pre_votes_by_state(state: State, granted: bool) -> None:
    driven = with_log(state)
    end = (driven.raft.log.last_epoch, driven.raft.log.end_offset)
    files = len(driven.elections)
    response = driven.vote(C, driven.raft.epoch, end, pre_vote=True)
    assert (response.error, response.granted) == (NONE, granted)
    behind = driven.vote(C, driven.raft.epoch, (end[0], end[1] - 1), pre_vote=True)
    assert (behind.error, behind.granted) == (NONE, False)
    assert driven.raft.state is state
    assert len(driven.elections) == files  # a pre-vote promises nothing


def test_follower_that_has_fetched_refuses_pre_votes() -> None:
    driven = with_log(State.FOLLOWER)
    driven.answer(B.id, FetchResponse(NONE, driven.known(leader_id=B.id), 5, 0))
    assert not driven.vote(C, 2, UP_TO_DATE, pre_vote=True).granted


@pytest.mark.parametrize(
    ("state", "granted"),
    [
        (State.UNATTACHED, True),
        (State.PROSPECTIVE, True),
        (State.CANDIDATE, False),
        (State.RESIGNED, False),
        (State.FOLLOWER, False),
        (State.LEADER, False),
    ],
)
def test_votes_by_state(state: State, granted: bool) -> None:
    driven = with_log(state)
    end = (min(driven.raft.log.last_epoch, driven.raft.epoch - 1), 99)
    response = driven.vote(C, driven.raft.epoch, end)
    assert (response.error, response.granted) == (NONE, granted)
    assert driven.raft.state is state
    assert (driven.raft.election.voted == C) == granted


def test_vote_is_durable_before_it_is_told() -> None:
    driven = with_log(State.UNATTACHED)
    raft = driven.raft
    raft.step(Received("token", Vote(3, C, *UP_TO_DATE)), 0)
    ready = raft.ready()
    assert ready.election == Election(3, -1, C)
    (reply,) = (each for each in ready.messages if isinstance(each, Reply))
    assert reply.response == VoteResponse(NONE, (3, -1, ()), True)


def test_vote_goes_to_one_candidate_an_epoch() -> None:
    driven = with_log(State.UNATTACHED)
    assert driven.vote(C, 3, UP_TO_DATE).granted
    assert not driven.vote(B, 3, (2, 99)).granted
    assert driven.vote(C, 3, BEHIND).granted  # the same again, whatever its log
    assert driven.vote(B, 4, UP_TO_DATE).granted


def test_vote_is_kept_through_prospective() -> None:
    driven = with_log(State.UNATTACHED)
    driven.vote(C, 3, UP_TO_DATE)
    driven.ask_for_pre_votes()
    assert driven.raft.election == Election(3, -1, C)
    assert not driven.vote(B, 3, (2, 99)).granted
    assert driven.vote(C, 3, UP_TO_DATE).granted


def test_vote_in_an_epoch_whose_leader_is_known_is_refused() -> None:
    driven = with_log(State.FOLLOWER)
    driven.ask_for_pre_votes()
    assert not driven.vote(C, 2, (1, 99)).granted


@pytest.mark.parametrize(
    ("end", "granted"), [((1, 5), True), ((1, 6), True), ((2, 0), True), ((1, 4), False), ((0, 9), False)]
)
def test_logs_are_compared_by_epoch_then_offset(end: tuple[int, int], granted: bool) -> None:
    assert with_log(State.UNATTACHED).vote(C, 3, end).granted == granted
    assert with_log(State.UNATTACHED).vote(C, 3, end, pre_vote=True).granted == granted


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Vote(1, C, 0, 0), FENCED_LEADER_EPOCH),
        (Vote(1, C, 0, 0, pre_vote=True), FENCED_LEADER_EPOCH),
        (Vote(3, C, 3, 9), INVALID_REQUEST),
        (Vote(3, C, 3, 9, pre_vote=True), NONE),
        (Vote(3, C, 4, 9, pre_vote=True), INVALID_REQUEST),
        (Vote(3, C, -1, 9), INVALID_REQUEST),
        (Vote(3, C, 1, -1), INVALID_REQUEST),
        (Vote(3, VoterKey(-1), 1, 9), INVALID_REQUEST),
        (Vote(3, C, 1, 9, voter=VoterKey(A.id, UUID(int=77))), INVALID_VOTER_KEY),
        (Vote(3, C, 1, 9, voter=B), INVALID_VOTER_KEY),
        (Vote(3, C, 1, 9, voter=A), NONE),
        (Vote(3, C, 1, 9, voter=VoterKey(A.id, NO_DIRECTORY)), NONE),
        (Vote(3, C, 1, 9), NONE),
    ],
)
def test_errors_of_votes(request_: Vote, error: int) -> None:
    driven = with_log(State.UNATTACHED)
    response = driven.ask(request_)
    assert response.error == error
    assert response.granted == (error == NONE)


@pytest.mark.parametrize("pre_vote", [False, True])
@pytest.mark.parametrize("state", list(State))
def test_later_epoch_is_adopted_even_from_a_pre_vote_with_a_wrong_key(state: State, pre_vote: bool) -> None:
    driven = with_log(state)
    epoch = driven.raft.epoch + 3
    response = driven.ask(Vote(epoch, C, 0, 0, pre_vote, voter=VoterKey(A.id, UUID(int=77))))
    assert (response.error, response.known.epoch) == (INVALID_VOTER_KEY, epoch)
    assert (driven.raft.state, driven.raft.epoch) == (State.UNATTACHED, epoch)
    assert driven.elections[-1] == Election(epoch)


def test_candidate_that_is_no_voter_here_is_not_turned_away() -> None:
    assert with_log(State.UNATTACHED).vote(E, 3, UP_TO_DATE).granted


# --- asking


def test_pre_votes_come_first_and_do_not_raise_the_epoch() -> None:
    driven = with_log(State.PROSPECTIVE)
    assert [(each.epoch, each.pre_vote) for each in driven.requests(Vote)] == [(2, True)] * 2
    assert {each.voter for each in driven.requests(Vote)} == {B, C}
    driven.answer(B.id, VoteResponse(NONE, driven.known(), True))
    assert (driven.raft.state, driven.raft.epoch) == (State.CANDIDATE, 3)
    assert driven.elections == [Election(3, -1, A)]
    assert [(each.epoch, each.pre_vote) for each in driven.requests(Vote)[2:]] == [(3, False)] * 2


def test_own_vote_counts_when_it_is_durable() -> None:
    driven = with_log(State.PROSPECTIVE)
    raft = driven.raft
    raft.step(driven.answer_of(B.id, VoteResponse(NONE, driven.known(), True)), 0)
    ready = raft.ready()
    assert (ready.election, raft.state) == (Election(3, -1, A), State.CANDIDATE)
    sent = next(each for each in ready.messages if each.node_id == B.id)  # type: ignore[union-attr]
    driven.sent.append(sent)  # type: ignore[arg-type]
    raft.step(driven.answer_of(B.id, VoteResponse(NONE, driven.known(), True)), 0)
    assert raft.state is State.CANDIDATE
    raft.advance(ready, 0)
    assert raft.state is State.LEADER


def test_lost_pre_votes_lead_back_to_the_known_leader() -> None:
    driven = with_log(State.FOLLOWER)
    driven.ask_for_pre_votes()
    for each in (B, C):
        driven.answer(each.id, VoteResponse(NONE, driven.known(leader_id=B.id), False))
    assert (driven.raft.state, driven.raft.leader_id) == (State.FOLLOWER, B.id)
    driven = with_log(State.PROSPECTIVE)
    for each in (B, C):
        driven.answer(each.id, VoteResponse(NONE, driven.known(), False))
    assert (driven.raft.state, driven.raft.epoch) == (State.UNATTACHED, 2)


def test_prospective_gives_up_after_its_timeout() -> None:
    driven = with_log(State.PROSPECTIVE)
    while driven.raft.state is State.PROSPECTIVE:
        driven.tick()
    assert driven.raft.state is State.UNATTACHED
    assert 1000 <= driven.now_ms <= 2100


def test_candidate_waits_its_whole_timeout_though_it_lost() -> None:
    driven = with_log(State.CANDIDATE)
    began_ms = driven.now_ms
    for each in (B, C):
        driven.answer(each.id, VoteResponse(NONE, driven.known(), False))
    assert driven.raft.state is State.CANDIDATE
    while driven.raft.state is State.CANDIDATE:
        driven.tick()
    assert driven.raft.state is State.PROSPECTIVE
    assert 1000 <= driven.now_ms - began_ms <= 2000
    assert driven.raft.election == Election(3, -1, A)


def test_voter_without_pre_votes_makes_a_candidate_at_once() -> None:
    driven = with_log(State.PROSPECTIVE)
    correlation = driven.sent[-1].correlation
    driven.step(Failed(correlation, unsupported=True))
    assert (driven.raft.state, driven.raft.epoch) == (State.CANDIDATE, 3)


def test_answer_with_a_later_epoch_ends_the_election() -> None:
    driven = with_log(State.CANDIDATE)
    driven.answer(B.id, VoteResponse(FENCED_LEADER_EPOCH, driven.known(9, C.id)))
    assert (driven.raft.state, driven.raft.epoch, driven.raft.leader_id) == (State.FOLLOWER, 9, C.id)
    driven = with_log(State.CANDIDATE)
    driven.answer(B.id, VoteResponse(FENCED_LEADER_EPOCH, driven.known(9)))
    assert (driven.raft.state, driven.raft.epoch) == (State.UNATTACHED, 9)


def test_answer_that_names_the_leader_of_the_epoch_ends_the_election() -> None:
    driven = with_log(State.CANDIDATE)
    driven.answer(B.id, VoteResponse(NONE, driven.known(leader_id=C.id)))
    assert (driven.raft.state, driven.raft.leader_id) == (State.FOLLOWER, C.id)
    assert driven.elections[-1] == Election(3, C.id, A)  # its vote is kept


def test_voter_on_another_directory_has_refused() -> None:
    driven = with_log(State.PROSPECTIVE)
    driven.answer(B.id, VoteResponse(INVALID_VOTER_KEY, driven.known()))
    driven.answer(C.id, VoteResponse(NONE, driven.known(), False))
    assert driven.raft.state is State.UNATTACHED


def test_answers_count_once_and_only_while_they_are_waited_for() -> None:
    driven = node(A, B, C, D, E)
    driven.ask_for_pre_votes()
    granted = VoteResponse(NONE, driven.known(), True)
    driven.answer(B.id, granted)
    driven.answer(B.id, granted)
    assert driven.raft.state is State.PROSPECTIVE
    driven.answer(C.id, granted)
    assert driven.raft.state is State.CANDIDATE


def test_voters_of_the_settings_vote_without_directories() -> None:
    driven = node(A, voter_set=static_voters(A, B, C), kraft_version=0)
    driven.lead()
    assert driven.raft.leader_id == A.id
    (first,) = driven.written
    assert first.control[0].voters == static_voters(A, B, C).keys  # type: ignore[union-attr]


def test_own_vote_found_on_the_disk_makes_a_candidate() -> None:
    driven = node(A, B, C, election=Election(4, -1, A))
    driven.tick(0)
    assert (driven.raft.state, driven.raft.epoch) == (State.CANDIDATE, 4)
    driven.answer(B.id, VoteResponse(NONE, driven.known(), True))
    assert driven.raft.state is State.LEADER
