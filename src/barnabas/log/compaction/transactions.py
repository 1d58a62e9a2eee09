"""The outcome of transactions, as compaction needs it when it reads a log from its start.

The records of an aborted transaction can be removed at once. A marker can be removed only when none of the
transaction's records is left, and then only after its delete horizon: a reader that has seen a record of the
transaction must be able to learn how it ended. Since reading begins with the log's first segment, a marker
that is reached without any batch of its transaction before it has no records left.

Aborted transactions of which records were found stay in the index of the new segment.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from barnabas.log.txn_index import AbortedTransaction
from barnabas.records.batch import BatchHeader
from barnabas.records.control import ControlType, control_type
from barnabas.records.reader import Record


class Ended(NamedTuple):
    """The meaning of a control batch for compaction."""

    is_gone: bool  # no record is left of its transaction, so its own delete horizon starts
    aborted: AbortedTransaction | None = None  # stays in the index, since records of it were found


class _Open:
    """An aborted transaction between its first record and its marker."""

    __slots__ = ("is_met", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.is_met = False


class TransactionWalk:
    """The transactions of a log, whose batches are passed in order."""

    def __init__(self) -> None:
        # those not reached yet, by first offset
        self._ahead: list[tuple[int, int, AbortedTransaction]] = []
        # those between first record and marker, by producer
        self._aborted: dict[int, _Open] = {}
        self._committed: dict[int, None] = {}

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add the aborted transactions of the next part of the log; duplicates do no harm."""
        for transaction in aborted:
            heappush(self._ahead, (transaction.first_offset, transaction.producer_id, transaction))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch, which was just read, belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._come_to(header.last_offset)
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed[header.producer_id] = None
            return False
        aborted.is_met = True
        return True

    def end(self, header: BatchHeader, record: Record | None) -> Ended:
        """Process a control batch; `record` is its record, None if that has been removed already."""
        self._come_to(header.last_offset)
        if record is None:
            return Ended(is_gone=True)
        kind = control_type(record.key)
        if kind is ControlType.COMMIT:
            was_met = header.producer_id in self._committed
            self._committed.pop(header.producer_id, None)
            return Ended(is_gone=not was_met)
        if kind is ControlType.ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is not None and aborted.is_met:
                return Ended(is_gone=False, aborted=aborted.transaction)
            return Ended(is_gone=True)
        return Ended(is_gone=False)

    def _come_to(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            transaction = heappop(self._ahead)[2]
            if transaction.producer_id not in self._aborted:
                self._aborted[transaction.producer_id] = _Open(transaction)
