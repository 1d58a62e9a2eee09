"""What transactional producers did and were told, and what readers saw of it, for a history (see
history.py).

A `life` is one producer from its InitProducerId on; it is over when it is refused, or gives up. A
transaction has a name of its own (`txn`), and so has every record in it (`mark`); `source` is the input
record that it was made of, "" for one that was made of none. `TxnEnding` may come several times for a
transaction: asked again.
"""

from __future__ import annotations

from typing import NamedTuple


class OutputMade(NamedTuple):
    """A topic into which transactions alone write."""

    at: float
    topic: str
    partitions: int
    replicas: int = 1
    min_in_sync: int = 1


class LifeBegan(NamedTuple):
    at: float
    asked_at: float
    transactional_id: str
    life: str
    producer_id: int
    epoch: int


class TxnBegan(NamedTuple):
    at: float
    txn: str
    transactional_id: str
    life: str
    producer_id: int
    epoch: int


class TxnWriting(NamedTuple):
    """A record is sent, perhaps again and again."""

    at: float
    txn: str
    mark: str
    source: str
    topic: str
    partition: int


class TxnWritten(NamedTuple):
    """These records were acknowledged, the first one at that offset; -1: it is not known where."""

    at: float
    asked_at: float
    txn: str
    topic: str
    partition: int
    first_offset: int
    marks: tuple[str, ...]


class TxnEnding(NamedTuple):
    at: float
    txn: str
    is_commit: bool


class TxnEnded(NamedTuple):
    """EndTxn was answered well."""

    at: float
    asked_at: float
    txn: str
    is_commit: bool


class TxnAnswered(NamedTuple):
    """Any request of a producer: `error` is "" where it was answered well."""

    at: float
    asked_at: float
    transactional_id: str
    life: str
    producer_id: int
    epoch: int
    api: str
    error: str


class OutputRead(NamedTuple):
    """A reader has come from `start` to `position`, and was given these marks by offset.

    What it was given the broker sent after `asked_at`."""

    at: float
    asked_at: float
    session: str
    is_committed: bool
    topic: str
    partition: int
    start: int
    position: int
    marks: tuple[tuple[int, str], ...]


class OutputFinal(NamedTuple):
    """All of a partition, at last, as seen by either kind of reader."""

    at: float
    asked_at: float
    is_committed: bool
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    marks: tuple[tuple[int, str], ...]


class StableSeen(NamedTuple):
    """Where a partition ends for those who read what is committed."""

    at: float
    asked_at: float
    observer: str
    topic: str
    partition: int
    offset: int


class StableFinal(NamedTuple):
    """After all is done: where a partition ends, for either kind of reader."""

    at: float
    topic: str
    partition: int
    stable_offset: int
    end_offset: int


class Drained(NamedTuple):
    """After the faults: whether a group's input was worked off up to its end, in time."""

    at: float
    group: str
    topic: str
    partition: int
    end_offset: int
    is_done: bool


TransactionEvent = (
    OutputMade
    | LifeBegan
    | TxnBegan
    | TxnWriting
    | TxnWritten
    | TxnEnding
    | TxnEnded
    | TxnAnswered
    | OutputRead
    | OutputFinal
    | StableSeen
    | StableFinal
    | Drained
)
