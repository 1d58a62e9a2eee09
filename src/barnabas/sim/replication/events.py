"""What is seen of replicated partitions, beside what happens in every simulation (history.py).

Two sources: the metadata as it is published (`PartitionSeen`), and the logs of the nodes, in their memory and
on their disks, whether the node runs or not (`ReplicaSeen`). Both are told when something has changed. A
partition is known by the id of its topic: one that was deleted and created anew is another one.
"""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN = -1


class PartitionSeen(NamedTuple):
    """A partition in the metadata at an offset, as the first node has published it."""

    at: float
    node: int
    offset: int
    topic: str
    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    is_recovering: bool
    is_leader_active: bool = True  # its broker is registered, not fenced and not in controlled shutdown

    @property
    def is_whole(self) -> bool:
        """Whether every replica is in sync, and none comes or goes."""
        is_moving = self.adding or self.removing
        return self.leader >= 0 and not is_moving and set(self.isr) == set(self.replicas)


class PartitionGone(NamedTuple):
    """The topic of a partition is not in the metadata any more."""

    at: float
    node: int
    topic: str
    topic_id: str
    partition: int


class BatchKept(NamedTuple):
    """A batch in a log; `digest` is that of its bytes. Of a compacted topic, which may keep a part of a
    batch, `records` has the offset of each record and a digest of its contents."""

    base_offset: int
    end_offset: int
    epoch: int
    digest: int
    records: tuple[tuple[int, int], ...] = ()


class ReplicaSeen(NamedTuple):
    """The log of a replica. Up to the offset `same_until` its batches are those seen last, but for what is
    below `start_offset`; `batches` are those from there on.

    `leader_epoch`, `is_leader`, `high_watermark` and `end_offset` are what the running node takes them for,
    UNKNOWN where none runs, or the replica is not open. `disk_end` is where the log ends on the disk.
    """

    at: float
    node: int
    topic: str
    topic_id: str
    partition: int
    is_leader: bool
    leader_epoch: int
    start_offset: int
    high_watermark: int
    end_offset: int
    disk_end: int
    same_until: int
    batches: tuple[BatchKept, ...]

    @property
    def is_open(self) -> bool:
        """Whether the node that runs has told of it, or only its disk."""
        return self.leader_epoch != UNKNOWN


class ReplicaGone(NamedTuple):
    """A node has no log of that partition any more."""

    at: float
    node: int
    topic: str
    topic_id: str
    partition: int


class Sampled(NamedTuple):
    """The logs of all nodes were looked at: whatever has changed was told."""

    at: float


class MoveAsked(NamedTuple):
    """An admin has asked for other replicas of a partition; () gives up a move. `error` as in Answered."""

    at: float
    topic: str
    partition: int
    replicas: tuple[int, ...]
    error: str


class DrillBegan(NamedTuple):
    """Everything is well, has been read and judged; what comes now is the drill (drill.py)."""

    at: float


class DrillStruck(NamedTuple):
    """A replica of the drill's topic is killed ("kill"), or told to stop ("stop")."""

    at: float
    what: str
    struck: int  # the node
    is_leader: bool


class ElectionAsked(NamedTuple):
    """An admin has asked for the preferred leader, or for an unclean election. `error` as in Answered."""

    at: float
    topic: str
    partition: int
    is_unclean: bool
    error: str


ReplicationNodeEvent = PartitionSeen | PartitionGone | ReplicaSeen | ReplicaGone
ReplicationEvent = ReplicationNodeEvent | Sampled | MoveAsked | ElectionAsked | DrillBegan | DrillStruck
