"""Votes and pre-votes as messages: answering and sending requests.

A pre-vote promises nothing and changes nothing on the disk; a vote is durable before it is sent. Logs are
compared by (last epoch, end offset). It is not checked whether the candidate is a voter by this node's log,
since this node's voters may be older than the candidate's. The candidate's side is in `standing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.raft import standing
from barnabas.raft.codes import (
    FENCED_LEADER_EPOCH,
    INVALID_REQUEST,
    INVALID_VOTER_KEY,
    NONE,
    UNKNOWN_LEADER_EPOCH,
)
from barnabas.raft.election import NO_NODE, VoterKey, same_replica
from barnabas.raft.messages import Vote, VoteResponse
from barnabas.raft.states import Candidate, Follower, Nominee, Prospective, Resigned, Unattached

if TYPE_CHECKING:
    from barnabas.raft.node import RaftNode


# --- answering


def receive_vote(raft: RaftNode, token: Any, request: Vote, now_ms: int) -> None:
    error, granted = judge_vote(raft, request, now_ms)
    raft.reply(token, VoteResponse(error, raft.known(), granted))


def judge_vote(raft: RaftNode, request: Vote, now_ms: int) -> tuple[int, bool]:
    """The error, and whether the vote is granted. A later epoch is adopted even if the vote is refused."""
    too_late = request.epoch + 1 if request.pre_vote else request.epoch
    if request.end_offset < 0 or not 0 <= request.last_epoch < too_late or request.candidate.id < 0:
        return INVALID_REQUEST, False
    if request.epoch < raft.epoch:
        return FENCED_LEADER_EPOCH, False
    if request.epoch > raft.epoch:
        raft.become_unattached(request.epoch, now_ms)
    if not is_meant(raft, request.voter):
        return INVALID_VOTER_KEY, False
    is_up_to_date = (request.last_epoch, request.end_offset) >= (raft.log.last_epoch, raft.log.end_offset)
    if request.pre_vote:
        return NONE, can_grant_pre_vote(raft, is_up_to_date)
    granted = can_grant_vote(raft, request.candidate, is_up_to_date)
    if granted:
        remember_vote(raft, request.candidate, now_ms)
    return NONE, granted


def is_meant(raft: RaftNode, voter: VoterKey | None) -> bool:
    """Whether a request for that voter is for this node, on this directory."""
    return voter is None or same_replica(voter, raft.me)


def can_grant_pre_vote(raft: RaftNode, is_up_to_date: bool) -> bool:
    """A leader never grants one; a follower only until it has fetched, or when its leader is gone."""
    role = raft.role
    if isinstance(role, (Unattached, Nominee, Resigned)):
        return is_up_to_date
    if isinstance(role, Follower):
        return is_up_to_date and (not role.has_fetched or raft.suspicion.is_gone)
    return False


def can_grant_vote(raft: RaftNode, candidate: VoterKey, is_up_to_date: bool) -> bool:
    """A vote is granted again to the same candidate, or to one while neither a vote nor a leader is known."""
    if not isinstance(raft.role, (Unattached, Prospective)):
        return False
    if raft.election.voted is not None:
        return same_replica(raft.election.voted, candidate)
    return raft.election.leader_id == NO_NODE and is_up_to_date


def remember_vote(raft: RaftNode, candidate: VoterKey, now_ms: int) -> None:
    """Note the vote; it is written before the response is sent."""
    if raft.election.voted is not None:
        return
    raft.election = raft.election._replace(voted=candidate)
    if isinstance(raft.role, Unattached):
        raft.role.deadline_ms = raft.election_deadline_ms(now_ms)


# --- asking


def take_vote(raft: RaftNode, node_id: int, response: VoteResponse, now_ms: int) -> None:
    role = raft.role
    if not heed_answer(raft, response.error, response.known, now_ms) or raft.role is not role:
        return
    if not isinstance(role, Nominee):
        return
    is_granted = response.granted and response.error == NONE
    (role.granted if is_granted else role.rejected).add(node_id)  # another directory never grants one
    if isinstance(role, Prospective):
        standing.check_pre_votes(raft, role, now_ms)
    elif isinstance(role, Candidate):
        standing.check_votes(raft, role, now_ms)


def heed_answer(raft: RaftNode, error: int, known: Any, now_ms: int) -> bool:
    """Process the epoch and leader in a response; False if the response is of no further use."""
    if known.epoch < raft.epoch or error == UNKNOWN_LEADER_EPOCH:
        return False
    epoch = raft.epoch
    raft.heed(known.epoch, known.leader_id, known.endpoints, now_ms)
    return raft.epoch == epoch


def ask(raft: RaftNode, role: Nominee, now_ms: int, *, pre_vote: bool) -> int:
    """Ask the voters that have not answered; returns when that is due again."""
    deadline_ms = role.deadline_ms
    for voter in raft.voters.voters:
        node_id = voter.key.id
        if node_id == raft.me.id or node_id in role.granted or node_id in role.rejected:
            continue
        ready_ms = raft.outbound.ready_ms(node_id)
        endpoint = raft.config.reached_at(voter.endpoints)
        if ready_ms <= now_ms and endpoint is not None:
            log = raft.log
            request = Vote(raft.epoch, raft.me, log.last_epoch, log.end_offset, pre_vote, voter.key)
            raft.send(node_id, endpoint, request, now_ms)
            ready_ms = raft.outbound.ready_ms(node_id)
        deadline_ms = min(deadline_ms, max(ready_ms, now_ms + 1))
    return deadline_ms


RECEIVERS: dict[type, Any] = {Vote: receive_vote}
ANSWERS: dict[type, Any] = {VoteResponse: take_vote}
