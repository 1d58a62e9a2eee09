"""What a coordinator's command does: records to be written, and answers to be given once they are.

A coordinator keeps one state machine for each partition of its topic (a shard). It is synchronous and pure:

    command(request, now, reply) -> Effects       decides, and changes what is not kept in records
    replay(record)                                the only way in which anything kept in records changes
    tick(now) -> Effects                          whatever is due by now
    next_due_seconds() -> float | None            when `tick` should be called, by monotonic time

Whoever runs it replays the records of an effect before the next command is decided, appends them in that
order, and gives the answers only when they are committed. If they could not be written, the shard is ahead of
its log: it is thrown away with everybody who waits in it, and loaded anew.

`reply` stands for whoever asked: opaque here, answered at most once, by this command or by a later one (a
member waits in JoinGroup until all have joined).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from barnabas.coordination.records import KeyedRecord
from barnabas.protocol.schema import Struct

Reply: TypeAlias = object


class Now(NamedTuple):
    """The time of a command: what is written down, and what deadlines are reckoned by."""

    wall_ms: int
    seconds: float  # monotonic


class Caller(NamedTuple):
    """Who sent a request, and in which version."""

    api_version: int
    client_id: str
    host: str  # as Kafka shows it: "/127.0.0.1"


class Producer(NamedTuple):
    """In whose transaction records are written."""

    id: int
    epoch: int


class Write(NamedTuple):
    """Records to be appended as one batch; within a transaction where a producer is named."""

    records: Sequence[KeyedRecord]
    producer: Producer | None = None


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


class Markers(NamedTuple):
    """A decided transaction, whose end is to be written into its partitions."""

    transactional_id: str
    producer: Producer  # the epoch that the markers bear
    is_commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


class Effects(NamedTuple):
    """What follows from a command, in this order: writes; once they are committed, answers and markers."""

    writes: Sequence[Write] = ()
    replies: Sequence[tuple[Reply, Struct]] = ()
    markers: Sequence[Markers] = ()


NOTHING = Effects()
