"""The role of a replica follows from the metadata, and changes only as the table allows."""

from __future__ import annotations

import pytest

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
from barnabas.metadata.parts import RECOVERED, RECOVERING, PartitionImage
from barnabas.metadata.records import NO_LEADER, PartitionRecord

OFFLINE = Offline(NotLeaderOrFollower("for a test"))


def image(replicas: list[int], isr: list[int], leader: int, *, state: int = RECOVERED) -> PartitionImage:
    return PartitionImage.of(
        PartitionRecord(
            partition_id=0,
            topic_id=bytes(16),
            replicas=replicas,
            isr=isr,
            leader=leader,
            leader_epoch=3,
            partition_epoch=7,
            leader_recovery_state=state,
        )
    )


def leading(followers: tuple[int, ...], isr: tuple[int, ...], min_in_sync: int = 1) -> Leading:
    return Leading(0, 0, isr, followers, min_in_sync)


def test_the_image_chooses_the_role() -> None:
    assert role_of(image([1, 2, 3], [1, 3], 1), 1, 2) == Leading(3, 7, (1, 3), (2, 3), 2)
    uncleanly = image([1, 2], [1], 1, state=RECOVERING)
    assert role_of(uncleanly, 1, 1) == Leading(3, 7, (1,), (2,), 1, is_recovering=True)
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
        require_legal(Following(2, 5), Leading(4, 9, (1,), (2,), 1), "t-0")


def test_the_partition_epoch_goes_back_only_with_a_later_leader_epoch() -> None:
    before = Leading(4, 9, (1, 2), (2,), 1)
    for after in (before._replace(partition_epoch=9), before._replace(leader_epoch=5, partition_epoch=0)):
        require_legal(before, after, "t-0")
    with pytest.raises(InvariantViolation):
        require_legal(before, before._replace(partition_epoch=8), "t-0")
