"""Changes of the voters: adding, removing and updating them as the leader, and requesting a change as a node.

One change at a time, by records in the log (kraft.version 1), and only once the leader's high watermark is
known and the voters in force are committed; the new set is in force when it is appended. A node is added only
if it supports the quorum's version and has caught up. A leader that removes itself goes on leading, without
counting itself, until the new majority has committed the removal, and then resigns.

A voter whose listeners have changed tells the leader. A node that joins automatically removes its own former
directory first; it joins once in the life of its process, so that a removed voter stays removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.raft import invariants
from barnabas.raft.codes import (
    DUPLICATE_VOTER,
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    NONE,
    NOT_LEADER,
    REQUEST_TIMED_OUT,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_OFFSET,
    UNSUPPORTED_VERSION,
    VOTER_NOT_FOUND,
)
from barnabas.raft.election import NO_DIRECTORY, VoterKey
from barnabas.raft.log_index import KRaftVersion
from barnabas.raft.messages import (
    AddRaftVoter,
    ApiVersions,
    ApiVersionsResponse,
    RemoveRaftVoter,
    UpdateRaftVoter,
    VoterChangeResponse,
)
from barnabas.raft.replication import Leadership, VoterChange
from barnabas.raft.states import NEVER, Follower
from barnabas.raft.voters import Endpoints, VoterInfo, VoterSet
from barnabas.raft.voting import heed_answer

if TYPE_CHECKING:
    from barnabas.raft.node import RaftNode

ADD, REMOVE, UPDATE, RAISE = "add", "remove", "update", "raise"
VOTERS = "voters"  # the channel for requested changes, beside the fetches
DEFAULT_TIMEOUT_MS = 30_000
_TOLD = (NONE, UNSUPPORTED_VERSION)  # responses after which the leader is not told again


class InvalidUpdateVersion(BarnabasError):
    """Not all voters have reported yet that they support that kraft.version."""

    wire = wire_error("INVALID_UPDATE_VERSION")


# --- as the leader


def refusal(raft: RaftNode, role: Leadership) -> tuple[int, str]:
    """The reason why no change of voters can begin now; error 0 if one can."""
    if role.change is not None:
        return REQUEST_TIMED_OUT, "another change of voters is under way"
    if role.high_watermark == UNKNOWN_OFFSET:
        return REQUEST_TIMED_OUT, "the leader does not know its high watermark yet"
    if raft.kraft_version < 1:
        return UNSUPPORTED_VERSION, "kraft.version 0 keeps the voters in the settings"
    if raft.log.voters.latest_offset >= role.high_watermark:
        return REQUEST_TIMED_OUT, "the last change of voters is not committed yet"
    return NONE, ""


def refuse(raft: RaftNode, token: Any, error: int, message: str) -> None:
    raft.reply(token, VoterChangeResponse(error, raft.known(), message))


def malformed(raft: RaftNode, voter: VoterKey, endpoints: Endpoints | None = None) -> str:
    """The fault of a request, independent of the voters: the log stores ids together with directories, and a
    voter is reached on the controller listener."""
    if voter.id < 0 or voter.directory_id == NO_DIRECTORY:
        return "the voter has no id or no directory"
    if endpoints is not None and raft.config.named(endpoints) is None:
        return f"no endpoint for the controller listener {raft.config.controller_listener}"
    return ""


def leader_refusal(raft: RaftNode, problem: str) -> tuple[int, str]:
    """The errors common to all changes, in Kafka's order: not the leader, malformed, not now."""
    role = raft.role
    if not isinstance(role, Leadership):
        return NOT_LEADER, "this node does not lead the quorum"
    return (INVALID_REQUEST, problem) if problem else refusal(raft, role)


def receive_add(raft: RaftNode, token: Any, request: AddRaftVoter, now_ms: int) -> None:
    error, message = leader_refusal(raft, malformed(raft, request.voter, request.endpoints))
    role, endpoint = raft.role, raft.config.named(request.endpoints)
    if not error and raft.voters.get(request.voter.id) is not None:
        error, message = DUPLICATE_VOTER, f"node {request.voter.id} is a voter already"
    if error or not isinstance(role, Leadership) or endpoint is None:
        refuse(raft, token, error, message)
        return
    voter = VoterInfo(request.voter, request.endpoints)
    deadline_ms = now_ms + request.timeout_ms
    role.change = VoterChange(ADD, token, voter, deadline_ms, acks=request.ack_when_committed)
    role.change.asked_ms = min(deadline_ms, now_ms + raft.config.request_timeout_ms)
    raft.send(request.voter.id, endpoint, ApiVersions(), now_ms, VOTERS)


def take_api_versions(raft: RaftNode, node_id: int, response: ApiVersionsResponse, now_ms: int) -> None:
    """The node that is to be added has sent its versions."""
    role = raft.role
    if not isinstance(role, Leadership) or role.change is None or role.change.kind != ADD:
        return
    change = role.change
    if change.voter.key.id != node_id or change.end_offset != UNKNOWN_OFFSET:
        return
    if response.error != NONE:
        finish(raft, role, REQUEST_TIMED_OUT, f"node {node_id} does not tell its versions")
    elif not response.min_kraft_version <= raft.kraft_version <= response.max_kraft_version:
        finish(raft, role, INVALID_REQUEST, f"node {node_id} cannot work with this kraft.version")
    elif not has_caught_up(raft, role, change.voter, now_ms):
        finish(raft, role, REQUEST_TIMED_OUT, f"node {node_id} has not caught up with the log")
    else:
        change.voter = change.voter._replace(
            min_kraft_version=response.min_kraft_version, max_kraft_version=response.max_kraft_version
        )
        append_voters(raft, role, raft.voters.with_voter(change.voter))


def has_caught_up(raft: RaftNode, role: Leadership, voter: VoterInfo, now_ms: int) -> bool:
    progress = role.replicas.get(voter.key)
    if progress is None or progress.caught_up_ms < 0:
        return False
    return progress.fetched_ms > now_ms - raft.config.joining_fetch_ms


def unreachable(raft: RaftNode, role: Leadership, peer: tuple[Any, ...]) -> None:
    """The node that is to be added could not be reached."""
    change = role.change
    if change is None or change.voter.key.id != peer[0]:
        return  # an earlier change, which was given up
    if change.kind == ADD and change.end_offset == UNKNOWN_OFFSET:
        finish(raft, role, REQUEST_TIMED_OUT, f"node {peer[0]} does not answer")


def receive_remove(raft: RaftNode, token: Any, request: RemoveRaftVoter, now_ms: int) -> None:
    error, message = leader_refusal(raft, malformed(raft, request.voter))
    role, voter = raft.role, raft.voters.get(request.voter.id)
    if not error and (voter is None or voter.key != request.voter or len(raft.voters) == 1):
        error, message = VOTER_NOT_FOUND, f"{request.voter.id} is no voter on that directory, or the only one"
    if error or voter is None or not isinstance(role, Leadership):
        refuse(raft, token, error, message)
        return
    role.change = VoterChange(REMOVE, token, voter, now_ms + DEFAULT_TIMEOUT_MS, acks=True)
    append_voters(raft, role, raft.voters.without(voter.key.id))


def receive_update(raft: RaftNode, token: Any, request: UpdateRaftVoter, now_ms: int) -> None:
    """A voter has new endpoints, or reports its versions; answered before the change is committed."""
    role, told = raft.role, request.voter
    error, message = update_refusal(raft, request)
    voter = raft.voters.get(told.key.id)
    if error or voter is None or not isinstance(role, Leadership):
        refuse(raft, token, error, message)
        return
    if raft.kraft_version == 0:
        role.known_voters[told.key.id] = told
    elif not told.is_told_by(voter):
        role.change = VoterChange(UPDATE, None, told, now_ms + DEFAULT_TIMEOUT_MS, acks=True)
        append_voters(raft, role, raft.voters.with_voter(told))
    role.saw(told.key, now_ms)
    raft.reply(token, VoterChangeResponse(NONE, raft.known()))


def update_refusal(raft: RaftNode, request: UpdateRaftVoter) -> tuple[int, str]:
    """With kraft.version 0, too, a voter reports itself: the leader needs that to raise the version."""
    if request.epoch != raft.epoch:
        is_old = request.epoch < raft.epoch
        return FENCED_LEADER_EPOCH if is_old else UNKNOWN_LEADER_EPOCH, "of another epoch"
    told = request.voter
    lowest, highest = told.min_kraft_version, told.max_kraft_version
    problem = malformed(raft, told.key, told.endpoints)
    if not 0 <= lowest <= highest:
        problem = problem or f"kraft.version from {lowest} to {highest} is no range"
    error, message = leader_refusal(raft, problem)
    if error and not (error == UNSUPPORTED_VERSION and raft.kraft_version == 0):
        return error, message
    if not lowest <= raft.kraft_version <= highest:
        return INVALID_REQUEST, f"kraft.version {raft.kraft_version} is in force, {lowest} to {highest} told"
    voter = raft.voters.get(told.key.id)
    if voter is None or not voter.is_same(told.key):
        return VOTER_NOT_FOUND, f"{told.key.id} is no voter on that directory"
    return NONE, ""


def append_voters(raft: RaftNode, role: Leadership, voters: VoterSet) -> None:
    invariants.require(raft.voters.overlaps(voters), "more than one voter changes at a time")
    end_offset = raft.propose_control(voters)
    if role.change is not None:
        role.change.end_offset = end_offset


def appended(raft: RaftNode, role: Leadership) -> None:
    """The record of a change is durable here; answer the client if it does not wait for the commit."""
    change = role.change
    if change is None or change.end_offset == UNKNOWN_OFFSET or change.end_offset > raft.log.end_offset:
        return
    if not change.ack_when_committed and change.token is not None:
        refuse(raft, change.token, NONE, "")
        change.token = None


def committed(raft: RaftNode, role: Leadership) -> None:
    change = role.change
    if change is not None and UNKNOWN_OFFSET < change.end_offset <= role.high_watermark:
        finish(raft, role, NONE, "")


def finish(raft: RaftNode, role: Leadership, error: int, message: str) -> None:
    change, role.change = role.change, None
    if change is not None and change.token is not None:
        refuse(raft, change.token, error, message)


def abandon(raft: RaftNode, role: Leadership) -> None:
    """The lead is lost: the outcome of the change is not known here."""
    finish(raft, role, NOT_LEADER, "the lead was lost meanwhile")


def poll(raft: RaftNode, role: Leadership, now_ms: int) -> int:
    change = role.change
    if change is None or (change.token is None and change.end_offset != UNKNOWN_OFFSET):
        return NEVER
    due_ms = change.asked_ms if change.end_offset == UNKNOWN_OFFSET else change.deadline_ms
    if now_ms < due_ms:
        return due_ms
    if change.end_offset == UNKNOWN_OFFSET:
        finish(raft, role, REQUEST_TIMED_OUT, "the new voter did not answer in time")
    else:  # it is in the log: the next change waits for it, but the client does not
        refuse(raft, change.token, REQUEST_TIMED_OUT, "it was not committed in time")
        change.token = None
    return NEVER


def raise_problem(raft: RaftNode, version: int) -> str:
    """The reason why kraft.version cannot be raised now; empty if it can, or is already being raised."""
    role = raft.role
    if not isinstance(role, Leadership):
        return "this node does not lead the quorum"
    if version <= raft.kraft_version or (role.change is not None and role.change.kind == RAISE):
        return ""
    if role.change is not None:
        return "a change of voters is under way"
    told = _told_voters(raft, role)
    unable = [each for each in raft.voters.ids if each not in told or told[each].max_kraft_version < version]
    if not unable:
        return ""
    why = "because not all of the voters support it"
    return f"Invalid upgrade of kraft.version to KRAFT_VERSION_{version} {why}: {unable} have not told so"


def _told_voters(raft: RaftNode, role: Leadership) -> dict[int, VoterInfo]:
    """What voters have reported about themselves in this epoch."""
    return {**role.known_voters, raft.me.id: raft.own_voter}


def raise_kraft_version(raft: RaftNode, version: int) -> int:
    """Move the voters from the settings into the log; returns the offset after the records."""
    role = raft.role
    if (problem := raise_problem(raft, version)) or not isinstance(role, Leadership):
        raise InvalidUpdateVersion(problem)
    if version <= raft.kraft_version:
        return raft.next_offset
    if role.change is not None:
        return role.change.end_offset
    told = _told_voters(raft, role)
    voters = VoterSet(told[node_id] for node_id in raft.voters.ids)
    role.change = VoterChange(RAISE, None, raft.own_voter, NEVER, acks=True)
    end_offset = raft.propose_control(KRaftVersion(version), voters)
    role.change.end_offset = end_offset
    return end_offset


# --- as any node


def tell_leader(raft: RaftNode, role: Follower, now_ms: int) -> int:
    """Send the leader the change that is due for this node as a voter; returns when to check again."""
    request = due_change(raft)
    if request is None:
        return NEVER
    leader_id = raft.election.leader_id
    due_ms = max(role.told_ms, raft.outbound.ready_ms((leader_id, VOTERS)))
    if due_ms > now_ms:
        return due_ms
    role.told_ms = now_ms + raft.config.fetch_timeout_ms
    raft.send(leader_id, role.endpoint, request, now_ms, VOTERS)
    return role.told_ms


def due_change(raft: RaftNode) -> AddRaftVoter | RemoveRaftVoter | UpdateRaftVoter | None:
    if not raft.config.endpoints:
        return None
    mine = raft.voters.get(raft.me.id)
    if raft.is_voter:
        return None if _is_told(raft, mine) else UpdateRaftVoter(raft.epoch, raft.own_voter)
    if not may_join(raft):
        return None
    if mine is not None:  # a directory that this node no longer has
        return RemoveRaftVoter(mine.key)
    return AddRaftVoter(raft.me, raft.config.endpoints, ack_when_committed=False)


def _is_told(raft: RaftNode, mine: VoterInfo | None) -> bool:
    """Whether the log (with kraft.version 0: this epoch's leader) has this voter's present data."""
    if raft.kraft_version == 0:
        return raft.has_told_epoch == raft.epoch
    return mine is None or raft.own_voter.is_told_by(mine)


def may_join(raft: RaftNode) -> bool:
    """Whether this node may add itself; not a second time, since then it was removed."""
    return raft.config.auto_join and raft.kraft_version > 0 and not raft.has_voted_here


def take_voter_change(raft: RaftNode, node_id: int, response: VoterChangeResponse, now_ms: int) -> None:
    if heed_answer(raft, response.error, response.known, now_ms) and response.error in _TOLD:
        is_told(raft, now_ms)


def is_told(raft: RaftNode, now_ms: int) -> None:
    """The leader has this voter's data, or is of a version that does not need it; it has answered."""
    raft.has_told_epoch = raft.epoch
    if isinstance(raft.role, Follower):
        raft.hear_leader(raft.role, now_ms)


RECEIVERS: dict[type, Any] = {
    AddRaftVoter: receive_add,
    RemoveRaftVoter: receive_remove,
    UpdateRaftVoter: receive_update,
}
ANSWERS: dict[type, Any] = {VoterChangeResponse: take_voter_change, ApiVersionsResponse: take_api_versions}
