"""Who coordinates a group is known from the metadata, and what a deposed coordinator tells binds nobody."""

from __future__ import annotations

from barnabas.broker.coordinators.coordinator import partition_for
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.sim.checkers import commits, ownership
from barnabas.sim.checkers.coordinators import GroupCoordinators
from barnabas.sim.group_events import Affirmed, Assigned, CommitDone, CommitSent, CommittedSeen, Joined
from barnabas.sim.history import Event, Fault, History, Started
from barnabas.sim.replication.events import PartitionSeen
from tests.sim.checkers.story import only

NODES = (1, 2, 3)
MOVED_AT = 10.0


def led(
    at: float, leader: int, epoch: int, *, isr: tuple[int, ...] = NODES, partition: int = 0, topic: str = ""
) -> PartitionSeen:
    place = (topic or CONSUMER_OFFSETS, "id", partition)
    return PartitionSeen(at, 1, int(at * 10), *place, leader, epoch, epoch, NODES, isr, (), (), (), (), False)


MOVES = (led(0, 1, 0), led(MOVED_AT, 2, 1))


def test_a_node_is_deposed_when_the_metadata_says_so() -> None:
    coordinators = GroupCoordinators(History(events=MOVES))
    assert not coordinators.may_be_deposed("g", 1, 1, 9)
    assert coordinators.may_be_deposed("g", 1, 9, 11)
    assert coordinators.may_be_deposed("g", 2, 9, 11)
    assert coordinators.may_be_deposed("g", 1, 11, 12)
    assert not coordinators.may_be_deposed("g", 2, 11, 12)
    assert GroupCoordinators(History(events=[*MOVES, led(20, -1, 2)])).may_be_deposed("g", 2, 19, 21)


def test_a_group_has_the_coordinator_of_its_partition() -> None:
    of_others = [led(0, 1, 0, partition=each) for each in range(5)]
    mine = partition_for("g", 5)
    moved = [*of_others, *(led(MOVED_AT, 2, 1, partition=each) for each in range(5) if each != mine)]
    assert not GroupCoordinators(History(events=moved)).may_be_deposed("g", 1, 9, 11)
    other_topic = [led(0, 1, 0), led(MOVED_AT, 2, 1, topic=TRANSACTION_STATE)]
    assert not GroupCoordinators(History(events=other_topic)).may_be_deposed("g", 1, 9, 11)


def test_one_node_is_never_deposed() -> None:
    assert not GroupCoordinators(History()).may_be_deposed("g", 1, 0, 1)


# ---- commits ---------------------------------------------------------------------------------------------


def committed(at: float, mark: str, offset: int, node: int) -> tuple[Event, Event]:
    return CommitSent(at, mark, "g", "t", 0, offset), CommitDone(at + 0.1, mark, node)


def seen(at: float, mark: str, offset: int, node: int) -> CommittedSeen:
    return CommittedSeen(at, at - 0.1, "watcher", "g", "t", 0, offset, mark, True, node)


COMMITS = (*committed(5, "a", 3, 1), *committed(11, "b", 4, 2))


def test_a_deposed_coordinator_may_tell_an_earlier_commit() -> None:
    assert commits.check(History(events=[*MOVES, *COMMITS, seen(12, "a", 3, 1)])) == []
    again = [*MOVES, *COMMITS, seen(12, "b", 4, 2), seen(13, "a", 3, 1)]
    assert commits.check(History(events=again)) == []


def test_a_coordinator_must_tell_the_latest_commit() -> None:
    found = commits.check(History(events=[*MOVES, *COMMITS, seen(12, "a", 3, 2)]))
    assert "although 'b', offset 4" in only(found).what


def test_a_deposed_coordinator_must_not_tell_what_nobody_sent() -> None:
    found = commits.check(History(events=[*MOVES, *COMMITS, seen(12, "z", 9, 1)]))
    assert "which nobody ever sent" in only(found).what


# ---- ownership -------------------------------------------------------------------------------------------


def assigned(at: float, who: str, generation: int, node: int) -> Assigned:
    return Assigned(at, at - 0.1, "g", who, f"{who}-id", "", generation, (("t", 0),), 5.0, node)


def affirmed(at: float, who: str, generation: int, node: int) -> Affirmed:
    return Affirmed(at, at - 0.1, "g", who, f"{who}-id", generation, node)


def test_heartbeats_of_a_deposed_coordinator_renew_nothing() -> None:
    story = [*MOVES, assigned(8, "a", 1, 1), affirmed(11, "a", 1, 1), assigned(14, "b", 2, 2)]
    assert ownership.check(History(events=story)) == []
    story = [*MOVES, assigned(8, "a", 1, 1), affirmed(11, "a", 1, 2), assigned(14, "b", 2, 2)]
    assert "belongs to b-id" in only(ownership.check(History(events=story))).what


def test_a_deposed_coordinator_may_take_heartbeats_of_an_earlier_generation() -> None:
    story = [*MOVES, assigned(12, "b", 2, 2), affirmed(13, "a", 1, 1)]
    assert ownership.check(History(events=story)) == []
    story = [*MOVES, assigned(12, "b", 2, 2), affirmed(13, "a", 1, 2)]
    assert "was accepted" in only(ownership.check(History(events=story))).what


def test_a_deposed_coordinator_must_not_acknowledge_commits_of_an_earlier_generation() -> None:
    late = (CommitSent(13, "m", "g", "t", 0, 1, 1), CommitDone(14, "m", 1))
    story = [*MOVES, assigned(12, "b", 2, 2), *late]
    assert "was accepted" in only(ownership.check(History(events=story))).what


def joined_then_accepted(*between: Event, node: int = 1, joined_by: int = 1) -> bool:
    """Whether it is wrong that a heartbeat of an earlier generation is accepted after a member joined."""
    joined = Joined(2, 1.9, "g", "b", "b-id", 2, "b-id", joined_by)
    late = [event for event in between if event.at > joined.at]
    early = [event for event in between if event.at <= joined.at]
    story = [MOVES[0], *early, joined, *late, affirmed(6, "a", 1, node)]
    return bool(ownership.check(History(events=story)))


def test_a_generation_that_was_only_joined_counts_for_the_node_that_answered() -> None:
    assert joined_then_accepted()
    assert joined_then_accepted(Started(3, 2), Fault(3, "disk-full", "", 3))
    assert not joined_then_accepted(Started(3, 1))
    assert not joined_then_accepted(Fault(3, "disk-full", "", 1))
    assert not joined_then_accepted(led(3, 2, 1), led(4, 1, 2))


def test_a_generation_that_was_only_joined_counts_while_its_coordinator_can_write() -> None:
    assert joined_then_accepted(led(3, 1, 0, isr=(1, 2)))
    assert not joined_then_accepted(led(3, 1, 0, isr=(1,)))
    assert not joined_then_accepted(led(1, 1, 0, isr=(1,)), led(1.5, 1, 0))
    assert not joined_then_accepted(led(3, 1, 1))
    assert not joined_then_accepted(led(1, 1, 1))
