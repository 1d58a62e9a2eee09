"""Elections from the side of the candidate: counting pre-votes and votes, winning and losing.

A node's own vote counts once it is durable. A sole voter is its own majority; `voting` asks the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.raft.election import NO_NODE, Election
from barnabas.raft.states import NEVER, Candidate, Nominee, Prospective

if TYPE_CHECKING:
    from barnabas.raft.node import RaftNode


def count_own_vote(raft: RaftNode, election: Election, now_ms: int) -> None:
    """The election is durable; if it has a vote for this node itself, the vote counts now."""
    role = raft.role
    if isinstance(role, Candidate) and election.epoch == raft.epoch and election.voted == raft.me:
        role.granted.add(raft.me.id)
        check_votes(raft, role, now_ms)


def _count(raft: RaftNode, ids: set[int]) -> int:
    return sum(each in ids for each in raft.voters.ids)


def check_pre_votes(raft: RaftNode, role: Prospective, now_ms: int) -> None:
    voters = raft.voters
    if _count(raft, role.granted) >= voters.majority:
        raft.become_candidate(now_ms)
    elif _count(raft, role.rejected) > len(voters) - voters.majority:
        give_up(raft, now_ms)


def check_votes(raft: RaftNode, role: Candidate, now_ms: int) -> None:
    if _count(raft, role.granted) >= raft.voters.majority:
        raft.become_leader(sorted(role.granted), now_ms)


def give_up(raft: RaftNode, now_ms: int) -> None:
    """This node would not be elected: return to following the leader that it knew, if any."""
    leader_id = raft.election.leader_id
    endpoint = raft.leader_endpoint or raft.endpoint_of(leader_id)
    if leader_id != NO_NODE and endpoint is not None:
        raft.become_follower(raft.epoch, leader_id, endpoint, now_ms)
    else:
        raft.become_unattached(raft.epoch, now_ms, leader_id=leader_id)


def poll_prospective(raft: RaftNode, role: Prospective, now_ms: int) -> int:
    if now_ms >= role.deadline_ms:
        give_up(raft, now_ms)
        return NEVER
    return _ask(raft, role, now_ms, pre_vote=True)


def poll_candidate(raft: RaftNode, role: Candidate, now_ms: int) -> int:
    if raft.me.id not in role.granted:  # its own vote is not durable yet: `advance` goes on
        due_ms = _ask(raft, role, now_ms, pre_vote=False)
        return due_ms if due_ms > now_ms else NEVER
    if now_ms >= role.deadline_ms:
        raft.become_prospective(now_ms)
        return NEVER
    if len(role.granted) == 1:  # a sole voter that has found its own vote on the disk
        check_votes(raft, role, now_ms)
        if raft.role is not role:
            return NEVER
    return _ask(raft, role, now_ms, pre_vote=False)


def _ask(raft: RaftNode, role: Nominee, now_ms: int, *, pre_vote: bool) -> int:
    """Ask the other voters, if there are any; returns when that is due again."""
    if len(raft.voters) == 1 and raft.is_voter:
        return role.deadline_ms
    from barnabas.raft import voting

    return voting.ask(raft, role, now_ms, pre_vote=pre_vote)


POLLS: dict[type, Any] = {Prospective: poll_prospective, Candidate: poll_candidate}
