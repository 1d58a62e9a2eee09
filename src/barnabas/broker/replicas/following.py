"""One replica that follows: its fetch request, and the effect of the response.

A response holds for the leader epoch of its request. The log checks the epoch under its own lock
(`log.following`): a response of an earlier epoch changes nothing.

Where the leader's history diverges from this one, the response names the diverging epoch. Then the log is
truncated and the rest of the response is ignored: neither its records nor its high watermark apply, which may
lie beyond the truncation.
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
    """The leader names a diverging epoch, and this replica has nothing left to truncate."""

    wire = wire_error("UNKNOWN_SERVER_ERROR")


class Place(NamedTuple):
    """The position of a replica, as sent to its leader."""

    end_offset: int
    last_epoch: int
    start_offset: int


class FollowedReplica:
    """A replica that follows one leader in one leader epoch; another epoch has another object."""

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
        self.asked: Place | None = None  # the position in the last request
        self.failures = 0  # in a row
        self.retry_at: float | None = None  # after a failure
        self.lag = 0  # how many committed records this replica lacks
        self.behind_since: float | None = None  # monotonic; None while it lacks none

    @property
    def name(self) -> str:
        return f"{self.replica.name}-{self.replica.partition}"

    def is_of(self, replica: Replica) -> bool:
        """Whether this is that replica, in its current leader epoch."""
        role = replica.role
        return (
            self.replica is replica
            and isinstance(role, Following)
            and (role.leader, role.leader_epoch) == (self.leader, self.leader_epoch)
        )

    def place(self) -> Place:
        """The position of the replica now."""
        log = self.replica.log
        return Place(log.end_offset, log.last_epoch, log.start_offset)

    def ask(self, max_bytes: int) -> FetchPartition:
        """The request for the records after the log end."""
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
        """Apply a response without an error; returns how many bytes were appended, None where the log was
        truncated instead."""
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
        """Move to an offset that the leader has: its log goes from `first_offset` to `end_offset`."""
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
