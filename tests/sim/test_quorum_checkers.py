"""Each checker of simulated quorums against small histories, good and bad."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.raft.election import Election
from barnabas.raft.log_index import Entry
from barnabas.raft.messages import (
    AddRaftVoter,
    FetchResponse,
    Known,
    RemoveRaftVoter,
    Send,
    Vote,
    VoteResponse,
)
from barnabas.sim.quorum import checkers
from barnabas.sim.quorum.checkers import (
    ACTS_A_SECOND,
    Answered,
    BusyLoop,
    Committed,
    HighWatermark,
    OneLeader,
    VotersChange,
    VotesNeverChange,
)
from barnabas.sim.quorum.disk import Log
from barnabas.sim.quorum.stability import DISTURBED, Undisturbed
from tests.raft.nodes import A, B, C, D, E, endpoint, voters

SECOND_US = 1_000_000


class Said:
    """What a checker says."""

    def __init__(self) -> None:
        self.by: list[str] = []

    def __call__(self, checker: str, what: str) -> None:
        self.by.append(checker)


@pytest.fixture
def said() -> Said:
    return Said()


def log(*values: int, epoch: int = 1) -> Log:
    made = Log()
    for value in values:
        made.append(Entry(made.end_offset, 1, epoch, value))
    return made


def test_one_leader_an_epoch(said: Said) -> None:
    checker = OneLeader(said)
    checker.leads(1, 1, 4)
    checker.leads(1, 1, 4)
    checker.leads(2, 1, 5)
    assert said.by == []
    checker.leads(1, 3, 4)  # again, after a restart
    checker.leads(3, 1, 5)
    assert said.by == [checkers.LEADERS] * 2


def test_leader_says_so_only_while_it_leads(said: Said) -> None:
    checker = OneLeader(said)
    checker.leads(1, 1, 4)
    checker.told(1, 1, Known(4, 1))
    checker.told(2, 1, Known(4, 1))
    checker.told(2, 1, Known(3, 2))  # of what came before its file was seen, nothing is known
    assert said.by == []
    checker.told(1, 2, Known(4, 1))  # another process of it
    checker.ended(4)
    checker.told(1, 1, Known(4, 1))
    assert said.by == [checkers.LEADERS] * 2


def ask(
    checker: VotesNeverChange, voter: object, candidate: object, *, granted: bool, pre: bool = False
) -> None:
    request = Vote(7, candidate, 0, 0, pre)  # type: ignore[arg-type]
    checker.granted(voter, request, VoteResponse(0, Known(7), granted))  # type: ignore[arg-type]


def test_votes_never_change(said: Said) -> None:
    checker = VotesNeverChange(said)
    ask(checker, A, B, granted=True)
    ask(checker, A, B, granted=True)
    ask(checker, A, C, granted=False)
    ask(checker, A, C, granted=True, pre=True)
    ask(checker, B, C, granted=True)
    assert said.by == []
    ask(checker, A, C, granted=True)
    checker.sent(B, Send(1, 1, endpoint(1), Vote(7, B, 0, 0)))  # a candidate has voted for itself
    assert said.by == [checkers.VOTES] * 2


def test_files_never_go_back(said: Said) -> None:
    checker = VotesNeverChange(said)
    for election in (Election(1), Election(1, -1, B), Election(1, 2, B), Election(3), Election(3, 1)):
        checker.written(A, election)
    assert said.by == []
    checker.written(A, Election(2))
    checker.written(B, Election(1, -1, C))
    checker.written(B, Election(1))
    assert said.by == [checkers.VOTES] * 2


def test_committed_logs_are_prefixes_of_one(said: Said) -> None:
    checker = Committed(said)
    checker.reported(1, 1, 2, log(10, 11, 12))
    checker.reported(2, 1, 1, log(10))
    checker.reported(3, 1, 3, log(10, 11, 12))
    assert said.by == []
    assert (checker.end_offset, checker.value_at(2), checker.value_at(9)) == (3, 11, None)
    checker.reported(2, 1, 2, log(10, 99))
    checker.reported(2, 1, 2, log(10))
    assert said.by == [checkers.PREFIX] * 2


def test_snapshot_of_another_history_shows(said: Said) -> None:
    checker = Committed(said)
    whole = log(10, 11, 12)
    checker.reported(1, 1, 3, whole)
    good, bad = Log(), Log()
    good.begin_anew(2, whole.chain_at(2) or 0)
    bad.begin_anew(2, whole.chain_at(3) or 0)  # it holds one more than its id says
    for each in (good, bad):
        each.append(Entry(2, 1, 1, 12))
    checker.reported(2, 1, 3, good)
    assert said.by == []
    checker.reported(3, 1, 3, bad)
    assert said.by == [checkers.PREFIX]


def test_later_leaders_have_all_that_is_committed(said: Said) -> None:
    checker = Committed(said)
    checker.reported(1, 4, 2, log(10, 11))
    checker.leads(2, 5, log(10, 11, 12))
    checker.leads(3, 4, log(10))  # of the same epoch or an earlier one: it may come late
    assert said.by == []
    checker.leads(2, 5, log(10))
    checker.leads(2, 5, log(10, 99, 12))
    assert said.by == [checkers.COMMITTED] * 2


def test_high_watermark_never_falls(said: Said) -> None:
    checker = HighWatermark(said)
    told: Callable[[int], FetchResponse] = lambda offset: FetchResponse(0, Known(3, 1), offset)  # noqa: E731
    checker.reported(1, 1, 5)
    checker.reported(1, 2, 0)  # another process
    checker.truncated(1, 1, 5)
    for offset in (-1, 4, 4, 6):
        checker.told(1, told(offset))
    assert said.by == []
    checker.reported(1, 1, 4)
    checker.told(1, told(5))
    checker.truncated(1, 1, 3)
    assert said.by == [checkers.WATERMARK] * 3


def test_answered_records_stay(said: Said) -> None:
    committed, checker = Committed(said), Answered(said)
    committed.reported(1, 1, 2, log(10, 11))
    checker.answered(1, 2, 11)
    checker.end(committed)
    assert said.by == []
    checker.answered(1, 1, 99)
    checker.answered(1, 3, 12)
    checker.end(committed)
    assert said.by == [checkers.ANSWERS] * 2


def test_voters_change_one_at_a_time(said: Said) -> None:
    checker = VotersChange(said)
    checker.appended(None, voters(A, B, C))
    checker.appended(voters(A, B, C), voters(A, B))
    checker.appended(voters(A, B), voters(A, B, D))
    assert said.by == []
    checker.appended(voters(A, B, D), voters(A, D, E))
    assert said.by == [checkers.VOTERS]


def test_removed_voter_joins_only_when_it_is_asked_or_anew(said: Said) -> None:
    checker = VotersChange(said)
    checker.asked(RemoveRaftVoter(B), knows=True)
    checker.removed(voters(A, B), voters(A))
    checker.started(B)
    checker.appended(voters(A), voters(A, B))
    assert said.by == []
    for request in (RemoveRaftVoter(B), AddRaftVoter(B, ())):
        checker.asked(request, knows=True)
        if isinstance(request, RemoveRaftVoter):
            checker.removed(voters(A, B), voters(A))
    checker.appended(voters(A), voters(A, B))
    assert said.by == []
    checker.asked(RemoveRaftVoter(B), knows=True)
    checker.removed(voters(A, B), voters(A))
    checker.appended(voters(A), voters(A, B))
    assert said.by == [checkers.VOTERS]


def test_busy_loop(said: Said) -> None:
    checker = BusyLoop(said)
    for number in range(ACTS_A_SECOND * 2):
        checker.acts(1, number * 1000)
    assert (said.by, checker.is_found, checker.most) == ([], False, 1000)
    for number in range(ACTS_A_SECOND + 1):
        checker.acts(2, number)
    assert (said.by, checker.is_found) == ([checkers.BUSY], True)


def in_contact(said: Said, seconds: int) -> Undisturbed:
    """Nodes 2 and 3 fetch from node 1, which leads epoch 4."""
    checker = Undisturbed(said)
    checker.leads(1, 4)
    for now_us in range(0, seconds * SECOND_US, SECOND_US // 2):
        for node in (2, 3):
            checker.fetched(node, 4, now_us)
    return checker


def test_leader_that_is_fetched_from_is_not_replaced(said: Said) -> None:
    now_us = 10 * SECOND_US
    in_contact(said, 10).stands(3, 5, voters(A, B, C), now_us)
    assert said.by == [DISTURBED]


@pytest.mark.parametrize(
    "excuse",
    [
        lambda checker: checker.lost(2),
        lambda checker: checker.leads_no_more(1),
        lambda checker: checker.fetched(2, 5, 10 * SECOND_US),
    ],
)
def test_leader_that_may_be_gone_is_replaced(said: Said, excuse: Callable[[Undisturbed], None]) -> None:
    checker = in_contact(said, 10)
    excuse(checker)
    checker.stands(3, 5, voters(A, B, C), 10 * SECOND_US)
    in_contact(said, 2).stands(3, 5, voters(A, B, C), 2 * SECOND_US)  # only just elected
    in_contact(said, 10).stands(3, 5, voters(A, B, C), 12 * SECOND_US)  # silent since
    assert said.by == []
