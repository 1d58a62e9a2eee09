"""Requests about committed offsets that mean something, for the fuzzer to damage."""

from __future__ import annotations

from random import Random

from barnabas.protocol.messages import offset_commit, offset_delete, txn_offset_commit
from barnabas.protocol.schema import Message


def of_offsets(
    key: int, name: str, topic_id: bytes, partition: int, offset: int, random: Random
) -> Message | None:
    """A request of that API about a topic that may be there; None where it is not about offsets."""
    text = random.choice(("", "note", None, "x" * 5000))
    generation = random.choice((-1, -1, 0, 3))
    match key:
        case 8:
            committed = offset_commit.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=text
            )
            topic = offset_commit.OffsetCommitRequestTopic(
                name=name, topic_id=topic_id, partitions=[committed]
            )
            return offset_commit.OffsetCommitRequest(
                group_id="group",
                generation_id_or_member_epoch=generation,
                member_id=random.choice(("", "nobody")),
                retention_time_ms=random.choice((-1, 0, 1000)),
                topics=[topic],
            )
        case 28:
            pending = txn_offset_commit.TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=text
            )
            return txn_offset_commit.TxnOffsetCommitRequest(
                transactional_id="transaction",
                group_id="group",
                producer_id=random.choice((0, 5, 1 << 40)),
                producer_epoch=random.choice((0, 1)),
                generation_id=generation,
                topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=name, partitions=[pending])],
            )
        case 47:
            ended = offset_delete.OffsetDeleteRequestPartition(partition_index=partition)
            return offset_delete.OffsetDeleteRequest(
                group_id=random.choice(("group", "nobody")),
                topics=[offset_delete.OffsetDeleteRequestTopic(name=name, partitions=[ended])],
            )
    return None
