"""The logs of partitions as they stand on a simulated disk, whether a node runs on it or not.

What has not changed since it was read last is not read again: segments are almost always only appended to. A
log ends where a crash has torn it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple
from zlib import crc32

from barnabas.core.errors import BarnabasError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.memory_tree import DirectoryNode, FileNode
from barnabas.log.checkpoints import uuid_from_text
from barnabas.log.names import (
    LOG,
    PARTITION_METADATA,
    DirectoryKind,
    parse_offset,
    parse_partition_directory,
)
from barnabas.records.reader import read_batch, read_batches
from barnabas.sim.replication.events import BatchKept

Place = tuple[str, int]  # topic, partition
INTERNAL = "__"  # names of internal topics begin so


class DiskLog(NamedTuple):
    """A partition's log: `start` and `end` are those of the segments that are there."""

    topic_id: str
    start: int
    end: int
    batches: list[BatchKept]


class _Segment:
    """One file, as far as it has been read."""

    def __init__(self, file: FileNode, base_offset: int) -> None:
        self.file = file
        self.batches: list[BatchKept] = []
        self.end = base_offset
        self.is_torn = False
        self._base_offset = base_offset
        self._version = -1
        self._position = 0
        self._crc = 0

    def read(self, *, with_records: bool) -> bool:
        """Read what is new; whether anything was."""
        if self._version == self.file.version:
            return False
        self._version = self.file.version
        content = self.file.content
        with memoryview(content.written) as written:
            if crc32(written[: self._position]) != self._crc:
                self._position = self._crc = 0
                self.batches, self.end = [], self._base_offset
            self._append(written, with_records=with_records)
        self.is_torn = self._position < content.size
        return True

    def _append(self, written: memoryview, *, with_records: bool) -> None:
        batches = list(self.batches)
        try:
            for header, at in read_batches(written, self._position):
                if header.base_offset < self.end:
                    break  # of a torn write only the tail has arrived
                after = at + header.size_bytes
                self._crc = crc32(written[at:after], self._crc)
                records: tuple[tuple[int, int], ...] = ()
                if with_records:
                    records = tuple(
                        (
                            each.offset,
                            crc32(repr((each.timestamp, each.key, each.value, each.headers)).encode()),
                        )
                        for each in read_batch(written, at, header)
                    )
                digest = crc32(written[at:after])
                batches.append(
                    BatchKept(header.base_offset, header.next_offset, header.leader_epoch, digest, records)
                )
                self._position, self.end = after, header.next_offset
        except BarnabasError:
            pass
        self.batches = batches


class _Directory:
    """The directory of one partition."""

    def __init__(self) -> None:
        self.topic_id = ""
        self._metadata: FileNode | None = None
        self._metadata_version = -1
        self._segments: dict[str, _Segment] = {}
        self._names: list[str] = []
        self._log = DiskLog("", 0, 0, [])

    def read(self, node: DirectoryNode, *, with_records: bool) -> DiskLog:
        has_changed = self._read_topic_id(node)
        segments: dict[str, _Segment] = {}
        for name, file in node.entries.items():
            base_offset = parse_offset(name, LOG) if name.endswith(LOG) else None
            if base_offset is None or not isinstance(file, FileNode):
                continue
            known = self._segments.get(name)
            if known is None or known.file is not file:
                known = _Segment(file, base_offset)
                has_changed = True
            has_changed |= known.read(with_records=with_records)
            segments[name] = known
        if has_changed or segments.keys() != self._segments.keys():
            self._segments = segments
            self._log = self._joined()
        return self._log

    def _read_topic_id(self, node: DirectoryNode) -> bool:
        file = node.entries.get(PARTITION_METADATA)
        if not isinstance(file, FileNode):
            has_changed, self._metadata, self.topic_id = self._metadata is not None, None, ""
            return has_changed
        if file is self._metadata and file.version == self._metadata_version:
            return False
        self._metadata, self._metadata_version = file, file.version
        text = bytes(file.content.written).decode(errors="replace")
        try:
            self.topic_id = uuid_from_text(text.rpartition("topic_id: ")[2].strip()).hex
        except (BarnabasError, ValueError):
            self.topic_id = ""
        return True

    def _joined(self) -> DiskLog:
        batches: list[BatchKept] = []
        start = end = -1
        for name in sorted(self._segments):
            segment = self._segments[name]
            start = segment.end if start < 0 and not segment.batches else start
            if segment.batches:
                start = segment.batches[0].base_offset if start < 0 else start
                batches += segment.batches
            end = max(end, segment.end)
            if segment.is_torn:
                break
        return DiskLog(self.topic_id, max(0, start), max(0, end), batches)


class DiskLogs:
    """All logs on a disk, but for topics whose names begin with one of `hidden`; `compacted` names the topics
    whose records are told."""

    def __init__(
        self, disk: MemoryDisk, compacted: Container[str], hidden: tuple[str, ...] = (INTERNAL,)
    ) -> None:
        self._disk = disk
        self._hidden = hidden
        self._compacted = compacted
        self._directories: dict[DirectoryNode, _Directory] = {}

    def read(self) -> dict[Place, DiskLog]:
        found: dict[Place, DiskLog] = {}
        directories: dict[DirectoryNode, _Directory] = {}
        for name, node in self._disk.entries("").items():
            place = parse_partition_directory(name) if isinstance(node, DirectoryNode) else None
            if place is None or place.kind is not DirectoryKind.LIVE or place.topic.startswith(self._hidden):
                continue
            assert isinstance(node, DirectoryNode)
            directory = directories[node] = self._directories.get(node) or _Directory()
            found[place.topic, place.partition] = directory.read(
                node, with_records=place.topic in self._compacted
            )
        self._directories = directories
        return found
