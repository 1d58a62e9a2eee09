"""Facts about unopened partitions: their sizes, and whether retention or compaction may be due.

Opening every partition for this would cost what opening at first use saves. For retention, a file's
modification time replaces its records' timestamps: the last append to a segment is not earlier than its
records, unless a client sets timestamps in the future. For compaction, file names and sizes and the cleaner's
checkpoint show how much is dirty; what only the records show (their age, open transactions) is ignored. An
error costs at most one needless opening of a partition.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right

from barnabas.core.disk import Disk
from barnabas.core.errors import BarnabasError
from barnabas.log import names
from barnabas.log.checkpoints import TopicPartition
from barnabas.log.config import NEVER_MS, UNLIMITED, LogConfig
from barnabas.log.directory import LogDirectory

# partitions that are checked before other tasks run
LOOKED_AT_ONCE = 200


async def may_be_due(disk: Disk, path: str, config: LogConfig, now_ms: int) -> bool:
    """Whether the directory has anything that is older, or more, than retention allows."""
    if "delete" not in config.cleanup_policy:
        return False
    size_bytes = 0
    for name in await disk.listdir(path):
        if names.parse_offset(name, names.LOG) is None:
            continue
        segment_bytes = await disk.size_of(f"{path}/{name}") or 0
        size_bytes += segment_bytes
        if segment_bytes and config.retention_ms != UNLIMITED:
            # the oldest segment with data comes first, and decides
            if now_ms - await disk.modified_ms(f"{path}/{name}") > config.retention_ms:
                return True
            if config.retention_bytes == UNLIMITED:
                return False
    return config.retention_bytes != UNLIMITED and size_bytes > config.retention_bytes


async def _may_be_dirty(disk: Disk, path: str, config: LogConfig, cleaned_offset: int | None) -> bool:
    """Whether so much was appended to a compacted log since `cleaned_offset` that a cleaning may be due."""
    if not config.is_compacted:
        return False
    listed = await disk.listdir(path)
    bases = [base for name in listed if (base := names.parse_offset(name, names.LOG)) is not None]
    first_dirty = max(0, bisect_right(bases, cleaned_offset or 0) - 1)
    sizes = [  # without the active one, which is not cleaned
        await disk.size_of(f"{path}/{names.offset_name(base)}{names.LOG}") or 0 for base in bases[:-1]
    ]
    dirty_bytes = sum(sizes[first_dirty:])
    is_limited = config.max_compaction_lag_ms != NEVER_MS
    return dirty_bytes > (0 if is_limited else sum(sizes) * config.min_cleanable_dirty_ratio)


async def compacted(directory: LogDirectory) -> list[TopicPartition]:
    """The partitions, open or not, of topics that are compacted now."""
    by_topic: dict[str, bool] = {}
    found = []
    for number, key in enumerate(list(directory.known)):
        log = directory.logs.get(key)
        if log is not None:
            is_compacted = log.config.is_compacted
        elif (known := by_topic.get(key[0])) is not None:
            is_compacted = known
        else:
            is_compacted = by_topic[key[0]] = _is_compacted(directory, key[0])
        if is_compacted:
            found.append(key)
        if number % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
            await asyncio.sleep(0)
    return found


def _is_compacted(directory: LogDirectory, topic: str) -> bool:
    try:
        return directory.config_of(topic).is_compacted
    except BarnabasError:  # invalid settings, which opening the partition will report
        return False


async def may_be_dirty(directory: LogDirectory, key: TopicPartition) -> bool:
    """Whether it is worth opening an unopened partition to compact it."""
    path, config = names.partition_directory(*key), directory.config_of(key[0])
    return await _may_be_dirty(directory.disk, path, config, directory.offsets.cleaned_offsets.get(key))


async def sizes(directory: LogDirectory) -> dict[TopicPartition, int]:
    """The size of every partition's batches in bytes, opened or not, by topic and number."""
    found: dict[TopicPartition, int] = {}
    for number, key in enumerate(directory.partitions):
        log = directory.logs.get(key)
        if log is not None:
            found[key] = log.size_bytes
        else:
            found[key] = await _size_on_disk(directory.disk, names.partition_directory(*key))
        if number % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
            await asyncio.sleep(0)
    return found


async def _size_on_disk(disk: Disk, path: str) -> int:
    size_bytes = 0
    for name in await disk.listdir(path):
        if names.parse_offset(name, names.LOG) is not None:
            size_bytes += await disk.size_of(f"{path}/{name}") or 0
    return size_bytes
