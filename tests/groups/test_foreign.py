"""Groups that Apache Kafka has left: whatever happens here, they stay, until somebody takes over."""

from __future__ import annotations

import struct

import pytest

from barnabas.coordination.records import KeyedRecord, Unread, decode_record, encode_key
from barnabas.core.errors import BarnabasError
from barnabas.groups import foreign_records as f
from barnabas.groups import listing, offset_commands
from barnabas.groups import records as r
from barnabas.groups.foreign import type_of
from barnabas.groups.group import CLASSIC, CONSUMER, SHARE, STREAMS
from barnabas.groups.settings import GroupSettings
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest
from barnabas.protocol.schema import Message
from tests.groups.members import DELAY_MS, Groups
from tests.groups.offset_log import Entry

NON_EMPTY_GROUP = 68
INCONSISTENT_GROUP_PROTOCOL = 23
A_WEEK_MS = 7 * 24 * 3600 * 1000
UNREAD = struct.pack(">h", 0) + b"whatever"

SHARED = [
    f.ShareGroupMemberMetadataKey(group_id="g", member_id="m"),
    f.ShareGroupMetadataKey(group_id="g"),
    f.ShareGroupStatePartitionMetadataKey(group_id="g"),
    f.ShareGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
    f.ShareGroupTargetAssignmentMetadataKey(group_id="g"),
    f.ShareGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
]
STREAMED = [
    f.StreamsGroupMemberMetadataKey(group_id="g", member_id="m"),
    f.StreamsGroupMetadataKey(group_id="g"),
    f.StreamsGroupTopologyKey(group_id="g"),
    f.StreamsGroupTargetAssignmentMetadataKey(group_id="g"),
    f.StreamsGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
    f.StreamsGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
]
CONSUMED = [f.ConsumerGroupPartitionMetadataKey(group_id="g")]


def left(groups: Groups, keys: list[Message]) -> None:
    """Records with these keys, by Kafka."""
    for key in keys:
        encoded = encode_key(key)
        groups.log.append(Entry(encoded, UNREAD, None))
        groups.shard.replay(decode_record(r.KINDS, encoded, UNREAD), None)


def commit(groups: Groups) -> None:
    key = r.OffsetCommitKey(group="g", topic="t", partition=0)
    value = r.OffsetCommitValue(offset=1, metadata="", commit_timestamp=groups.now.wall_ms)
    record = KeyedRecord(key, value, 4)
    groups.shard.replay(record, None)


def seen(groups: Groups) -> list[tuple[str, str, str]]:
    listed = listing.listed(groups.shard, (), ())
    return [(one.group_type, one.protocol_type, one.group_state) for one in listed]


def deleted(groups: Groups) -> int:
    answer = groups.ask(lambda shard, now, reply: listing.delete(shard, "g", reply))
    code: int = answer.results[0].error_code
    return code


def test_each_kind_of_record_is_known_by_its_key_alone() -> None:
    for key in (*SHARED, *STREAMED, *CONSUMED):
        read = decode_record(r.KINDS, encode_key(key), UNREAD)
        assert (read.key, type(read.value)) == (key, Unread)
        assert decode_record(r.KINDS, encode_key(key), None).value is None
    assert {type_of(key) for key in SHARED} == {SHARE}
    assert {type_of(key) for key in STREAMED} == {STREAMS}
    assert {type_of(key) for key in CONSUMED} == {CONSUMER}


def test_a_share_group_is_listed_and_left_alone() -> None:
    groups = Groups()
    left(groups, SHARED)
    assert seen(groups) == [(SHARE, "share", "Stable")]
    before = list(groups.log)
    assert groups.join("").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert deleted(groups) == NON_EMPTY_GROUP
    for is_transactional in (True, False):
        with pytest.raises(BarnabasError, match="Group g is not a consumer group") as told:
            groups.shard.groups["g"].check_commit("", None, -1, groups.now, is_transactional=is_transactional)
        assert told.value.wire.name == "GROUP_ID_NOT_FOUND"
    with pytest.raises(BarnabasError, match="Group g is not a consumer group"):
        offset_commands.delete(groups.shard, OffsetDeleteRequest(group_id="g", topics=[]), None)
    assert groups.log == before


def test_a_share_group_whose_members_have_left_is_empty_and_kept() -> None:
    groups = Groups()
    left(groups, SHARED)
    (member, *_) = SHARED
    groups.shard.replay(KeyedRecord(member, None), None)
    assert seen(groups) == [(SHARE, "share", "Empty")]
    assert deleted(groups) == NON_EMPTY_GROUP


@pytest.mark.parametrize("keys", [STREAMED, CONSUMED])
def test_a_classic_member_takes_over_and_nothing_is_left(keys: list[Message]) -> None:
    groups = Groups()
    left(groups, keys)
    groups.stable(b"all")
    assert groups.shard.groups["g"].type == CLASSIC
    for keep_tombstones in (True, False):
        entries = groups.compacted(keep_tombstones=keep_tombstones)
        assert not {encode_key(key) for key in keys} & {one.key for one in entries if one.value is not None}
        assert groups.replayed(entries).groups["g"].type == CLASSIC


def test_a_streams_group_can_be_deleted() -> None:
    groups = Groups()
    left(groups, STREAMED)
    assert seen(groups) == [(STREAMS, "streams", "Empty")]
    assert deleted(groups) == 0
    assert groups.shard.groups == groups.replayed().groups == {}


@pytest.mark.parametrize("keys", [SHARED, STREAMED, CONSUMED])
def test_nothing_of_it_expires(keys: list[Message]) -> None:
    """Kafka knows which members read what: what they committed is not for us to forget."""
    groups = Groups(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
    left(groups, keys)
    if keys is not SHARED:
        commit(groups)
    groups.shard.loaded(groups.now)
    before = list(groups.log)
    groups.pass_ms(2 * A_WEEK_MS)
    assert groups.log == before
    assert [one.type for one in groups.shard.groups.values()] == [type_of(keys[0])]


def test_a_group_that_came_back_as_another_type_is_that() -> None:
    groups = Groups()
    left(groups, STREAMED)
    left(groups, SHARED)
    assert seen(groups) == [(SHARE, "share", "Stable")]
    for key in STREAMED:  # the ends of what was before do no harm
        groups.shard.replay(KeyedRecord(key, None), None)
    assert seen(groups) == [(SHARE, "share", "Stable")]
