"""The small text files of a log directory (checkpoints and metadata), in Kafka's format.

Each file is replaced as a whole: written under `.tmp`, synced, renamed over the old one, and the directory
synced, so that a crash leaves the old contents or the new, never a mixture. A caller that can derive the
contents again may omit the syncs; after a power loss it may then find an older file, or an empty or torn one.
A missing or empty checkpoint reads as no entries, as in Kafka; any other malformed file is a
`CorruptCheckpoint` that names file, line and reason. The owner of a path makes one call at a time.
"""

from __future__ import annotations

import base64
import json
import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar
from uuid import UUID

from barnabas.core.disk import Buffer, Disk
from barnabas.core.errors import StorageError
from barnabas.log.epochs import EpochEntry
from barnabas.log.names import CLEAN_SHUTDOWN, META_PROPERTIES

TEMPORARY = ".tmp"
_VERSION = 0
# the digits of the largest offset
_MAX_DIGITS = 19

Entry = TypeVar("Entry")
TopicPartition = tuple[str, int]


class CorruptCheckpoint(StorageError):
    """A malformed checkpoint file."""


# --- whole files


async def read_whole(disk: Disk, path: str) -> bytes | None:
    """All of a small file; None if it does not exist."""
    size = await disk.size_of(path)
    if size is None:
        return None
    file = await disk.open(path)
    try:
        return await file.read(0, size)
    finally:
        file.close()


async def write_atomically(disk: Disk, path: str, data: Buffer, *, sync: bool = True) -> None:
    """Replace a small file by `data`, durably unless `sync` is False."""
    file = await disk.open(path + TEMPORARY, create=True)
    try:
        if file.size:  # left over from a crash
            await file.truncate(0)
        await file.append(data)
        if sync:
            await file.sync()
        await file.rename(path)
    finally:
        file.close()
    if sync:
        await disk.sync_dir(posixpath.dirname(path))


# --- checkpoints: a version, a count, a line for each entry


async def read_checkpoint(disk: Disk, path: str, parse: Callable[[list[str]], Entry]) -> list[Entry]:
    """The entries of a checkpoint; `parse` turns a line's fields into an entry, or raises ValueError."""
    data = await read_whole(disk, path)
    return [] if data is None else parse_checkpoint(data, disk.describe(path), parse)


def parse_checkpoint(data: bytes, where: str, parse: Callable[[list[str]], Entry]) -> list[Entry]:
    """The entries in the bytes of the checkpoint at `where`."""
    lines = _text(data, where).splitlines()
    if not lines:
        return []
    version = _line(lines, 0, where, _only_number)
    if version != _VERSION:
        raise _corrupt(where, 1, f"version {version} is not known, only {_VERSION}")
    if len(lines) == 1:
        return []
    count = _line(lines, 1, where, _only_number)
    entries = [_line(lines, index, where, parse) for index in range(2, len(lines))]
    if len(entries) != count:
        raise _corrupt(where, 2, f"{count} entries are announced, {len(entries)} follow")
    return entries


async def write_checkpoint(disk: Disk, path: str, lines: Iterable[str]) -> None:
    """Replace a checkpoint, durably."""
    await write_atomically(disk, path, _checkpoint(lines))


def _checkpoint(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    text = "".join(f"{line}\n" for line in (str(_VERSION), str(len(entries)), *entries))
    return text.encode()


async def read_offset_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """One offset a partition: recovery point, high watermark, log start or cleaner checkpoint."""
    return dict(await read_checkpoint(disk, path, _parse_offset_entry))


async def write_offset_checkpoint(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    await write_checkpoint(disk, path, lines)


async def read_leader_epochs(disk: Disk, path: str) -> list[EpochEntry]:
    """The leader epochs of a partition, in the order of the file."""
    return await read_checkpoint(disk, path, _parse_epoch_entry)


async def write_leader_epochs(disk: Disk, path: str, entries: Iterable[tuple[int, int]]) -> None:
    await write_checkpoint(disk, path, _epoch_lines(entries))


async def prepare_leader_epochs(disk: Disk, path: str, entries: Iterable[tuple[int, int]]) -> None:
    """Write the entries to a temporary file, without a sync. It may replace the checkpoint only once it is
    durable: a torn checkpoint, with a number cut short, can look well-formed."""
    file = await disk.open(path + TEMPORARY, create=True)
    try:
        if file.size:  # left over from a crash
            await file.truncate(0)
        await file.append(_checkpoint(_epoch_lines(entries)))
    finally:
        file.close()


def _epoch_lines(entries: Iterable[tuple[int, int]]) -> Iterable[str]:
    return (f"{epoch} {start}" for epoch, start in entries)


def _parse_offset_entry(fields: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = fields
    return (topic, _natural(partition)), _natural(offset)


def _parse_epoch_entry(fields: list[str]) -> EpochEntry:
    epoch, start_offset = fields
    return EpochEntry(_natural(epoch), _natural(start_offset))


# --- partition.metadata: the topic id of a directory


async def read_partition_metadata(disk: Disk, path: str) -> UUID | None:
    """The id of the topic; None if the file is missing."""
    data = await read_whole(disk, path)
    if data is None:
        return None
    where = disk.describe(path)
    lines = _text(data, where).splitlines()
    if len(lines) != 2:
        raise _corrupt(where, max(len(lines), 1), "a version line and a topic_id line are expected")
    version = _line(lines, 0, where, lambda fields: _labelled(fields, "version:"))
    if version != str(_VERSION):
        raise _corrupt(where, 1, f"version {version} is not known, only {_VERSION}")
    return _line(lines, 1, where, lambda fields: uuid_from_text(_labelled(fields, "topic_id:")))


async def write_partition_metadata(disk: Disk, path: str, topic_id: UUID, *, sync: bool = True) -> None:
    text = f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}"
    await write_atomically(disk, path, text.encode(), sync=sync)


def uuid_to_text(value: UUID) -> str:
    """A UUID as Kafka prints it: 22 characters of base64url."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """The UUID that Kafka prints as `text`; ValueError if it is not one."""
    try:
        value = UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise ValueError(f"{text!r} is not an id") from error
    if uuid_to_text(value) != text:
        raise ValueError(f"{text!r} is not an id")
    return value


# --- .kafka_cleanshutdown: the node stopped cleanly, so no log needs to be scanned


class CleanShutdown(NamedTuple):
    """The node stopped cleanly; the broker epoch is -1 if the file does not have it."""

    broker_epoch: int


async def read_clean_shutdown(disk: Disk) -> CleanShutdown | None:
    """Whether the last stop was clean. The file's presence decides, even if its contents cannot be read."""
    data = await read_whole(disk, CLEAN_SHUTDOWN)
    if data is None:
        return None
    try:
        content = json.loads(data)
    except ValueError:
        return CleanShutdown(-1)
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return CleanShutdown(epoch if type(epoch) is int else -1)


async def write_clean_shutdown(disk: Disk, broker_epoch: int) -> None:
    """Write the mark of a clean stop: a node's last write, when everything else is synced."""
    text = json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    await write_atomically(disk, CLEAN_SHUTDOWN, text.encode())


async def remove_clean_shutdown(disk: Disk) -> None:
    """Remove the mark, durably, before anything else: after a later crash it would claim a clean stop."""
    await disk.remove(CLEAN_SHUTDOWN)
    await disk.sync_dir("")


# --- meta.properties: the owner of the log directory


class MetaProperties(NamedTuple):
    """The owner of a log directory."""

    cluster_id: str
    node_id: int
    directory_id: UUID | None  # None in directories older than Kafka 3.7


async def read_meta_properties(disk: Disk) -> MetaProperties | None:
    """The owner; None if the directory has not been formatted."""
    data = await read_whole(disk, META_PROPERTIES)
    if data is None:
        return None
    where = disk.describe(META_PROPERTIES)
    properties: dict[str, str] = {}
    line_of: dict[str, int] = {}
    for number, line in enumerate(_text(data, where).splitlines(), 1):
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, separator, value = stripped.partition("=")
            if not separator:
                raise _corrupt(where, number, f"{line!r} is not key=value")
            properties[key.rstrip()] = _unescaped(value.lstrip())
            line_of[key.rstrip()] = number

    def value_of(key: str, parse: Callable[[str], Entry]) -> Entry:
        if key not in properties:
            raise _corrupt(where, 1, f"{key} is missing")
        try:
            return parse(properties[key])
        except ValueError as error:
            raise _corrupt(where, line_of[key], f"{key}: {error}") from error

    if (version := value_of("version", _natural)) != 1:
        raise _corrupt(where, line_of["version"], f"version {version} is not known, only 1")
    directory_id = value_of("directory.id", uuid_from_text) if "directory.id" in properties else None
    return MetaProperties(value_of("cluster.id", str), value_of("node.id", _natural), directory_id)


async def write_meta_properties(disk: Disk, meta: MetaProperties) -> None:
    lines = ["#", f"cluster.id={_escaped(meta.cluster_id)}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={uuid_to_text(meta.directory_id)}")
    lines += [f"node.id={meta.node_id}", "version=1"]
    await write_atomically(disk, META_PROPERTIES, "".join(f"{line}\n" for line in lines).encode())


def _escaped(value: str) -> str:
    """In Java's escaping of a property's value."""
    return "".join("\\" + char if char in "\\:=#!" else char for char in value)


def _unescaped(value: str) -> str:
    plain, characters = [], iter(value)
    for char in characters:
        plain.append(next(characters, "") if char == "\\" else char)
    return "".join(plain)


# --- lines


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise _corrupt(where, number, "the text is not UTF-8") from error


def _line(lines: list[str], index: int, where: str, parse: Callable[[list[str]], Entry]) -> Entry:
    try:
        return parse(lines[index].split())
    except ValueError as error:
        raise _corrupt(where, index + 1, f"{lines[index][:100]!r} is malformed ({error})") from error


def _only_number(fields: list[str]) -> int:
    (number,) = fields
    return _natural(number)


def _labelled(fields: list[str], label: str) -> str:
    found, value = fields
    if found != label:
        raise ValueError(f"{label} is expected")
    return value


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise ValueError(f"{text!r} is not a number from 0 on")
    return int(text)


def _corrupt(where: str, line: int, reason: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(f"{where} is corrupt in line {line}: {reason}; restore the file from a copy")
