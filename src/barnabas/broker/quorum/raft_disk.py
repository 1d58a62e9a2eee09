"""The raft core's files: its vote, the metadata log, and snapshots that are being fetched.

`write_election` replaces `quorum-state` atomically and durably. The log is appended to as a leader (batches
decided here get their offsets) or as a follower (batches as the leader sent them), and flushed: an append is
durable when it counts. A fetched snapshot is written piece by piece to a `.part` file; after its last piece
it is synced and renamed, and the log goes on behind it. A crash in between leaves a snapshot that ends beyond
the log, which the next start handles (files.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.broker.quorum.files import QUORUM_STATE_PATH
from barnabas.broker.storage.formatting import METADATA_DIRECTORY
from barnabas.core.clock import Clock
from barnabas.core.disk import Buffer, Disk, File
from barnabas.core.errors import InvariantViolation
from barnabas.log import trimming
from barnabas.log.checkpoints import read_whole, write_atomically
from barnabas.log.partition import PartitionLog
from barnabas.log.producers import Origin
from barnabas.log.reading import batches as log_batches
from barnabas.raft.control_records import control_batch
from barnabas.raft.control_values import to_message
from barnabas.raft.election import Election
from barnabas.raft.log_index import Entry
from barnabas.raft.quorum_state import encode_quorum_state
from barnabas.raft.ready import SnapshotChunk
from barnabas.raft.snapshot import PART, Snapshot, SnapshotId, read_snapshot

# the changes in them are published without a pause after the flush, which takes some milliseconds
MAX_BATCHES_A_WRITE = 200


class RaftDisk:
    """The files of one node's part in the quorum."""

    def __init__(self, log: PartitionLog, disk: Disk, clock: Clock) -> None:
        self.log = log
        self._disk = disk
        self._clock = clock
        self._part: File | None = None  # the file of the snapshot that is being fetched
        self._part_id: SnapshotId | None = None

    async def write_election(self, election: Election, kraft_version: int, voter_ids: Sequence[int]) -> None:
        state = encode_quorum_state(election, min(kraft_version, 1), voter_ids)
        await write_atomically(self._disk, QUORUM_STATE_PATH, state)

    # --- the log

    def first_of(self, entries: Sequence[Entry]) -> list[Buffer]:
        """The batches of as many entries as one append takes: within a segment, and few enough to be
        published in one turn of the loop."""
        batches: list[Buffer] = []
        size = 0
        for entry in entries[:MAX_BATCHES_A_WRITE]:
            batch = self._batch(entry)
            size += len(batch)
            if batches and size > self.log.config.segment_bytes:
                break
            batches.append(batch)
        return batches

    def _batch(self, entry: Entry) -> Buffer:
        if entry.data is None:
            return control_batch(map(to_message, entry.control), self._clock.wall_ms())
        data: Buffer = entry.data
        return data

    async def append(self, first: Entry, batches: Sequence[Buffer], *, is_leader: bool) -> None:
        """Write and flush batches that continue the log."""
        log = self.log
        if log.end_offset != first.base_offset:
            raise InvariantViolation(f"{log.path} ends at {log.end_offset}, not at {first.base_offset}")
        if is_leader:
            data = batches[0] if len(batches) == 1 else bytearray().join(batches)
            assert isinstance(data, bytearray)
            await log.append_as_leader(data, first.epoch, Origin.COORDINATOR)
        else:
            await log.append_as_follower(batches[0] if len(batches) == 1 else b"".join(batches))
        await log.flush()

    async def truncate(self, end_offset: int) -> None:
        """Remove records that are not in the leader's log."""
        await trimming.truncate_to(self.log, end_offset)
        await self.log.flush()

    async def read(self, offset: int, end_offset: int, max_bytes: int) -> bytearray:
        """Complete batches from `offset` on, below `end_offset`: at least one, and otherwise at most
        `max_bytes`."""
        found = bytearray()
        async for chunk, position, header in log_batches(self.log, offset, end_offset):
            if found and len(found) + header.size_bytes > max_bytes:
                break
            found += memoryview(chunk)[position : position + header.size_bytes]
        return found

    # --- snapshots

    async def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> bytes:
        """A piece of a snapshot's file."""
        file = await self._disk.open(f"{METADATA_DIRECTORY}/{snapshot.name}")
        try:
            return await file.read(position, min(max_bytes, file.size - position))
        finally:
            file.close()

    async def write_chunk(self, chunk: SnapshotChunk) -> File:
        """Write a piece of a snapshot."""
        file = await self._part_of(chunk)
        await file.append(chunk.data)
        return file

    async def write_last_chunk(self, chunk: SnapshotChunk) -> Snapshot:
        """Write the last piece: the snapshot is complete, and the log starts behind it."""
        file = await self.write_chunk(chunk)
        part = _part_path(chunk.snapshot)
        await file.sync()
        # nothing is truncated for a snapshot that cannot be read
        data = await read_whole(self._disk, part) or b""
        snapshot = read_snapshot(data, self._disk.describe(part))
        await file.rename(f"{METADATA_DIRECTORY}/{chunk.snapshot.name}")
        self._drop_part()
        await self._disk.sync_dir(METADATA_DIRECTORY)
        await trimming.truncate_fully_and_start_at(self.log, chunk.snapshot.end_offset)
        return snapshot

    async def _part_of(self, chunk: SnapshotChunk) -> File:
        if self._part is None or self._part_id != chunk.snapshot or self._part.size != chunk.position:
            given_up = self._part_id
            self._drop_part()
            if given_up is not None and given_up != chunk.snapshot:
                await self._disk.remove(_part_path(given_up))
            self._part = await self._disk.open(_part_path(chunk.snapshot), create=True)
            self._part_id = chunk.snapshot
            if self._part.size != chunk.position:
                await self._part.truncate(chunk.position)
        return self._part

    def _drop_part(self) -> None:
        if self._part is not None:
            self._part.close()
        self._part = self._part_id = None

    def close(self) -> None:
        self._drop_part()


def _part_path(snapshot: SnapshotId) -> str:
    return f"{METADATA_DIRECTORY}/{snapshot.name}{PART}"
