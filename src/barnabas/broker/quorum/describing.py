"""The replicas of the metadata log as the quorum's leader knows them, for DescribeQuorum and the metrics.

The core counts in monotonic time, responses have times of day. Observers that have not fetched for
`observer_session_ms` are left out, as in Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.raft.core import Raft
from barnabas.raft.election import VoterKey
from barnabas.raft.replication import Leadership, ReplicaProgress
from barnabas.raft.voters import VoterInfo

UNKNOWN = -1


class DescribedReplica(NamedTuple):
    """A replica of the metadata log; times are in wall-clock milliseconds, -1 if unknown."""

    key: VoterKey
    end_offset: int
    fetched_ms: int
    caught_up_ms: int


class DescribedQuorum(NamedTuple):
    voters: list[DescribedReplica]
    observers: list[DescribedReplica]


def describe(raft: Raft, role: Leadership, now_ms: int, wall_ms: int) -> DescribedQuorum:
    """The replicas as this leader knows them, at `now_ms` of its monotonic clock."""
    voters = [_voter(raft, role, each, now_ms, wall_ms) for each in raft.voters.voters]
    oldest_ms = now_ms - raft.config.observer_session_ms
    observers = [
        _replica(key, progress, now_ms, wall_ms)
        for key, progress in sorted(role.replicas.items())
        if key != raft.me and progress.fetched_ms >= oldest_ms
        if not any(each.is_same(key) for each in raft.voters.voters)
    ]
    return DescribedQuorum(voters, observers)


def _voter(raft: Raft, role: Leadership, voter: VoterInfo, now_ms: int, wall_ms: int) -> DescribedReplica:
    if voter.is_same(raft.me):
        return DescribedReplica(voter.key, raft.end_offset, wall_ms, wall_ms)
    progress = role.of_voter(voter)
    if progress is None:
        return DescribedReplica(voter.key, UNKNOWN, UNKNOWN, UNKNOWN)
    return _replica(voter.key, progress, now_ms, wall_ms)


def _replica(key: VoterKey, progress: ReplicaProgress, now_ms: int, wall_ms: int) -> DescribedReplica:
    return DescribedReplica(
        key,
        progress.end_offset,
        _time_of_day(progress.fetched_ms, now_ms, wall_ms),
        _time_of_day(progress.caught_up_ms, now_ms, wall_ms),
    )


def _time_of_day(at_ms: int, now_ms: int, wall_ms: int) -> int:
    return UNKNOWN if at_ms < 0 else wall_ms - (now_ms - at_ms)
