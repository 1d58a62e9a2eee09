"""The role of a replica follows from the metadata, and changes only as the table allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.replicas.followers import UNKNOWN_END, Followers, high_watermark_of
from barnabas.broker.replicas.roles import (
    LEGAL,
    Following,
    Leading,
    NotLeaderOrFollower,
    Offline,
    Role,
    require_legal,
    role_of,
)
from barnabas.core.errors import InvariantViolation
from barnabas.metadata.parts import PartitionImage
from barnabas.metadata.records import NO_LEADER, PartitionRecord

OFFLINE = Offline(NotLeaderOrFollower("for a test"))


def image(replicas: list[int], isr: list[int], leader: int, epoch: int = 3) -> PartitionImage:
    return PartitionImage.of(
        PartitionRecord(
            partition_id=0, topic_id=bytes(16), replicas=replicas, isr=isr, leader=leader, leader_epoch=epoch
        )
    )


def leading(followers: tuple[int, ...], isr: tuple[int, ...], min_in_sync: int = 1) -> Leading:
    return Leading(0, isr, followers, min_in_sync)


def test_the_image_chooses_the_role() -> None:
    assert role_of(image([1, 2, 3], [1, 3], 1), 1, 2) == Leading(3, (1, 3), (2, 3), 2)
    assert role_of(image([1, 2, 3], [1, 3], 1), 2, 2) == Following(1, 3)
    assert role_of(image([1, 2], [2], NO_LEADER), 1, 2) == Following(NO_LEADER, 3)
    assert role_of(image([1, 2], [2], 2), 3, 2) is None


def test_min_insync_replicas_is_at_most_the_number_of_replicas() -> None:
    role = role_of(image([1], [1], 1), 1, 2)
    assert isinstance(role, Leading)
    assert not role.is_under_min
    under = role_of(image([1, 2], [1], 1), 1, 5)
    assert isinstance(under, Leading)
    assert under.is_under_min


@pytest.mark.parametrize("before", [leading((), (1,)), Following(2, 0), OFFLINE])
@pytest.mark.parametrize("after", [leading((2,), (1,)), Following(3, 0), OFFLINE])
def test_only_changes_of_the_table_are_legal(before: Role, after: Role) -> None:
    if type(after) in LEGAL[type(before)]:
        require_legal(before, after, "t-0")
    else:
        assert before is OFFLINE
        with pytest.raises(InvariantViolation):
            require_legal(before, after, "t-0")


def test_the_leader_epoch_never_goes_back() -> None:
    with pytest.raises(InvariantViolation):
        require_legal(Following(2, 5), Leading(4, (1,), (2,), 1), "t-0")


# ---- the leader's rule


@given(own_end=st.integers(0, 9), ends=st.dictionaries(st.integers(2, 4), st.integers(0, 9)))
def test_the_high_watermark_is_the_smallest_end_in_the_isr(own_end: int, ends: dict[int, int]) -> None:
    found = high_watermark_of(leading((2, 3, 4), (1, 2, 3)), own_end, ends)
    if 2 in ends and 3 in ends:
        assert found == min(own_end, ends[2], ends[3])  # whatever 4 has: it is not in the ISR
    else:
        assert found == UNKNOWN_END
    assert high_watermark_of(leading((2, 3, 4), (1,)), own_end, ends) == own_end
    assert high_watermark_of(leading((2, 3, 4), (1,), 2), own_end, ends) == UNKNOWN_END


def test_bytes_count_when_the_high_watermark_passes_them() -> None:
    followers = Followers(3, 70)
    for end_offset, size_bytes in ((4, 10), (6, 20), (7, 0), (9, 30)):
        followers.appended(end_offset, size_bytes)
    assert followers.own_end == 9
    passed = [followers.committed_bytes(high_watermark) for high_watermark in (2, 3, 5, 6, 6, 9)]
    assert passed == [0, 70, 10, 20, 0, 30]


def test_nodes_without_a_replica_are_forgotten() -> None:
    followers = Followers(0, 0)
    followers.ends.update({2: 5, 3: 6})
    followers.keep((3, 4))
    assert followers.ends == {3: 6}
