"""Dispatch of messages and events to their handlers, by type.

Imported with the first of them, together with all handlers; a quorum of one gets none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.raft import following, serving, voter_changes, voting
from barnabas.raft.codes import NONE
from barnabas.raft.messages import (
    Answered,
    ConnectionLost,
    DialRefused,
    DialSucceeded,
    Event,
    Failed,
    LogTrimmed,
    Received,
    Response,
    SnapshotTaken,
)
from barnabas.raft.replication import Leadership
from barnabas.raft.states import Follower, Prospective, Unattached

if TYPE_CHECKING:
    from barnabas.raft.node import RaftNode


def step(raft: RaftNode, event: Event, now_ms: int) -> None:
    if isinstance(event, Received):
        _RECEIVERS[type(event.request)](raft, event.token, event.request, now_ms)
    elif isinstance(event, Answered):
        peer = raft.outbound.answered(event.correlation)
        if peer is not None:
            _take_answer(raft, peer, event.response, now_ms)
    elif isinstance(event, Failed):
        peer = raft.outbound.failed(event.correlation, now_ms)
        if peer is not None:
            _take_failure(raft, peer, event, now_ms)
    else:
        _NOTICES[type(event)](raft, event, now_ms)


def _take_answer(raft: RaftNode, peer: object, response: Response, now_ms: int) -> None:
    if response.error == NONE:
        raft.outbound.succeeded(peer)
    node_id = peer[0] if isinstance(peer, tuple) else peer
    _ANSWERS[type(response)](raft, node_id, response, now_ms)


def _take_failure(raft: RaftNode, peer: object, failed: Failed, now_ms: int) -> None:
    if failed.unsupported and isinstance(raft.role, Prospective):
        raft.become_candidate(now_ms)  # a voter of a version without pre-votes
    elif failed.unsupported and isinstance(raft.role, Follower) and isinstance(peer, tuple):
        voter_changes.is_told(raft, now_ms)  # a leader of a version without UpdateRaftVoter
    elif isinstance(raft.role, (Unattached, Follower)):
        raft.role.search.due_ms = now_ms  # in a search for the leader, another node is asked at once
    elif isinstance(raft.role, Leadership):
        raft.role.duty_ms = 0
        if isinstance(peer, tuple):
            voter_changes.unreachable(raft, raft.role, peer)


def _snapshot_taken(raft: RaftNode, event: SnapshotTaken, now_ms: int) -> None:
    raft.log.add_snapshot(event.snapshot, event.size_bytes)


def _log_trimmed(raft: RaftNode, event: LogTrimmed, now_ms: int) -> None:
    raft.log.start_at(event.snapshot)


_NOTICES: dict[type, Any] = {
    ConnectionLost: following.connection_lost,
    DialRefused: following.dial_refused,
    DialSucceeded: following.dial_succeeded,
    SnapshotTaken: _snapshot_taken,
    LogTrimmed: _log_trimmed,
}
_RECEIVERS: dict[type, Any] = {
    **voting.RECEIVERS,
    **serving.RECEIVERS,
    **following.RECEIVERS,
    **voter_changes.RECEIVERS,
}
_ANSWERS: dict[type, Any] = {
    **voting.ANSWERS,
    **serving.ANSWERS,
    **following.ANSWERS,
    **voter_changes.ANSWERS,
}
