"""Sets of voters and their history by offset."""

from __future__ import annotations

from itertools import combinations
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from barnabas.raft.election import NO_DIRECTORY, VoterKey
from barnabas.raft.voters import OffsetHistory, VoterInfo, VoterSet
from tests.raft.nodes import A, B, C, D, voter, voters

OTHER_DISK = VoterKey(A.id, UUID(int=99))


def test_voter_is_a_node_on_one_directory() -> None:
    three = voters(A, B, C)
    assert three.has(A)
    assert not three.has(OTHER_DISK)
    assert not three.has(D)
    assert three.has(VoterKey(A.id))  # an asker of an older version tells no directory


def test_voters_of_the_settings_are_any_directory() -> None:
    static = VoterSet([VoterInfo(VoterKey(A.id, NO_DIRECTORY))])
    assert static.has(A)
    assert static.has(OTHER_DISK)


def test_changes_make_new_sets() -> None:
    two = voters(A, B)
    assert two.with_voter(voter(C)) == voters(A, B, C)
    assert two.without(B.id) == voters(A)
    assert two == voters(B, A)
    moved = two.with_voter(voter(B, port=1))
    assert moved != two
    assert moved.keys == two.keys


def test_one_change_at_a_time_overlaps() -> None:
    three = voters(A, B, C)
    assert three.overlaps(three)
    assert three.overlaps(voters(A, B))
    assert three.overlaps(voters(A, B, C, D))
    assert not three.overlaps(voters(A, B, D))
    assert not three.overlaps(voters(A))
    assert not three.overlaps(voters(OTHER_DISK, B, C))


@given(st.sets(st.integers(1, 7), min_size=1), st.sets(st.integers(1, 7), min_size=1))
def test_majorities_of_sets_that_overlap_share_a_voter(one: set[int], other: set[int]) -> None:
    before, after = (voters(*(VoterKey(each, UUID(int=each)) for each in ids)) for ids in (one, other))
    if before.overlaps(after):
        for mine in combinations(before.ids, before.majority):
            for theirs in combinations(after.ids, after.majority):
                assert set(mine) & set(theirs)


def test_rank_leaves_out_the_leader() -> None:
    assert [voters(A, B, C).rank(each, without=2) for each in (1, 3)] == [0, 1]
    assert [voters(A, B, C).rank(each, without=-1) for each in (1, 2, 3)] == [0, 1, 2]


def test_history_follows_the_log() -> None:
    history = OffsetHistory("first")
    history.append(5, "second")
    history.append(9, "third")
    assert (history.latest, history.latest_offset, history.previous) == ("third", 9, "second")
    assert [history.at(offset)[1] for offset in (0, 5, 6, 9, 10)] == [
        "first",
        "first",
        "second",
        "second",
        "third",
    ]
    history.truncate(9)
    assert history.latest == "second"
    history.truncate(0)
    assert (history.latest, history.previous) == ("first", "first")


def test_history_keeps_what_is_in_force_at_the_log_start() -> None:
    history = OffsetHistory(0)
    for offset in (3, 6, 9):
        history.append(offset, offset)
    history.forget(7)
    assert history.at(7) == (6, 6)
    assert history.latest == 9
    history.truncate(0)
    assert history.latest == 6


@given(st.lists(st.integers(1, 5)), st.integers(0, 40))
def test_truncated_history_is_that_of_the_shorter_log(gaps: list[int], end_offset: int) -> None:
    whole, short = OffsetHistory(-1), OffsetHistory(-1)
    offset = 0
    for gap in gaps:
        offset += gap
        whole.append(offset, offset)
        if offset < end_offset:
            short.append(offset, offset)
    whole.truncate(end_offset)
    assert (whole.latest, whole.latest_offset) == (short.latest, short.latest_offset)
