"""The files of the metadata quorum at the start: the vote, the newest snapshot, and the log behind it.

An incomplete snapshot is renamed, and the one before it is used, or none: as long as the log reaches back far
enough, nothing is lost. A snapshot that ends beyond the log's end replaces what the log has lost. A snapshot
of a later epoch than any in the log is not of this log: it was fetched, and the process ended before the log
was truncated. In both cases the log starts anew behind the snapshot, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

from barnabas.broker.storage.formatting import METADATA_DIRECTORY
from barnabas.core.disk import Disk
from barnabas.core.errors import StorageError
from barnabas.log import reading, trimming
from barnabas.log.checkpoints import read_whole
from barnabas.log.partition import PartitionLog
from barnabas.metadata.records import decode_record
from barnabas.protocol.schema import Message
from barnabas.raft.control_records import KRaftVersionRecord, VotersRecord, read_control_batch
from barnabas.raft.election import Election
from barnabas.raft.quorum_state import QUORUM_STATE, decode_quorum_state
from barnabas.raft.snapshot import (
    CHECKPOINT,
    CORRUPT,
    DELETED,
    PART,
    CorruptSnapshot,
    Snapshot,
    SnapshotId,
    parse_snapshot_name,
    read_snapshot,
)
from barnabas.records.batch import BatchHeader
from barnabas.records.reader import read_batch

logger = logging.getLogger("barnabas.quorum")

QUORUM_STATE_PATH = f"{METADATA_DIRECTORY}/{QUORUM_STATE}"


class MetadataGap(StorageError):
    """The metadata log begins behind the end of its newest snapshot: records in between are missing."""


class QuorumFiles(NamedTuple):
    """The state of the quorum on disk, before the log is replayed."""

    election: Election
    snapshot: Snapshot
    snapshot_id: SnapshotId
    snapshot_bytes: int
    kraft_version: int
    voters: VotersRecord | None
    controls: list[tuple[int, Message]]  # control records in the log behind the snapshot, with their offsets
    snapshots: list[SnapshotId]  # without those found incomplete; ascending
    uncovered_bytes: int  # of the log behind the newest


async def find_quorum(disk: Disk, log: PartitionLog) -> QuorumFiles:
    """Read the vote, the newest snapshot, and the control records in the log."""
    data = await read_whole(disk, QUORUM_STATE_PATH)
    election = decode_quorum_state(data, disk.describe(QUORUM_STATE_PATH)) if data is not None else Election()
    snapshots = await _list_snapshots(disk)
    snapshot_id, snapshot, snapshot_bytes = await _newest_snapshot(disk, snapshots)
    if _is_beyond(snapshot_id, log):
        for value in snapshot.values:
            decode_record(value)  # nothing is truncated for a snapshot with unknown records
        await _begin_behind(snapshot_id, log, disk)
    elif snapshot_id.end_offset < log.start_offset:
        raise MetadataGap(
            f"{disk.describe(METADATA_DIRECTORY)} holds offsets {log.start_offset} to {log.end_offset}, its "
            f"newest whole snapshot ends at {snapshot_id.end_offset}: restore what is missing from a copy"
        )
    kraft_version, voters = _told(snapshot.controls, 0, None)
    controls: list[tuple[int, Message]] = []
    uncovered_bytes = 0
    async for chunk, position, header in reading.batches(log, snapshot_id.end_offset, log.end_offset):
        uncovered_bytes += header.size_bytes
        if header.is_control:
            controls += read_control_batch(chunk, position, header)
    kraft_version, voters = _told([message for _, message in controls], kraft_version, voters)
    return QuorumFiles(
        election,
        snapshot,
        snapshot_id,
        snapshot_bytes,
        kraft_version,
        voters,
        controls,
        snapshots,
        uncovered_bytes,
    )


def _is_beyond(snapshot: SnapshotId, log: PartitionLog) -> bool:
    """Whether the snapshot ends beyond the log, or is of a later epoch than any in it."""
    if not log.start_offset <= snapshot.end_offset <= log.end_offset:
        return snapshot.end_offset > log.end_offset
    last_epoch = log.epochs.latest_epoch
    return last_epoch is not None and last_epoch < snapshot.epoch and log.end_offset > log.start_offset


async def _begin_behind(snapshot: SnapshotId, log: PartitionLog, disk: Disk) -> None:
    logger.warning(
        "%s ends at %d in epoch %d, and has not what its newest snapshot stands for: it goes on behind %s",
        disk.describe(METADATA_DIRECTORY),
        log.end_offset,
        log.epochs.latest_epoch or 0,
        snapshot.name,
    )
    await trimming.truncate_fully_and_start_at(log, snapshot.end_offset)


def _told(
    messages: list[Message], kraft_version: int, voters: VotersRecord | None
) -> tuple[int, VotersRecord | None]:
    for message in messages:
        if isinstance(message, KRaftVersionRecord):
            kraft_version = message.k_raft_version
        elif isinstance(message, VotersRecord):
            voters = message
    return kraft_version, voters


async def _list_snapshots(disk: Disk) -> list[SnapshotId]:
    """The snapshots, ascending; unfinished ones, and those marked as deleted, are removed."""
    found = []
    for name in await disk.listdir(METADATA_DIRECTORY):
        if name.endswith((CHECKPOINT + PART, CHECKPOINT + DELETED)):
            await disk.remove(f"{METADATA_DIRECTORY}/{name}")
        elif (parsed := parse_snapshot_name(name)) is not None:
            found.append(parsed)
    return sorted(found)


async def _newest_snapshot(disk: Disk, listed: list[SnapshotId]) -> tuple[SnapshotId, Snapshot, int]:
    """The newest complete snapshot, and its size; incomplete ones are renamed, and taken off the list."""
    while listed:
        path = f"{METADATA_DIRECTORY}/{listed[-1].name}"
        data = await read_whole(disk, path) or b""
        try:
            return listed[-1], read_snapshot(data, disk.describe(path)), len(data)
        except CorruptSnapshot as error:
            logger.warning("%s; it is set aside as %s, and what is before it counts", error, path + CORRUPT)
        await disk.rename(path, path + CORRUPT)
        listed.pop()
    return SnapshotId(0, 0), Snapshot([], []), 0


async def batches(
    log: PartitionLog, offset: int, end_offset: int
) -> AsyncIterator[tuple[BatchHeader, list[Message]]]:
    """The batches of the log from `offset` to `end_offset` with their metadata records; a control batch has
    none. Snapshots end between two batches."""
    async for chunk, position, header in reading.batches(log, offset, end_offset):
        if header.is_control:
            yield header, []
        else:
            yield header, [decode_record(each.value or b"") for each in read_batch(chunk, position, header)]
