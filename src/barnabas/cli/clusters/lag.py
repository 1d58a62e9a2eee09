"""How far followers are behind their leaders, in records and in seconds, as any Kafka tells a client.

The end of the log is asked of every replica, the leader's first: records that come in between do not count as
lag. The seconds are the age of the first record that a follower lacks, by the clock of this machine and the
record's own timestamp; of records that bear timestamps of another time they say nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.cli.clusters.health import Health
from barnabas.cli.connecting import Session
from barnabas.client.errors import BrokerError, BrokerNotReachable, TimedOut
from barnabas.client.metadata import TopicPartition
from barnabas.core.network import ConnectionLost
from barnabas.protocol.channel import NotSpoken

_AGES = 100  # how many followers are asked about in seconds; each is a fetch
_Ends = Mapping[tuple[int, TopicPartition], int]  # by broker


class ReplicaLag(NamedTuple):
    """How far a follower is behind; what is not known is None."""

    broker: int
    records: int | None
    seconds: float | None

    @property
    def text(self) -> str:
        """The same for people."""
        if self.records is None:
            return f"{self.broker}: not known"
        age = "" if self.seconds is None else f" {self.seconds:.0f} s"
        return f"{self.broker}: {self.records:,}{age}"


class _Behind(NamedTuple):
    """A follower that lacks records from an offset on, and whom to ask for these."""

    at: TopicPartition
    follower: int
    leader: int
    end: int


async def lags_of(
    session: Session, found: Iterable[Health], topic_ids: Mapping[str, bytes], live: Iterable[int]
) -> dict[TopicPartition, list[ReplicaLag]]:
    """The followers of these partitions, by broker."""
    wanted = [each for each in found if not each.is_offline]
    known = set(live)
    leaders: dict[int, list[TopicPartition]] = {}
    followers: dict[int, list[TopicPartition]] = {}
    for each in wanted:
        leaders.setdefault(each.partition.leader, []).append(each.at)
        for broker in set(each.partition.replicas) - {each.partition.leader}:
            followers.setdefault(broker, []).append(each.at)
    ends = dict(await _ends(session, leaders, known))
    ends |= await _ends(session, followers, known)
    behind = [
        _Behind(each.at, broker, leader, end)
        for each in wanted
        if (leader_end := ends.get((leader := each.partition.leader, each.at))) is not None
        for broker in each.partition.replicas
        if (end := ends.get((broker, each.at))) is not None and end < leader_end
    ]
    ages = await _ages(session, behind[:_AGES], topic_ids)
    return {
        each.at: [
            _lag(ends, ages, each, broker)
            for broker in sorted(each.partition.replicas)
            if broker != each.partition.leader
        ]
        for each in wanted
    }


def _lag(
    ends: _Ends, ages: Mapping[tuple[int, TopicPartition], float], each: Health, broker: int
) -> ReplicaLag:
    leader_end, end = ends.get((each.partition.leader, each.at)), ends.get((broker, each.at))
    if leader_end is None or end is None:
        return ReplicaLag(broker, None, None)
    records = max(0, leader_end - end)
    return ReplicaLag(broker, records, ages.get((broker, each.at)) if records else 0.0)


async def _ends(
    session: Session, by_broker: Mapping[int, list[TopicPartition]], live: set[int]
) -> dict[tuple[int, TopicPartition], int]:
    async def ask(broker: int, partitions: list[TopicPartition]) -> dict[tuple[int, TopicPartition], int]:
        try:
            answers = await session.admin.replica_ends(broker, partitions)
        except (BrokerNotReachable, ConnectionLost, TimedOut, NotSpoken, BrokerError):
            return {}  # what a broker does not tell is not known
        return {(broker, at): end for at, end in answers.items() if isinstance(end, int)}

    asking = (ask(broker, partitions) for broker, partitions in by_broker.items() if broker in live)
    return {place: end for answer in await asyncio.gather(*asking) for place, end in answer.items()}


async def _ages(
    session: Session, behind: Iterable[_Behind], topic_ids: Mapping[str, bytes]
) -> dict[tuple[int, TopicPartition], float]:
    async def ask(one: _Behind) -> tuple[tuple[int, TopicPartition], float] | None:
        try:
            timestamp_ms = await session.admin.timestamp_at(
                one.leader, one.at, topic_ids[one.at.topic], one.end
            )
        except (BrokerNotReachable, ConnectionLost, TimedOut, NotSpoken, BrokerError):
            return None
        if timestamp_ms is None:
            return None
        return (one.follower, one.at), max(0, session.clock.wall_ms() - timestamp_ms) / 1000

    return dict(one for one in await asyncio.gather(*map(ask, behind)) if one is not None)
