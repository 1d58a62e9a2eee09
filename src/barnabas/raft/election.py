"""What a voter of the metadata quorum is, what it remembers, and how votes and offsets are counted.

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
    """Who votes: a node, on one directory. A node whose directory was lost is another voter."""

    id: int
    directory_id: UUID = NO_DIRECTORY


def same_replica(one: VoterKey, other: VoterKey) -> bool:
    """Whether they may be the same: kraft.version 0 does not tell directories."""
    if one.id != other.id:
        return False
    mine, theirs = one.directory_id.int, other.directory_id.int
    return mine == theirs or not mine or not theirs


class Election(NamedTuple):
    """What must never be forgotten: the epoch, who leads it, and whom this node has voted for in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: VoterKey | None = None


class State(enum.Enum):
    """What a node is in the current epoch."""

    UNATTACHED = "unattached"  # knows of no leader
    PROSPECTIVE = "prospective"  # asks whether it would be elected, before it disturbs anyone
    CANDIDATE = "candidate"  # has voted for itself, and asks for votes
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"  # led this epoch, and does not any more


# from each state, those that may come next
TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNATTACHED: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.FOLLOWER}),
    State.PROSPECTIVE: frozenset({State.UNATTACHED, State.CANDIDATE, State.FOLLOWER}),
    State.CANDIDATE: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.LEADER, State.FOLLOWER}),
    State.LEADER: frozenset({State.UNATTACHED, State.RESIGNED, State.FOLLOWER}),
    State.FOLLOWER: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.FOLLOWER}),
    State.RESIGNED: frozenset({State.UNATTACHED, State.PROSPECTIVE, State.FOLLOWER}),
}


def majority(voters: int) -> int:
    """How many of that many voters decide."""
    return voters // 2 + 1


def is_elected(granted: Collection[VoterKey], voters: Collection[VoterKey]) -> bool:
    """Whether these votes are enough; those of nodes that have no vote do not count."""
    return len(set(granted) & set(voters)) >= majority(len(voters))


def replicated_offset(end_offsets: Collection[int]) -> int:
    """Up to where a majority of the voters holds the log, given how far each of them does."""
    return sorted(end_offsets, reverse=True)[majority(len(end_offsets)) - 1]
