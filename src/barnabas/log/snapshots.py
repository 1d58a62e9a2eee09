"""Producer snapshots: the producer state of a partition at an offset, in `<offset>.snapshot`.

Written when a segment is rolled and when the log is closed, so that a start reads only the log after it. The
layout is Kafka's: version, CRC-32C of the rest, a count, and an entry of fixed size for each producer, with
only the last of its batches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from barnabas.core.disk import Disk, FileMissing
from barnabas.core.errors import StorageError
from barnabas.log.checkpoints import read_whole, write_atomically
from barnabas.log.producer import ProducerEntry
from barnabas.records import kernel

VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(StorageError):
    """A corrupt producer snapshot; an older one, or the log itself, replaces it."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes of a snapshot."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = b"".join((_COUNT.pack(len(packed)), *packed))
    return _PREFIX.pack(VERSION, kernel.crc32c(body, 0, len(body))) + body


def decode_snapshot(data: bytes, where: str) -> list[ProducerEntry]:
    """The producers in the bytes of the snapshot at `where`."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise _corrupt(where, f"{len(data)} bytes are too few")
    version, crc = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise _corrupt(where, f"version {version} is not known, only {VERSION}")
    body = memoryview(data)[_PREFIX.size :]
    if crc != (actual := kernel.crc32c(body, 0, len(body))):
        raise _corrupt(where, f"its CRC is {crc:#010x}, that of its contents {actual:#010x}")
    (count,) = _COUNT.unpack_from(body)
    packed = body[_COUNT.size :]
    if len(packed) != count * _ENTRY.size:
        raise _corrupt(where, f"{count} producers are announced, {len(packed)} bytes follow")
    return [ProducerEntry._make(fields) for fields in _ENTRY.iter_unpack(packed)]


async def write_snapshot(
    disk: Disk, path: str, entries: Iterable[ProducerEntry], *, sync: bool = True
) -> None:
    """Write a snapshot; without `sync` it may be lost or torn by a power loss, which reading it detects."""
    await write_atomically(disk, path, encode_snapshot(entries), sync=sync)


async def read_snapshot(disk: Disk, path: str) -> list[ProducerEntry]:
    """The producers of a snapshot."""
    data = await read_whole(disk, path)
    if data is None:
        raise FileMissing(
            f"{disk.describe(path)} is not there; the log is read from an older snapshot instead"
        )
    return decode_snapshot(data, disk.describe(path))


def _corrupt(where: str, reason: str) -> CorruptSnapshot:
    return CorruptSnapshot(f"{where} is corrupt: {reason}; remove it, and the log is read from an older one")
