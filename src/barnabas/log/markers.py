"""Transaction markers: what a control batch that ends a transaction does to the producers' state.

The same when it has just been appended and when recovery reads it back.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.disk import Buffer
from barnabas.log.producers import CompletedTransaction, ProducerStates
from barnabas.log.txn_index import AbortedTransaction
from barnabas.records.batch import BatchHeader
from barnabas.records.control import EndTransactionMarker, parse_end_transaction

# the ends of transactions among batches, by their offsets
Markers = dict[int, EndTransactionMarker]


def find_markers(data: Buffer, headers: Sequence[BatchHeader]) -> Markers:
    """The ends of transactions among batches that stand one behind another in `data`."""
    markers = {}
    position = 0
    for header in headers:
        if header.is_control and (marker := parse_end_transaction(data, position, header)) is not None:
            markers[header.base_offset] = marker
        position += header.size_bytes
    return markers


def apply_marker(
    producers: ProducerStates, header: BatchHeader, marker: EndTransactionMarker
) -> CompletedTransaction | None:
    """Tell the producers' state of a marker that stands in the log."""
    return producers.apply_marker(
        header.producer_id,
        header.producer_epoch,
        marker.coordinator_epoch,
        commit=marker.is_commit,
        offset=header.base_offset,
        timestamp=header.max_timestamp,
    )


def aborted_entry(completed: CompletedTransaction) -> AbortedTransaction:
    """What the transaction index notes of an aborted transaction."""
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
    )
