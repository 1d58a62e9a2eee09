"""One producer in one partition: its epoch, its last five batches, and the start of its open transaction.

A repeated batch is recognised by its sequences while it is among the last five. They are stored as numbers in
one array, not as objects: there may be tens of thousands of producers.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from barnabas.core.errors import OutOfOrderSequence
from barnabas.records.batch import (
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    increment_sequence,
)

BATCHES_KEPT = 5
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1

# the fields of a batch in the array: last sequence, last offset, offset delta, timestamp
_STRIDE = 4


class Duplicate(NamedTuple):
    """The batch is in the log already; it is acknowledged as it was the first time."""

    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """One producer as in a snapshot and in DescribeProducers; -1 for an unset field."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class Producer:
    """The mutable state of one producer id. Its window is ordered by offset, oldest first."""

    __slots__ = ("coordinator_epoch", "epoch", "last_timestamp", "txn_first_offset", "window")

    def __init__(self) -> None:
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = NO_TIMESTAMP
        self.txn_first_offset = NO_OFFSET
        self.window = array("q")

    @property
    def last_sequence(self) -> int:
        return self.window[-_STRIDE] if self.window else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The end of its last data batch in this epoch; only valid if there is one."""
        return self.window[-_STRIDE + 1]

    def is_next(self, sequence: int) -> bool:
        """Whether a batch with this first sequence continues the last one."""
        window = self.window
        return bool(window) and sequence == (window[-_STRIDE] + 1) & MAX_SEQUENCE

    def enter_epoch(self, epoch: int) -> None:
        """Start a new epoch: sequences start over, and the old epoch's batches are forgotten."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.window = array("q")

    def find(self, header: BatchHeader) -> Duplicate | None:
        """The batch of this epoch with exactly these sequences."""
        last_sequence = header.last_sequence
        window = self.window
        for at in range(0, len(window), _STRIDE):
            if window[at] == last_sequence:
                _, last_offset, delta, timestamp = window[at : at + _STRIDE]
                if increment_sequence(last_sequence, -delta) == header.base_sequence:
                    return Duplicate(last_offset - delta, last_offset, timestamp)
        return None

    def add(self, last_sequence: int, last_offset: int, delta: int, timestamp: int) -> None:
        """Append a batch to the window; if the window is full, the oldest is dropped."""
        window = self.window
        window.extend((last_sequence, last_offset, delta, timestamp))
        if len(window) > BATCHES_KEPT * _STRIDE:
            del window[:_STRIDE]

    def remember(self, header: BatchHeader) -> None:
        """Insert an older batch at its position, unless it is present or would be dropped at once."""
        window = self.window
        for at in range(0, len(window), _STRIDE):
            if header.last_offset == window[at + 1]:
                return
            if header.last_offset < window[at + 1]:
                if at or len(window) < BATCHES_KEPT * _STRIDE:
                    self._insert(at, header)
                return

    def _insert(self, at: int, header: BatchHeader) -> None:
        batch = (header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
        self.window[at:at] = array("q", batch)
        if len(self.window) > BATCHES_KEPT * _STRIDE:
            del self.window[:_STRIDE]

    def check_next(self, header: BatchHeader) -> None:
        """Raise unless a batch continues the last one, or begins a new epoch."""
        first = header.base_sequence
        if header.producer_epoch != self.epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence "
                    f"{first}, not 0; its epoch so far is {self.epoch}"
                )
            return
        last = self.last_sequence
        expected = 0 if last == NO_SEQUENCE else increment_sequence(last, 1)
        if first != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sends sequence {first} in epoch {self.epoch}, "
                f"where {expected} comes next"
            )

    def entry(self, producer_id: int) -> ProducerEntry:
        """Its entry in a snapshot."""
        window = self.window
        last_sequence, last_offset, delta, _ = window[-_STRIDE:] if window else (NO_SEQUENCE, NO_OFFSET, 0, 0)
        return ProducerEntry(
            producer_id,
            self.epoch,
            last_sequence,
            last_offset,
            delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


def producer_of(entry: ProducerEntry) -> Producer:
    """The producer of a snapshot's entry."""
    producer = Producer()
    producer.epoch = entry.epoch
    producer.coordinator_epoch = entry.coordinator_epoch
    producer.last_timestamp = entry.timestamp
    producer.txn_first_offset = max(entry.txn_first_offset, NO_OFFSET)
    if entry.last_offset >= 0:
        producer.add(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
    return producer
