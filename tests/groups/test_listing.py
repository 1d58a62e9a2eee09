"""Groups from outside: described, listed, deleted; and those that another protocol left behind."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from barnabas.coordination.effects import Caller
from barnabas.coordination.records import KeyedRecord, encode_key, encode_value
from barnabas.core.errors import BarnabasError
from barnabas.groups import listing
from barnabas.groups import records as r
from barnabas.groups.group import CLASSIC, CONSUMER
from barnabas.groups.subscription import topics_of
from tests.groups.members import DELAY_MS, Groups
from tests.groups.offset_log import Entry, records_of

NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69


def delete(groups: Groups, group_id: str = "g") -> int:
    answer = groups.ask(lambda shard, now, reply: listing.delete(shard, group_id, reply))
    code: int = answer.results[0].error_code
    return code


def describe(groups: Groups, group_id: str = "g", version: int = 6) -> Any:
    caller = Caller(version, "client", "/10.0.0.1")
    answer = groups.ask(lambda shard, now, reply: listing.describe(shard, group_id, caller, reply))
    return answer.groups[0]


def listed(groups: Groups, states: list[str], types: list[str]) -> list[str]:
    return [one.group_id for one in listing.listed(groups.shard, states, types)]


def commit(groups: Groups, group_id: str) -> None:
    """An offset of somebody who is in no group."""
    key = r.OffsetCommitKey(group=group_id, topic="t", partition=0)
    value = r.OffsetCommitValue(offset=1, metadata="", commit_timestamp=groups.now.wall_ms)
    write(groups, KeyedRecord(key, value, 4))


def write(groups: Groups, *records: KeyedRecord) -> None:
    """Records that somebody else has written."""
    for record in records:
        groups.log.append(Entry(encode_key(record.key), encode_value(record), None))
        groups.shard.replay(record, None)


# ---- classic groups


def test_a_stable_group_is_described_with_what_its_members_said_and_got() -> None:
    groups = Groups()
    (one,) = groups.stable(b"all")
    told = describe(groups)
    assert (told.error_code, told.group_state, told.protocol_type, told.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    (member,) = told.members
    assert (member.member_id, member.client_id, member.client_host) == (one, "client", "/10.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"r", b"all")
    groups.join(groups.new_id())
    told = describe(groups)
    assert (told.group_state, told.protocol_data) == ("PreparingRebalance", "")
    assert [len(each.member_metadata) for each in told.members] == [0, 0]


def test_a_group_that_is_not_there_is_dead() -> None:
    groups = Groups()
    older, newer = describe(groups, "none", 5), describe(groups, "none", 6)
    assert (older.error_code, older.error_message, older.group_state) == (0, None, "Dead")
    assert (newer.error_code, newer.error_message) == (GROUP_ID_NOT_FOUND, "Group none not found.")


def test_groups_are_listed_by_state_and_type_in_any_case() -> None:
    groups = Groups()
    groups.stable(b"all", group="stable")
    groups.new_id(group="pending")
    commit(groups, "simple")
    assert listed(groups, [], []) == ["stable", "pending", "simple"]
    assert listed(groups, ["STABLE "], []) == ["stable"]
    assert listed(groups, ["empty"], ["Classic"]) == ["pending", "simple"]
    assert listed(groups, [], ["consumer"]) == listed(groups, ["dead"], []) == []


def test_a_group_is_deleted_with_what_it_committed_unless_it_has_members() -> None:
    groups = Groups()
    (one,) = groups.stable(b"all")
    commit(groups, "g")
    assert delete(groups) == NON_EMPTY_GROUP
    assert delete(groups, "none") == GROUP_ID_NOT_FOUND
    groups.leave(one)
    assert delete(groups) == 0
    assert delete(groups) == GROUP_ID_NOT_FOUND
    assert groups.shard.offsets.committed("g", "t", 0) is None
    assert [record.value for record in records_of(groups)[-2:]] == [None, None]
    assert groups.replayed().groups == {}
    again = groups.join(groups.new_id())
    groups.pass_ms(DELAY_MS)
    assert again.answer.generation_id == 1


def test_an_id_that_was_given_out_by_a_deleted_group_means_nothing() -> None:
    groups = Groups()
    given = groups.new_id()
    assert delete(groups) == 0
    assert groups.join(given).error_code == 25
    groups.pass_ms(60_000)
    assert groups.shard.timers.next_due_seconds() is None


# ---- groups of the consumer protocol


def foreign(group_id: str = "g") -> list[KeyedRecord]:
    """A group with one member, as Apache Kafka writes it."""
    member = r.ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        rebalance_timeout_ms=1,
        server_assignor=None,
    )
    current = r.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1,
        previous_member_epoch=0,
        state=0,
        assigned_partitions=[],
        partitions_pending_revocation=[],
    )
    return [
        KeyedRecord(r.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id="m"), member),
        KeyedRecord(r.ConsumerGroupMetadataKey(group_id=group_id), r.ConsumerGroupMetadataValue(epoch=1)),
        KeyedRecord(r.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id="m"), current),
    ]


def test_a_group_of_the_consumer_protocol_is_listed_and_can_be_deleted() -> None:
    groups = Groups()
    write(groups, *foreign())
    commit(groups, "g")
    assert groups.shard.groups["g"].type == CONSUMER
    assert listed(groups, ["Empty"], ["consumer"]) == ["g"]
    assert describe(groups).error_message == "Group g is not a classic group."
    assert groups.heartbeat("m", 1) == groups.sync("m", 1).error_code == groups.leave("m")[0] == 25
    groups.shard.groups["g"].check_commit("", None, -1, groups.now, is_transactional=False)
    with pytest.raises(BarnabasError, match="not served"):
        groups.shard.groups["g"].check_commit("m", None, 1, groups.now, is_transactional=False)
    assert delete(groups) == 0
    assert groups.shard.groups == groups.replayed().groups == {}


def test_a_classic_member_takes_a_group_of_the_consumer_protocol_over() -> None:
    groups = Groups()
    write(groups, *foreign())
    commit(groups, "g")
    assert groups.join("m").error_code == 25
    assert groups.shard.groups["g"].type == CONSUMER
    groups.stable(b"all")
    assert groups.shard.groups["g"].type == CLASSIC
    assert groups.shard.offsets.committed("g", "t", 0) is not None
    for keep_tombstones in (True, False):
        read = groups.replayed(groups.compacted(keep_tombstones=keep_tombstones))
        assert [(group.type, group.state) for group in read.groups.values()] == [(CLASSIC, "Stable")]
    assert groups.replayed().groups["g"].type == CLASSIC


# ---- what members read


def subscription(*topics: str, version: int = 3, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + rest


def test_subscriptions_of_any_version_are_read() -> None:
    assert topics_of([]) == frozenset()
    assert topics_of([subscription("a", "ü"), subscription("b", version=0), subscription()]) == {
        "a",
        "ü",
        "b",
    }


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\0",
        subscription("a")[:8],
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hi", 0, -1),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hih", 0, 1, 1) + b"\xff",
    ],
)
def test_what_is_no_subscription_says_nothing_of_the_whole_group(bad: bytes) -> None:
    assert topics_of([subscription("a"), bad]) is None


def test_a_group_knows_what_its_members_read() -> None:
    groups = Groups()
    groups.stable(b"", protocols=(("range", subscription("a", "b")),))
    group = groups.group()
    assert group.knows_subscription
    assert [group.is_subscribed_to(topic) for topic in ("a", "b", "c")] == [True, True, False]
    groups.stable(b"", group="odd")
    assert groups.group("odd").is_subscribed_to("whatever")  # it might be
    groups.stable(b"", group="connect", kind="connect")
    assert not groups.group("connect").is_subscribed_to("whatever")
    for member in list(group.roster.by_id):
        groups.leave(member)
    assert not group.is_subscribed_to("a")


# ---- commits


@pytest.mark.parametrize(
    ("member", "instance", "generation", "transactional", "error"),
    [
        ("one", None, 1, False, None),
        ("one", None, 1, True, None),
        ("one", None, 0, False, "ILLEGAL_GENERATION"),
        ("one", None, 2, True, "ILLEGAL_GENERATION"),
        ("one", None, -1, False, "ILLEGAL_GENERATION"),
        ("nobody", None, 1, False, "UNKNOWN_MEMBER_ID"),
        ("nobody", None, -1, True, "UNKNOWN_MEMBER_ID"),
        ("", None, -1, False, "UNKNOWN_MEMBER_ID"),
        ("", None, -1, True, None),
        ("one", "i", 1, False, "UNKNOWN_MEMBER_ID"),
        ("one", "instance", 1, False, "FENCED_INSTANCE_ID"),
        ("", "instance", -1, True, "FENCED_INSTANCE_ID"),
    ],
)
def test_who_may_commit(
    member: str, instance: str | None, generation: int, transactional: bool, error: str | None
) -> None:
    groups = Groups()
    static = groups.join(instance="instance")
    one = groups.new_id()
    groups.join(one)
    groups.pass_ms(2 * DELAY_MS)
    groups.sync(one, 1)
    groups.sync(static.answer.member_id, 1, {}, instance="instance")
    ids = {"one": one}

    def check(generation: int) -> str | None:
        try:
            groups.group().check_commit(
                ids.get(member, member), instance, generation, groups.now, is_transactional=transactional
            )
        except BarnabasError as refused:
            return refused.wire.name
        return None

    assert check(generation) == error
    groups.join(one, protocols=(("range", b"new"),))
    assert check(generation) == error  # a rebalance that has only begun changes nothing
    groups.join(static.answer.member_id, instance="instance")
    expected = error if transactional or error else "REBALANCE_IN_PROGRESS"
    assert check(generation + 1 if generation > 0 else generation) == expected


def test_an_empty_group_lets_those_commit_who_belong_to_none() -> None:
    groups = Groups()
    groups.new_id()
    groups.group().check_commit("", None, -1, groups.now, is_transactional=False)
    groups.group().check_commit("anybody", None, -1, groups.now, is_transactional=False)
    with pytest.raises(BarnabasError, match="no member anybody"):
        groups.group().check_commit("anybody", None, 0, groups.now, is_transactional=False)
