"""The leader's requests and responses: fetches, snapshots, epochs.

A fetch counts as soon as it is known to continue this log. It is answered at once with an error, a point of
divergence, a snapshot or records, and also when the high watermark is above the replica's; otherwise it
waits. Only durable records are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.raft.codes import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NONE,
    NOT_LEADER,
    POSITION_OUT_OF_RANGE,
    SNAPSHOT_NOT_FOUND,
    UNKNOWN_LEADER_EPOCH,
)
from barnabas.raft.leading import count_offsets
from barnabas.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
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


# in one response, whatever is requested; no batch of the metadata log is larger
MAX_ANSWER_BYTES = 8 << 20


def leader_error(raft: RaftNode, epoch: int) -> int:
    """The error if this node cannot serve as the leader of that epoch; 0 if it can."""
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
    """The response to a fetch, whose offset is noted as the replica's progress; None if it must wait."""
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
    """The response with records, or with a newer high watermark; None if there is neither."""
    end_offset = raft.log.end_offset
    read = None
    if request.offset < end_offset:
        read = Read(request.offset, end_offset, served_bytes(request))
    elif role.high_watermark <= request.high_watermark and request.max_wait_ms > 0:
        return None
    return respond(raft, role, read=read)


def served_bytes(request: Fetch | FetchSnapshot) -> int:
    """The size limit of one response; at least one byte, or the next request would be the same."""
    return min(max(request.max_bytes, 1), MAX_ANSWER_BYTES)


def respond(raft: RaftNode, role: Leadership, **fields: Any) -> FetchResponse:
    return FetchResponse(NONE, raft.known(), role.high_watermark, raft.log.start_offset, **fields)


def diverging_response(raft: RaftNode, role: Leadership, found: Any) -> FetchResponse | None:
    """The response to a replica that has diverged, at once."""
    if isinstance(found, SnapshotId):
        return respond(raft, role, snapshot=found)
    return respond(raft, role, diverging=found)


# --- fetches that wait


def answer_parked(raft: RaftNode, role: Leadership) -> None:
    """Answer the waiting fetches that can be answered now."""
    parked, role.parked = role.parked, []
    for each in parked:
        response = answer_if_due(raft, role, each.request)
        if response is None:
            role.parked.append(each)
        else:
            raft.reply(each.token, response)


def expire(raft: RaftNode, role: Leadership, now_ms: int) -> int:
    """Answer the fetches that have waited long enough; returns when the next one is due."""
    first_ms = min(each.deadline_ms for each in role.parked)
    if first_ms > now_ms:
        return first_ms
    for each in role.parked:
        if each.deadline_ms <= now_ms:
            raft.reply(each.token, respond(raft, role))
    role.parked = [each for each in role.parked if each.deadline_ms > now_ms]
    return min((each.deadline_ms for each in role.parked), default=NEVER)


def refuse_parked(raft: RaftNode, role: Leadership) -> None:
    """Refuse the waiting fetches: this node has stopped leading."""
    known = raft.known()._replace(leader_id=-1, endpoints=())
    for each in role.parked:
        raft.reply(each.token, FetchResponse(NOT_LEADER, known))
    role.parked = []


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
                NONE, known, request.snapshot, size_bytes, request.position, served_bytes(request)
            )
    return FetchSnapshotResponse(error, known, request.snapshot)


# --- epochs


def tell_begin(raft: RaftNode, role: Leadership, voter: VoterKey, endpoint: Endpoint, now_ms: int) -> None:
    role.begun_ms[voter.id] = now_ms
    request = BeginQuorumEpoch(raft.epoch, raft.me.id, raft.config.endpoints, voter)
    raft.send(voter.id, endpoint, request, now_ms)


def tell_end(raft: RaftNode, role: Resigned, node_id: int, endpoint: Endpoint, now_ms: int) -> None:
    request = EndQuorumEpoch(raft.epoch, raft.me.id, role.successors, raft.config.endpoints)
    raft.send(node_id, endpoint, request, now_ms)


def take_epoch(raft: RaftNode, node_id: int, response: EpochResponse, now_ms: int) -> None:
    """Process the response to BeginQuorumEpoch or EndQuorumEpoch."""
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


RECEIVERS: dict[type, Any] = {Fetch: receive_fetch, FetchSnapshot: receive_fetch_snapshot}
ANSWERS: dict[type, Any] = {EpochResponse: take_epoch}
