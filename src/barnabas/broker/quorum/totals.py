"""Counters of a node's part in the quorum, for the metrics.

The parts of the quorum add to plain numbers here; the metrics give them names and units. Times are like those
of Kafka's own sensors: average and maximum of the last half minute to minute.
"""

from __future__ import annotations

from math import nan
from typing import NamedTuple

from barnabas.raft.election import NO_NODE, Election, State

WINDOW_SECONDS = 30.0


class _Window(NamedTuple):
    """The durations within a window."""

    times: int = 0
    seconds: float = 0.0
    longest: float = 0.0


class RecentTimes:
    """Durations of the current window and of the one before it; `now` is monotonic."""

    __slots__ = ("_before", "_began", "_current")

    def __init__(self) -> None:
        self._began = 0.0
        self._before = self._current = _Window()

    def observe(self, seconds: float, now: float) -> None:
        """Add a duration."""
        self._turn(now)
        times, total, longest = self._current
        self._current = _Window(times + 1, total + seconds, max(longest, seconds))

    def average(self, now: float) -> float:
        """In seconds; nan without any."""
        self._turn(now)
        times = self._before.times + self._current.times
        return (self._before.seconds + self._current.seconds) / times if times else nan

    def maximum(self, now: float) -> float:
        """In seconds; nan without any."""
        self._turn(now)
        is_empty = not self._before.times and not self._current.times
        return nan if is_empty else max(self._before.longest, self._current.longest)

    def _turn(self, now: float) -> None:
        since = now - self._began
        if since >= WINDOW_SECONDS:
            self._before = self._current if since < 2 * WINDOW_SECONDS else _Window()
            self._current = _Window()
            self._began = now


class QuorumTotals:
    """The counters of one node."""

    __slots__ = (
        "_asked_at",
        "_leader",
        "apply_errors",
        "commits",
        "elections",
        "leaders",
        "load_errors",
        "snapshots_loaded",
    )

    def __init__(self) -> None:
        self.elections = RecentTimes()  # from the first vote request until a leader is known
        self.commits = RecentTimes()  # from a decision of the active controller to its commit
        self.leaders = 0  # how many epochs with a known leader there were
        self.snapshots_loaded = 0
        self.load_errors = 0  # metadata records that could not be read or replayed
        self.apply_errors = 0  # changes that a subscriber on this node could not apply
        self._asked_at: float | None = None
        self._leader = (-1, NO_NODE)

    def saw(self, state: State, election: Election, now: float) -> None:
        """The state or the election of this node has changed."""
        if state in (State.PROSPECTIVE, State.CANDIDATE):
            if self._asked_at is None:
                self._asked_at = now
            return
        leader = (election.epoch, election.leader_id)
        if state in (State.LEADER, State.FOLLOWER):
            if self._asked_at is not None:
                self.elections.observe(now - self._asked_at, now)
                self._asked_at = None
            if leader != self._leader:
                self._leader = leader
                self.leaders += 1
