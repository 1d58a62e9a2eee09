"""The result of a coordinator's command: records to write, and replies to send once these are committed.

A coordinator has one state machine for each partition of its topic (a shard). It is synchronous and pure:

    command(request, now, reply) -> Effects       decides, and changes only state that is not in records
    replay(record)                                the only way in which state in records changes
    tick(now) -> Effects                          does everything that is due at `now`
    next_due_seconds() -> float | None            when to call `tick`, by monotonic time

The driver replays the records of an effect before the next command is decided, appends them in that order,
and sends the replies only when they are committed. If the append fails, the shard is ahead of its log: it is
dropped together with its waiting requests, and loaded again.

`reply` identifies the requester: opaque here, answered at most once, by this command or a later one (a member
waits in JoinGroup until all have joined).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from barnabas.coordination.records import KeyedRecord
from barnabas.protocol.schema import Struct

Reply: TypeAlias = object


class Now(NamedTuple):
    """The time of a command: wall time to be stored, monotonic time for deadlines."""

    wall_ms: int
    seconds: float  # monotonic


class Caller(NamedTuple):
    """The sender of a request, and the request's version."""

    api_version: int
    client_id: str
    host: str  # in Kafka's form: "/127.0.0.1"


class Producer(NamedTuple):
    """The producer in whose transaction records are written."""

    id: int
    epoch: int


class Write(NamedTuple):
    """Records to be appended as one batch; within a transaction if a producer is given."""

    records: Sequence[KeyedRecord]
    producer: Producer | None = None


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


class Markers(NamedTuple):
    """The end of a decided transaction, to be written to its partitions."""

    transactional_id: str
    producer: Producer  # with the epoch of the markers
    is_commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


class Effects(NamedTuple):
    """The effects of a command, in this order: writes; once they are committed, replies and markers."""

    writes: Sequence[Write] = ()
    replies: Sequence[tuple[Reply, Struct]] = ()
    markers: Sequence[Markers] = ()


NOTHING = Effects()
