"""Counting votes and offsets, for any number of voters."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.raft.election import (
    TRANSITIONS,
    State,
    VoterKey,
    is_elected,
    majority,
    replicated_offset,
)


def voters(count: int) -> list[VoterKey]:
    return [VoterKey(number, UUID(int=number)) for number in range(count)]


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(count: int, needed: int) -> None:
    assert majority(count) == needed
    assert is_elected(voters(needed), voters(count))
    assert not is_elected(voters(needed - 1), voters(count))


def test_votes_of_others_do_not_count() -> None:
    three = voters(3)
    same_id_other_disk = VoterKey(1, UUID(int=99))
    assert not is_elected([three[0], VoterKey(7)], three)
    assert not is_elected([three[0], same_id_other_disk], three)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7))
def test_the_replicated_offset_is_the_highest_that_a_majority_holds(ends: list[int]) -> None:
    found = replicated_offset(ends)
    assert sum(end >= found for end in ends) >= majority(len(ends))
    assert sum(end >= found + 1 for end in ends) < majority(len(ends))


@given(st.sets(st.integers(0, 6)), st.sets(st.integers(0, 6)), st.integers(1, 7))
def test_two_majorities_always_share_a_voter(one: set[int], other: set[int], count: int) -> None:
    all_voters = voters(count)
    granted = [[VoterKey(number, UUID(int=number)) for number in votes] for votes in (one, other)]
    if all(is_elected(votes, all_voters) for votes in granted):
        assert set(granted[0]) & set(granted[1]) & set(all_voters)


def test_nobody_leads_without_having_been_a_candidate() -> None:
    assert [state for state in State if State.LEADER in TRANSITIONS[state]] == [State.CANDIDATE]
    assert [state for state in State if State.CANDIDATE in TRANSITIONS[state]] == [State.PROSPECTIVE]
    assert [state for state in State if State.RESIGNED in TRANSITIONS[state]] == [State.LEADER]
    assert TRANSITIONS.keys() == set(State)
