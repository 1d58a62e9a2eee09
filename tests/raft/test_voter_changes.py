"""Adding, removing and updating voters: when it is refused, when it is in force, and who asks for it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from barnabas.core.errors import InvariantViolation
from barnabas.raft.election import State, VoterKey
from barnabas.raft.log_index import Entry, KRaftVersion
from barnabas.raft.messages import (
    DUPLICATE_VOTER,
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NONE,
    NOT_LEADER,
    REQUEST_TIMED_OUT,
    UNKNOWN_LEADER_EPOCH,
    UNSUPPORTED_VERSION,
    VOTER_NOT_FOUND,
    AddRaftVoter,
    Answered,
    ApiVersions,
    ApiVersionsResponse,
    Failed,
    FetchResponse,
    Received,
    RemoveRaftVoter,
    UpdateRaftVoter,
    VoterChangeResponse,
    VoteResponse,
)
from barnabas.raft.voter_changes import InvalidUpdateVersion, append_voters
from barnabas.raft.voters import VoterInfo
from tests.raft.nodes import A, B, C, D, Driven, E, endpoint, node, static_voters, voter, voters

ADD_D = AddRaftVoter(D, (endpoint(D.id),))


def leader(*others: VoterKey, me: VoterKey = A, **options: Any) -> Driven:
    """A leader whose high watermark is known, and whose voters are committed."""
    driven = node(me, *(others or (B, C)), **options)
    driven.lead()
    caught_up(driven)
    return driven


def caught_up(driven: Driven) -> None:
    """Every voter has fetched all there is."""
    for key in driven.raft.voters.keys:
        if key != driven.raft.me:
            driven.fetch(key, driven.raft.end_offset)


class Asked:
    """A request with the errors of the answers that come to it, now or later."""

    def __init__(self, driven: Driven, request: Any) -> None:
        self._driven = driven
        driven.step(Received(self, request))

    @property
    def errors(self) -> list[int]:
        return [each.response.error for each in self._driven.replies if each.token is self]


def versions(driven: Driven, low: int = 0, high: int = 1, node_id: int = D.id) -> None:
    driven.answer(node_id, ApiVersionsResponse(NONE, low, high))


def test_voter_is_added_once_it_has_caught_up() -> None:
    driven = leader()
    driven.fetch(D, driven.raft.end_offset)
    answers = Asked(driven, ADD_D)
    assert driven.sent[-1].request == ApiVersions()
    assert driven.sent[-1].endpoint == endpoint(D.id)
    versions(driven)
    assert driven.raft.voters == voters(A, B, C, D)  # in force when it is appended
    assert answers.errors == []
    caught_up(driven)
    assert answers.errors == [NONE]


def test_added_voter_counts_at_once() -> None:
    driven = leader(B)
    driven.fetch(D, driven.raft.end_offset)
    Asked(driven, ADD_D)
    versions(driven)
    committed = driven.raft.high_watermark
    driven.fetch(B, committed)
    assert driven.raft.high_watermark == committed
    driven.fetch(D, driven.raft.end_offset)
    assert driven.raft.high_watermark == driven.raft.end_offset


@pytest.mark.parametrize("change", ["add", "remove"])
def test_records_before_a_change_are_committed_by_the_voters_behind_it(change: str) -> None:
    """Voters are in force for all that is not committed yet when their record is appended (16580)."""
    driven = leader(B, C, D, E)
    driven.raft.propose([("x", 1)])
    driven.settle()
    record = driven.raft.end_offset
    if change == "remove":
        Asked(driven, RemoveRaftVoter(E))
        driven.fetch(E, record)
        driven.fetch(B, record)
        assert driven.raft.high_watermark < record  # three of five hold it, of the four only two
        driven.fetch(C, record)
    else:
        new = VoterKey(9, UUID(int=9))
        driven.fetch(new, record)
        Asked(driven, AddRaftVoter(new, (endpoint(9),)))
        versions(driven, node_id=9)
        driven.fetch(B, record)
        assert driven.raft.high_watermark < record  # that are three, the newcomer among them, of six
        driven.fetch(C, record)
    assert driven.raft.high_watermark == record


def test_add_that_does_not_wait_is_answered_when_it_is_appended() -> None:
    driven = leader()
    driven.fetch(D, driven.raft.end_offset)
    answers = Asked(driven, ADD_D._replace(ack_when_committed=False))
    versions(driven)
    assert answers.errors == [NONE]


@pytest.mark.parametrize(("low", "high", "error"), [(0, 0, INVALID_REQUEST), (2, 3, INVALID_REQUEST)])
def test_node_of_another_version_is_not_added(low: int, high: int, error: int) -> None:
    driven = leader()
    driven.fetch(D, driven.raft.end_offset)
    answers = Asked(driven, ADD_D)
    versions(driven, low, high)
    assert answers.errors == [error]
    assert driven.raft.voters == voters(A, B, C)


def test_node_that_has_not_caught_up_is_not_added() -> None:
    driven = leader()
    answers = Asked(driven, ADD_D)
    versions(driven)
    assert answers.errors == [REQUEST_TIMED_OUT]
    driven.fetch(D, 1)
    later = Asked(driven, ADD_D)
    versions(driven)
    assert later.errors == [REQUEST_TIMED_OUT]


def test_node_that_cannot_be_asked_is_not_added() -> None:
    driven = leader()
    answers = Asked(driven, ADD_D)
    driven.step(Failed(driven.sent[-1].correlation))
    assert answers.errors == [REQUEST_TIMED_OUT]
    silent = Asked(driven, ADD_D)
    driven.now_ms += 1900
    caught_up(driven)
    driven.tick(driven.now_ms + 100)
    assert silent.errors == [REQUEST_TIMED_OUT]


def test_failure_of_a_node_that_was_given_up_does_not_end_the_next_change() -> None:
    driven = leader()
    for key in (D, E):
        driven.fetch(key, driven.raft.end_offset)
    given_up = Asked(driven, ADD_D)
    question = driven.sent[-1].correlation
    driven.now_ms += driven.raft.config.request_timeout_ms - 1
    caught_up(driven)
    driven.tick(driven.now_ms + 1)
    assert given_up.errors == [REQUEST_TIMED_OUT]
    answers = Asked(driven, AddRaftVoter(E, (endpoint(E.id),)))
    driven.step(Failed(question))
    assert answers.errors == []
    versions(driven, node_id=E.id)
    assert driven.raft.voters.has(E)


@pytest.mark.parametrize("request_", [ADD_D, RemoveRaftVoter(C)])
def test_when_no_change_can_begin(request_: Any) -> None:
    follower = node(A, B, C)
    follower.follow(B)
    assert Asked(follower, request_).errors == [NOT_LEADER]
    young = node(A, B, C)
    young.lead()
    assert Asked(young, request_).errors == [REQUEST_TIMED_OUT]
    static = node(A, voter_set=static_voters(A, B, C), kraft_version=0)
    static.lead()
    caught_up(static)
    assert Asked(static, request_).errors == [UNSUPPORTED_VERSION]
    busy = leader()
    first = Asked(busy, RemoveRaftVoter(B))
    assert Asked(busy, request_).errors == [REQUEST_TIMED_OUT]
    caught_up(busy)
    assert first.errors == [NONE]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (AddRaftVoter(B, (endpoint(B.id),)), DUPLICATE_VOTER),
        (AddRaftVoter(VoterKey(B.id, UUID(int=99)), (endpoint(B.id),)), DUPLICATE_VOTER),
        (AddRaftVoter(D, ()), INVALID_REQUEST),
        (AddRaftVoter(VoterKey(D.id), (endpoint(D.id),)), INVALID_REQUEST),  # no directory
        (AddRaftVoter(VoterKey(-1, UUID(int=99)), (endpoint(D.id),)), INVALID_REQUEST),
        (RemoveRaftVoter(VoterKey(B.id)), INVALID_REQUEST),
        (RemoveRaftVoter(D), VOTER_NOT_FOUND),
        (RemoveRaftVoter(VoterKey(B.id, UUID(int=99))), VOTER_NOT_FOUND),
    ],
)
def test_errors_of_changes(request_: Any, error: int) -> None:
    assert Asked(leader(), request_).errors == [error]


@pytest.mark.parametrize(
    "request_",
    [
        AddRaftVoter(VoterKey(D.id), (endpoint(D.id),)),
        AddRaftVoter(D, ()),
        RemoveRaftVoter(VoterKey(-1, UUID(int=9))),
        UpdateRaftVoter(1, VoterInfo(VoterKey(B.id), (endpoint(B.id),))),
    ],
)
def test_malformed_request_is_invalid_whatever_else_is_in_its_way(request_: Any) -> None:
    young = node(A, B, C)
    young.lead()
    assert Asked(young, request_).errors == [INVALID_REQUEST]
    busy = leader()
    Asked(busy, RemoveRaftVoter(C))
    assert Asked(busy, request_).errors == [INVALID_REQUEST]
    follower = node(A, B, C)
    follower.follow(B)
    assert Asked(follower, request_).errors == [NOT_LEADER]


def test_voter_must_have_the_controller_listener() -> None:
    named = {"controller_listener": "CONTROLLER"}
    elsewhere = (endpoint(D.id)._replace(listener="INTERNAL"),)
    assert Asked(leader(**named), AddRaftVoter(D, elsewhere)).errors == [INVALID_REQUEST]
    assert Asked(leader(**named), UpdateRaftVoter(1, moved(endpoints=elsewhere))).errors == [INVALID_REQUEST]
    assert Asked(leader(), UpdateRaftVoter(1, moved(endpoints=elsewhere))).errors == [NONE]


def test_add_of_a_node_that_does_not_tell_its_versions_times_out() -> None:
    driven = leader()
    driven.fetch(D, driven.raft.end_offset)
    answers = Asked(driven, ADD_D)
    driven.answer(D.id, ApiVersionsResponse(UNSUPPORTED_VERSION, 0, 0))
    assert answers.errors == [REQUEST_TIMED_OUT]
    assert driven.raft.voters == voters(A, B, C)


def test_only_voter_is_not_removed() -> None:
    driven = node(A)
    driven.lead()
    assert Asked(driven, RemoveRaftVoter(A)).errors == [VOTER_NOT_FOUND]


def test_voter_is_removed() -> None:
    driven = leader()
    answers = Asked(driven, RemoveRaftVoter(C))
    assert driven.raft.voters == voters(A, B)
    driven.fetch(C, driven.raft.end_offset)
    assert answers.errors == []  # it counts no more
    driven.fetch(B, driven.raft.end_offset)
    assert answers.errors == [NONE]


def test_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    driven = leader()
    answers = Asked(driven, RemoveRaftVoter(A))
    assert driven.raft.voters == voters(B, C)
    committed = driven.raft.high_watermark
    driven.fetch(B, driven.raft.end_offset)
    assert (driven.raft.state, driven.raft.high_watermark) == (State.LEADER, committed)
    driven.fetch(C, driven.raft.end_offset)
    assert answers.errors == [NONE]
    assert driven.raft.state is State.RESIGNED


def test_removed_voter_stands_while_its_removal_may_not_be_committed() -> None:
    """The others may not have the record that removes it, and cannot be elected without its vote."""
    controls = [(0, voters(A, B)), (1, voters(B))]
    driven = node(A, voter_set=voters(A, B), epochs=[(1, 0)], end_offset=2, controls=controls)
    driven.stand()
    driven.answer(B.id, VoteResponse(NONE, driven.known(), True))
    assert driven.raft.state is State.LEADER
    driven.fetch(B, driven.raft.end_offset)
    assert driven.raft.state is State.RESIGNED


def test_add_is_answered_within_its_timeout() -> None:
    driven = leader()
    driven.fetch(D, driven.raft.end_offset)
    answers = Asked(driven, ADD_D._replace(timeout_ms=1500))
    versions(driven)
    driven.tick(driven.now_ms + 1499)
    assert answers.errors == []
    driven.tick(driven.now_ms + 1)
    assert answers.errors == [REQUEST_TIMED_OUT]
    assert driven.raft.voters == voters(A, B, C, D)


def test_change_that_is_not_committed_in_time_stays_in_the_way() -> None:
    driven = leader()
    answers = Asked(driven, RemoveRaftVoter(C))
    for _ in range(40):
        driven.now_ms += 1000
        driven.fetch(B, driven.raft.end_offset - 1)
        driven.tick(driven.now_ms)
    assert answers.errors == [REQUEST_TIMED_OUT]
    assert Asked(driven, RemoveRaftVoter(B)).errors == [REQUEST_TIMED_OUT]
    driven.fetch(B, driven.raft.end_offset)
    Asked(driven, RemoveRaftVoter(B))
    assert driven.raft.voters == voters(A)


def test_lost_lead_leaves_a_change_in_doubt() -> None:
    driven = leader()
    answers = Asked(driven, RemoveRaftVoter(C))
    driven.vote(C, 9, (8, 0))
    assert answers.errors == [NOT_LEADER]
    assert driven.raft.voters == voters(A, B)


def test_two_changes_in_one_are_an_invariant_broken() -> None:
    driven = leader()
    with pytest.raises(InvariantViolation, match="more than one"):
        append_voters(driven.raft, driven.raft.role, voters(A, D, E))  # type: ignore[arg-type]


# --- updates


def moved(key: VoterKey = B, **fields: Any) -> VoterInfo:
    return voter(key, 777)._replace(**fields)


def test_moved_voter_is_updated_and_answered_before_the_commit() -> None:
    driven = leader()
    answers = Asked(driven, UpdateRaftVoter(1, moved()))
    assert answers.errors == [NONE]
    assert driven.raft.voters.get(B.id) == moved()
    assert driven.raft.high_watermark < driven.raft.end_offset


@pytest.mark.parametrize(
    ("epoch", "told", "error"),
    [
        (0, moved(), FENCED_LEADER_EPOCH),
        (2, moved(), UNKNOWN_LEADER_EPOCH),
        (1, moved(D), VOTER_NOT_FOUND),
        (1, moved(VoterKey(B.id, UUID(int=9))), VOTER_NOT_FOUND),
        (1, moved(endpoints=()), INVALID_REQUEST),
        (1, moved(max_kraft_version=0), INVALID_REQUEST),
        (1, moved(min_kraft_version=2, max_kraft_version=3), INVALID_REQUEST),
        (1, moved(min_kraft_version=-1), INVALID_REQUEST),
        (1, moved(min_kraft_version=1, max_kraft_version=0), INVALID_REQUEST),
        (1, moved(VoterKey(-1, UUID(int=9))), INVALID_REQUEST),
        (1, moved(VoterKey(B.id)), INVALID_REQUEST),
        (1, moved(D, max_kraft_version=0), INVALID_REQUEST),
        (0, moved(VoterKey(-1)), FENCED_LEADER_EPOCH),
    ],
)
def test_errors_of_updates(epoch: int, told: VoterInfo, error: int) -> None:
    assert Asked(leader(), UpdateRaftVoter(epoch, told)).errors == [error]


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (voter(VoterKey(B.id, UUID(int=99))), NONE),  # directories are not known
        (voter(B)._replace(max_kraft_version=0), NONE),
        (voter(D), VOTER_NOT_FOUND),
        (voter(VoterKey(B.id)), INVALID_REQUEST),
        (voter(B)._replace(min_kraft_version=1), INVALID_REQUEST),
    ],
)
def test_errors_of_updates_of_voters_of_the_settings(told: VoterInfo, error: int) -> None:
    driven = node(A, voter_set=static_voters(A, B, C), kraft_version=0)
    driven.lead()
    caught_up(driven)
    assert Asked(driven, UpdateRaftVoter(1, told)).errors == [error]


def test_update_counts_as_being_heard_of() -> None:
    driven = leader(B)
    for now_ms in (1000, 2500, 4000, 5500):
        driven.tick(now_ms)
        assert Asked(driven, UpdateRaftVoter(1, voter(B))).errors == [NONE]
    assert driven.raft.state is State.LEADER
    driven.tick(8500)
    assert driven.raft.state is State.RESIGNED


def test_update_that_changes_nothing_writes_nothing() -> None:
    driven = leader()
    before = driven.raft.end_offset
    assert Asked(driven, UpdateRaftVoter(1, voter(B))).errors == [NONE]
    assert driven.raft.end_offset == before


def test_voter_that_has_moved_tells_the_leader_once_in_a_while() -> None:
    driven = node(A, B, C, endpoints=(endpoint(A.id, 777),))
    driven.follow(B)
    assert driven.requests(UpdateRaftVoter) == [UpdateRaftVoter(1, moved(A))]
    update = next(each for each in driven.sent if type(each.request) is UpdateRaftVoter)
    driven.step(Failed(update.correlation))
    for now_ms in range(100, 2000, 100):
        driven.tick(now_ms)
        driven.answer(B.id, FetchResponse(NONE, driven.known(leader_id=B.id), -1, 0))
    assert len(driven.requests(UpdateRaftVoter)) == 1
    driven.tick(2000)
    assert len(driven.requests(UpdateRaftVoter)) == 2


def test_voter_goes_on_telling_while_the_log_says_something_else() -> None:
    """What the leader answered may have been lost with a full disk."""
    driven = node(A, B, C, endpoints=(endpoint(A.id, 777),))
    driven.follow(B)
    known = driven.known(leader_id=B.id)
    driven.answer(B.id, VoterChangeResponse(NONE, known))
    driven.answer(B.id, FetchResponse(NONE, known, -1, 0))
    driven.tick(1999)
    driven.answer(B.id, FetchResponse(NONE, known, -1, 0))
    assert len(driven.requests(UpdateRaftVoter)) == 1
    driven.tick(2000)
    assert len(driven.requests(UpdateRaftVoter)) == 2


def test_order_of_listeners_in_the_log_is_no_reason_to_tell() -> None:
    mine = (endpoint(A.id), endpoint(A.id)._replace(listener="INTERNAL", port=1))
    written = voters(B, C).with_voter(VoterInfo(A, tuple(reversed(mine))))
    driven = node(A, voter_set=written, endpoints=mine)
    driven.follow(B)
    assert driven.requests(UpdateRaftVoter) == []


def test_voter_whose_record_is_right_says_nothing() -> None:
    driven = node(A, B, C)
    driven.follow(B)
    assert driven.requests(UpdateRaftVoter) == []


# --- kraft.version


def test_kraft_version_is_raised_when_all_voters_have_told_of_themselves() -> None:
    driven = node(A, voter_set=static_voters(A, B, C), kraft_version=0)
    driven.lead()
    caught_up(driven)
    assert "[2, 3]" in driven.raft.raise_problem(1)
    with pytest.raises(InvalidUpdateVersion, match="2, 3"):
        driven.raft.raise_kraft_version(1)
    for key in (B, C):
        assert Asked(driven, UpdateRaftVoter(1, voter(key))).errors == [NONE]
    assert driven.raft.raise_problem(1) == ""
    end_offset = driven.raft.raise_kraft_version(1)
    driven.settle()
    assert driven.written[-1].control == (KRaftVersion(1), voters(A, B, C))
    assert (driven.raft.kraft_version, driven.raft.end_offset) == (1, end_offset)
    assert Asked(driven, RemoveRaftVoter(C)).errors == [REQUEST_TIMED_OUT]
    caught_up(driven)
    Asked(driven, RemoveRaftVoter(C))
    assert driven.raft.voters == voters(A, B)


def test_voters_of_the_settings_tell_the_leader_of_themselves() -> None:
    driven = node(A, voter_set=static_voters(A, B, C), kraft_version=0)
    driven.follow(B)
    assert driven.requests(UpdateRaftVoter) == [UpdateRaftVoter(1, voter(A))]
    update = next(each for each in driven.sent if type(each.request) is UpdateRaftVoter)
    driven.step(Answered(update.correlation, VoterChangeResponse(NONE, driven.known(leader_id=B.id))))
    driven.tick(5_000)
    assert len(driven.requests(UpdateRaftVoter)) == 1


@pytest.mark.parametrize("is_answer", [True, False])
def test_leader_that_cannot_be_told_is_not_told_again(is_answer: bool) -> None:
    driven = node(A, voter_set=static_voters(A, B, C), kraft_version=0)
    driven.follow(B)
    update = next(each for each in driven.sent if type(each.request) is UpdateRaftVoter)
    response = VoterChangeResponse(UNSUPPORTED_VERSION, driven.known(leader_id=B.id))
    driven.now_ms = 1500
    driven.step(Answered(update.correlation, response) if is_answer else Failed(update.correlation, True))
    driven.tick(3499)  # its answer put the timeout off
    assert driven.raft.state is State.FOLLOWER
    assert len(driven.requests(UpdateRaftVoter)) == 1
    driven.follow(B, 2)
    assert len(driven.requests(UpdateRaftVoter)) == 2


def test_update_that_is_refused_is_told_again() -> None:
    driven = node(A, voter_set=static_voters(A, B, C), kraft_version=0)
    driven.follow(B)
    driven.answer(B.id, VoterChangeResponse(REQUEST_TIMED_OUT, driven.known(leader_id=B.id)))
    for now_ms in (1000, 2000):
        driven.tick(now_ms)
        driven.answer(B.id, FetchResponse(NONE, driven.known(leader_id=B.id), -1, 0))
    assert len(driven.requests(UpdateRaftVoter)) == 2


def test_sole_voter_raises_it_alone() -> None:
    driven = node(A, voter_set=static_voters(A), kraft_version=0)
    driven.lead()
    driven.raft.raise_kraft_version(1)
    driven.settle()
    assert (driven.raft.kraft_version, driven.raft.voters) == (1, voters(A))
    assert driven.raft.high_watermark == driven.raft.end_offset


# --- joining


def test_joining_node_removes_its_former_directory_first() -> None:
    former = VoterKey(D.id, UUID(int=99))
    driven = node(D, voter_set=voters(A, B, former), auto_join=True)
    driven.follow(B)
    assert driven.requests(RemoveRaftVoter) == [RemoveRaftVoter(former)]
    assert driven.requests(AddRaftVoter) == []
    removed = Entry(0, 1, 1, None, (voters(A, B),))
    known = driven.known(leader_id=B.id)
    driven.answer(B.id, FetchResponse(NONE, known, 1, 0, entries=(removed,)))
    driven.answer(B.id, VoterChangeResponse(NONE, known))
    driven.tick(1000)
    driven.answer(B.id, FetchResponse(NONE, known, 1, 0))
    driven.tick(2000)
    assert driven.requests(AddRaftVoter) == [AddRaftVoter(D, (endpoint(D.id),), ack_when_committed=False)]


def test_node_that_does_not_join_by_itself_asks_for_nothing() -> None:
    driven = node(D, voter_set=voters(A, B, C))
    driven.follow(B)
    driven.tick(2000)
    assert driven.requests(AddRaftVoter) == []
