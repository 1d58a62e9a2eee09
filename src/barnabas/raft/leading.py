"""Leading: fetches of replicas, the high watermark, snapshots by position, and being heard of by a majority.

A fetch counts as soon as it is known to continue this log. It is answered at once with an error, with where
to truncate, with a snapshot or with records, and when the high watermark is above the one that the replica
knows; else it waits. Only what is durable here is served. A leader that a majority of the voters does not
fetch from for 1.5 x `fetch_timeout_ms` resigns: they may have another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.raft import voter_changes
from barnabas.raft.messages import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NONE,
    NOT_LEADER,
    POSITION_OUT_OF_RANGE,
    SNAPSHOT_NOT_FOUND,
    UNKNOWN_LEADER_EPOCH,
    BeginQuorumEpoch,
    EpochResponse,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    Read,
)
from barnabas.raft.replication import Leadership, ParkedFetch
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.states import NEVER, Resigned
from barnabas.raft.voting import heed_answer

if TYPE_CHECKING:
    from barnabas.raft.election import VoterKey
    from barnabas.raft.node import RaftNode
    from barnabas.raft.voters import Endpoint


def leader_error(raft: RaftNode, epoch: int) -> int:
    """Why this node cannot serve as the leader of that epoch; 0 where it can."""
    if epoch < raft.epoch:
        return FENCED_LEADER_EPOCH
    if epoch > raft.epoch:
        return UNKNOWN_LEADER_EPOCH
    return NONE if isinstance(raft.role, Leadership) else NOT_LEADER


# --- fetches


def receive_fetch(raft: RaftNode, token: Any, request: Fetch, now_ms: int) -> None:
    error = leader_error(raft, request.epoch)
    if not error and (request.offset < 0 or not 0 <= request.last_epoch <= request.epoch):
        error = INVALID_REQUEST
    role = raft.role
    if error or not isinstance(role, Leadership):
        raft.reply(token, FetchResponse(error, raft.known()))
        return
    response = try_answer(raft, role, request, now_ms)
    if response is not None:
        raft.reply(token, response)
    else:
        role.parked.append(ParkedFetch(token, request, now_ms + request.max_wait_ms))


def try_answer(raft: RaftNode, role: Leadership, request: Fetch, now_ms: int) -> FetchResponse | None:
    """The answer to a fetch, and what it tells of the replica; None where there is nothing to answer yet."""
    log, replica = raft.log, request.replica
    found = log.check_fetch(request.offset, request.last_epoch)
    if found is not None:
        role.saw(replica, now_ms)
        return diverging_response(raft, role, found)
    role.acknowledged.add(replica.id)
    role.count(replica, request.offset, log.end_offset, now_ms)
    count_offsets(raft, role, now_ms)
    if raft.role is not role:
        return FetchResponse(NOT_LEADER, raft.known())
    return answer_if_due(raft, role, request)


def answer_if_due(raft: RaftNode, role: Leadership, request: Fetch) -> FetchResponse | None:
    """With records, or with a high watermark that the replica does not know."""
    end_offset = raft.log.end_offset
    read = None
    if request.offset < end_offset:
        read = Read(request.offset, end_offset, request.max_bytes)
    elif role.high_watermark <= request.high_watermark and request.max_wait_ms > 0:
        return None
    return respond(raft, role, read=read)


def respond(raft: RaftNode, role: Leadership, **fields: Any) -> FetchResponse:
    return FetchResponse(NONE, raft.known(), role.high_watermark, raft.log.start_offset, **fields)


def diverging_response(raft: RaftNode, role: Leadership, found: Any) -> FetchResponse | None:
    """At once: a replica that diverges has nothing to wait for."""
    if isinstance(found, SnapshotId):
        return respond(raft, role, snapshot=found)
    return respond(raft, role, diverging=found)


def wake(raft: RaftNode, role: Leadership) -> None:
    """Records have come, or the high watermark has moved: answer what waits for it."""
    if not role.parked:
        return
    parked, role.parked = role.parked, []
    for each in parked:
        response = answer_if_due(raft, role, each.request)
        if response is None:
            role.parked.append(each)
        else:
            raft.reply(each.token, response)


def release(raft: RaftNode, role: Leadership) -> None:
    """The lead is lost: nothing waits for it any more."""
    known = raft.known()._replace(leader_id=-1, endpoints=())
    for each in role.parked:
        raft.reply(each.token, FetchResponse(NOT_LEADER, known))
    role.parked = []
    voter_changes.abandon(raft, role)


# --- the high watermark


def log_changed(raft: RaftNode, role: Leadership, now_ms: int) -> None:
    """What this leader wrote is durable; there may be other voters now."""
    role.duty_ms = 0
    voter_changes.appended(raft, role)
    count_offsets(raft, role, now_ms)
    if raft.role is role:
        wake(raft, role)


def count_offsets(raft: RaftNode, role: Leadership, now_ms: int) -> None:
    """Move the high watermark, if more is held by a majority now, with all that follows."""
    if not role.commit(raft.voters, raft.me, raft.log.end_offset):
        return
    raft.commit(role.high_watermark)
    voter_changes.committed(raft, role)
    wake(raft, role)
    if not raft.is_voter and role.high_watermark > raft.log.voters.latest_offset:
        raft.become_resigned(now_ms)  # the voters without this node have committed that it left


# --- snapshots


def receive_fetch_snapshot(raft: RaftNode, token: Any, request: FetchSnapshot, now_ms: int) -> None:
    raft.reply(token, answer_snapshot(raft, request, now_ms))


def answer_snapshot(raft: RaftNode, request: FetchSnapshot, now_ms: int) -> FetchSnapshotResponse:
    known = raft.known()
    error = leader_error(raft, request.epoch)
    if not error and isinstance(raft.role, Leadership):
        raft.role.saw(request.replica, now_ms)
        size_bytes = raft.log.snapshots.get(request.snapshot)
        if size_bytes is None or request.snapshot.end_offset == 0:
            error = SNAPSHOT_NOT_FOUND
        elif not 0 <= request.position < size_bytes:
            error = POSITION_OUT_OF_RANGE
        else:
            return FetchSnapshotResponse(
                NONE, known, request.snapshot, size_bytes, request.position, request.max_bytes
            )
    return FetchSnapshotResponse(error, known, request.snapshot)


# --- being heard of


def poll_leader(raft: RaftNode, role: Leadership, now_ms: int) -> int:
    if now_ms >= role.duty_ms:
        role.duty_ms = _do_duties(raft, role, now_ms)
        if raft.role is not role:
            return NEVER
    deadline_ms = min(role.duty_ms, _expire(raft, role, now_ms))
    return min(deadline_ms, voter_changes.poll(raft, role, now_ms))


def _do_duties(raft: RaftNode, role: Leadership, now_ms: int) -> int:
    """Tell voters of the epoch, and resign where too few are heard of; returns when that is due again.
    Fetches only put it off, so it need not be looked at with each of them."""
    config, voters = raft.config, raft.voters
    deadline_ms = role.quorum_deadline_ms(voters, raft.me, config, now_ms)
    if now_ms >= deadline_ms:
        raft.become_resigned(now_ms)
        return NEVER
    role.forget_observers(voters, config, now_ms)
    for voter in voters.voters:
        endpoint = config.reached_at(voter.endpoints)
        if not voter.is_same(raft.me) and endpoint is not None:
            due_ms = _begin_due_ms(raft, role, voter.key.id)
            if due_ms <= now_ms:
                _tell_begin(raft, role, voter.key, endpoint, now_ms)
                due_ms = _begin_due_ms(raft, role, voter.key.id)
            deadline_ms = min(deadline_ms, max(due_ms, now_ms + 1))
    return deadline_ms


def _begin_due_ms(raft: RaftNode, role: Leadership, node_id: int) -> int:
    """When that voter is to be told of the epoch: until it knows, and whenever it does not fetch."""
    ready_ms = raft.outbound.ready_ms(node_id)
    if node_id not in role.acknowledged:
        return ready_ms
    voter = raft.voters.get(node_id)
    progress = role.of_voter(voter) if voter is not None else None
    heard_ms = -1 if progress is None else progress.fetched_ms
    last_ms = max(role.begun_ms.get(node_id, 0), heard_ms)
    return max(ready_ms, last_ms + raft.config.begin_epoch_interval_ms)


def _tell_begin(raft: RaftNode, role: Leadership, voter: VoterKey, endpoint: Endpoint, now_ms: int) -> None:
    role.begun_ms[voter.id] = now_ms
    request = BeginQuorumEpoch(raft.epoch, raft.me.id, raft.config.endpoints, voter)
    raft.send(voter.id, endpoint, request, now_ms)


def take_epoch(raft: RaftNode, node_id: int, response: EpochResponse, now_ms: int) -> None:
    """The answer to BeginQuorumEpoch, or to EndQuorumEpoch."""
    if not heed_answer(raft, response.error, response.known, now_ms):
        return
    role = raft.role
    if response.error != NONE:
        raft.outbound.back_off(node_id, now_ms)
    elif isinstance(role, Leadership):
        role.acknowledged.add(node_id)
        role.duty_ms = 0
    elif isinstance(role, Resigned):
        role.untold.discard(node_id)


def _expire(raft: RaftNode, role: Leadership, now_ms: int) -> int:
    """Answer the fetches that have waited long enough; returns when the next one has."""
    if not role.parked:
        return NEVER
    first_ms = min(each.deadline_ms for each in role.parked)
    if first_ms > now_ms:
        return first_ms
    for each in role.parked:
        if each.deadline_ms <= now_ms:
            raft.reply(each.token, respond(raft, role))
    role.parked = [each for each in role.parked if each.deadline_ms > now_ms]
    return min((each.deadline_ms for each in role.parked), default=NEVER)


RECEIVERS: dict[type, Any] = {Fetch: receive_fetch, FetchSnapshot: receive_fetch_snapshot}
ANSWERS: dict[type, Any] = {EpochResponse: take_epoch}
POLLS: dict[type, Any] = {Leadership: poll_leader}
