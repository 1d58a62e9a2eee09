"""How far groups have read: for each partition the committed offset, the end, and what lies between.

The end is the high watermark, whatever a group's readers may see, so that numbers are those of Kafka's own
tool: where a transaction is open, what it holds back counts as not read. A partition that nobody committed
for has no lag that could be told, and one without a leader no end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.cli.connecting import Session
from barnabas.client.admin import CommittedOffset, GroupDescription, GroupMember
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import LATEST


class PartitionLag(NamedTuple):
    """One partition of a group: what is not known is None."""

    partition: TopicPartition
    committed: CommittedOffset | None
    end: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else self.end - self.committed.offset

    def fact(self) -> dict[str, Any]:
        """The same for machines."""
        committed, member = self.committed, self.member
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "offset": None if committed is None else committed.offset,
            "end": self.end,
            "lag": self.lag,
            "leader_epoch": None if committed is None else committed.leader_epoch,
            "metadata": None if committed is None else committed.metadata,
            "member": None if member is None else member.member_id,
            "host": None if member is None else member.host,
            "client": None if member is None else member.client_id,
        }


async def lags_of(session: Session, groups: Sequence[GroupDescription]) -> list[list[PartitionLag]]:
    """The partitions that each group has committed for or reads, sorted."""
    asking = (session.admin.list_group_offsets(group.group_id) for group in groups)
    committed = await asyncio.gather(*asking)
    readers = [{at: member for member in group.members for at in member.assignment or ()} for group in groups]
    partitions = [sorted({*some, *others}) for some, others in zip(committed, readers, strict=True)]
    ends = await ends_of(session, dict.fromkeys(at for some in partitions for at in some))
    return [
        [PartitionLag(at, offsets.get(at), ends.get(at), members.get(at)) for at in of_group]
        for of_group, offsets, members in zip(partitions, committed, readers, strict=True)
    ]


async def ends_of(session: Session, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Where partitions end; those that are gone or have no leader are left out."""
    wanted = list(partitions)
    if not wanted:
        return {}
    topics = await session.admin.describe_topics()
    led = {
        TopicPartition(name, each.partition)
        for name, topic in topics.items()
        for each in topic.partitions
        if each.leader >= 0
    }
    found = await session.admin.list_offsets({at: LATEST for at in wanted if at in led})
    return {at: offset.offset for at, offset in found.items()}


def total_lag(lags: Iterable[PartitionLag]) -> int:
    """All that is known to be not read."""
    return sum(each.lag or 0 for each in lags)
