"""Commits of groups: what counts, what a transaction holds back, what is refused, what expires."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from barnabas.coordination.effects import Caller, Effects, Producer, TopicPartition, Write
from barnabas.coordination.records import KeyedRecord
from barnabas.core.errors import BarnabasError
from barnabas.groups import offset_commands, offset_expiry
from barnabas.groups.offsets import OffsetStore, tombstones
from barnabas.groups.records import (
    ClassicMember,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.schema import NO_UUID
from tests.groups.offset_log import CALLER, CHECK_MS, RETENTION_MS, Shards, contents, records_of
from tests.support.raw_offsets import subscription

TOPIC_ID = bytes(range(16))
P, Q = Producer(7, 0), Producer(8, 3)
OFFSET_METADATA_TOO_LARGE = 12
GROUP_SUBSCRIBED_TO_TOPIC = 86
UNSTABLE_OFFSET_COMMIT = 88


def commit(
    shards: Shards,
    offset: int,
    *,
    group: str = "g",
    topic: str = "t",
    partition: int = 0,
    metadata: str | None = "",
    generation: int = -1,
    member: str = "",
    retention_ms: int = -1,
    version: int = 9,
) -> int:
    """The error code of a commit."""
    one = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=2,
        committed_metadata=metadata,
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name=topic, topic_id=TOPIC_ID, partitions=[one])],
    )
    caller = Caller(version, *CALLER[1:])
    response = shards.ask(
        lambda shard, now, reply: offset_commands.commit(shard, request, caller, now, reply)
    )
    code: int = response.topics[0].partitions[0].error_code
    return code


def commit_in(
    shards: Shards,
    producer: Producer,
    offset: int,
    *,
    group: str = "g",
    topic: str = "t",
    partition: int = 0,
    generation: int = -1,
    metadata: str = "",
) -> int:
    """The error code of a commit within a transaction."""
    one = TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        generation_id=generation,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[one])],
    )
    response = shards.ask(
        lambda shard, now, reply: offset_commands.commit_in_transaction(shard, request, now, reply)
    )
    code: int = response.topics[0].partitions[0].error_code
    return code


def fetch(
    shards: Shards,
    *,
    group: str = "g",
    topic: str = "t",
    partition: int = 0,
    topic_id: bytes = NO_UUID,
    stable: bool = False,
) -> Any:
    """The answer for one partition."""
    wanted = OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[partition])
    asked = OffsetFetchRequestGroup(group_id=group, topics=[wanted])
    response = shards.ask(lambda shard, now, reply: offset_commands.fetch(shard, asked, stable, reply))
    return response.groups[0].topics[0].partitions[0]


def fetch_all(shards: Shards, group: str = "g", *, stable: bool = False) -> dict[str, dict[int, int]]:
    asked = shards.ask(lambda shard, now, reply: offset_commands.list_committed(shard, group, reply))
    response = shards.ask(lambda shard, now, reply: offset_commands.fetch(shard, asked, stable, reply))
    return {
        topic.name: {one.partition_index: one.committed_offset for one in topic.partitions}
        for topic in response.groups[0].topics
    }


def delete(shards: Shards, *partitions: int, group: str = "g", topic: str = "t") -> list[int]:
    wanted = OffsetDeleteRequestTopic(
        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=one) for one in partitions]
    )
    request = OffsetDeleteRequest(group_id=group, topics=[wanted])
    response = shards.ask(lambda shard, now, reply: offset_commands.delete(shard, request, reply))
    return [one.error_code for one in response.topics[0].partitions]


# ---- plain commits ----------------------------------------------------------------------------------------


def test_what_was_committed_is_found_with_its_text_and_epoch() -> None:
    shards = Shards()
    assert commit(shards, 5, metadata="halfway") == 0
    assert commit(shards, 6, partition=1, metadata=None) == 0
    found = fetch(shards)
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (5, 2, "halfway")
    assert fetch(shards, partition=1).metadata == ""
    assert fetch_all(shards) == {"t": {0: 5, 1: 6}}
    nothing = fetch(shards, partition=2)
    assert (nothing.committed_offset, nothing.committed_leader_epoch, nothing.error_code) == (-1, -1, 0)
    assert fetch(shards, group="other").committed_offset == -1
    assert fetch_all(shards, "other") == {}


def test_records_are_those_of_kafka() -> None:
    shards = Shards()
    commit(shards, 5, metadata="m")
    commit(shards, 6, retention_ms=1000, version=4)
    commit_in(shards, P, 7)
    plain, expiring, pending = records_of(shards)
    assert (plain.version, expiring.version, pending.version) == (4, 1, 4)
    assert plain.key == OffsetCommitKey(group="g", topic="t", partition=0)
    assert isinstance(plain.value, OffsetCommitValue)
    assert (plain.value.topic_id, plain.value.commit_timestamp) == (TOPIC_ID, shards.now.wall_ms)
    assert isinstance(expiring.value, OffsetCommitValue)
    assert expiring.value.expire_timestamp == shards.now.wall_ms + 1000
    assert isinstance(pending.value, OffsetCommitValue)
    assert pending.value.topic_id == NO_UUID
    assert [entry.producer for entry in shards.log] == [None, None, P]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x" * 4096, 0),
        ("x" * 4097, OFFSET_METADATA_TOO_LARGE),
        ("ж" * 4096, 0),  # it is characters that count,
        ("\U0001f4ec" * 2048, 0),  # as Java counts them
        ("\U0001f4ec" * 2049, OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_a_text_has_a_limit(text: str, code: int) -> None:
    shards = Shards()
    assert commit(shards, 5, metadata=text) == code
    assert commit_in(shards, P, 5, metadata=text) == code
    assert len(shards.log) == (0 if code else 2)
    assert ("g" in shards.shard.groups) is not bool(code)


@pytest.mark.parametrize(("version", "name"), [(8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND")])
def test_a_member_of_a_group_that_does_not_exist_is_told_so(version: int, name: str) -> None:
    shards = Shards()
    with pytest.raises(BarnabasError) as refused:
        commit(shards, 5, generation=1, member="m", version=version)
    assert refused.value.wire.name == name
    assert not shards.log
    assert not shards.shard.groups


def test_an_id_of_another_topic_finds_nothing() -> None:
    shards = Shards()
    commit(shards, 5)
    assert fetch(shards, topic_id=TOPIC_ID).committed_offset == 5
    assert fetch(shards, topic_id=bytes(15) + b"\1").committed_offset == -1
    commit_in(shards, P, 6)  # which does not know the id
    shards.end(P, is_commit=True)
    assert fetch(shards, topic_id=bytes(15) + b"\1").committed_offset == 6


# ---- transactions -----------------------------------------------------------------------------------------


def test_a_transaction_holds_its_commits_back_until_it_commits() -> None:
    shards = Shards()
    commit(shards, 5)
    commit_in(shards, P, 9)
    assert fetch(shards).committed_offset == 5
    assert fetch(shards, stable=True).error_code == UNSTABLE_OFFSET_COMMIT
    assert fetch(shards, stable=True).committed_offset == -1
    assert fetch(shards, partition=1, stable=True).error_code == 0
    shards.end(P, is_commit=True)
    assert fetch(shards, stable=True).committed_offset == 9


def test_an_aborted_one_leaves_everything_as_it_was() -> None:
    shards = Shards()
    commit(shards, 5)
    commit_in(shards, P, 9)
    commit_in(shards, P, 9, group="only")
    shards.end(P, is_commit=False)
    assert fetch(shards, stable=True).committed_offset == 5
    assert fetch(shards, group="only", stable=True).committed_offset == -1
    assert not shards.shard.offsets.has_any("only")


def test_only_what_counts_is_among_all() -> None:
    shards = Shards()
    commit(shards, 5)
    commit_in(shards, P, 9, partition=1)
    assert fetch_all(shards) == {"t": {0: 5}}
    commit_in(shards, P, 9)
    assert fetch_all(shards, stable=True) == {"t": {0: -1}}


def test_the_last_record_wins_not_the_last_to_end() -> None:
    shards = Shards()
    commit_in(shards, P, 1)
    commit(shards, 2)  # after it in the log
    assert fetch(shards, stable=True).error_code == UNSTABLE_OFFSET_COMMIT  # it is open nevertheless
    shards.end(P, is_commit=True)
    assert fetch(shards, stable=True).committed_offset == 2

    commit_in(shards, P, 3)
    commit_in(shards, Q, 4)
    shards.end(Q, is_commit=True)
    shards.end(P, is_commit=True)
    assert fetch(shards).committed_offset == 4

    commit_in(shards, P, 5)
    commit_in(shards, Q, 6)
    commit_in(shards, P, 7)
    shards.end(Q, is_commit=True)
    assert fetch(shards).committed_offset == 6
    shards.end(P, is_commit=True)
    assert fetch(shards).committed_offset == 7


def test_in_a_transaction_too_only_a_group_that_exists_has_generations() -> None:
    shards = Shards()
    with pytest.raises(BarnabasError) as refused:
        commit_in(shards, P, 5, generation=1)
    assert refused.value.wire.name == "ILLEGAL_GENERATION"
    assert not shards.log


# ---- deletions --------------------------------------------------------------------------------------------


def test_what_is_deleted_is_gone_pending_or_not() -> None:
    shards = Shards()
    commit(shards, 5)
    commit(shards, 6, partition=1)
    commit_in(shards, P, 7, partition=2)
    assert delete(shards, 0, 2, 9) == [0, 0, 0]
    assert len(shards.log) == 5  # nothing was committed for 9
    shards.end(P, is_commit=True)
    assert fetch_all(shards) == {"t": {1: 6}}


def test_of_a_group_that_does_not_exist_nothing_is_deleted() -> None:
    with pytest.raises(BarnabasError) as refused:
        delete(Shards(), 0)
    assert refused.value.wire.name == "GROUP_ID_NOT_FOUND"


def test_a_topic_goes_with_everything_that_was_committed_for_it() -> None:
    shards = Shards()
    commit(shards, 5)
    commit(shards, 6, topic="other")
    commit_in(shards, P, 7, partition=1)
    commit(shards, 8, group="h", partition=3)
    shards.tell(lambda shard, now: offset_commands.forget_topics(shard, {"t": bytes(16)[:15] + b"\1"}))
    assert fetch_all(shards) == {"t": {0: 5}, "other": {0: 6}}  # which was another of that name
    shards.tell(lambda shard, now: offset_commands.forget_topics(shard, {"t": TOPIC_ID}))
    shards.end(P, is_commit=True)
    assert fetch_all(shards) == {"other": {0: 6}}
    assert fetch_all(shards, "h") == {}


def test_tombstones_of_many_fit_into_batches() -> None:
    many = [TopicPartition("t" * 249, number) for number in range(20_000)]
    writes = tombstones("ж" * 100, many)
    assert len(writes) > 1
    assert sum(len(write.records) for write in writes) == len(many)
    assert max(len(write.records) for write in writes) * (249 + 200 + 64) < 1_000_000


# ---- expiry -----------------------------------------------------------------------------------------------


def test_a_group_without_members_keeps_a_commit_for_the_retention_time() -> None:
    shards = Shards()
    commit(shards, 5)
    shards.pass_ms(RETENTION_MS // 2)
    commit(shards, 6, partition=1)
    shards.pass_ms(RETENTION_MS // 2 + CHECK_MS)
    assert fetch_all(shards) == {"t": {1: 6}}
    assert "g" in shards.shard.groups
    shards.pass_ms(RETENTION_MS // 2)
    assert fetch_all(shards) == {}
    assert "g" not in shards.shard.groups  # it went with the last one
    assert contents(shards.replayed().offsets) == {}
    assert not shards.replayed().groups


def test_a_commit_that_is_repeated_is_kept() -> None:
    shards = Shards()
    for _ in range(10):
        commit(shards, 5)
        shards.pass_ms(RETENTION_MS // 2)
    assert fetch(shards).committed_offset == 5


def test_a_commit_may_bring_its_own_expiry() -> None:
    shards = Shards()
    commit(shards, 5, retention_ms=1000, version=4)
    commit(shards, 6, partition=1, retention_ms=RETENTION_MS * 3, version=4)
    commit(shards, 7, partition=2, retention_ms=2**63 - 1, version=4)  # as long as can be said
    shards.pass_ms(CHECK_MS)
    assert fetch_all(shards) == {"t": {1: 6, 2: 7}}
    shards.pass_ms(RETENTION_MS * 2)
    assert fetch_all(shards) == {"t": {1: 6, 2: 7}}
    shards.pass_ms(RETENTION_MS)
    assert fetch_all(shards) == {"t": {2: 7}}


def test_nothing_expires_while_a_transaction_is_pending() -> None:
    shards = Shards()
    commit(shards, 5)
    commit_in(shards, P, 6)
    commit_in(shards, Q, 7, group="only")
    shards.pass_ms(RETENTION_MS * 2)
    assert fetch(shards).committed_offset == 5
    assert "only" in shards.shard.groups
    shards.end(P, is_commit=False)
    shards.end(Q, is_commit=False)
    shards.pass_ms(CHECK_MS)
    assert fetch(shards).committed_offset == -1
    assert not shards.shard.groups


def test_what_expires_at_once_goes_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_expiry, "COMMITS_A_TURN", 4)
    monkeypatch.setattr(offset_expiry, "GROUPS_A_TURN", 3)
    shards = Shards()
    for group in range(5):
        for partition in range(9):
            commit(shards, 5, group=f"g{group}", partition=partition)
    for group in range(20):
        commit(shards, 5, group=f"h{group}")
    count = len(shards.log)
    shards.pass_ms(RETENTION_MS - 1)
    assert len(shards.log) == count
    shards.now = shards.now._replace(wall_ms=shards.now.wall_ms + 1)
    shards.now = shards.now._replace(seconds=shards.now.seconds + CHECK_MS / 1000)
    sizes = []
    while shards.shard.groups:
        effects = shards.shard.tick(shards.now)
        sizes.append(sum(len(write.records) for write in effects.writes))
        for write in effects.writes:
            for record in write.records:
                shards.shard.replay(record, write.producer)
        assert len(sizes) < 100
    assert max(sizes) <= 4 + 1  # the last may bring the group's own
    assert sum(sizes) == 5 * 10 + 20 * 2
    assert contents(shards.shard.offsets) == {}


# ---- groups with members ----------------------------------------------------------------------------------


def put_generation(shards: Shards, *, protocol_type: str, topics: list[str] | None) -> None:
    """The group gets a generation: one member that reads topics, or (None) no members any more."""
    member = ClassicMember(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout=1000,
        session_timeout=10_000_000,
        subscription=subscription(*topics or ()),
        assignment=b"",
    )
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation=1,
        protocol=None if topics is None else "range",
        leader=None if topics is None else "m",
        current_state_timestamp=shards.now.wall_ms,
        members=[] if topics is None else [member],
    )
    record = KeyedRecord(GroupMetadataKey(group="g"), value, 3)
    shards.tell(lambda shard, now: Effects((Write([record]),)))


def test_what_consumers_read_does_not_expire() -> None:
    shards = Shards()
    put_generation(shards, protocol_type="consumer", topics=["t"])
    commit(shards, 5, generation=1, member="m")
    commit(shards, 6, topic="left", generation=1, member="m")
    shards.pass_ms(RETENTION_MS * 2)
    assert fetch_all(shards) == {"t": {0: 5}}
    assert "g" in shards.shard.groups


def test_of_members_that_are_no_consumers_nothing_expires() -> None:
    shards = Shards()
    put_generation(shards, protocol_type="connect", topics=["t"])
    commit(shards, 5, topic="left", generation=1, member="m")
    shards.pass_ms(RETENTION_MS * 2)
    assert fetch_all(shards) == {"left": {0: 5}}


def test_a_group_that_members_have_left_counts_from_then_on() -> None:
    shards = Shards()
    put_generation(shards, protocol_type="consumer", topics=["t"])
    commit(shards, 5, generation=1, member="m")
    shards.pass_ms(RETENTION_MS * 2)
    put_generation(shards, protocol_type="consumer", topics=None)
    shards.pass_ms(RETENTION_MS - CHECK_MS)
    assert fetch_all(shards) == {"t": {0: 5}}  # although it is older than that
    commit(shards, 7, partition=1)  # which does not keep anything for longer
    shards.pass_ms(CHECK_MS * 2)
    assert fetch_all(shards) == {}
    assert "g" not in shards.shard.groups


def test_an_empty_group_without_commits_goes_at_the_next_look() -> None:
    shards = Shards()
    put_generation(shards, protocol_type="consumer", topics=None)
    shards.pass_ms(CHECK_MS)
    assert not shards.shard.groups
    assert not shards.replayed().groups


def test_what_is_read_is_not_deleted() -> None:
    shards = Shards()
    put_generation(shards, protocol_type="consumer", topics=["t"])
    commit(shards, 5, generation=1, member="m")
    commit(shards, 6, topic="left", generation=1, member="m")
    assert delete(shards, 0) == [GROUP_SUBSCRIBED_TO_TOPIC]
    assert delete(shards, 0, topic="left") == [0]
    assert fetch_all(shards) == {"t": {0: 5}}


def test_other_members_than_consumers_keep_everything() -> None:
    shards = Shards()
    put_generation(shards, protocol_type="connect", topics=["t"])
    commit(shards, 5, generation=1, member="m")
    with pytest.raises(BarnabasError) as refused:
        delete(shards, 0)
    assert refused.value.wire.name == "NON_EMPTY_GROUP"
    assert fetch_all(shards) == {"t": {0: 5}}


# ---- size -------------------------------------------------------------------------------------------------


def test_a_hundred_thousand_commits_are_small() -> None:
    count = 5_000  # what is measured takes its time
    store = OffsetStore()
    tracemalloc.start()
    for number in range(count):
        key = OffsetCommitKey(group="g", topic=f"topic-{number // 1000}", partition=number % 1000)
        value = OffsetCommitValue(
            offset=10**9 + number,
            leader_epoch=3,
            metadata="",
            commit_timestamp=1_800_000_000_000 + number,
            topic_id=bytes([number // 1000]) * 16,
        )
        store.replay(key, value, None)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / count * 100_000 < 20_000_000
    assert sum(map(len, store.topics("g").values())) == count
    writes = tombstones("g", store.by_group["g"].partitions())
    assert sum(len(write.records) for write in writes) == count
