"""What came out, read back and held against what had to come out: none lost, none twice, none other.

Topics are read as their users read them, from the beginning and only what was committed; the Delta table with
`deltalake`, which knows nothing of Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable
from shop import ORDERS, PAYMENTS, Revenue, Shop

from barnabas.client.admin import Admin
from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.fetched import ConsumerRecord
from barnabas.client.offsets import LATEST
from barnabas.core.clock import SystemClock
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.workers import InlineWorkers

SEAMS = OsNetwork(InlineWorkers()), SystemClock(), SystemRandom()
READ_COMMITTED = ConsumerConfig(reset=Reset.EARLIEST, read_committed=True)
POLL_MS = 10_000
POLL_RECORDS = 10_000


class Comparison(NamedTuple):
    """Two heaps of things, compared."""

    what: str
    expected: int
    found: int
    lost: int
    twice: int
    other: int

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.twice or self.other)


class Lag(NamedTuple):
    """How far a group is behind in a topic."""

    group: str
    topic: str
    read: int
    end: int


def compare(what: str, expected: Iterable[Hashable], found: Iterable[Hashable]) -> Comparison:
    """Each thing as often as expected?"""
    wanted, got = Counter(iter(expected)), Counter(iter(found))
    surplus = got - wanted
    twice = sum(count for each, count in surplus.items() if each in wanted)
    lost = (wanted - got).total()
    return Comparison(what, wanted.total(), got.total(), lost, twice, surplus.total() - twice)


async def partitions_of(admin: Admin, topics: Iterable[str]) -> list[tuple[str, int]]:
    described = await admin.describe_topics(list(topics))
    return [(name, each.partition) for name, topic in described.items() for each in topic.partitions]


async def read_topics(bootstrap: str, *topics: str) -> list[ConsumerRecord]:
    """Everything that was committed to these topics."""
    async with Admin(*SEAMS, bootstrap) as admin:
        partitions = await partitions_of(admin, topics)
    records: list[ConsumerRecord] = []
    async with Consumer(*SEAMS, bootstrap, READ_COMMITTED) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(*partitions)
        while any([await consumer.position(each) < end for each, end in ends.items()]):
            records += await consumer.poll(POLL_MS, POLL_RECORDS)
    return records


async def lag_of(bootstrap: str, groups: Mapping[str, Sequence[str]]) -> list[Lag]:
    """How far behind each group is in its topics, as every tool for Kafka would say."""
    found = []
    async with Admin(*SEAMS, bootstrap) as admin:
        for group, topics in groups.items():
            committed = await admin.list_group_offsets(group)
            for topic in topics:
                partitions = await partitions_of(admin, [topic])
                ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
                read = sum(at.offset for place, at in committed.items() if place.topic == topic)
                found.append(Lag(group, topic, read, sum(end.offset for end in ends.values())))
    return found


class DeadLetter(NamedTuple):
    """What could not be used: where it stood, what it was, why."""

    topic: str
    value: bytes
    error: str


class Findings(NamedTuple):
    """What came out."""

    paid: list[tuple[int, int]]  # order, cents
    letters: list[DeadLetter]
    revenue: dict[tuple[str, int], Revenue]
    lags: list[Lag]
    comparisons: list[Comparison]

    @property
    def records(self) -> int:
        """How much was read."""
        return sum(each.found for each in self.comparisons)


async def audit(bootstrap: str, table: Path, shop: Shop, groups: Mapping[str, Sequence[str]]) -> Findings:
    """Read everything back, and compare."""
    sent = await read_topics(bootstrap, ORDERS, PAYMENTS)
    paid = [_paid(record) for record in await read_topics(bootstrap, "paid-orders")]
    letters = [_letter(record) for record in await read_topics(bootstrap, f"{ORDERS}.dlq", f"{PAYMENTS}.dlq")]
    lines = read_revenue(table)
    made = [*shop.messages, shop.closing]
    return Findings(
        paid,
        letters,
        dict(lines),
        await lag_of(bootstrap, groups),
        [
            compare(
                "orders and payments sent",
                ((each.topic, each.key, each.value) for each in made),
                ((each.topic, each.key, each.value) for each in sent),
            ),
            compare("paid orders, topic", shop.paid.items(), paid),
            compare("dead letters, topics", shop.poison, (each[:2] for each in letters)),
            compare("revenue, Delta table", shop.revenue.items(), lines),
        ],
    )


def _paid(record: ConsumerRecord) -> tuple[int, int]:
    order = json.loads(record.value or b"{}")
    return order.get("order_id"), order.get("cents")


def _letter(record: ConsumerRecord) -> DeadLetter:
    headers = dict(record.headers)
    said = {name: (headers.get(name) or b"").decode() for name in ("topic", "error")}
    return DeadLetter(said["topic"], record.value or b"", said["error"])


def read_revenue(table: Path) -> list[tuple[tuple[str, int], Revenue]]:
    """The lines of the Delta table; none where there is no table yet."""
    if not (table / "_delta_log").exists():
        return []
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    return [
        (
            (row["product"], int(row["window_start"].timestamp() * 1000)),
            Revenue(row["orders"], row["cents"]),
        )
        for row in rows
    ]
