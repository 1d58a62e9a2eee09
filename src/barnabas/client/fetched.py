"""The fetched batches of one partition, and the records in them that a consumer may see. Pure.

A response has whole batches; the last one may be cut short. Control batches are never visible. With
read_committed the response has a list of aborted transactions: producer id and first offset. From that offset
up to the marker that ends the transaction, the batches of that producer are skipped. The broker sends no
records at or above the last stable offset, so all others are committed.

The position also moves past invisible batches, up to the end of the last whole one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.client.metadata import TopicPartition
from barnabas.core.disk import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.records import columnar, kernel
from barnabas.records.batch import (
    HEADER_BYTES,
    LENGTH_AT,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
)
from barnabas.records.columns import Columns
from barnabas.records.control import ControlType, parse_end_transaction
from barnabas.records.reader import read_batch, records_section
from barnabas.records.record import Headers

_LENGTH = struct.Struct(">i")


class ConsumerRecord(NamedTuple):
    """A record, with its topic, partition and offset."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


class FetchedBatches(NamedTuple):
    """The batches of one partition as they arrived; `ranges` are the visible ones.

    A range ends before an invisible batch, or where the type of timestamps changes.
    """

    topic: str
    partition: int
    data: Buffer
    ranges: tuple[tuple[int, int], ...]
    first_offset: int  # records below it in the first batch are not wanted
    next_offset: int  # the next position
    high_watermark: int
    last_stable_offset: int

    def buffers(self) -> list[memoryview]:
        """The visible batches, one piece for each range, without copying."""
        view = memoryview(self.data)
        return [view[start:end] for start, end in self.ranges]

    def columns(self) -> Columns:
        """All records as columns, without a Python object for any."""
        decoder = kernel.ColumnDecoder()
        for start, end in self.ranges:
            self._decode(decoder, start, end)
        return decoder.finish()

    def _decode(self, decoder: kernel.ColumnDecoder, position: int, end: int) -> None:
        data, first = self.data, self.first_offset
        while True:
            position, header = decoder.run(data, position, end, first, columnar.MAX_OFFSET, False, False)
            if header is None:
                return
            section, start, stop = records_section(data, position, header)
            decoder.section(section, start, stop, header, first, columnar.MAX_OFFSET)
            position += header.size_bytes


class Fetched:
    """A partition's part of a response, from `position` on; records are taken in portions."""

    def __init__(
        self,
        partition: TopicPartition,
        records: Buffer,
        position: int,
        *,
        aborted: Iterable[AbortedTransaction] | None = None,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
    ) -> None:
        self.partition = partition
        self.position = position
        self.leader_epoch = -1
        self.high_watermark, self.last_stable_offset = high_watermark, last_stable_offset
        self._data = records
        self._error: BarnabasError | None = None
        self._end = position
        self._visible = list(self._see(list(aborted or ())))
        self._records = self._read()

    @property
    def is_used_up(self) -> bool:
        return self.position >= self._end and self._error is None

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records; fewer only if there are no more. A corrupt batch raises when it is
        reached."""
        taken: list[ConsumerRecord] = []
        while len(taken) < limit:
            try:
                record = next(self._records, None)
            except BarnabasError as error:  # inside a batch: first return the records before it
                record, self._visible = None, []
                self._error, self._end = error, self.position
            if record is None:
                if not taken and self._error is not None:
                    raise self._error
                self.position = self._end
                break
            self.position = record.offset + 1
            taken.append(record)
        return taken

    def rest(self) -> FetchedBatches:
        """All batches that were not taken, as they arrived."""
        ranges: list[tuple[int, int]] = []
        kind: int | None = None
        for header, start in self._visible:
            end = start + header.size_bytes
            if header.last_offset < self.position:
                continue
            before, kind = kind, header.attributes & LOG_APPEND_TIME_FLAG
            if ranges and ranges[-1][1] == start and before == kind:
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((start, end))
        if not ranges and self._error is not None:
            raise self._error
        rest = FetchedBatches(
            *self.partition,
            self._data,
            tuple(ranges),
            self.position,
            self._end,
            self.high_watermark,
            self.last_stable_offset,
        )
        self.position = self._end
        return rest

    def _see(self, aborted: list[AbortedTransaction]) -> Iterator[tuple[BatchHeader, int]]:
        """The visible batches; also sets the end of the last whole batch, and the error that stopped the
        loop."""
        aborted.sort(key=lambda each: each.first_offset, reverse=True)
        aborting: set[int] = set()
        for header, start in self._whole_batches():
            while aborted and aborted[-1].first_offset <= header.last_offset:
                aborting.add(aborted.pop().producer_id)
            if header.is_control:
                if header.producer_id in aborting and self._is_abort(header, start):
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                yield header, start

    def _whole_batches(self) -> Iterator[tuple[BatchHeader, int]]:
        data, start, end = self._data, 0, len(self._data)
        while end - start >= HEADER_BYTES:
            (length,) = _LENGTH.unpack_from(data, start + LENGTH_AT)
            if start + LOG_OVERHEAD_BYTES + length > end:
                return
            try:
                header = kernel.check_batch(data, start, end)
            except BarnabasError as error:
                self._error = error
                return
            yield header, start
            self._end = max(self._end, header.next_offset)
            self.leader_epoch = header.leader_epoch
            start += header.size_bytes

    def _is_abort(self, header: BatchHeader, start: int) -> bool:
        marker = parse_end_transaction(self._data, start, header)
        return marker is not None and marker.type is ControlType.ABORT

    def _read(self) -> Iterator[ConsumerRecord]:
        topic, partition = self.partition
        for header, start in self._visible:
            if header.last_offset < self.position:
                continue
            for offset, timestamp, key, value, headers in read_batch(self._data, start, header):
                if offset >= self.position:
                    epoch = header.leader_epoch
                    yield ConsumerRecord(topic, partition, offset, timestamp, key, value, headers, epoch)
