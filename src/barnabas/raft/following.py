"""Following a leader, and searching for one: fetches, truncation, snapshots, and the loss of the leader.

A follower fetches with the end of its log and the epoch there; the leader answers with records, with an
offset to truncate to, or with a snapshot to begin with. Nothing is fetched while the log changes. A voter
whose leader is silent for `fetch_timeout_ms` asks for pre-votes; an observer asks other nodes for the leader.

A leader counts as gone when the connection to it was lost and a new one was refused (its process has ended),
or when it has resigned. Then voters ask for pre-votes one after another, in the order of their ids, long
before the timeout. These signs are only hints: a wrong one costs a few messages. Voters ask again, with
back-off, while connections are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.raft import invariants, voter_changes
from barnabas.raft.codes import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    INVALID_VOTER_KEY,
    NONE,
    NOT_LEADER,
    UNKNOWN_OFFSET,
)
from barnabas.raft.election import NO_NODE, same_replica
from barnabas.raft.messages import (
    BeginQuorumEpoch,
    ConnectionLost,
    DialRefused,
    DialSucceeded,
    EndQuorumEpoch,
    EpochResponse,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
)
from barnabas.raft.outbound import MAX_BACKOFF_SHIFT
from barnabas.raft.ready import SnapshotChunk
from barnabas.raft.states import NEVER, Follower, Search, Unattached
from barnabas.raft.voters import Endpoint, VoterSet
from barnabas.raft.voting import heed_answer, is_meant

if TYPE_CHECKING:
    from barnabas.raft.node import RaftNode

BOOTSTRAP_ID = -2  # the first of the ids of nodes of which only the address is known


# --- searching for a leader


def poll_unattached(raft: RaftNode, role: Unattached, now_ms: int) -> int:
    if raft.voters.is_only(raft.me):
        return now_ms  # the next tick elects it
    if raft.may_stand:
        if now_ms >= role.deadline_ms:
            raft.become_prospective(now_ms)
            return NEVER
        deadline_ms = role.deadline_ms
    else:
        deadline_ms = NEVER
    return min(deadline_ms, ask_for_leader(raft, role.search, now_ms))


def ask_for_leader(raft: RaftNode, search: Search, now_ms: int) -> int:
    """Fetch from the next node that may know the leader; returns when to try again. Nodes are asked in turn,
    at first quickly and less often with every round; those that do not answer are skipped."""
    nodes = nodes_to_ask(raft)
    if not nodes or raft.is_writing:
        return NEVER
    if search.due_ms > now_ms:
        return search.due_ms
    for _ in nodes:
        node_id, endpoint = nodes[search.turn % len(nodes)]
        search.turn += 1
        if raft.outbound.ready_ms(node_id) <= now_ms:
            raft.send(node_id, endpoint, fetch_request(raft), now_ms)
            rounds = search.asked // len(nodes)
            search.asked += 1
            search.due_ms = now_ms + (raft.config.retry_backoff_ms << min(rounds, MAX_BACKOFF_SHIFT))
            return search.due_ms
    return min(raft.outbound.ready_ms(node_id) for node_id, _ in nodes)


def nodes_to_ask(raft: RaftNode) -> list[tuple[int, Endpoint]]:
    """The voters that this node knows, and the bootstrap servers at other addresses."""
    found: dict[tuple[str, int], tuple[int, Endpoint]] = {}
    for voter in raft.voters.voters:
        endpoint = raft.config.reached_at(voter.endpoints)
        if voter.key.id != raft.me.id and endpoint is not None:
            found[endpoint.host, endpoint.port] = voter.key.id, endpoint
    if isinstance(raft.role, Follower):
        leader = raft.role.endpoint
        found[leader.host, leader.port] = raft.election.leader_id, leader
    mine = {(each.host, each.port) for each in raft.config.endpoints}
    for index, server in enumerate(raft.config.bootstrap):
        if (server.host, server.port) not in mine:
            found.setdefault((server.host, server.port), (BOOTSTRAP_ID - index, server))
    return list(found.values())


# --- fetching


def fetch_request(raft: RaftNode) -> Fetch:
    config = raft.config
    return Fetch(
        raft.epoch,
        raft.me,
        raft.log.end_offset,
        raft.log.last_epoch,
        raft.high_watermark or UNKNOWN_OFFSET,
        config.fetch_max_wait_ms,
        config.fetch_max_bytes,
    )


def poll_follower(raft: RaftNode, role: Follower, now_ms: int) -> int:
    deadline_ms = _look_for_silence(raft, role, now_ms)
    if raft.may_stand:
        deadline_ms = min(deadline_ms, role.ask_ms)
        if now_ms >= deadline_ms:
            if raft.is_writing:
                return NEVER  # asks when its log has grown, which helps its election: `advance` goes on
            raft.suspicion.asks += 1
            raft.become_prospective(now_ms)
            return NEVER
    elif raft.suspicion.is_gone:
        return ask_for_leader(raft, role.search, now_ms)
    if raft.is_writing:
        return deadline_ms
    leader_id = raft.election.leader_id
    ready_ms = raft.outbound.ready_ms(leader_id)
    if ready_ms <= now_ms:
        raft.send(leader_id, role.endpoint, _next_request(raft, role), now_ms)
        ready_ms = raft.outbound.ready_ms(leader_id)
    told_ms = voter_changes.tell_leader(raft, role, now_ms)
    return min(deadline_ms, ready_ms, told_ms)


def _look_for_silence(raft: RaftNode, role: Follower, now_ms: int) -> int:
    """Check the fetch timeout; returns its deadline. A leader that is silent for longer counts as gone."""
    if now_ms < role.fetch_deadline_ms:
        return role.fetch_deadline_ms
    raft.suspicion.is_silent = True
    _suspect(raft, role, now_ms)
    return NEVER


def _next_request(raft: RaftNode, role: Follower) -> Fetch | FetchSnapshot:
    if role.loading is None:
        return fetch_request(raft)
    snapshot, position = role.loading
    return FetchSnapshot(raft.epoch, raft.me, snapshot, position, raft.config.fetch_max_bytes)


def take_fetch(raft: RaftNode, node_id: int, response: FetchResponse, now_ms: int) -> None:
    before = raft.role
    is_present = heed_answer(raft, response.error, response.known, now_ms)
    role = raft.role
    if not isinstance(role, Follower):
        return
    is_leader = response.known.leader_id == raft.election.leader_id
    if not is_present or not is_leader or response.error != NONE:
        if role is before and node_id == raft.election.leader_id:
            _refused_by_leader(raft, role, response, now_ms)
        return
    if raft.is_writing:
        return
    raft.hear_leader(role, now_ms)
    if response.diverging is not None:
        raft.truncate(raft.log.truncation_for(response.diverging))
    elif response.snapshot is not None:
        end_offset, committed = response.snapshot.end_offset, raft.high_watermark
        invariants.require(end_offset >= committed, f"a snapshot up to {end_offset} of {committed} committed")
        role.loading = (response.snapshot, 0)
    elif continues(raft, response):
        raft.append_fetched(response.entries)
        raft.leader_high_watermark = max(response.high_watermark, raft.leader_high_watermark)
        raft.commit(min(raft.leader_high_watermark, raft.log.end_offset))


def _refused_by_leader(raft: RaftNode, role: Follower, response: FetchResponse, now_ms: int) -> None:
    """Try again a little later. A leader that answers that nobody leads has resigned."""
    raft.outbound.back_off(raft.election.leader_id, now_ms)
    if response.error == NOT_LEADER and response.known.leader_id == NO_NODE:
        raft.suspicion.has_ended = True
        _suspect(raft, role, now_ms)


def continues(raft: RaftNode, response: FetchResponse) -> bool:
    """Whether the records continue this log. Records of a later epoch than the requested one were read while
    the leader's log was truncated: the records before them may differ from those here."""
    entries = response.entries
    if not entries:
        return True
    return entries[0].base_offset == raft.log.end_offset and all(each.epoch <= raft.epoch for each in entries)


# --- loading a snapshot


def take_snapshot(raft: RaftNode, node_id: int, response: FetchSnapshotResponse, now_ms: int) -> None:
    if not heed_answer(raft, response.error, response.known, now_ms):
        return
    role = raft.role
    if not isinstance(role, Follower) or role.loading is None or node_id != raft.election.leader_id:
        return
    if response.error != NONE:
        role.loading = None  # the leader no longer has it, or one of another size: begin again
        raft.outbound.back_off(node_id, now_ms)
        return
    raft.hear_leader(role, now_ms)
    snapshot, position = role.loading
    if (response.snapshot, response.position) != (snapshot, position) or raft.is_writing:
        role.loading = None
        return
    is_last = position + response.data_bytes >= response.size_bytes
    raft.write_chunk(SnapshotChunk(snapshot, position, response.size_bytes, response.data, is_last))
    role.loading = (snapshot, position + response.data_bytes)


def advance_snapshot(
    raft: RaftNode, chunk: SnapshotChunk, installed: tuple[VoterSet, int] | None, now_ms: int
) -> None:
    """A chunk of a snapshot is durable; after the last one, the log continues after the snapshot."""
    if not chunk.is_last:
        return
    if isinstance(raft.role, Follower):
        raft.role.loading = None
    invariants.require(installed is not None, "a snapshot that is whole tells its voters")
    if installed is not None:
        raft.log.install(chunk.snapshot, chunk.size_bytes, *installed)
        raft.commit(chunk.snapshot.end_offset)


# --- requests of the leader


def epoch_error(raft: RaftNode, request: BeginQuorumEpoch | EndQuorumEpoch) -> int:
    if request.epoch < raft.epoch:
        return FENCED_LEADER_EPOCH
    return INVALID_REQUEST if request.leader_id < 0 else NONE


def receive_begin(raft: RaftNode, token: Any, request: BeginQuorumEpoch, now_ms: int) -> None:
    if (error := epoch_error(raft, request)) != NONE:
        raft.reply(token, EpochResponse(error, raft.known()))
        return
    raft.heed(request.epoch, request.leader_id, request.endpoints, now_ms)
    endpoint = raft.config.reached_at(request.endpoints)
    if isinstance(raft.role, Follower) and raft.election.leader_id == request.leader_id and endpoint:
        raft.find_leader_at(endpoint)  # the leader knows its own endpoint best
    error = NONE if is_meant(raft, request.voter) else INVALID_VOTER_KEY
    raft.reply(token, EpochResponse(error, raft.known()))


def receive_end(raft: RaftNode, token: Any, request: EndQuorumEpoch, now_ms: int) -> None:
    """The leader resigned: its successors ask for pre-votes, the first at once, the others later."""
    if (error := epoch_error(raft, request)) != NONE:
        raft.reply(token, EpochResponse(error, raft.known()))
        return
    raft.heed(request.epoch, request.leader_id, request.endpoints, now_ms)
    role = raft.role
    if isinstance(role, Follower) and raft.election.leader_id == request.leader_id:
        raft.suspicion.has_ended = True
        role.ask_ms = min(role.ask_ms, now_ms + successor_delay_ms(raft, request))
    raft.reply(token, EpochResponse(NONE, raft.known()))


def successor_delay_ms(raft: RaftNode, request: EndQuorumEpoch) -> int:
    """The delay by this node's place among the successors, which name it with its directory."""
    most_ms, count = raft.config.election_backoff_max_ms, len(request.successors)
    places = (place for place, key in enumerate(request.successors) if same_replica(key, raft.me))
    place = next(places, count)
    if place in (0, count):
        return 0 if place < count else most_ms
    return min(most_ms, (most_ms >> (count - 1)) << (place - 1))


# --- the loss of the leader


def connection_lost(raft: RaftNode, event: ConnectionLost, now_ms: int) -> None:
    if isinstance(raft.role, Follower) and event.node_id == raft.election.leader_id:
        raft.suspicion.connection_lost = True
        _suspect(raft, raft.role, now_ms)


def dial_refused(raft: RaftNode, event: DialRefused, now_ms: int) -> None:
    if isinstance(raft.role, Follower) and event.node_id == raft.election.leader_id:
        raft.suspicion.dial_refused = True
        _suspect(raft, raft.role, now_ms)


def dial_succeeded(raft: RaftNode, event: DialSucceeded, now_ms: int) -> None:
    """The leader, or its successor, accepts connections: drop earlier hints, but not its silence."""
    if event.node_id == raft.election.leader_id and isinstance(raft.role, Follower):
        raft.find_leader_reachable(raft.role)


def _suspect(raft: RaftNode, role: Follower, now_ms: int) -> None:
    if raft.suspicion.is_gone and role.ask_ms == NEVER:
        raft.plan_to_ask(role, now_ms)


RECEIVERS: dict[type, Any] = {BeginQuorumEpoch: receive_begin, EndQuorumEpoch: receive_end}
ANSWERS: dict[type, Any] = {FetchResponse: take_fetch, FetchSnapshotResponse: take_snapshot}
POLLS: dict[type, Any] = {Unattached: poll_unattached, Follower: poll_follower}
