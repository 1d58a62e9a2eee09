"""One replica that follows: what its leader is asked for, and what an answer does to it.

An answer holds for the leader epoch in which it was asked for. The log sees to that, in its own turn
(`log.following`): whatever has changed since, an overtaken answer changes nothing.

A leader whose history parts from this one says where (the diverging epoch). Then the log is cut, and nothing
else of that answer counts: neither its records nor its high watermark, which may lie beyond the cut.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.broker.replicas.replica import Replica
from barnabas.broker.replicas.roles import Following
from barnabas.core.errors import BarnabasError, OffsetOutOfRange, wire_error
from barnabas.log import following
from barnabas.protocol.messages.fetch import FetchPartition, PartitionData
from barnabas.protocol.schema import NO_UUID

Key = tuple[bytes, int]  # topic id and partition


class NothingToCut(BarnabasError):
    """A leader says that the histories part where nothing of this replica's is left to be cut."""

    wire = wire_error("UNKNOWN_SERVER_ERROR")


class Place(NamedTuple):
    """Where a replica stands, as its leader is told."""

    end_offset: int
    last_epoch: int
    start_offset: int


class FollowedReplica:
    """A replica in one epoch of one leader: another epoch makes another object of this."""

    __slots__ = (
        "asked",
        "behind_since",
        "failures",
        "key",
        "lag",
        "leader",
        "leader_epoch",
        "replica",
        "retry_at",
    )

    def __init__(self, replica: Replica, role: Following) -> None:
        self.replica = replica
        self.key: Key = (replica.topic_id, replica.partition)
        self.leader = role.leader
        self.leader_epoch = role.leader_epoch
        self.asked: Place | None = None  # what the leader was told last
        self.failures = 0  # in a row
        self.retry_at: float | None = None  # after a failure
        self.lag = 0  # how many records the leader has committed, and this replica does not have yet
        self.behind_since: float | None = None  # monotonic; None while it has them all

    @property
    def name(self) -> str:
        return f"{self.replica.name}-{self.replica.partition}"

    def is_of(self, replica: Replica) -> bool:
        """Whether this is that replica, in the epoch in which it is now."""
        role = replica.role
        return (
            self.replica is replica
            and isinstance(role, Following)
            and (role.leader, role.leader_epoch) == (self.leader, self.leader_epoch)
        )

    def place(self) -> Place:
        """Where the replica stands now."""
        log = self.replica.log
        return Place(log.end_offset, log.last_epoch, log.start_offset)

    def ask(self, max_bytes: int) -> FetchPartition:
        """What the leader is asked for: all that comes after what is here."""
        place = self.asked = self.place()
        return FetchPartition(
            partition=self.replica.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=place.end_offset,
            last_fetched_epoch=place.last_epoch,
            log_start_offset=place.start_offset,
            partition_max_bytes=max_bytes,
            replica_directory_id=NO_UUID,
        )

    async def take(self, data: PartitionData, now: float) -> int | None:
        """Do what an answer without an error says; gives how many bytes were appended, None where the log was
        cut instead."""
        log, epoch = self.replica.log, self.leader_epoch
        diverging = data.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            if not await following.truncate_to_leader(log, diverging.epoch, diverging.end_offset, epoch):
                raise NothingToCut(f"{self.name} parts from its leader at {diverging}, and is cut there")
            return None
        records = data.records
        appended = 0
        if records:
            appended = await following.append(log, records, epoch)  # type: ignore[arg-type]
        await following.follow_marks(log, data.high_watermark, data.log_start_offset, epoch)
        self._measure(data.high_watermark - log.end_offset, now)
        return appended

    async def meet_leader(self, first_offset: int, end_offset: int) -> None:
        """Come to an offset that the leader has: its log goes from `first_offset` to `end_offset`."""
        log = self.replica.log
        if not await following.meet_leader(log, first_offset, end_offset, self.leader_epoch):
            raise OffsetOutOfRange(
                f"offset {log.end_offset} of {self.name} is refused by its leader, which has offsets "
                f"{first_offset} to {end_offset}"
            )

    def _measure(self, lag: int, now: float) -> None:
        self.lag = max(0, lag)
        if not self.lag:
            self.behind_since = None
        elif self.behind_since is None:
            self.behind_since = now
