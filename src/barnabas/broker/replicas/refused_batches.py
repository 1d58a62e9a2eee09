"""Batches of idempotent producers that were refused, and the batches that must not be appended before them.

A producer has several batches in flight. Between two of them a broker may become the leader, or its ISR large
enough: then the first batch is refused, and the second would be accepted. Where the producer is known, the
second fails with OUT_OF_ORDER_SEQUENCE_NUMBER, as in Apache Kafka; librdkafka then raises its epoch for all
partitions, and sends batches again under the new epoch that another partition may have already: a duplicate.
Where the producer is not known, the second batch would even be appended, and the first never.

So a batch that continues a refused one is refused with the same error, which clients retry, until the
producer sends any other batch: it has begun again with the first. A refusal is used once, so that a first
batch that never comes again blocks nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.broker.replicas.replica import NotEnoughReplicas
from barnabas.broker.replicas.roles import NotLeaderOrFollower
from barnabas.core.errors import BarnabasError
from barnabas.records.batch import HEADER, BatchHeader, increment_sequence

KEPT = 10_000  # beyond these the oldest is forgotten, and its producer is answered as by Apache Kafka

_Key = tuple[bytes, int, int]  # topic id, partition, producer id
_Refusal = NotLeaderOrFollower | NotEnoughReplicas


_EARLIER = "an earlier batch of the producer was refused: "


class _Refused(NamedTuple):
    """A refused batch. The error is kept as type and text: its traceback would keep the request alive."""

    epoch: int
    next_sequence: int
    error: type[_Refusal]
    reason: str


class RefusedBatches:
    """The refused batches of one node, by partition and producer. False while there are none."""

    def __init__(self) -> None:
        self._refused: dict[_Key, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def check(self, topic_id: bytes, partition: int, batch: memoryview) -> None:
        """Raise the error of the refused batch that this batch continues."""
        header = _idempotent(batch)
        if header is None:
            return
        refused = self._refused.pop((topic_id, partition, header.producer_id), None)
        if refused is not None and (refused.epoch, refused.next_sequence) == (
            header.producer_epoch,
            header.base_sequence,
        ):
            raise refused.error(f"{_EARLIER}{refused.reason}")

    def add(self, topic_id: bytes, partition: int, batch: memoryview, error: BarnabasError) -> None:
        """Remember a refused batch if its producer will send it again."""
        if not isinstance(error, _Refusal):
            return
        header = _idempotent(batch)
        if header is None:
            return
        after = increment_sequence(header.last_sequence, 1)
        key = (topic_id, partition, header.producer_id)
        self._refused.pop(key, None)
        reason = str(error).removeprefix(_EARLIER)
        self._refused[key] = _Refused(header.producer_epoch, after, type(error), reason)
        if len(self._refused) > KEPT:
            del self._refused[next(iter(self._refused))]


def _idempotent(batch: memoryview) -> BatchHeader | None:
    """The header of a batch with a producer id and a sequence; None for others."""
    if len(batch) < HEADER.size:
        return None
    header = BatchHeader.parse(batch)
    return header if header.producer_id >= 0 and header.base_sequence >= 0 else None
