"""Whether there is anything to do for a partition that nobody has opened, judged by its files alone.

To open every partition just to look would cost what opening on the first touch saves. For retention, a file's
date stands in for its records' timestamps: the last append to a segment is not earlier than what it appended,
unless a client dates its records ahead. For compaction, file names and sizes and the checkpoint of the last
round tell how much is dirty; what only the records tell (their age, open transactions) is left out. Either
may be wrong in one direction: then a partition is opened in vain, once.
"""

from __future__ import annotations

from bisect import bisect_right

from barnabas.core.disk import Disk
from barnabas.log import names
from barnabas.log.config import NEVER_MS, UNLIMITED, LogConfig


async def may_be_due(disk: Disk, path: str, config: LogConfig, now_ms: int) -> bool:
    """Whether there is anything in the directory that is older, or more, than retention allows."""
    if "delete" not in config.cleanup_policy:
        return False
    size_bytes = 0
    for name in await disk.listdir(path):
        if names.parse_offset(name, names.LOG) is None:
            continue
        segment_bytes = await disk.size_of(f"{path}/{name}") or 0
        size_bytes += segment_bytes
        if segment_bytes and config.retention_ms != UNLIMITED:
            # the oldest that holds anything comes first, and decides
            if now_ms - await disk.modified_ms(f"{path}/{name}") > config.retention_ms:
                return True
            if config.retention_bytes == UNLIMITED:
                return False
    return config.retention_bytes != UNLIMITED and size_bytes > config.retention_bytes


async def may_be_dirty(disk: Disk, path: str, config: LogConfig, cleaned_offset: int | None) -> bool:
    """Whether so much of a compacted log has come since `cleaned_offset` that a round may be due."""
    if not config.is_compacted:
        return False
    listed = await disk.listdir(path)
    bases = [base for name in listed if (base := names.parse_offset(name, names.LOG)) is not None]
    first_dirty = max(0, bisect_right(bases, cleaned_offset or 0) - 1)
    sizes = [  # but for the active one, which is left alone
        await disk.size_of(f"{path}/{names.offset_name(base)}{names.LOG}") or 0 for base in bases[:-1]
    ]
    dirty_bytes = sum(sizes[first_dirty:])
    is_limited = config.max_compaction_lag_ms != NEVER_MS
    return dirty_bytes > (0 if is_limited else sum(sizes) * config.min_cleanable_dirty_ratio)
