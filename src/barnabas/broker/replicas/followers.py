"""The leader's state of its followers: how far each has fetched, and when it was last caught up.

A follower that fetches from an offset has everything before it. It is caught up when that offset is the end
of the leader's log. A follower that reaches the leader's end as of its previous fetch was caught up at the
time of that fetch; so a follower of a partition that is always written to counts as caught up, too. All times
are of the monotonic clock, when the request arrived.
"""

from __future__ import annotations

from math import inf

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
NEVER = -inf
DEBUGGER = -2  # the replica id of tools that read single replicas, to the end of their logs


class Follower:
    """One other replica, as its fetches have shown it since this node leads the partition."""

    __slots__ = (
        "broker_epoch",
        "caught_up_at",
        "end_offset",
        "fetched_at",
        "known_at",
        "leader_end",
        "node_id",
        "start_offset",
    )

    def __init__(self, node_id: int, caught_up_at: float, known_at: float) -> None:
        self.node_id = node_id
        self.known_at = known_at  # when this state began
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.leader_end = UNKNOWN_OFFSET  # the end of the leader's log at the last fetch
        self.fetched_at = NEVER
        self.caught_up_at = caught_up_at
        self.broker_epoch: int | None = None  # of the last fetch; None before the first

    def fetched(
        self, end_offset: int, start_offset: int, leader_end: int, now: float, broker_epoch: int
    ) -> None:
        """A fetch shows that the follower's log has these offsets, while the leader's log ends at
        `leader_end`."""
        if end_offset >= leader_end:
            self.caught_up_at = now
        elif end_offset >= self.leader_end:
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.end_offset = end_offset
        self.start_offset = start_offset
        self.leader_end = max(leader_end, self.leader_end)
        self.fetched_at = now
        self.broker_epoch = broker_epoch

    def begin_epoch(self, leader_end: int, now: float, *, is_in_sync: bool) -> None:
        """The leader goes on in a new leader epoch: members of the ISR have the whole lag time to fetch;
        other replicas are not waited for until they have fetched."""
        self.leader_end = leader_end
        self.fetched_at = self.caught_up_at = now if is_in_sync else NEVER

    def is_caught_up(self, leader_end: int, now: float, lag_s: float) -> bool:
        """Whether the follower has the whole log, or had it within the last `lag_s`."""
        return self.end_offset == leader_end or now - self.caught_up_at <= lag_s

    def behind_s(self, leader_end: int, now: float) -> float:
        """For how long the follower has not been caught up, since this state began."""
        return 0.0 if self.end_offset >= leader_end else now - max(self.caught_up_at, self.known_at)
