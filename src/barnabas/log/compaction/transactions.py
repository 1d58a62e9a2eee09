"""What became of transactions, as a compaction learns it on its way through the log.

The records of an aborted transaction can go at once. Its marker, or that of a committed one, can go only when
none of its records is left, and then not before its time: a reader that has seen a record of the transaction
must be able to find out how it ended. That nothing is left shows when the walk comes to the marker without
having met a batch of the transaction: the walk begins with the log's first segment.

The aborted transactions whose records this walk still met stay in the index of the new segment.
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
    """What a control batch means for the compaction."""

    is_gone: bool  # nothing is left of the transaction that it ends, so its own time starts
    aborted: AbortedTransaction | None = None  # stays in the index, for its records were met


class _Open:
    """An aborted transaction that the walk is in the middle of."""

    __slots__ = ("is_met", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.is_met = False


class TransactionWalk:
    """The transactions on the way through a log, its batches in order."""

    def __init__(self) -> None:
        # by first offset, those that the walk has not come to
        self._ahead: list[tuple[int, int, AbortedTransaction]] = []
        # by producer, those that it is in the middle of
        self._aborted: dict[int, _Open] = {}
        self._committed: dict[int, None] = {}

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Learn of the aborted transactions in the next stretch; being told of one twice does no harm."""
        for transaction in aborted:
            heappush(self._ahead, (transaction.first_offset, transaction.producer_id, transaction))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of records, just met, belongs to an aborted transaction."""
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
        """A control batch was met; `record` is what is in it, None where that is gone already."""
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
