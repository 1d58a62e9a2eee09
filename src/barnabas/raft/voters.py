"""The voters of the metadata quorum, and their history by offset.

A set of voters is in force as soon as its record is appended, committed or not, and is dropped when the log
is truncated. Two consecutive sets differ by one voter at most, so that any majority of the one shares a voter
with any majority of the other. With voters in the settings (kraft.version 0) their directories are not known,
and any directory of that node id is the voter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from barnabas.raft.election import VoterKey, majority, same_replica

T = TypeVar("T")

BOOTSTRAP_OFFSET = -1  # of values from the settings or from the checkpoint of an empty log


class Endpoint(NamedTuple):
    """The address of a listener; the host is a name, resolved anew for every connection."""

    listener: str
    host: str
    port: int


Endpoints = tuple[Endpoint, ...]


class VoterInfo(NamedTuple):
    """A voter with its listeners and the kraft.versions that it supports."""

    key: VoterKey
    endpoints: Endpoints = ()
    min_kraft_version: int = 0
    max_kraft_version: int = 1

    def is_same(self, key: VoterKey) -> bool:
        """Whether this voter is that replica; an unknown directory matches any."""
        return self.key is key or same_replica(self.key, key)

    def is_told_by(self, other: VoterInfo) -> bool:
        """Whether `other` has the same data; the order of the listeners does not matter."""
        if self.endpoints != other.endpoints and self._addresses() != other._addresses():
            return False
        return self._replace(endpoints=()) == other._replace(endpoints=())

    def _addresses(self) -> dict[str, tuple[str, int]]:
        return {name.upper(): (host, port) for name, host, port in self.endpoints}


class VoterSet:
    """An immutable set of voters, by node id."""

    __slots__ = ("_by_id", "ids", "majority", "voters")

    def __init__(self, voters: Iterable[VoterInfo]) -> None:
        self.voters = tuple(sorted(voters, key=lambda voter: voter.key.id))
        self._by_id = {voter.key.id: voter for voter in self.voters}
        self.ids = tuple(self._by_id)
        self.majority = majority(len(self.voters))

    def __len__(self) -> int:
        return len(self.voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(f'{each.key.id}' for each in self.voters)})"

    @property
    def keys(self) -> tuple[VoterKey, ...]:
        return tuple(voter.key for voter in self.voters)

    def get(self, node_id: int) -> VoterInfo | None:
        return self._by_id.get(node_id)

    def has(self, key: VoterKey) -> bool:
        """Whether that replica is a voter."""
        voter = self._by_id.get(key.id)
        return voter is not None and voter.is_same(key)

    def is_only(self, key: VoterKey) -> bool:
        return len(self.voters) == 1 and self.has(key)

    def rank(self, node_id: int, without: int) -> int:
        """The position of a voter among the others, without node `without`."""
        return sum(each < node_id for each in self.ids if each != without)

    def with_voter(self, voter: VoterInfo) -> VoterSet:
        """This set with `voter` added, or replacing the one with its id."""
        others = (each for each in self.voters if each.key.id != voter.key.id)
        return VoterSet((*others, voter))

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(each for each in self.voters if each.key.id != node_id)

    def overlaps(self, other: VoterSet) -> bool:
        """Whether the two sets differ by one change at most, so that their majorities share a voter."""
        changed = len(set(self.ids) ^ set(other.ids))
        for node_id in set(self.ids) & set(other.ids):
            if not self._by_id[node_id].is_same(other._by_id[node_id].key):
                changed += 2
        return changed <= 1


class OffsetHistory(Generic[T]):
    """Values in force from an offset on: appended with their records, and truncated with them."""

    __slots__ = ("_entries",)

    def __init__(self, first: T, offset: int = BOOTSTRAP_OFFSET) -> None:
        self._entries: list[tuple[int, T]] = [(offset, first)]

    @property
    def latest(self) -> T:
        return self._entries[-1][1]

    @property
    def latest_offset(self) -> int:
        """The offset of the record with the value in force."""
        return self._entries[-1][0]

    @property
    def previous(self) -> T:
        """The value before the latest; the latest itself if there is none."""
        return self._entries[-2 if len(self._entries) > 1 else -1][1]

    def at(self, end_offset: int) -> tuple[int, T]:
        """The value in force below `end_offset`, and the offset of its record."""
        for offset, value in reversed(self._entries):
            if offset < end_offset:
                return offset, value
        return self._entries[0]

    def append(self, offset: int, value: T) -> None:
        self._entries.append((offset, value))

    def truncate(self, end_offset: int) -> None:
        """Remove the values from `end_offset` on."""
        while len(self._entries) > 1 and self._entries[-1][0] >= end_offset:
            self._entries.pop()

    def forget(self, start_offset: int) -> None:
        """Remove values that were replaced before `start_offset`; the one in force there is kept."""
        while len(self._entries) > 1 and self._entries[1][0] < start_offset:
            del self._entries[0]
