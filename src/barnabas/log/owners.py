"""The topic id of a partition's directory, in its `partition.metadata`."""

from __future__ import annotations

import logging
from uuid import UUID

from barnabas.core.disk import Disk
from barnabas.core.errors import InconsistentTopicId
from barnabas.log import checkpoints, names
from barnabas.log.checkpoints import CorruptCheckpoint

logger = logging.getLogger("barnabas.log")


async def claim(disk: Disk, path: str, topic_id: UUID | None, *, is_new: bool) -> UUID | None:
    """The topic id of the directory, which must be `topic_id` if that is given."""
    file = f"{path}/{names.PARTITION_METADATA}"
    found, problem = None, f"{disk.describe(file)} is missing"
    try:
        found = None if is_new else await checkpoints.read_partition_metadata(disk, file)
    except CorruptCheckpoint as corrupt:
        problem = str(corrupt)
    if found is None and topic_id is not None:
        if not is_new and await holds_records(disk, path):
            logger.warning("%s; taking the directory for that of topic id %s", problem, topic_id)
        await disk.mkdir(path)
        # that of a new partition is synced with its first batches
        await checkpoints.write_partition_metadata(disk, file, topic_id, sync=not is_new)
        return topic_id
    if topic_id is not None and found != topic_id:
        raise InconsistentTopicId(
            f"{disk.describe(path)} holds topic id {found}, not {topic_id}: a topic of that name "
            "was deleted and made anew; remove the directory if its data is no longer wanted"
        )
    return found


async def holds_records(disk: Disk, path: str) -> bool:
    """Whether a partition's directory has a segment; the metadata log's has none after formatting."""
    return any(name.endswith(names.LOG) for name in await disk.listdir(path))


async def owner(disk: Disk, path: str) -> UUID | None:
    """The topic id of a directory, None if it is unknown."""
    try:
        return await checkpoints.read_partition_metadata(disk, f"{path}/{names.PARTITION_METADATA}")
    except CorruptCheckpoint:
        return None
