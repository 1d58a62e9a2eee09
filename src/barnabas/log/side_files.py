"""The files beside a partition's batches, and whether their changes are durable.

These are the leader epochs, the newest producer snapshot, the names of the files and that of the directory.
Changes are noted when they are made and synced later, always before the recovery point passes the batches
they belong to: until then, recovery would rebuild them from the batches.
"""

from __future__ import annotations

from barnabas.core.disk import Disk
from barnabas.log import names, snapshots
from barnabas.log.checkpoints import TEMPORARY, prepare_leader_epochs, write_leader_epochs
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.producer import NO_OFFSET
from barnabas.log.producers import ProducerStates
from barnabas.log.turn import Turn


class SideFiles:
    """The files beside the batches in directory `path`."""

    __slots__ = (
        "_disk",
        "_epoch_changes",
        "_epochs",
        "_epochs_dirty",
        "_epochs_turn",
        "_name_changes",
        "_names_synced",
        "_parent_dirty",
        "_path",
        "_snapshot_synced",
        "snapshot_offset",
    )

    def __init__(
        self, disk: Disk, path: str, epochs: LeaderEpochs, snapshot_offset: int, *, is_dirty: bool
    ) -> None:
        self._disk = disk
        self._path = path
        self._epochs = epochs
        self._epochs_dirty = is_dirty
        self._epoch_changes = 0
        self._epochs_turn = Turn()
        self._name_changes = int(is_dirty)
        self._names_synced = 0
        self._parent_dirty = is_dirty
        self.snapshot_offset = snapshot_offset
        self._snapshot_synced = NO_OFFSET if is_dirty else snapshot_offset

    @property
    def names_dirty(self) -> bool:
        """Whether a power failure might undo the creation, move or removal of files of this log."""
        return self._name_changes > self._names_synced

    def names_changed(self) -> None:
        """Files were, or are about to be, created, moved or removed: a sync in progress may miss it."""
        self._name_changes += 1

    def epochs_changed(self) -> None:
        """Note that the epochs must be written with the next flush."""
        self._epochs_dirty = True
        self._epoch_changes += 1

    def snapshot_path(self, offset: int) -> str:
        return f"{self._path}/{names.offset_name(offset)}{names.SNAPSHOT}"

    async def write_snapshot(self, end_offset: int, producers: ProducerStates) -> None:
        """Write the producers' state as of the end of the log, unless there is such a snapshot."""
        if end_offset > self.snapshot_offset:
            path = self.snapshot_path(end_offset)
            await snapshots.write_snapshot(self._disk, path, producers.entries(), sync=False)
            self.snapshot_offset = end_offset
            self.names_changed()

    def forget_snapshot(self) -> None:
        """Note that no snapshot has the producers' state: the next one is written at any log end."""
        self.snapshot_offset, self._snapshot_synced = 0, NO_OFFSET

    async def sync(self) -> None:
        """Make everything durable."""
        await self.write_epochs()
        await self.sync_names()

    async def prepare(self) -> tuple[int, int]:
        """Write the epochs to their temporary file, without a sync; returns the state for `all_synced`."""
        async with self._epochs_turn:
            seen = (self._name_changes, self._epoch_changes)
            if self._epochs_dirty:
                await prepare_leader_epochs(self._disk, self._epochs_path, self._epochs.entries)
            return seen

    async def put_in_place(self, prepared: tuple[int, int]) -> bool:
        """After that is synced: replace the epochs' file, which must be synced in turn. False if there were
        changes."""
        async with self._epochs_turn:
            is_same = prepared == (self._name_changes, self._epoch_changes)
            if is_same and self._epochs_dirty:
                await self._disk.rename(self._epochs_path + TEMPORARY, self._epochs_path)
            return is_same

    @property
    def _epochs_path(self) -> str:
        return f"{self._path}/{names.LEADER_EPOCH_CHECKPOINT}"

    def all_synced(self, prepared: tuple[int, int]) -> bool:
        """Mark everything as of `prepare` as durable; False if there have been changes since."""
        if prepared != (self._name_changes, self._epoch_changes):
            return False
        self._epochs_dirty = self._parent_dirty = False
        self._names_synced = self._name_changes
        self._snapshot_synced = self.snapshot_offset
        return True

    async def write_epochs(self) -> None:
        """Write the epochs, durably, if they changed."""
        async with self._epochs_turn:  # one replacement of the file at a time, the latest last
            if self._epochs_dirty:
                self._epochs_dirty = False
                try:
                    await write_leader_epochs(self._disk, self._epochs_path, self._epochs.entries)
                except BaseException:
                    self._epochs_dirty = True
                    raise

    async def sync_names(self) -> None:
        """Make the snapshot and the names durable."""
        if self._snapshot_synced != (offset := self.snapshot_offset):
            await self._sync_file(self.snapshot_path(offset))
            self._snapshot_synced = offset
        if self.names_dirty:
            seen = self._name_changes
            await self._disk.sync_dir(self._path)
            self._names_synced = max(self._names_synced, seen)
        if self._parent_dirty:
            await self._sync_file(f"{self._path}/{names.PARTITION_METADATA}")
            await self._disk.sync_dir("")
            self._parent_dirty = False

    async def _sync_file(self, path: str) -> None:
        if await self._disk.size_of(path) is not None:
            file = await self._disk.open(path)
            try:
                await file.sync()
            finally:
                file.close()
