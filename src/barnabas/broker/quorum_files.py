"""What a start finds of the metadata quorum on the disk: the vote, the newest snapshot, the log behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from barnabas.broker.formatting import METADATA_DIRECTORY
from barnabas.core.disk import Disk
from barnabas.core.errors import StorageError
from barnabas.log import reading
from barnabas.log.checkpoints import read_whole
from barnabas.log.partition import Bound, PartitionLog
from barnabas.metadata.records import decode_record
from barnabas.protocol.schema import Message
from barnabas.raft.control_records import KRaftVersionRecord, VotersRecord, read_control_batch
from barnabas.raft.election import Election
from barnabas.raft.quorum_state import QUORUM_STATE, decode_quorum_state
from barnabas.raft.snapshot import Snapshot, SnapshotId, parse_snapshot_name, read_snapshot
from barnabas.records.batch import BatchHeader
from barnabas.records.reader import read_batch, read_batches

QUORUM_STATE_PATH = f"{METADATA_DIRECTORY}/{QUORUM_STATE}"
_READ_BYTES = 1 << 20


class MetadataGap(StorageError):
    """The metadata log and its snapshot do not meet: something between them is missing."""


class Found(NamedTuple):
    """What is known of the quorum before the log is replayed."""

    election: Election
    snapshot: Snapshot
    snapshot_id: SnapshotId
    kraft_version: int
    voters: VotersRecord | None
    voters_in_log: bool


async def find_quorum(disk: Disk, log: PartitionLog) -> Found:
    """Read the vote and the newest snapshot, and look through the log for what the quorum says of itself."""
    data = await read_whole(disk, QUORUM_STATE_PATH)
    election = decode_quorum_state(data, disk.describe(QUORUM_STATE_PATH)) if data else Election()
    snapshot_id, snapshot = await _newest_snapshot(disk)
    if not log.start_offset <= snapshot_id.end_offset <= log.end_offset:
        raise MetadataGap(
            f"{disk.describe(METADATA_DIRECTORY)} holds offsets {log.start_offset} to {log.end_offset}, its "
            f"newest snapshot ends at {snapshot_id.end_offset}: restore what is missing from a copy"
        )
    kraft_version, voters = _told(snapshot.controls, 0, None)
    in_log = False
    async for chunk, position, header in batches(log, snapshot_id.end_offset, log.end_offset):
        if header.is_control:
            told = [message for _, message in read_control_batch(chunk, position, header)]
            in_log = in_log or any(isinstance(message, VotersRecord) for message in told)
            kraft_version, voters = _told(told, kraft_version, voters)
    in_log = in_log or snapshot_id.end_offset > 0
    return Found(election, snapshot, snapshot_id, kraft_version, voters, in_log)


def _told(
    messages: list[Message], kraft_version: int, voters: VotersRecord | None
) -> tuple[int, VotersRecord | None]:
    for message in messages:
        if isinstance(message, KRaftVersionRecord):
            kraft_version = message.k_raft_version
        elif isinstance(message, VotersRecord):
            voters = message
    return kraft_version, voters


async def _newest_snapshot(disk: Disk) -> tuple[SnapshotId, Snapshot]:
    listed = [parse_snapshot_name(name) for name in await disk.listdir(METADATA_DIRECTORY)]
    newest = max((each for each in listed if each is not None), default=None)
    if newest is None:
        return SnapshotId(0, 0), Snapshot([], [])
    path = f"{METADATA_DIRECTORY}/{newest.name}"
    return newest, read_snapshot(await read_whole(disk, path) or b"", disk.describe(path))


async def records(log: PartitionLog, offset: int, end_offset: int) -> AsyncIterator[Message]:
    """The metadata records of the log from `offset` to `end_offset`."""
    async for chunk, position, header in batches(log, offset, end_offset):
        if not header.is_control:
            for record in read_batch(chunk, position, header):
                if record.offset >= offset:
                    yield decode_record(record.value or b"")


async def batches(
    log: PartitionLog, offset: int, end_offset: int
) -> AsyncIterator[tuple[bytes, int, BatchHeader]]:
    """The batches of the log from the one that holds `offset` on, each as bytes, position and header."""
    while offset < end_offset:
        fetched = await reading.read(log, offset, _READ_BYTES, Bound.LOG_END)
        if fetched.range is None:
            return
        file, start, size = fetched.range
        chunk = await file.read(start, size)
        for header, position in read_batches(chunk):
            if header.base_offset >= end_offset:
                return
            yield chunk, position, header
            offset = header.next_offset
