"""What the core knows of its log: epochs, where two logs part, snapshots."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import InvariantViolation
from barnabas.raft.log_index import Entry, EpochEnd, KRaftVersion, LogIndex, LogState
from barnabas.raft.snapshot import SnapshotId
from tests.raft.nodes import A, B, C, voters


def log(*epochs: int, snapshots: Sequence[tuple[SnapshotId, int]] = (), start: int = 0) -> LogIndex:
    """One record in each of these epochs, from `start` on."""
    index = LogIndex(LogState(voters(A, B), 1, (), start, start, (), snapshots))
    for epoch in epochs:
        index.append([Entry(index.end_offset, 1, epoch)])
    return index


def test_epochs_end_where_the_next_begins() -> None:
    index = log(1, 1, 3, 3, 3, 7)
    assert (index.end_offset, index.last_epoch) == (6, 7)
    ends = [tuple(index.end_of_epoch(epoch)) for epoch in (0, 1, 2, 3, 6, 7, 9)]
    assert ends == [(0, 0), (1, 2), (1, 2), (3, 5), (3, 5), (7, 6), (7, 6)]
    assert [index.epoch_at(offset) for offset in range(6)] == [1, 1, 3, 3, 3, 7]


def test_entries_continue_the_log() -> None:
    with pytest.raises(InvariantViolation, match="does not continue"):
        log(1).append([Entry(5, 1, 1)])


@pytest.mark.parametrize(
    ("offset", "epoch", "found"),
    [
        (6, 7, None),
        (3, 3, None),
        (0, 0, None),
        (7, 7, EpochEnd(7, 6)),  # holds more than there is
        (4, 1, EpochEnd(1, 2)),  # had more of that epoch
        (4, 2, EpochEnd(1, 2)),  # an epoch that nobody else knows
        (9, 9, EpochEnd(7, 6)),
    ],
)
def test_fetch_that_is_no_prefix_learns_where_to_cut(offset: int, epoch: int, found: object) -> None:
    assert log(1, 1, 3, 3, 3, 7).check_fetch(offset, epoch) == found


SNAPSHOT = SnapshotId(4, 3)


@pytest.mark.parametrize(
    ("offset", "epoch", "found"),
    [
        (0, 0, SNAPSHOT),
        (2, 3, SNAPSHOT),  # below the log's start
        (4, 2, SNAPSHOT),  # at its start, of another epoch
        (4, 3, None),
        (5, 2, SNAPSHOT),  # an epoch before the snapshot's
        (5, 3, None),
        (6, 7, None),
        (9, 5, EpochEnd(3, 5)),
    ],
)
def test_fetch_before_the_log_gets_a_snapshot(offset: int, epoch: int, found: object) -> None:
    index = log(3, 7, snapshots=[(SNAPSHOT, 100)], start=4)
    assert index.check_fetch(offset, epoch) == found


def test_checkpoint_of_an_empty_log_is_never_sent() -> None:
    index = log(1, snapshots=[(SnapshotId(0, 0), 10)])
    assert index.check_fetch(0, 0) is None
    assert (index.latest_snapshot, index.earliest_snapshot) == (None, None)


def test_snapshot_of_a_whole_log_is_sent_to_who_begins() -> None:
    index = log(1, 1, 1)
    index.add_snapshot(index.snapshot_id(2), 50)
    assert index.check_fetch(0, 0) == SnapshotId(2, 1)
    assert index.check_fetch(1, 1) is None


def test_snapshot_id_is_the_offset_behind_with_the_epoch_before() -> None:
    index = log(1, 1, 3, 3, 7)
    ids = [SnapshotId(2, 1), SnapshotId(3, 3), SnapshotId(5, 7)]
    assert [index.snapshot_id(offset) for offset in (2, 3, 5)] == ids


@given(st.lists(st.integers(1, 4), max_size=8), st.lists(st.integers(1, 4), max_size=8))
def test_a_follower_converges_to_the_leaders_log(mine: list[int], theirs: list[int]) -> None:
    """By cutting where it is told, and only there, whatever it held; equal epochs mean equal records where a
    leader of that epoch wrote both."""
    mine, theirs = sorted(mine), sorted(theirs)
    leader, follower = log(*theirs), log(*mine)
    for _ in range(10):
        found = leader.check_fetch(follower.end_offset, follower.last_epoch)
        if found is None:
            break
        assert isinstance(found, EpochEnd)
        before = follower.end_offset
        follower.truncate(follower.truncation_for(found))
        assert follower.end_offset < before
    kept = [follower.epoch_at(offset) for offset in range(follower.end_offset)]
    assert kept == theirs[: len(kept)] or mine[: len(kept)] == kept
    assert leader.check_fetch(follower.end_offset, follower.last_epoch) is None


def test_truncation_takes_voters_and_epochs_with_it() -> None:
    index = log(1, 1)
    index.append([Entry(2, 2, 4, None, (KRaftVersion(2), voters(A, B, C)))])
    assert (index.voters.latest, index.voters.latest_offset) == (voters(A, B, C), 3)
    assert index.kraft_version.latest == 2
    index.truncate(2)
    assert (index.voters.latest, index.kraft_version.latest) == (voters(A, B), 1)
    assert (index.end_offset, index.last_epoch) == (2, 1)


def test_installed_snapshot_takes_the_place_of_everything() -> None:
    index = log(1, 1)
    index.install(SnapshotId(9, 5), 77, voters(A), 1)
    assert (index.start_offset, index.end_offset, index.last_epoch) == (9, 9, 5)
    assert index.snapshots == {SnapshotId(9, 5): 77}
    assert index.voters.latest == voters(A)
    assert index.end_of_epoch(5) == EpochEnd(5, 9)
    assert index.check_fetch(9, 5) is None


def test_trimmed_log_keeps_its_epochs() -> None:
    index = log(1, 1, 3, 3, 7)
    for offset in (2, 3):
        index.add_snapshot(index.snapshot_id(offset), 10)
    index.start_at(SnapshotId(3, 3))
    assert list(index.snapshots) == [SnapshotId(3, 3)]
    assert [tuple(index.end_of_epoch(epoch)) for epoch in (1, 3, 7)] == [(3, 3), (3, 4), (7, 5)]
    index = log(1, 1, 3)
    index.add_snapshot(index.snapshot_id(3), 10)
    index.start_at(SnapshotId(3, 3))
    assert (index.last_epoch, index.end_of_epoch(3)) == (3, EpochEnd(3, 3))
