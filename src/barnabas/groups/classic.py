"""A group of the classic protocol: members agree on a protocol, their leader computes the assignment.

Records hold the last complete generation: its number, protocol, leader, members and assignments. During a
rebalance the group is ahead of that, in memory only: a load of the group finds the last complete generation,
and its members join again. So in the states Stable and Empty the group equals its record, and in the others
the record is written at their end.

This file has the group's data and queries; its changes are in `classic_join`, `classic_sync`, `classic_leave`
and, for the transition between generations, `classic_rebalance`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.coordination.effects import Now
from barnabas.coordination.records import KeyedRecord
from barnabas.core.errors import InvariantViolation
from barnabas.groups.classic_members import Member, Roster
from barnabas.groups.classic_states import COMPLETING, LEGAL, PREPARING, STABLE
from barnabas.groups.errors import FencedInstance, IllegalGeneration, RebalanceInProgress, UnknownMember
from barnabas.groups.group import CLASSIC, CONSUMER_PROTOCOL, EMPTY
from barnabas.groups.records import ClassicMember, GroupMetadataKey, GroupMetadataValue
from barnabas.groups.settings import GroupSettings
from barnabas.groups.subscription import topics_of
from barnabas.groups.timers import Timer, Timers
from barnabas.protocol.schema import Message

VALUE_VERSION = 3  # of written records, as in Kafka 4.3
_UNKNOWN_MS = -1


class InitialDelay:
    """The wait for more members before the first generation: the rest of it, and whether any came."""

    __slots__ = ("delay_ms", "has_news", "remaining_ms")

    def __init__(self, delay_ms: int, remaining_ms: int) -> None:
        self.delay_ms = delay_ms
        self.remaining_ms = remaining_ms
        self.has_news = False


class ClassicGroup:
    """A classic group, by its id."""

    type = CLASSIC
    may_expire = True

    def __init__(self, group_id: str, timers: Timers, settings: Callable[[], GroupSettings]) -> None:
        self.id = group_id
        self.timers = timers
        self.settings = settings
        self.state = EMPTY
        self.state_since_ms: int | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.roster = Roster()
        self.pending: dict[str, Timer] = {}  # assigned member ids whose members have not joined yet
        self.unsynced: dict[str, None] = {}  # members of this generation that have not sent SyncGroup
        self.phase: Timer | None = None  # the end of the wait for joins, or for syncs
        self.initial: InitialDelay | None = None
        self._topics: frozenset[str] | None = None
        self._has_read_topics = False

    @property
    def is_empty(self) -> bool:
        return self.state == EMPTY

    def enter(self, state: str, now: Now) -> None:
        if state not in LEGAL[self.state]:
            raise InvariantViolation(f"group {self.id} cannot go from {self.state} to {state}")
        self.state = state
        self.state_since_ms = now.wall_ms

    # ---- members

    def member(self, member_id: str, instance_id: str | None) -> Member:
        """The member of that id, which must be the present one of its instance."""
        if instance_id is not None:
            known_id = self.roster.by_instance.get(instance_id)
            if known_id is None:
                raise UnknownMember(f"no member is instance {instance_id} of group {self.id}")
            if known_id != member_id:
                raise FencedInstance(f"instance {instance_id} of group {self.id} is another member now")
        member = self.roster.by_id.get(member_id)
        if member is None:
            raise UnknownMember(f"no member {member_id} in group {self.id}")
        return member

    def member_of(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """As `member`, and the group must be in that generation."""
        member = self.member(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.id} is in generation {self.generation}, not {generation}")
        return member

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.roster.by_id:
            self.protocol_type = protocol_type
        self.roster.add(member)
        self.leader = self.leader or member.id

    def remove(self, member: Member) -> None:
        self.roster.remove(member)
        self.unsynced.pop(member.id, None)
        if self.leader == member.id:
            self.leader = next(iter(self.roster.by_id), None)

    def can_speak(self, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
        """Whether a member with these protocols may join."""
        if self.is_empty:
            return bool(protocol_type and protocols)
        return self.protocol_type == protocol_type and any(map(self.roster.spoken_by_all, protocols))

    @property
    def has_all_joined(self) -> bool:
        """Whether every member waits for the next generation, and no assigned id is still to join."""
        return self.roster.joining_count == len(self.roster) and not self.pending

    # ---- commits

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: Now, *, is_transactional: bool
    ) -> None:
        if generation < 0 and self.is_empty:
            return  # of a client that only stores offsets here
        if generation >= 0 or member_id or instance_id is not None:
            member = self.member_of(member_id, instance_id, generation)
            if is_transactional:
                return
            if self.state == COMPLETING:
                raise RebalanceInProgress(f"group {self.id} is completing a rebalance")
            self.touch(member, now)
        elif not is_transactional:
            raise UnknownMember(f"group {self.id} has members, and this is none of them")

    def touch(self, member: Member, now: Now) -> None:
        """Restart the member's session."""
        if member.session is not None:
            self.timers.set(member.session, now.seconds + member.session_timeout_ms / 1000)

    # ---- the topics of its members

    @property
    def knows_subscription(self) -> bool:
        return self._subscribed_topics() is not None

    def is_subscribed_to(self, topic: str) -> bool:
        topics = self._subscribed_topics()
        return self.protocol_type == CONSUMER_PROTOCOL if topics is None else topic in topics

    def forget_topics(self) -> None:
        """The subscribed topics may differ in the new generation."""
        self._has_read_topics = False

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self._has_read_topics:
            self._topics = self._read_topics()
            self._has_read_topics = True
        return self._topics

    def _read_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        members = self.roster.by_id.values()
        if not members:
            return frozenset()
        if self.protocol is None:
            return None
        return topics_of(member.protocols.get(self.protocol, b"") for member in members)

    # ---- records

    def record(self, assignments: Mapping[str, bytes], generation: int, now: Now) -> KeyedRecord:
        """The record of this generation, with the members' assignments."""
        protocol = self.protocol or ""
        members = [
            member.recorded(protocol, assignments.get(member.id, b""))
            for member in self.roster.by_id.values()
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=generation,
            protocol=self.protocol if members else None,
            leader=self.leader,
            current_state_timestamp=now.wall_ms,
            members=members,
        )
        return KeyedRecord(self._key(), value, VALUE_VERSION)

    def empty_record(self, now: Now) -> KeyedRecord:
        """The record of a new group, before its first generation."""
        value = GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=now.wall_ms,
            members=[],
        )
        return KeyedRecord(self._key(), value, VALUE_VERSION)

    def tombstones(self) -> list[KeyedRecord]:
        return [KeyedRecord(self._key(), None)]

    def _key(self) -> Message:
        return GroupMetadataKey(group=self.id)

    def close(self) -> None:
        """Cancel all timers: the group has been removed."""
        for timer in self.pending.values():
            timer.cancel()
        if self.phase is not None:
            self.phase.cancel()

    def replay(self, value: GroupMetadataValue) -> None:
        """Apply a complete generation. Members that a rebalance has collected since it was written stay."""
        if self.state == PREPARING and self.roster.by_id:
            return
        since_ms = value.current_state_timestamp
        self.state = STABLE if value.members else EMPTY
        self.state_since_ms = None if since_ms == _UNKNOWN_MS else since_ms
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = value.leader
        self._replay_members(value)
        self.forget_topics()

    def _replay_members(self, value: GroupMetadataValue) -> None:
        stayed = {member.member_id for member in value.members}
        for known in list(self.roster.by_id.values()):
            if known.id not in stayed:
                self.roster.remove(known)
        for told in value.members:
            read = _member_of(told, value.protocol)
            member = self.roster.by_id.get(read.id)
            if member is None:
                self.roster.add(read)
            else:
                self._update(member, read)

    def _update(self, member: Member, read: Member) -> None:
        """Update a member from its record, which has only one of the protocols that the member supports."""
        (spoken,) = read.protocols.items()
        if spoken not in member.protocols.items():
            self.roster.speak(member, read.protocols)
        member.rebalance_timeout_ms = read.rebalance_timeout_ms
        member.session_timeout_ms = read.session_timeout_ms
        member.assignment = read.assignment
        member.syncing = None  # it gets its response


def _member_of(told: ClassicMember, protocol: str | None) -> Member:
    without = told.rebalance_timeout == -1  # as written by versions with a session timeout only
    return Member(
        told.member_id,
        told.group_instance_id,
        told.client_id,
        told.client_host,
        rebalance_timeout_ms=told.session_timeout if without else told.rebalance_timeout,
        session_timeout_ms=told.session_timeout,
        protocols={protocol or "": bytes(told.subscription)},
        assignment=bytes(told.assignment),
    )
