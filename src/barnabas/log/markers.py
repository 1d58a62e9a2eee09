"""Transaction markers: the effect of a control batch on the producers' state.

It is the same when the batch has just been appended and when recovery reads it back.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.disk import Buffer
from barnabas.log.producers import CompletedTransaction, ProducerStates
from barnabas.log.txn_index import AbortedTransaction
from barnabas.records.batch import BatchHeader
from barnabas.records.control import EndTransactionMarker, parse_end_transaction

# the transaction markers among some batches, by offset
Markers = dict[int, EndTransactionMarker]


def find_markers(data: Buffer, headers: Sequence[BatchHeader]) -> Markers:
    """The transaction markers among batches that follow one another in `data`."""
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
    """Apply a marker in the log to the producers' state."""
    return producers.apply_marker(
        header.producer_id,
        header.producer_epoch,
        marker.coordinator_epoch,
        commit=marker.is_commit,
        offset=header.base_offset,
        timestamp=header.max_timestamp,
    )


def aborted_entry(completed: CompletedTransaction) -> AbortedTransaction:
    """The entry of an aborted transaction in the transaction index."""
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
    )
