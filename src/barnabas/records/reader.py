"""Reading records from batches lazily, one Python object each.

For tests, tools, coordinators and small logs. Code that reads many records decodes columns instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.core.disk import Buffer
from barnabas.records import kernel
from barnabas.records.batch import CODEC_MASK, HEADER_BYTES, BatchHeader
from barnabas.records.compression import decompress
from barnabas.records.record import Headers, Record

__all__ = ["Headers", "Record", "read_batch", "read_batches", "read_records", "records_section"]


def records_section(buffer: Buffer, position: int, header: BatchHeader) -> tuple[Buffer, int, int]:
    """The plain records of the batch at `position`, decompressed if needed: (buffer, start, end)."""
    start, end = position + HEADER_BYTES, position + header.size_bytes
    codec = header.attributes & CODEC_MASK
    if codec == 0:
        return buffer, start, end
    plain = decompress(codec, memoryview(buffer)[start:end])
    return plain, 0, len(plain)


def read_batch(buffer: Buffer, position: int = 0, header: BatchHeader | None = None) -> Iterator[Record]:
    """The records of the batch at `position`, lazily; its header is checked unless it is given."""
    if header is None:
        header = kernel.check_batch(buffer, position, len(buffer))
    return kernel.iterate(*records_section(buffer, position, header), header)


def read_batches(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> Iterator[tuple[BatchHeader, int]]:
    """Every batch in the buffer, checked, with its position; raises at an incomplete or invalid one."""
    end = len(buffer) if end is None else end
    while position < end:
        header = kernel.check_batch(buffer, position, end)
        yield header, position
        position += header.size_bytes


def read_records(
    buffer: Buffer, position: int = 0, end: int | None = None, *, control: bool = False
) -> Iterator[Record]:
    """The records of every batch in the buffer, those of control batches only with `control`."""
    for header, start in read_batches(buffer, position, end):
        if control or not header.is_control:
            yield from read_batch(buffer, start, header)
