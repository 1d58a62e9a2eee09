"""What the clients of a simulation and its nemesis did and saw, in the order in which it happened.

Nothing here knows how a broker works: only what was asked of it and what it answered. Every event has the
virtual time `at` (seconds since the simulation began) at which it was noticed. An answer also has `asked_at`:
what it says was true at some moment between the two, and a power loss between them may have made it untrue.

A record is recognised by its mark, "<producer>/<number>", which travels in its value (or in a header, where
there is no value). Values are kept as digests: short ones as they are, long ones by head, length and hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from barnabas.sim.cluster.events import ClusterEvent, ClusterNodeEvent
from barnabas.sim.coordination.events import CoordinationNodeEvent
from barnabas.sim.group_events import GroupEvent
from barnabas.sim.replication.events import ReplicationEvent, ReplicationNodeEvent
from barnabas.sim.transaction_events import TransactionEvent

WHOLE_BYTES = 48
HEAD_BYTES = 24
NO_OFFSET = -1
NO_PARTITION = -1
LARGEST_TIME = -3
ALL = -1  # acks
NO_EPOCH = -1


def digest(value: bytes | None) -> bytes | None:
    """What the history keeps of a value."""
    if value is None or len(value) <= WHOLE_BYTES:
        return value
    return b"%s..%d:%s" % (value[:HEAD_BYTES], len(value), blake2b(value, digest_size=8).hexdigest().encode())


class TopicFacts(NamedTuple):
    """The settings of a topic that decide what is promised; None: without limit."""

    partitions: int = 1
    flush_every_message: bool = False  # flush.messages=1: on the disk before it is acknowledged
    flush_ms: int | None = None
    is_compacted: bool = False
    delete_retention_ms: int = 86_400_000  # how long a tombstone stays once it could have been removed
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    has_append_time: bool = False  # timestamps are the broker's
    replicas: int = 1
    min_in_sync: int = 1  # min.insync.replicas
    is_unclean: bool = False  # unclean elections are allowed

    @property
    def is_trimmed(self) -> bool:
        """Whether old records may be taken away."""
        return self.retention_ms is not None or self.retention_bytes is not None


class Kept(NamedTuple):
    """A record as it stands in a partition, seen by somebody who read it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None  # digest
    mark: str  # "" where there is none
    leader_epoch: int = -1


# ---- topics ----------------------------------------------------------------------------------------------


class TopicMaking(NamedTuple):
    """Its creation is asked for, until it is confirmed: from now on it may be there."""

    at: float
    topic: str


class TopicUnanswered(NamedTuple):
    """An attempt to create it was not answered: a broker may still be trying to have it carried out."""

    at: float
    topic: str


class TopicMade(NamedTuple):
    at: float
    topic: str
    facts: TopicFacts


class TopicDeleting(NamedTuple):
    """Its deletion is asked for: nothing more is promised of it."""

    at: float
    topic: str


class TopicDeleted(NamedTuple):
    """Its deletion was confirmed."""

    at: float
    topic: str


class TopicsListed(NamedTuple):
    at: float
    asked_at: float
    topics: tuple[str, ...]


# ---- sending ---------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """Handed to a producer; NO_PARTITION where the choice is the producer's. `acks` are those that it asks
    for."""

    at: float
    mark: str
    producer: str
    number: int
    is_idempotent: bool
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None  # digest
    timestamp_ms: int
    acks: int = ALL


class Acked(NamedTuple):
    """NO_OFFSET where the broker knows that it was written, but no longer where."""

    at: float
    mark: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Failed(NamedTuple):
    """Whether it was written is not known."""

    at: float
    mark: str
    error: str


# ---- reading ---------------------------------------------------------------------------------------------


class SessionBegan(NamedTuple):
    """A reader begins to read one partition at an offset; it fetches nothing earlier than now."""

    at: float
    session: str
    reader: str
    topic: str
    partition: int
    start_offset: int


class Read(NamedTuple):
    at: float
    session: str
    topic: str
    partition: int
    record: Kept


class Polled(NamedTuple):
    """Everything before `position` has been given to this session."""

    at: float
    session: str
    topic: str
    partition: int
    position: int


class SessionEnded(NamedTuple):
    """`is_at_end`: it reached the end offset that it had asked for when it began, or an end seen later."""

    at: float
    session: str
    topic: str
    partition: int
    position: int
    is_at_end: bool


class FinalRead(NamedTuple):
    """All of a partition, after the faults and after the last send was settled."""

    at: float
    asked_at: float
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    records: tuple[Kept, ...]


# ---- asking ----------------------------------------------------------------------------------------------


class OffsetSeen(NamedTuple):
    """An observer asked where a partition begins ("start") or ends ("end": the high watermark). The one who
    answered leads in the epoch `asked_of`, or a later one."""

    at: float
    asked_at: float
    observer: str
    topic: str
    partition: int
    kind: str
    offset: int
    asked_of: int = NO_EPOCH


class TimeLookedUp(NamedTuple):
    """The first record of that time or later, or of the largest time (LARGEST_TIME); NO_OFFSET: none.
    `asked_of` as in OffsetSeen."""

    at: float
    asked_at: float
    observer: str
    topic: str
    partition: int
    timestamp_ms: int
    offset: int
    found_timestamp_ms: int
    leader_epoch: int
    asked_of: int = NO_EPOCH


class EpochLookedUp(NamedTuple):
    """Where the latest epoch up to the asked one ends (OffsetForLeaderEpoch); -1, -1: not known. `asked_of`
    as in OffsetSeen."""

    at: float
    asked_at: float
    observer: str
    topic: str
    partition: int
    asked_epoch: int
    epoch: int
    end_offset: int
    asked_of: int = NO_EPOCH


# ---- what happens around them ----------------------------------------------------------------------------


class Crash(NamedTuple):
    """`kind`: "process" (the page cache survives) or "power" (what was not synced may be lost)."""

    at: float
    kind: str
    node: int = 1


class Started(NamedTuple):
    """The node serves, for the first time or again."""

    at: float
    node: int = 1


class Fault(NamedTuple):
    """What the nemesis did to the machine of a node, or to its connections."""

    at: float
    kind: str
    detail: str
    node: int = 1


class FaultsEnded(NamedTuple):
    at: float


class ClientKilled(NamedTuple):
    """Whatever it had not settled stays open for ever."""

    at: float
    client: str


class ClientError(NamedTuple):
    """An error that a client got and went on after."""

    at: float
    client: str
    doing: str
    error: str


class Settled(NamedTuple):
    """After the faults: every send of before has been acknowledged or has failed."""

    at: float


class Finished(NamedTuple):
    """The workload has done all it had to."""

    at: float


Event = (
    TopicMaking
    | TopicUnanswered
    | TopicMade
    | TopicDeleting
    | TopicDeleted
    | TopicsListed
    | Sent
    | Acked
    | Failed
    | SessionBegan
    | Read
    | Polled
    | SessionEnded
    | FinalRead
    | OffsetSeen
    | TimeLookedUp
    | EpochLookedUp
    | Crash
    | Started
    | Fault
    | FaultsEnded
    | ClientKilled
    | ClientError
    | Settled
    | Finished
    | GroupEvent
    | TransactionEvent
    | ClusterEvent
    | ReplicationEvent
    | CoordinationNodeEvent
)

NodeEvent = Crash | Started | Fault | ClusterNodeEvent | ReplicationNodeEvent | CoordinationNodeEvent

E = TypeVar("E")


def without_node(event: NodeEvent) -> str:
    """The text of an event, for a reader who knows the node."""
    fields = (f"{name}={value!r}" for name, value in event._asdict().items() if name != "node")
    return f"{type(event).__name__}({', '.join(fields)})"


class History:
    """All events so far; an observer, if there is one, is told of each."""

    def __init__(self, observer: Callable[[Event], None] | None = None, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)
        self._observer = observer

    def add(self, event: Event) -> None:
        self.events.append(event)
        if self._observer is not None:
            self._observer(event)

    def of(self, kind: type[E]) -> Iterator[E]:
        """The events of one kind, in order."""
        return (event for event in self.events if isinstance(event, kind))

    def __len__(self) -> int:
        return len(self.events)
