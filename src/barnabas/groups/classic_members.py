"""The members of a classic group: their data, supported protocols, and the vote on the protocol.

Records hold a member's identity, timeouts, subscription and assignment, but not its waiting requests or the
end of its session. Two counts are maintained, so that a member's change costs the same in a group of a
thousand: the members waiting in JoinGroup, and the members that support each protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.coordination.effects import Reply
from barnabas.groups.records import ClassicMember
from barnabas.groups.timers import Timer
from barnabas.protocol.messages.join_group import JoinGroupRequestProtocol


class Member:
    """A member of a classic group."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "is_new",
        "joining",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols  # metadata by name, the preferred one first
        self.assignment = assignment
        self.is_new = False  # it has never been in a generation
        self.joining: Reply | None = None  # the waiting JoinGroup
        self.syncing: Reply | None = None  # the waiting SyncGroup
        self.session: Timer | None = None

    def recorded(self, protocol: str, assignment: bytes) -> ClassicMember:
        """The member as in the record of a generation with that protocol."""
        return ClassicMember(
            member_id=self.id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.protocols.get(protocol, b""),
            assignment=assignment,
        )


def protocols_of(asked: Sequence[JoinGroupRequestProtocol]) -> dict[str, bytes]:
    """The protocols of a request by name; of duplicates the first counts."""
    found: dict[str, bytes] = {}
    for one in asked:
        found.setdefault(one.name, bytes(one.metadata))
    return found


class Roster:
    """The members by id, in the order in which they joined."""

    __slots__ = ("_speakers", "by_id", "by_instance", "joining_count")

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}
        self.joining_count = 0
        self._speakers: dict[str, int] = {}  # the number of members that support a protocol

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, member: Member) -> None:
        self.by_id[member.id] = member
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = member.id
        self.joining_count += member.joining is not None
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        del self.by_id[member.id]
        if member.instance_id is not None and self.by_instance.get(member.instance_id) == member.id:
            del self.by_instance[member.instance_id]
        self.joining_count -= member.joining is not None
        self._count(member, -1)
        if member.session is not None:
            member.session.cancel()

    def wait(self, member: Member, reply: Reply | None) -> None:
        """Set or clear the member's waiting JoinGroup."""
        self.joining_count += (reply is not None) - (member.joining is not None)
        member.joining = reply

    def speak(self, member: Member, protocols: dict[str, bytes]) -> None:
        """Set the protocols that the member supports."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: Member, change: int) -> None:
        for name in member.protocols:
            count = self._speakers.get(name, 0) + change
            if count:
                self._speakers[name] = count
            else:
                del self._speakers[name]

    # ---- queries

    def spoken_by_all(self, name: str) -> bool:
        return self._speakers.get(name, 0) == len(self.by_id)

    def choice(self) -> str:
        """The protocol preferred by most members among those that all support."""
        votes: dict[str, int] = {}
        for member in self.by_id.values():
            for name in member.protocols:
                if self.spoken_by_all(name):
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)
