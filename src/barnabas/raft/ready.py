"""The actions that `Raft.ready` requests of the driver, and that `Raft.advance` takes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.raft.election import Election
from barnabas.raft.log_index import Entry
from barnabas.raft.snapshot import SnapshotId

if TYPE_CHECKING:
    from barnabas.raft.messages import Reply, Send


class SnapshotChunk(NamedTuple):
    """Bytes of a snapshot, to be written at `position` of its file. With the last of them the snapshot is
    complete, and replaces the log and all other snapshots."""

    snapshot: SnapshotId
    position: int
    size_bytes: int
    data: Any
    is_last: bool


class Ready(NamedTuple):
    """The actions to carry out; falsy if there are none. `high_watermark` is the present one."""

    election: Election | None = None
    truncate_to: int | None = None
    chunk: SnapshotChunk | None = None
    entries: tuple[Entry, ...] = ()
    messages: tuple[Send | Reply, ...] = ()
    high_watermark: int = 0

    def __bool__(self) -> bool:
        return self is not NOTHING

    @property
    def changes_log(self) -> bool:
        return bool(self.entries) or self.truncate_to is not None or self.chunk is not None


NOTHING = Ready()
