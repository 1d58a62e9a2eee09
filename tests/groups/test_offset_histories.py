"""Whatever is committed, in and out of transactions, deleted or left to expire: the log says the same as the
live shard, after every step, and a compacted log says the same as a whole one."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.coordination.effects import Producer
from barnabas.groups.errors import GroupNotFound
from barnabas.groups.offset_commands import forget_topics
from tests.groups.offset_log import CHECK_MS, RETENTION_MS, Shards, contents
from tests.groups.test_offsets import TOPIC_ID, commit, commit_in, delete

GROUPS = st.sampled_from(("g", "h"))
TOPICS = st.sampled_from(("t", "u"))
PARTITIONS = st.integers(0, 1)
PRODUCERS = st.sampled_from((Producer(1, 0), Producer(2, 0), Producer(3, 5)))
OFFSETS = st.integers(0, 1000)
TEXTS = st.sampled_from(("", "note", "ж\U0001f4ec"))

STEPS = st.one_of(
    st.tuples(st.just("commit"), GROUPS, TOPICS, PARTITIONS, OFFSETS, TEXTS, st.sampled_from((-1, 5000))),
    st.tuples(st.just("commit in"), PRODUCERS, GROUPS, TOPICS, PARTITIONS, OFFSETS),
    st.tuples(st.just("commit in"), PRODUCERS, GROUPS, TOPICS, PARTITIONS, OFFSETS),
    st.tuples(st.just("end"), PRODUCERS, st.booleans()),
    st.tuples(st.just("delete"), GROUPS, TOPICS, PARTITIONS),
    st.tuples(st.just("forget"), TOPICS, st.sampled_from((TOPIC_ID, bytes(15) + b"\1"))),
    st.tuples(st.just("pass"), st.sampled_from((1, CHECK_MS, RETENTION_MS // 2, RETENTION_MS))),
)


def take(shards: Shards, step: tuple[Any, ...]) -> None:
    match step:
        case ("commit", group, topic, partition, offset, text, retention_ms):
            version = 9 if retention_ms == -1 else 4
            commit(
                shards,
                offset,
                group=group,
                topic=topic,
                partition=partition,
                metadata=text,
                retention_ms=retention_ms,
                version=version,
            )
        case ("commit in", producer, group, topic, partition, offset):
            commit_in(shards, producer, offset, group=group, topic=topic, partition=partition)
        case ("end", producer, is_commit):
            shards.end(producer, is_commit=is_commit)
        case ("delete", group, topic, partition):
            with contextlib.suppress(GroupNotFound):
                delete(shards, partition, group=group, topic=topic)
        case ("forget", topic, topic_id):
            shards.tell(lambda shard, now: forget_topics(shard, {topic: topic_id}))
        case ("pass", ms):
            shards.pass_ms(ms)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=25))
@example(
    [
        ("commit in", Producer(1, 0), "g", "t", 0, 1),
        ("commit", "g", "t", 0, 2, "", -1),
        ("end", Producer(1, 0), True),
    ]
)
@example(
    [
        ("commit", "g", "t", 0, 1, "", -1),
        ("commit in", Producer(1, 0), "g", "t", 0, 2),
        ("commit in", Producer(2, 0), "g", "t", 0, 3),
        ("end", Producer(2, 0), True),
        ("end", Producer(1, 0), True),
    ]
)
def test_the_log_says_what_the_shard_knows(steps: list[tuple[Any, ...]]) -> None:
    shards = Shards()
    for step in steps:
        take(shards, step)
        expected = contents(shards.shard.offsets)
        replayed = shards.replayed()
        assert contents(replayed.offsets) == expected
        assert set(replayed.groups) == set(shards.shard.groups)
        assert set(expected) <= set(replayed.groups)
        for keep_tombstones in (True, False):
            compacted = shards.replayed(shards.compacted(keep_tombstones=keep_tombstones))
            assert contents(compacted.offsets) == expected
