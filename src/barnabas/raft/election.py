"""Voters of the metadata quorum, the state of an election, and the counting of votes and offsets.

Pure values and functions. The counting is the same for one voter and for many: the sole voter of a quorum of
one is its majority.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

NO_NODE = -1
NO_DIRECTORY = UUID(int=0)


class VoterKey(NamedTuple):
    """A voter: a node with one directory. A node that has lost its directory is another voter."""

    id: int
    directory_id: UUID = NO_DIRECTORY


def same_replica(one: VoterKey, other: VoterKey) -> bool:
    """Whether the two may be the same replica: kraft.version 0 does not know directories."""
    if one.id != other.id:
        return False
    mine, theirs = one.directory_id.int, other.directory_id.int
    return mine == theirs or not mine or not theirs


class Election(NamedTuple):
    """The durable state of a node: the epoch, its leader, and this node's vote in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: VoterKey | None = None


class State(enum.Enum):
    """The state of a node in the current epoch."""

    UNATTACHED = "unattached"  # knows no leader
    PROSPECTIVE = "prospective"  # asks for pre-votes, before a real election disturbs others
    CANDIDATE = "candidate"  # has voted for itself, and asks for votes
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"  # was the leader of this epoch, and has stopped


# the possible next states of each state
TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNATTACHED: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.FOLLOWER}),
    State.PROSPECTIVE: frozenset({State.UNATTACHED, State.CANDIDATE, State.FOLLOWER}),
    State.CANDIDATE: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.LEADER, State.FOLLOWER}),
    State.LEADER: frozenset({State.UNATTACHED, State.RESIGNED, State.FOLLOWER}),
    State.FOLLOWER: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.FOLLOWER}),
    State.RESIGNED: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.FOLLOWER}),
}


def majority(voters: int) -> int:
    """The number of voters that is a majority of so many."""
    return voters // 2 + 1


def is_elected(granted: Collection[VoterKey], voters: Collection[VoterKey]) -> bool:
    """Whether these votes are a majority; votes of nodes that are not voters do not count."""
    return len(set(granted) & set(voters)) >= majority(len(voters))


def replicated_offset(end_offsets: Collection[int]) -> int:
    """The offset up to which a majority of the voters has the log, given the end offset of each."""
    return sorted(end_offsets, reverse=True)[majority(len(end_offsets)) - 1]
