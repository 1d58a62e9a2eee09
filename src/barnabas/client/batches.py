"""A batch of one partition: filled, sealed, sent, perhaps retried, and settled exactly once.

    FILLING -> (seal) -> WAITING <-> IN_FLIGHT -> SETTLED

After it is sealed its bytes do not change, except for the producer's number. That is written when the batch
is first sent, and may change only if the broker has certainly not written the batch.
"""

from __future__ import annotations

import asyncio
import struct
from enum import Enum, auto
from typing import NamedTuple, Protocol

from barnabas.client.metadata import TopicPartition
from barnabas.client.sequences import Number
from barnabas.core.errors import WireError
from barnabas.records import columnar, kernel
from barnabas.records.batch import ATTRIBUTES_AT, CODEC_MASK, CRC_AT, PRODUCER_ID_AT, BatchHeader
from barnabas.records.builder import BatchBuilder
from barnabas.records.columnar import Encoder
from barnabas.records.compression import Codec
from barnabas.records.record import Headers

NO_OFFSET = -1
# the size of a record beside key, value and headers, at most: lengths, attributes, timestamp, offset
RECORD_OVERHEAD_BYTES = 36
HEADER_OVERHEAD_BYTES = 10

_NUMBER = struct.Struct(">qhi")


class RecordMetadata(NamedTuple):
    """The place of a written record; the offset is -1 with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Waiter(Protocol):
    """Receives the outcome of a record; an asyncio.Future is one."""

    def done(self) -> bool: ...

    def set_result(self, result: RecordMetadata, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


class Receipt:
    """Collects the outcome of many records in many batches.

    The future `told` is done when all of them are settled and no more will be added (`close`), with the
    number of written records or the first error.
    """

    __slots__ = ("_is_closed", "_open_rows", "_written_rows", "error", "told")

    def __init__(self, told: asyncio.Future[int]) -> None:
        self.told = told
        self.error: Exception | None = None
        self._open_rows = self._written_rows = 0
        self._is_closed = False

    @property
    def is_unused(self) -> bool:
        """Whether no rows were added."""
        return self.error is None and not self._open_rows and not self._written_rows

    def expect(self, rows: int) -> None:
        self._open_rows += rows

    def close(self) -> None:
        """No more rows will be added."""
        self._is_closed = True
        self.settle(0)

    def settle(self, rows: int, error: Exception | None = None) -> None:
        """These rows are written, or have failed with an error."""
        self._open_rows -= rows
        if error is None:
            self._written_rows += rows
        elif self.error is None:
            self.error = error
        if self._is_closed and self._open_rows == 0 and not self.told.done():
            if self.error is None:
                self.told.set_result(self._written_rows)
            else:
                self.told.set_exception(self.error)


class State(Enum):
    FILLING = auto()
    WAITING = auto()
    IN_FLIGHT = auto()
    SETTLED = auto()


def record_size_limit(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The maximum size of a record in a batch."""
    size = RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + (len(content) if content else 0)
    return size


class Batch:
    """One batch of one partition."""

    __slots__ = (
        "_builder",
        "_receipt",
        "_timestamps_ms",
        "_waiters",
        "attempts",
        "created",
        "data",
        "failure",
        "not_before",
        "number",
        "ordinal",
        "partition",
        "record_count",
        "refusal",
        "state",
        "was_first",
    )

    def __init__(
        self,
        partition: TopicPartition,
        ordinal: int,
        created: float,
        codec: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        self.partition = partition
        self.ordinal = ordinal  # in the order of creation, over all partitions
        self.created = created
        self.state = State.FILLING
        self.attempts = 0
        self.failure: Exception | None = None  # the error that it failed with
        self.refusal: WireError | None = None  # a broker's last retriable error
        self.not_before = 0.0  # earliest time of a retry
        self.number: Number | None = None
        self.was_first = False  # whether all numbered batches before it were settled when it was last sent
        self.data: bytes | bytearray = b""
        self.record_count = 0
        self._builder: BatchBuilder | None = BatchBuilder(codec=codec, transactional=is_transactional)
        self._waiters: list[Waiter] = []
        self._timestamps_ms: list[int] = []
        self._receipt: Receipt | None = None  # instead of waiters

    @classmethod
    def of_rows(
        cls,
        partition: TopicPartition,
        ordinal: int,
        created: float,
        data: bytearray,
        record_count: int,
        receipt: Receipt | None,
    ) -> Batch:
        """A batch that is sealed from the start."""
        batch = cls(partition, ordinal, created, Codec.NONE)
        batch.data, batch.record_count, batch._receipt = data, record_count, receipt
        batch._builder, batch.state = None, State.WAITING
        return batch

    @property
    def size_bytes(self) -> int:
        return self._builder.size_bytes if self._builder is not None else len(self.data)

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers, waiter: Waiter
    ) -> None:
        assert self._builder is not None
        self._builder.append(timestamp_ms, key, value, headers)
        self._timestamps_ms.append(timestamp_ms)
        self._waiters.append(waiter)
        self.record_count += 1

    def seal(self) -> None:
        """Accept no more records."""
        if self._builder is not None:
            self.data = self._builder.build()
            self._builder = None
            self.state = State.WAITING

    def split(self) -> tuple[Batch, Batch]:
        """Two sealed batches of half the records each, in place of this one, which must be sealed."""
        header = BatchHeader.parse(self.data)
        encoder, middle = Encoder(columnar.decode(self.data)), self.record_count // 2
        halves = []
        for start, stop in ((0, middle), (middle, self.record_count)):
            data, _ = encoder.batch(
                start,
                stop,
                limit_bytes=columnar.MAX_BATCH_BYTES,
                codec=header.attributes & CODEC_MASK,
                transactional=header.is_transactional,
            )
            half = Batch.of_rows(
                self.partition, self.ordinal, self.created, data, stop - start, self._receipt
            )
            half.attempts = self.attempts
            half._waiters = self._waiters[start:stop]
            half._timestamps_ms = self._timestamps_ms[start:stop]
            halves.append(half)
        return halves[0], halves[1]

    def stamp(self, number: Number) -> None:
        """Write the producer's number into the sealed bytes."""
        data = self.data
        assert isinstance(data, bytearray)
        self.number = number
        _NUMBER.pack_into(data, PRODUCER_ID_AT, *number)
        data[CRC_AT : CRC_AT + 4] = kernel.crc32c(data, ATTRIBUTES_AT, len(data)).to_bytes(4, "big")

    def succeed(self, base_offset: int, append_time_ms: int) -> None:
        """Report the offsets of the records."""
        self.state = State.SETTLED
        if self._receipt is not None:
            self._receipt.settle(self.record_count)
        topic, partition = self.partition
        for position, waiter in enumerate(self._waiters):
            if not waiter.done():
                offset = NO_OFFSET if base_offset < 0 else base_offset + position
                time_ms = self._timestamps_ms[position] if append_time_ms < 0 else append_time_ms
                waiter.set_result(RecordMetadata(topic, partition, offset, time_ms))

    def fail(self, error: Exception) -> None:
        """Report that the records were not written, or may not have been."""
        self.state = State.SETTLED
        self.failure = error
        if self._receipt is not None:
            self._receipt.settle(self.record_count, error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def forget_waiters(self) -> None:
        """Mark the errors as seen: asyncio must not log them as never retrieved."""
        for waiter in self._waiters:
            if isinstance(waiter, asyncio.Future) and waiter.done() and not waiter.cancelled():
                waiter.exception()
