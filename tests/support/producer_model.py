"""A plain model of producer state: the log as a list, and every answer worked out from all of it."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.records.batch import CONTROL_FLAG, MAGIC, MAX_SEQUENCE, TRANSACTIONAL_FLAG, BatchHeader


def batch(
    producer_id: int,
    epoch: int,
    sequence: int,
    *,
    base_offset: int = 0,
    count: int = 1,
    timestamp: int = 1000,
    transactional: bool = False,
) -> BatchHeader:
    """The header of a data batch."""
    attributes = TRANSACTIONAL_FLAG if transactional else 0
    return BatchHeader(
        base_offset,
        100,
        0,
        MAGIC,
        0,
        attributes,
        count - 1,
        timestamp,
        timestamp,
        producer_id,
        epoch,
        sequence,
        count,
    )


class Marker(NamedTuple):
    """The end of a transaction, in the log."""

    offset: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    commit: bool
    timestamp: int

    @property
    def header(self) -> BatchHeader:
        flags = TRANSACTIONAL_FLAG | CONTROL_FLAG
        return BatchHeader(
            self.offset,
            78,
            0,
            MAGIC,
            0,
            flags,
            0,
            self.timestamp,
            self.timestamp,
            self.producer_id,
            self.epoch,
            -1,
            1,
        )


class Transaction(NamedTuple):
    producer_id: int
    first_offset: int
    marker: Marker | None


class Log:
    """What was appended, and what follows from it."""

    def __init__(self) -> None:
        self.items: list[BatchHeader | Marker] = []
        self.end_offset = 0

    def append(self, item: BatchHeader | Marker) -> None:
        self.items.append(item)
        self.end_offset = item.offset + 1 if isinstance(item, Marker) else item.next_offset

    def of(self, producer_id: int) -> list[BatchHeader | Marker]:
        return [item for item in self.items if item.producer_id == producer_id]

    def epoch(self, producer_id: int) -> int | None:
        """The epoch of the last thing in the log."""
        items = self.of(producer_id)
        return epoch_of(items[-1]) if items else None

    def window(self, producer_id: int) -> list[BatchHeader]:
        """The last five batches since the epoch last changed."""
        recent: list[BatchHeader] = []
        for item in reversed(self.of(producer_id)):
            if epoch_of(item) != self.epoch(producer_id):
                break
            if isinstance(item, BatchHeader):
                recent.insert(0, item)
        return recent[-5:]

    def transactions(self) -> list[Transaction]:
        """All transactions, by their first offsets."""
        found: list[Transaction] = []
        open_: dict[int, int] = {}
        for item in self.items:
            if isinstance(item, Marker):
                if item.producer_id in open_:
                    found.append(Transaction(item.producer_id, open_.pop(item.producer_id), item))
            elif item.is_transactional:
                open_.setdefault(item.producer_id, item.base_offset)
        found += [Transaction(producer_id, first, None) for producer_id, first in open_.items()]
        return sorted(found, key=lambda transaction: transaction.first_offset)

    def is_open(self, producer_id: int) -> bool:
        return any(t.producer_id == producer_id and t.marker is None for t in self.transactions())

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        unstable = [
            t.first_offset
            for t in self.transactions()
            if t.marker is None or t.marker.offset >= high_watermark
        ]
        return min(unstable, default=None)

    def verdict(self, header: BatchHeader) -> str:
        """What a leader says to a batch from a client."""
        epoch = self.epoch(header.producer_id)
        if epoch is None:
            return "ok"
        window = self.window(header.producer_id)
        if epoch == header.producer_epoch and any(sequences(known) == sequences(header) for known in window):
            return "duplicate"
        if header.producer_epoch < epoch:
            return "InvalidProducerEpoch"
        is_next = header.base_sequence == 0
        if window and header.producer_epoch == epoch:
            is_next = header.base_sequence == (window[-1].last_sequence + 1) % (MAX_SEQUENCE + 1)
        if not is_next:
            return "OutOfOrderSequence"
        if self.is_open(header.producer_id) and not header.is_transactional:
            return "InvalidTransactionState"
        return "ok"


def epoch_of(item: BatchHeader | Marker) -> int:
    return item.epoch if isinstance(item, Marker) else item.producer_epoch


def sequences(header: BatchHeader) -> tuple[int, int]:
    return header.base_sequence, header.last_sequence
