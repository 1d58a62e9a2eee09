"""The producer state of a partition: whether a batch is new, a duplicate, out of order or fenced.

For each producer id: its epoch, its last five batches, the offset where its open transaction began, and the
epoch of the coordinator that last ended one. `check` and `check_marker` decide and change nothing. `apply`
and `apply_marker` are the only ones that change the state from the log, and they do the same for a batch that
has just been appended and for one that is read back at a start. So the state is a function of the log (and of
what has expired).

Transactions pass through two stages before readers may see past them: ongoing, until the marker is written;
then unreplicated, until the high watermark has passed the marker. The first unstable offset is the start of
the earliest transaction in either stage.

The first batch of a client's transaction in a partition must be verified with the coordinator: it must know
that the partition belongs to the transaction, or nobody would ever end it (KIP-890). `begin_verification`
gives a guard before the coordinator is asked, and the first append is made with it; any marker or append in
between invalidates it.
"""

from __future__ import annotations

import enum
from array import array
from bisect import insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.core.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from barnabas.log.producer import NO_OFFSET, Duplicate, Producer, ProducerEntry, producer_of
from barnabas.records.batch import NO_PRODUCER_EPOCH, BatchHeader

MAX_PRODUCER_EPOCH = 0x7FFF


class Origin(enum.Enum):
    """The source of an append, which decides the checks that are left."""

    CLIENT = "client"  # everything
    COORDINATOR = "coordinator"  # epochs; offsets committed in a transaction have no sequences


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has just ended.

    An aborted one must be in the segment's index before the high watermark may pass its marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int  # the marker's
    aborted: bool
    last_stable_offset: int  # of the log, once this one is decided


class Guard:
    """A verification in progress. While it is the current guard, no transaction has begun or ended here.

    Batches of one producer may overtake each other while they are verified. The lowest sequence that was seen
    must be appended first: a later one in its place would lock the others out for good.
    """

    __slots__ = ("began_ms", "epoch", "is_trusted", "lowest_sequence", "starts_at_zero")

    def __init__(self, epoch: int, sequence: int, began_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.starts_at_zero = False
        self.began_ms = began_ms
        self.is_trusted = False

    def saw(self, epoch: int, sequence: int) -> None:
        """Note that another batch of the producer is being verified."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


# for appends without verification: those of coordinators, and of clients where it is switched off
TRUSTED = Guard(NO_PRODUCER_EPOCH, 0, 0)
TRUSTED.is_trusted = True


class LastBatches(NamedTuple):
    """The batches that compaction must keep so that the producers' state can be read back from the log."""

    offsets: array[int]  # the last offset of each producer's last batch of records, ascending
    epochs: dict[int, int]  # of producers without a batch in their current epoch: only a marker has it


class ProducerStates:
    """All producers of one partition, as of `map_end_offset`.

    That is the end of the log as far as it was applied; its owner advances it over batches without a
    producer.
    """

    __slots__ = ("_guards", "_ongoing", "_producers", "_unreplicated", "map_end_offset")

    def __init__(self, map_end_offset: int = 0) -> None:
        self._producers: dict[int, Producer] = {}
        # first offset -> producer id, ascending
        self._ongoing: dict[int, int] = {}
        # (first offset, marker's offset), ascending
        self._unreplicated: list[tuple[int, int]] = []
        self._guards: dict[int, Guard] = {}  # by producer id
        self.map_end_offset = map_end_offset

    def __len__(self) -> int:
        return len(self._producers)

    # --- decide

    def check(
        self, header: BatchHeader, *, origin: Origin, guard: Guard | None = TRUSTED
    ) -> Duplicate | None:
        """Check a batch with a producer id before it is appended; returns a Duplicate if the log has it.

        An unknown producer may begin with any sequence: its state may have expired, or been removed with the
        records. Only one whose epoch rises with every transaction must begin with 0.
        """
        producer = self._producers.get(header.producer_id)
        if producer is not None:
            is_open = producer.txn_first_offset != NO_OFFSET
            if origin is Origin.CLIENT and header.producer_epoch == producer.epoch:
                if header.is_transactional == is_open and producer.is_next(header.base_sequence):
                    return None  # nearly every batch
                duplicate = producer.find(header)
                if duplicate is not None:
                    return duplicate
            if header.producer_epoch < producer.epoch:
                raise _stale_epoch(header.producer_id, header.producer_epoch, producer.epoch)
        if header.is_transactional and not self._is_verified(
            header.producer_id, header.producer_epoch, guard
        ):
            raise InvalidTransactionState(
                f"the records of producer {header.producer_id} are not part of an ongoing transaction"
            )
        if origin is Origin.CLIENT:
            self._check_sequence(producer, header)
        if producer is not None and is_open and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {header.producer_id} wrote outside of a transaction while its transaction that "
                f"began at offset {producer.txn_first_offset} is open"
            )
        return None

    def _is_verified(self, producer_id: int, epoch: int, guard: Guard | None) -> bool:
        """Whether the transaction is ongoing here or its coordinator knows of it."""
        if self.has_ongoing_transaction(producer_id, epoch):
            return True
        return guard is not None and (guard.is_trusted or self.is_guarded(producer_id, guard))

    def is_guarded(self, producer_id: int, guard: Guard) -> bool:
        """Whether no transaction of the producer has begun or ended here since the guard was given."""
        return self._guards.get(producer_id) is guard

    def _check_sequence(self, producer: Producer | None, header: BatchHeader) -> None:
        guard = self._guards.get(header.producer_id) if self._guards else None
        if guard is not None:
            first = header.base_sequence
            if producer is None and guard.starts_at_zero and first:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id}, of whom nothing is known, begins with sequence {first}"
                )
            if first > guard.lowest_sequence:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} sends sequence {first} in epoch {header.producer_epoch}, "
                    f"while {guard.lowest_sequence} is still to come"
                )
        if producer is not None:
            producer.check_next(header)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, starts_at_zero: bool, now_ms: int
    ) -> Guard | None:
        """The guard for the first append of a transaction; None if the transaction is open already.

        `starts_at_zero` marks a producer whose epoch rises with every transaction.
        """
        self.check_epoch(producer_id, epoch)
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = Guard(epoch, sequence, now_ms)
        guard.saw(epoch, sequence)
        guard.starts_at_zero = guard.starts_at_zero or starts_at_zero
        return guard

    def check_verified(self, producer_id: int, epoch: int, guard: Guard | None) -> None:
        """Raise if a coordinator may not write in the transaction that it was verified for with `guard`."""
        self.check_epoch(producer_id, epoch)
        if not self._is_verified(producer_id, epoch, guard):
            raise InvalidTransactionState(f"the transaction of producer {producer_id} has ended meanwhile")

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Raise if the epoch is too old for a coordinator's write in that producer's transaction."""
        producer = self._producers.get(producer_id)
        if producer is not None and producer_epoch < producer.epoch:
            raise _stale_epoch(producer_id, producer_epoch, producer.epoch)

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, transaction_version: int
    ) -> None:
        """Raise if a coordinator may not write this marker.

        From transaction version 2 on a marker has the next epoch, so one with the current epoch is late.
        There are two exceptions: if no transaction is open, it is the marker already written, sent again, and
        harmless; if the epochs are exhausted, the last one is used again.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        is_late = producer_epoch < producer.epoch
        if transaction_version >= 2 and producer_epoch == producer.epoch:
            is_late = producer.txn_first_offset != NO_OFFSET and producer_epoch != MAX_PRODUCER_EPOCH
        if is_late:
            raise _stale_epoch(producer_id, producer_epoch, producer.epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker for producer {producer_id} comes from coordinator epoch {coordinator_epoch}, "
                f"but epoch {producer.coordinator_epoch} has already written one"
            )

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether that producer has an open transaction here in that epoch."""
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.epoch == producer_epoch
            and producer.txn_first_offset != NO_OFFSET
        )

    # --- apply

    def apply(self, header: BatchHeader, base_offset: int) -> None:
        """Update the state from a producer's data batch at `base_offset` of the log."""
        producer = self._producer(header.producer_id)
        last_offset = base_offset + header.last_offset_delta
        producer.last_timestamp = header.max_timestamp
        producer.enter_epoch(header.producer_epoch)
        producer.add(header.last_sequence, last_offset, header.last_offset_delta, producer.last_timestamp)
        if header.is_transactional:
            if self._guards:
                self._guards.pop(header.producer_id, None)
            if producer.txn_first_offset == NO_OFFSET:
                producer.txn_first_offset = base_offset
                self._ongoing[base_offset] = header.producer_id
        self.map_end_offset = last_offset + 1

    def apply_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        offset: int,
        timestamp: int,
    ) -> CompletedTransaction | None:
        """Update the state from a marker at `offset`; returns the transaction that it ended, if any."""
        producer = self._producer(producer_id)
        self._guards.pop(producer_id, None)
        first_offset = producer.txn_first_offset
        producer.enter_epoch(producer_epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        producer.txn_first_offset = NO_OFFSET
        self.map_end_offset = offset + 1
        if first_offset == NO_OFFSET:
            return None
        del self._ongoing[first_offset]
        insort(self._unreplicated, (first_offset, offset))
        last_stable_offset = next(iter(self._ongoing), offset + 1)
        return CompletedTransaction(producer_id, first_offset, offset, not commit, last_stable_offset)

    def remember(self, header: BatchHeader) -> None:
        """Restore a batch of the log, which a snapshot does not have, in its producer's window.

        A snapshot has one batch a producer; the others are in the log's tail. Only batches of the current
        epoch, older than the newest known one, are taken, in any order and any number of times; only the
        window changes.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None or header.producer_epoch != producer.epoch or header.is_control:
            return
        producer.remember(header)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers silent for so long, unless they have an open transaction; returns their number."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.txn_first_offset == NO_OFFSET and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        if self._guards:  # guards of producers that never came back
            self._guards = {
                id_: guard for id_, guard in self._guards.items() if now_ms - guard.began_ms < expiration_ms
            }
        return len(expired)

    def _producer(self, producer_id: int) -> Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer()
        return producer

    # --- transactions and what readers may see

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the earliest transaction that is undecided, or decided above the high watermark.

        The last stable offset is the smaller of this and the high watermark, and not below the log's start.
        """
        undecided = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return undecided
        unreplicated = self._unreplicated[0][0]
        return unreplicated if undecided is None else min(undecided, unreplicated)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Remove transactions whose markers are below the high watermark: they no longer bound the last
        stable offset."""
        if self._unreplicated:
            self._unreplicated = [txn for txn in self._unreplicated if txn[1] >= high_watermark]

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """The log now begins here. Producers stay known even if their records are gone."""
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    # --- snapshots

    def entries(self) -> Iterator[ProducerEntry]:
        """Every producer, for a snapshot or to be described."""
        for producer_id, producer in self._producers.items():
            yield producer.entry(producer_id)

    def last_batches(self) -> LastBatches:
        """The last batch of each producer, for compaction."""
        offsets = sorted(one.last_offset for one in self._producers.values() if one.window)
        epochs = {id_: one.epoch for id_, one in self._producers.items() if not one.window}
        return LastBatches(array("q", offsets), epochs)

    def clear(self, map_end_offset: int) -> None:
        """Forget everything, when the log is truncated, or read again from `map_end_offset`."""
        self._producers.clear()
        self._guards.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.map_end_offset = map_end_offset

    def load(self, entries: Iterable[ProducerEntry], map_end_offset: int) -> None:
        """Restore the state of a snapshot that was taken at `map_end_offset`."""
        self.clear(map_end_offset)
        for entry in entries:
            self._producers[entry.producer_id] = producer_of(entry)
        open_at = (
            (p.txn_first_offset, id_) for id_, p in self._producers.items() if p.txn_first_offset != NO_OFFSET
        )
        self._ongoing.update(sorted(open_at))


def _stale_epoch(producer_id: int, epoch: int, current: int) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(
        f"producer {producer_id} writes with epoch {epoch}, but epoch {current} has been seen: "
        "a newer instance has taken over, or its transaction was ended"
    )
