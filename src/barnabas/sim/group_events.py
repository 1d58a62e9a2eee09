"""What members of groups did and were told, for a history (see history.py).

`member` is a client's process, `member_id` what the coordinator calls it. A member *has* an assignment from
`Assigned` on until it says otherwise: `Joining` (it gives up what it has and asks for the next generation) or
`GivenUp` (it was told that it is no member any more, or leaves). `node`, of an answer, is the
node that gave it. `lasts_s` is how long it may believe in an
assignment after the last request that was answered well: the shorter of its session and rebalance timeouts.
"""

from __future__ import annotations

from typing import NamedTuple

Place = tuple[str, int]  # topic, partition


class Joining(NamedTuple):
    at: float
    group: str
    member: str
    instance: str  # "" for a dynamic member


class Joined(NamedTuple):
    at: float
    asked_at: float
    group: str
    member: str
    member_id: str
    generation: int
    leader: str
    node: int = 1


class Assigned(NamedTuple):
    """What SyncGroup gave it."""

    at: float
    asked_at: float
    group: str
    member: str
    member_id: str
    instance: str
    generation: int
    places: tuple[Place, ...]
    lasts_s: float
    node: int = 1


class Affirmed(NamedTuple):
    """A heartbeat of this generation was answered well."""

    at: float
    asked_at: float
    group: str
    member: str
    member_id: str
    generation: int
    node: int = 1


class GivenUp(NamedTuple):
    at: float
    group: str
    member: str
    why: str


class CommitSent(NamedTuple):
    """An offset is sent, with a mark of its own as metadata; `txn`: that shows with this transaction.

    `generation`: -1 where the group's members have no say.
    """

    at: float
    mark: str
    group: str
    topic: str
    partition: int
    offset: int
    generation: int = -1
    txn: str = ""


class CommitDone(NamedTuple):
    """It was acknowledged."""

    at: float
    mark: str
    node: int = 1


class CommitRefused(NamedTuple):
    at: float
    mark: str
    error: str


class CommittedSeen(NamedTuple):
    """What was committed, as OffsetFetch tells; offset -1: nothing. `is_stable`: require-stable was asked."""

    at: float
    asked_at: float
    who: str
    group: str
    topic: str
    partition: int
    offset: int
    mark: str
    is_stable: bool
    node: int = 1


class GroupWanted(NamedTuple):
    """After the faults: new members have begun, and from now on nobody else comes or goes."""

    at: float
    group: str
    members: int
    places: tuple[Place, ...]


class GroupSeen(NamedTuple):
    """What one of them has, after that."""

    at: float
    group: str
    member: str
    generation: int  # -1: no assignment
    places: tuple[Place, ...]


GroupEvent = (
    Joining
    | Joined
    | Assigned
    | Affirmed
    | GivenUp
    | CommitSent
    | CommitDone
    | CommitRefused
    | CommittedSeen
    | GroupWanted
    | GroupSeen
)
