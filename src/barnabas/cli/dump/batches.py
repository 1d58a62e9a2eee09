"""The batches of a segment or a metadata snapshot, one after another, as far as they can be told apart.

A file is read through one buffer, bodies only where they are asked for, so that a segment of any size takes
little memory. The walk ends at the first bytes that are no batch: behind them nothing can be found again.
`Tail` says what they look like.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from barnabas.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader

_BUFFER_BYTES = 1 << 20
_ZEROS_LOOK_BYTES = 1 << 16


class FoundBatch(NamedTuple):
    """A batch where it was found; `data` is all of it, empty where only headers were asked for."""

    position: int
    header: BatchHeader
    data: bytes


class Tail(NamedTuple):
    """What stands at the end of a file and is no batch."""

    position: int
    size_bytes: int
    is_zeros: bool  # room that was made in advance, or that a power failure left
    reason: str


def walk(path: Path, *, bodies: bool = False) -> Iterator[FoundBatch | Tail]:
    """The batches of a file and, last, the tail where there is one."""
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        position = 0
        while True:
            head = file.read(HEADER_BYTES)
            if not head:
                return
            fault = _fault(head, position, _size(file))
            if fault is not None:
                yield _tail(file, position, fault)
                return
            header = BatchHeader.parse(head)
            data = b""
            if bodies:
                data = head + file.read(header.size_bytes - HEADER_BYTES)
                if len(data) < header.size_bytes:  # truncated while it was read
                    yield _tail(file, position, "the file was cut short meanwhile")
                    return
            else:
                file.seek(position + header.size_bytes)
            yield FoundBatch(position, header, data)
            position += header.size_bytes


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _fault(head: bytes, position: int, size: int) -> str | None:
    if len(head) < HEADER_BYTES:
        return f"{len(head)} bytes are too few for a batch's header"
    header = BatchHeader.parse(head)
    if header.magic != MAGIC:
        return f"magic {header.magic} at byte {position}, only {MAGIC} is known"
    if header.size_bytes < HEADER_BYTES:
        return f"a batch's length of {header.batch_length} is less than its header takes"
    if position + header.size_bytes > size:
        missing = position + header.size_bytes - size
        return f"the batch of {header.batch_length + LOG_OVERHEAD_BYTES} bytes lacks its last {missing}"
    return None


def _tail(file: IO[bytes], position: int, reason: str) -> Tail:
    size_bytes = _size(file) - position
    file.seek(position)
    is_zeros = True
    while is_zeros and (data := file.read(_ZEROS_LOOK_BYTES)):
        is_zeros = not any(data)
    return Tail(position, size_bytes, is_zeros, "nothing but zeros" if is_zeros else reason)
