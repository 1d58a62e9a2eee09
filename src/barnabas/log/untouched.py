"""Whether retention may concern a partition that nobody has opened, judged by its files alone.

To open every partition just to look would cost what opening on the first touch saves. A file's date stands
in for its records' timestamps: the last append to a segment is not earlier than what it appended, unless a
client dates its records ahead, and then the partition is opened in vain.
"""

from __future__ import annotations

from barnabas.core.disk import Disk
from barnabas.log import names
from barnabas.log.config import UNLIMITED, LogConfig


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
