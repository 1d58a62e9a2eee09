"""One segment of a partition: a file of batches, its sparse indexes, its aborted transactions.

Only the last segment of a log, the active one, takes appends; the others are sealed. A segment's files are
opened at first use, and its indexes are checked before they are trusted: one that is missing, short or
impossible is rebuilt from the batches, with a log line.

`size_bytes` counts complete appends. It may be less than the file's size during an append, so readers go by
it, never by the file's own size.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.core.disk import Disk, File
from barnabas.core.errors import StorageError
from barnabas.log import names
from barnabas.log.sparse_index import CorruptIndex, OffsetIndex, TimeIndex
from barnabas.log.txn_index import TransactionIndex
from barnabas.records import kernel
from barnabas.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, NO_TIMESTAMP, BatchHeader

logger = logging.getLogger("barnabas.log")

# large enough to be worth a call, small enough to stay in the processor's cache until it is checked
SCAN_BYTES = 1 << 18
# a look-up reads about as much as there is between two index entries
LOOKUP_BYTES = 4096
MAX_RELATIVE_OFFSET = 2**31 - 1


class Located(NamedTuple):
    """A batch and its position in the segment."""

    position: int
    header: BatchHeader


class Segment:
    """A segment, active or sealed."""

    __slots__ = (
        "_directory",
        "_disk",
        "_ending",
        "_file",
        "_index_interval_bytes",
        "_indexed",
        "_preparing",
        "_since_entry_bytes",
        "aborted",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "is_full",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "roll_jitter_ms",
        "size_bytes",
        "times",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_bytes: int,
        created_ms: int,
        roll_jitter_ms: int = 0,
        ending: str = "",
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._ending = ending
        self._file: File | None = None
        self._indexed = False
        self._preparing: asyncio.Lock | None = None
        self._index_interval_bytes = index_interval_bytes
        self._since_entry_bytes = 0
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.first_timestamp: int | None = None
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.size_bytes = 0
        self.is_full = False
        self.offsets = OffsetIndex(disk, self.path(names.INDEX), base_offset, index_bytes)
        self.times = TimeIndex(disk, self.path(names.TIME_INDEX), base_offset, index_bytes)
        self.aborted = TransactionIndex(disk, self.path(names.TXN_INDEX), base_offset)

    def path(self, suffix: str) -> str:
        return f"{self._directory}/{names.offset_name(self.base_offset)}{suffix}{self._ending}"

    def describe(self) -> str:
        return self._disk.describe(self.path(names.LOG))

    async def create(self) -> None:
        """Create a new, empty, active segment; `create_indexes` creates its index files."""
        self._file = await self._disk.open(self.path(names.LOG), create=True)
        if self._file.size:
            await self._file.truncate(0)
        self._indexed = True

    async def create_indexes(self) -> None:
        """Create empty index files. If that fails, the first entries create them: a segment without index
        files can be appended to and read."""
        try:
            await self.offsets.create()
            await self.times.create()
        except StorageError as error:
            logger.warning("the index files of %s come with their first entries: %s", self.describe(), error)

    @property
    def opened_file(self) -> File | None:
        """The file of batches, if it is open."""
        return self._file

    async def file(self) -> File:
        """The file of batches, opened if needed."""
        if self._file is None:
            file = await self._disk.open(self.path(names.LOG))
            if self._file is None:
                self._file, self.size_bytes = file, file.size
            else:  # another task was faster
                file.close()
        return self._file

    async def ready(self) -> None:
        """Open the indexes and find the largest timestamp, before any look-up."""
        if self._indexed:
            return
        if self._preparing is None:
            self._preparing = asyncio.Lock()
        async with self._preparing:
            if not self._indexed:
                await self._load_indexes()
                self._indexed, self._preparing = True, None

    async def _load_indexes(self) -> None:
        await self.file()
        try:
            await self.offsets.load()
            await self.times.load()
            await self._check_index_end()
        except CorruptIndex as problem:
            logger.warning("%s; rebuilding the indexes of %s", problem, self.describe())
            await self.rebuild_indexes()
            return
        self._look_for_room()
        if self.times.last is not None:
            self.max_timestamp = self.times.last[0]
            self.max_timestamp_offset = self.base_offset + self.times.last[1]

    async def _check_index_end(self) -> None:
        """Check the last entry: it must name a batch at its position, since an index may be newer or older
        than its log, and that batch must not be later than the last entry of the time index."""
        relative_offset, position = self.offsets.last or (None, 0)
        head = await (await self.file()).read(position, HEADER_BYTES)
        header = BatchHeader.parse(head) if len(head) == HEADER_BYTES else None
        if relative_offset is not None and (
            header is None or header.last_offset != self.base_offset + relative_offset
        ):
            raise CorruptIndex(
                f"{self._disk.describe(self.path(names.INDEX))} is corrupt: no batch at byte {position} "
                f"ends with offset {self.base_offset + relative_offset}"
            )
        latest = self.times.last[0] if self.times.last is not None else NO_TIMESTAMP
        if header is not None and header.max_timestamp > latest:
            raise CorruptIndex(
                f"{self._disk.describe(self.path(names.TIME_INDEX))} is corrupt: it ends with timestamp "
                f"{latest}, but the batch at byte {position} has {header.max_timestamp}"
            )

    async def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batches, each replaced as a whole: a sealed segment is not checked
        again after a crash, so a half-written index would be trusted."""
        self.offsets.forget()
        self.times.forget()
        self._start_indexing()
        scan = await self.scan()
        position = 0
        while headers := await scan.run():
            position = self._note(headers, position)
        self.times.add(self.max_timestamp, self.max_timestamp_offset)
        try:
            await self.offsets.replace()
            await self.times.replace()
        except StorageError as error:
            logger.warning("the indexes of %s stay in memory: %s", self.describe(), error)

    async def begin_rebuild(self) -> None:
        """Empty the indexes; `reindex` fills them again, batch by batch."""
        await self.file()
        await self.offsets.reset()
        await self.times.reset()
        self._start_indexing()
        self._indexed = True

    def _start_indexing(self) -> None:
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._since_entry_bytes = 0

    def appendable(self) -> File | None:
        """The file to append batches to, or None if `make_appendable` is needed. An append becomes part of
        the segment by `count`; there must be no await between them at which it could be cancelled."""
        file = self._file
        return file if file is not None and file.size == self.size_bytes else None

    async def make_appendable(self) -> File:
        """Open the file if needed, and cut the remains of a cancelled, never acknowledged append."""
        file = await self.file()
        if file.size != self.size_bytes:
            await file.truncate(self.size_bytes)
        return file

    def count(self, headers: Sequence[BatchHeader]) -> None:
        """Add the batches that were just written to the segment. Their index entries are collected in memory;
        `write_entries` writes them when there are many."""
        if not self.size_bytes:
            self.first_timestamp = headers[0].max_timestamp
        self.size_bytes = self._note(headers, self.size_bytes)

    def _note(self, headers: Sequence[BatchHeader], position: int) -> int:
        """Index batches at `position`; returns where they end."""
        for header in headers:
            last_offset = header.base_offset + header.last_offset_delta
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = last_offset
            if self._since_entry_bytes > self._index_interval_bytes:
                self.offsets.add(last_offset, position)
                self.times.add(self.max_timestamp, self.max_timestamp_offset)
                self._look_for_room()
                self._since_entry_bytes = 0
            size = header.batch_length + LOG_OVERHEAD_BYTES
            position += size
            self._since_entry_bytes += size
        return position

    def _look_for_room(self) -> None:
        # the time index keeps an entry free for the one that sealing adds
        self.is_full = self.offsets.room < 1 or self.times.room < 2

    async def write_entries(self) -> None:
        """Write the index entries in memory. If that fails they stay there, and are tried again with the next
        append: a full disk must not fail records that are already in the log."""
        try:
            await self.offsets.write()
            if self.times.wants_write:
                await self.times.write()
        except StorageError as error:
            logger.warning("index entries wait in memory: %s", error)

    @property
    def has_waiting_entries(self) -> bool:
        return not (self.offsets.is_written and self.times.is_written)

    async def write_waiting_entries(self) -> None:
        """Write all index entries in memory, however few; on an error they stay there."""
        for index in (self.offsets, self.times):
            if not index.is_written:
                await index.write()

    async def reindex(self, headers: Sequence[BatchHeader], position: int) -> int:
        """Index batches of a segment that is being rebuilt; returns where they end."""
        position = self._note(headers, position)
        if self.offsets.wants_write:
            await self.write_entries()
        return position

    async def learn_first_timestamp(self) -> None:
        """Read the largest timestamp of the first batch, from which its age is measured."""
        head = await (await self.file()).read(0, HEADER_BYTES)
        self.first_timestamp = BatchHeader.parse(head).max_timestamp

    async def seal(self) -> None:
        """Write the last index entries and trim the index files. If that fails the entries stay in memory;
        without their files, the indexes are rebuilt at the next start."""
        if not self._indexed:
            return
        self.times.add(self.max_timestamp, self.max_timestamp_offset)
        try:
            await self.offsets.seal()
            await self.times.seal()
        except StorageError as error:
            logger.warning("the indexes of %s stay in memory: %s", self.describe(), error)
            await self._recall_indexes()

    async def _recall_indexes(self) -> None:
        for index in (self.offsets, self.times):
            try:
                await index.recall()
            except StorageError as error:
                logger.warning("cannot take back an index: %s", error)

    async def scan(self, position: int = 0, *, verify: bool = False) -> SegmentScan:
        """Scan the batches from `position` on, run by run."""
        return SegmentScan(self, await self.file(), position, verify)

    async def locate(self, offset: int) -> Located | None:
        """The first batch that holds `offset` or a later one."""
        await self.ready()
        position = await self.offsets.position_before(offset)
        while position < self.size_bytes:
            for located in await self._headers_at(position):
                if located.header.last_offset >= offset:
                    return located
                position = located.position + located.header.size_bytes
        return None

    async def boundary_before(self, start: int, limit: int) -> int:
        """The last batch boundary at or before `limit`, but at least one batch after `start`."""
        await self.ready()
        entry = await self.offsets.floor(limit, column=1)
        position = start if entry is None else max(start, entry[1])
        while position < self.size_bytes:
            for located in await self._headers_at(position):
                end = located.position + located.header.size_bytes
                if end > limit:
                    return located.position if located.position > start else end
                position = end
        return position

    async def _headers_at(self, position: int) -> list[Located]:
        """The batches whose headers are in the next LOOKUP_BYTES of the file; at least one."""
        file = await self.file()
        data = await file.read(position, min(LOOKUP_BYTES, self.size_bytes - position))
        found = [Located(position + at, header) for header, at in kernel.scan_headers(data, 0, len(data))]
        if not found or found[-1].position + found[-1].header.size_bytes > self.size_bytes:
            raise self.corrupt(position, "no whole batch stands there")
        return found

    def corrupt(self, position: int, why: str) -> CorruptSegment:
        return CorruptSegment(
            f"{self.describe()} is corrupt at byte {position}: {why}; restore it from a copy or a replica"
        )

    async def truncate(self, position: int, offset: int) -> None:
        """Cut the batches from `position` on, where `offset` begins; durable on return."""
        await self.ready()
        self.size_bytes = position
        file = await self.file()
        await file.truncate(position)
        await file.sync()
        await self.offsets.truncate_to(offset)
        await self.times.truncate_to(offset)
        self._look_for_room()
        await self.aborted.truncate_to(offset)
        self._since_entry_bytes = 0
        self.first_timestamp = None if position == 0 else self.first_timestamp
        await self._relearn_max_timestamp()

    async def _relearn_max_timestamp(self) -> None:
        """Find the largest timestamp, from the last time index entry and the batches after it."""
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        position = 0
        if self.times.last is not None:
            self.max_timestamp = self.times.last[0]
            self.max_timestamp_offset = self.base_offset + self.times.last[1]
            position = await self.offsets.position_before(self.max_timestamp_offset)
        scan = await self.scan(position)
        while headers := await scan.run():
            for header in headers:
                if header.max_timestamp > self.max_timestamp:
                    self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset

    async def tail(self) -> list[BatchHeader]:
        """The headers after the last index entry; also updates the largest timestamp from them."""
        await self.ready()
        scan = await self.scan(self.offsets.last[1] if self.offsets.last else 0)
        tail: list[BatchHeader] = []
        while headers := await scan.run():
            tail += headers
        for header in tail:
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        scan.require_end()
        return tail

    async def sync(self, *, sealed: bool) -> None:
        """Make the batches durable, and the indexes too once they are final."""
        await (await self.file()).sync()
        if sealed:
            await self.aborted.sync()
            if self._indexed:
                if not (self.offsets.is_written and self.times.is_written):
                    await self.seal()  # there was no room for them before
                await self.offsets.sync()
                await self.times.sync()

    async def doom(self) -> list[str]:
        """Rename the files to `.deleted`; returns their new paths. Readers of the open file go on."""
        return [await self.doom_batches(), *await self.doom_indexes()]

    async def doom_batches(self) -> str:
        """The first half of `doom`: a segment without its batches does not count."""
        path = self.path(names.LOG) + names.DELETED
        await (await self.file()).rename(path)
        return path

    async def doom_indexes(self) -> list[str]:
        doomed = []
        for suffix in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
            path = self.path(suffix)
            if await self._disk.size_of(path) is not None:
                await self._disk.rename(path, path + names.DELETED)
                doomed.append(path + names.DELETED)
        return doomed

    @property
    def is_pinned(self) -> bool:
        return self._file is not None and self._file.pins > 0

    def close(self) -> None:
        self.offsets.close()
        self.times.close()
        self.aborted.close()
        if self._file is not None:
            self._file.close()
            self._file = None


class CorruptSegment(StorageError):
    """Batches that should be valid are not; nothing is cut automatically."""


class SegmentScan:
    """A scan over a segment's batches. `position` is how far it got, `problem` why it stopped early."""

    __slots__ = ("_end", "_file", "_segment", "_verify", "position", "problem")

    def __init__(self, segment: Segment, file: File, position: int, verify: bool) -> None:
        self._segment = segment
        self._file = file
        self._end = segment.size_bytes
        self._verify = verify
        self.position = position
        self.problem: str | None = None

    async def run(self) -> list[BatchHeader]:
        """The next run of batches; empty at the end or at the first invalid one."""
        want = SCAN_BYTES
        while self.position < self._end and self.problem is None:
            data = await self._file.read(self.position, min(want, self._end - self.position))
            headers, consumed, problem = kernel.scan(data, 0, len(data), self._verify)
            if headers:
                self.position += consumed
                return headers
            self.problem = problem
            if problem is None:
                # a batch larger than the read: read all of it, unless the file ends before
                want = self._whole(data)
        return []

    def require_end(self) -> None:
        """Raise CorruptSegment if the scan did not reach the end."""
        if self.problem is not None:
            raise self._segment.corrupt(self.position, self.problem)

    def _whole(self, data: bytes) -> int:
        left = self._end - self.position
        size = BatchHeader.parse(data).size_bytes if len(data) >= HEADER_BYTES else left + 1
        if size > left:
            self.problem = f"the file ends {left} bytes into a batch"
        return size
