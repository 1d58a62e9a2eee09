"""A disk that is watched, and what else several tests of the log need.

`WatchedDisk` stands in front of another disk: it counts the calls and the bytes read, and a `Gate` makes a
chosen call wait, so that a test can do something in the middle of it. In front of `OsDisk` or `MemoryDisk`
alike nothing else changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

import pytest

from barnabas.core.disk import Buffer, Disk, File, Space
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log.checkpoints import read_whole
from barnabas.log.partition import Appended, PartitionLog
from barnabas.log.producers import Origin
from barnabas.log.sparse_index import OffsetIndex, SparseIndex, TimeIndex
from barnabas.records.builder import build_batch
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.record import Record
from tests.support.logs import START_MS, batch


class Gate:
    """The next call of `operation` on a path that matches waits until the gate is opened."""

    def __init__(self, operation: str, path_glob: str = "*") -> None:
        self._operation = operation
        self._path_glob = path_glob
        self._is_armed = True
        self.reached = asyncio.Event()
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    async def pass_by(self, operation: str, path: str) -> None:
        if self._is_armed and operation == self._operation and fnmatchcase(path, self._path_glob):
            self._is_armed = False
            self.reached.set()
            await self._opened.wait()


class WatchedFile:
    """A file of a WatchedDisk."""

    def __init__(self, disk: WatchedDisk, inner: File) -> None:
        self._disk = disk
        self.inner = inner

    @property
    def path(self) -> str:
        return self.inner.path

    @property
    def size(self) -> int:
        return self.inner.size

    @property
    def pins(self) -> int:
        return self.inner.pins

    @property
    def is_gone(self) -> bool:
        return self.inner.is_gone

    async def append(self, data: Buffer) -> None:
        await self._disk.watch("append", self.path)
        await self.inner.append(data)

    async def write_at(self, position: int, data: Buffer) -> None:
        await self._disk.watch("write_at", self.path)
        await self.inner.write_at(position, data)

    async def read(self, position: int, size: int) -> bytes:
        await self._disk.watch("read", self.path)
        data = await self.inner.read(position, size)
        self._disk.bytes_read[self.path] += len(data)
        return data

    async def truncate(self, size: int) -> None:
        await self._disk.watch("truncate", self.path)
        await self.inner.truncate(size)

    async def sync(self) -> None:
        await self._disk.watch("sync", self.path)
        await self.inner.sync()

    async def rename(self, path: str) -> None:
        await self._disk.watch("rename", self.path)
        await self.inner.rename(path)

    def pin(self) -> None:
        self.inner.pin()

    def unpin(self) -> None:
        self.inner.unpin()

    def close(self) -> None:
        self.inner.close()


class WatchedDisk:
    """A disk that counts what is asked of the one behind it, and stops at gates."""

    def __init__(self, inner: Disk) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self.bytes_read: Counter[str] = Counter()
        self._gates: list[Gate] = []

    def gate(self, operation: str, path_glob: str = "*") -> Gate:
        gate = Gate(operation, path_glob)
        self._gates.append(gate)
        return gate

    async def watch(self, operation: str, path: str) -> None:
        self.calls[operation] += 1
        for gate in self._gates:
            await gate.pass_by(operation, path)

    def read_from(self, path_glob: str) -> int:
        """How many bytes were read from the files that match."""
        return sum(count for path, count in self.bytes_read.items() if fnmatchcase(path, path_glob))

    def describe(self, path: str) -> str:
        return self.inner.describe(path)

    async def open(self, path: str, *, create: bool = False) -> WatchedFile:
        await self.watch("open", path)
        return WatchedFile(self, await self.inner.open(path, create=create))

    async def size_of(self, path: str) -> int | None:
        return await self.inner.size_of(path)

    async def modified_ms(self, path: str) -> int:
        return await self.inner.modified_ms(path)

    async def set_modified_ms(self, path: str, modified_ms: int) -> None:
        await self.watch("set_modified", path)
        await self.inner.set_modified_ms(path, modified_ms)

    async def listdir(self, path: str) -> list[str]:
        await self.watch("listdir", path)
        return await self.inner.listdir(path)

    async def mkdir(self, path: str) -> None:
        await self.watch("mkdir", path)
        await self.inner.mkdir(path)

    async def rename(self, path: str, new_path: str) -> None:
        await self.watch("rename", path)
        await self.inner.rename(path, new_path)

    async def remove(self, path: str) -> None:
        await self.watch("remove", path)
        await self.inner.remove(path)

    async def remove_tree(self, path: str) -> None:
        await self.watch("remove_tree", path)
        await self.inner.remove_tree(path)

    async def sync_dir(self, path: str) -> None:
        await self.watch("sync_dir", path)
        await self.inner.sync_dir(path)

    @property
    def can_sync_all(self) -> bool:
        return self.inner.can_sync_all

    async def sync_all(self) -> None:
        await self.watch("sync_all", "")
        await self.inner.sync_all()

    async def space(self) -> Space:
        return await self.inner.space()

    async def lock(self, path: str) -> Callable[[], None]:
        return await self.inner.lock(path)

    def close(self) -> None:
        self.inner.close()


# --- batches


def sized_batch(size: int, *, timestamp: int = START_MS) -> bytearray:
    """A batch of one record that is exactly so many bytes long."""
    value_bytes = size - len(build_batch([Record(0, timestamp, b"k", b"")]))
    for varint_bytes in range(7):
        data = build_batch([Record(0, timestamp, b"k", bytes(value_bytes - varint_bytes))])
        if len(data) == size:
            return data
    raise AssertionError(f"no batch of one record has {size} bytes: its length needs a longer varint")


def from_producer(
    sequence: int, count: int = 1, *, producer_id: int = 7, value_bytes: int = 2, **options: object
) -> bytearray:
    """A batch of an idempotent (or with `transactional=True` a transactional) producer."""
    settings: dict[str, object] = {"producer_epoch": 0, "producer_id": producer_id, **options}
    values = [b"%0*d" % (value_bytes, sequence + number) for number in range(count)]
    return batch(values, base_sequence=sequence, **settings)  # type: ignore[arg-type]


async def end_transaction(
    log: PartitionLog, *, commit: bool, producer_id: int = 7, producer_epoch: int = 0, leader_epoch: int = 0
) -> Appended:
    """Append the marker that ends a producer's transaction, as its coordinator does."""
    marker = build_end_transaction(
        ControlType.COMMIT if commit else ControlType.ABORT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=0,
        timestamp=START_MS,
    )
    return await log.append_as_leader(marker, leader_epoch, Origin.COORDINATOR)


# --- files


async def contents(disk: Disk, path: str) -> bytes:
    data = await read_whole(disk, path)
    assert data is not None, f"{path} is missing"
    return data


async def put(disk: Disk, path: str, data: bytes) -> None:
    """Make a file hold exactly `data`."""
    file = await disk.open(path, create=True)
    await file.truncate(0)
    await file.append(data)
    file.close()


async def damage(disk: Disk, path: str, position: int, data: bytes = b"\xff") -> None:
    """Overwrite some bytes of a file; a negative position counts from its end."""
    file = await disk.open(path)
    await file.write_at(position if position >= 0 else file.size + position, data)
    file.close()


async def snapshot_of(disk: MemoryDisk, path: str) -> dict[str, bytes]:
    """Every file of a directory and what it holds."""
    return {name: await contents(disk, f"{path}/{name}") for name in await disk.listdir(path)}


def entries(index: type[SparseIndex], data: bytes) -> list[tuple[int, int]]:
    """The entries in the bytes of an index file."""
    return list(index.ENTRY.iter_unpack(data))


async def offset_entries(disk: Disk, path: str) -> list[tuple[int, int]]:
    return entries(OffsetIndex, await contents(disk, path))


async def time_entries(disk: Disk, path: str) -> list[tuple[int, int]]:
    return entries(TimeIndex, await contents(disk, path))


async def append_all(
    log: PartitionLog, batches: Iterable[bytearray], leader_epoch: int = 0
) -> list[Appended]:
    return [await log.append_as_leader(data, leader_epoch) for data in batches]


# file names, in the directory of partition t-0


def path_of(base_offset: int, suffix: str) -> str:
    return f"t-0/{base_offset:020d}{suffix}"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log layer has said so far; the records' kernel may announce itself besides."""
    return [record.getMessage() for record in caplog.records if record.name == "barnabas.log"]
