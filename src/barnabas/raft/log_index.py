"""The core's view of the log on this node's disk: its range, epochs, snapshots and voters.

It takes a few dozen numbers and describes only what is durable: the driver changes the disk, and `advance`
then changes this. Snapshot ids are end offsets: a snapshot holds everything *below* its offset, and its epoch
is that of the last record below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from barnabas.raft import invariants
from barnabas.raft.election import VoterKey
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.voters import BOOTSTRAP_OFFSET, OffsetHistory, VoterSet

NO_SNAPSHOT = SnapshotId(0, 0)  # the checkpoint that formatting leaves: it represents an empty log


class LeaderChange(NamedTuple):
    """The first record of an epoch."""

    leader_id: int
    voters: tuple[VoterKey, ...]
    granting: tuple[VoterKey, ...]


class KRaftVersion(NamedTuple):
    """The kraft.version in force from here on."""

    version: int


Control = LeaderChange | KRaftVersion | VoterSet


class Entry(NamedTuple):
    """A batch of the log. `data` is opaque to the core, None if `control` has the records to be written."""

    base_offset: int
    records: int
    epoch: int
    data: Any = None
    control: tuple[Control, ...] = ()

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.records


class EpochEnd(NamedTuple):
    """An epoch, and the offset after its last record."""

    epoch: int
    end_offset: int


class LogState(NamedTuple):
    """The state of the disk at a start.

    `voters` and `kraft_version` come from the settings, the bootstrap checkpoint or a snapshot; `controls`
    are the quorum's records in the log after that, with their offsets. `told_offset` is the last offset in
    the snapshot, -1 without one.
    """

    voters: VoterSet
    kraft_version: int
    controls: Sequence[tuple[int, Control]] = ()
    start_offset: int = 0
    end_offset: int = 0
    epochs: Sequence[tuple[int, int]] = ()  # each with its first offset
    snapshots: Sequence[tuple[SnapshotId, int]] = ()  # with their sizes in bytes, ascending
    told_offset: int = BOOTSTRAP_OFFSET


class LogIndex:
    """Changed only by `Raft.advance`, and by the driver's events about snapshots."""

    def __init__(self, state: LogState) -> None:
        self.start_offset = state.start_offset
        self.end_offset = state.end_offset
        self.snapshots: dict[SnapshotId, int] = dict(sorted(state.snapshots))
        self._epochs = [tuple(each) for each in state.epochs]
        self._base_epoch = max((each.epoch for each in self._covering(state.start_offset)), default=0)
        self.voters = OffsetHistory(state.voters, state.told_offset)
        self.kraft_version = OffsetHistory(state.kraft_version, state.told_offset)
        for offset, control in state.controls:
            self._learn(offset, control)

    def _covering(self, offset: int) -> Iterable[SnapshotId]:
        return (each for each in self.snapshots if each.end_offset == offset)

    # --- reading

    @property
    def last_epoch(self) -> int:
        return self._epochs[-1][0] if self._epochs else self._base_epoch

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest snapshot to send; the one of an empty log does not count."""
        latest = next(reversed(self.snapshots), NO_SNAPSHOT)
        return latest if latest.end_offset > 0 else None

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return next((each for each in self.snapshots if each.end_offset > 0), None)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The largest epoch not above `epoch`, and its end in this log."""
        end = self.end_offset
        for known, start in reversed(self._epochs):
            if known <= epoch:
                return EpochEnd(known, end)
            end = start
        return EpochEnd(self._base_epoch, self.start_offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`."""
        for epoch, start in reversed(self._epochs):
            if start <= offset:
                return epoch
        return self._base_epoch

    def snapshot_id(self, end_offset: int) -> SnapshotId:
        """The id of a snapshot of everything below `end_offset`."""
        return SnapshotId(end_offset, self.epoch_at(end_offset - 1))

    def check_fetch(self, offset: int, epoch: int) -> EpochEnd | SnapshotId | None:
        """Whether a replica whose log ends at `offset`, in `epoch`, has a prefix of this log: None if it
        does, else the point of divergence, or the snapshot to begin with."""
        latest, earliest = self.latest_snapshot, self.earliest_snapshot
        if offset == 0:
            return latest
        if earliest is not None and latest is not None:
            is_other = offset == self.start_offset and epoch != self._base_epoch
            if offset < self.start_offset or is_other or epoch < earliest.epoch:
                return latest
        end = self.end_of_epoch(epoch)
        return None if end.epoch == epoch and end.end_offset >= offset else end

    def truncation_for(self, diverging: EpochEnd) -> int:
        """The offset to truncate to, given the leader's end of an epoch not above this log's last one."""
        mine = self.end_of_epoch(diverging.epoch)
        if mine.epoch == diverging.epoch:
            return min(mine.end_offset, diverging.end_offset)
        return mine.end_offset

    # --- durable changes

    def append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            invariants.require(
                entry.base_offset == self.end_offset,
                f"a batch at {entry.base_offset} does not continue a log that ends at {self.end_offset}",
            )
            if entry.epoch > self.last_epoch or not self._epochs:
                self._epochs.append((entry.epoch, entry.base_offset))
            self.end_offset = entry.end_offset
            for index, control in enumerate(entry.control):
                self._learn(entry.base_offset + index, control)

    def _learn(self, offset: int, control: Control) -> None:
        if isinstance(control, VoterSet):
            self.voters.append(offset, control)
        elif isinstance(control, KRaftVersion):
            self.kraft_version.append(offset, control.version)

    def truncate(self, end_offset: int) -> None:
        self.end_offset = min(end_offset, self.end_offset)
        while self._epochs and self._epochs[-1][1] >= end_offset:
            self._epochs.pop()
        self.voters.truncate(end_offset)
        self.kraft_version.truncate(end_offset)

    def install(self, snapshot: SnapshotId, size_bytes: int, voters: VoterSet, kraft_version: int) -> None:
        """A snapshot has replaced the whole log."""
        self.snapshots = {snapshot: size_bytes}
        self.start_offset = self.end_offset = snapshot.end_offset
        self._base_epoch = snapshot.epoch
        self._epochs.clear()
        self.voters = OffsetHistory(voters, snapshot.end_offset - 1)
        self.kraft_version = OffsetHistory(kraft_version, snapshot.end_offset - 1)

    def add_snapshot(self, snapshot: SnapshotId, size_bytes: int) -> None:
        self.snapshots[snapshot] = size_bytes

    def start_at(self, snapshot: SnapshotId) -> None:
        """The records below that snapshot were removed from the log, and older snapshots with them."""
        self.snapshots = {each: size for each, size in self.snapshots.items() if each >= snapshot}
        self.start_offset = snapshot.end_offset
        self._base_epoch = snapshot.epoch
        while len(self._epochs) > 1 and self._epochs[1][1] <= self.start_offset:
            del self._epochs[0]
        if self._epochs and self._epochs[0][1] < self.start_offset:
            self._epochs[0] = (self._epochs[0][0], self.start_offset)
        if self.start_offset == self.end_offset:
            self._epochs.clear()
        self.voters.forget(self.start_offset)
        self.kraft_version.forget(self.start_offset)
