"""The groups of one partition of `__consumer_offsets`, with their members and committed offsets.

A state machine by the rules of `coordination.effects`: commands decide, and only `replay` changes state that
is in records. The handlers of commands are in modules by subject: `classic_*` for members, `offset_commands`
for offsets, `listing` for requests about whole groups.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordination.effects import NOTHING, Caller, Effects, Now, Producer, Reply
from barnabas.coordination.records import KeyedRecord
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.core.random import Random
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.classic_join import Joiner, can_be_written, join
from barnabas.groups.classic_leave import leave, response_of
from barnabas.groups.classic_rebalance import begin, refused_join, watch
from barnabas.groups.classic_sync import give_up, heartbeat, sync
from barnabas.groups.errors import UnknownMember
from barnabas.groups.foreign import ForeignGroup, type_of
from barnabas.groups.group import SHARE, Group
from barnabas.groups.offset_commands import forget_topics
from barnabas.groups.offset_expiry import OffsetExpiry
from barnabas.groups.offsets import OffsetStore
from barnabas.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.groups.settings import GroupSettings
from barnabas.groups.timers import Timers
from barnabas.groups.turn import Turn
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_UNKNOWN_MEMBER_ID = wire_error("UNKNOWN_MEMBER_ID")


class GroupShard:
    """Groups by id, with their committed offsets."""

    def __init__(self, settings: Callable[[], GroupSettings], random: Random) -> None:
        self.settings = settings
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.timers = Timers()
        self.rebalances = 0  # generations that began since the shard was loaded
        self._expiry = OffsetExpiry()
        self._random = random

    # ---- members

    def join(self, request: JoinGroupRequest, caller: Caller, now: Now, reply: Reply) -> Effects:
        """JoinGroup: answered when the next generation begins."""
        turn = Turn(now)
        group = self.groups.get(request.group_id)
        refusal = self._join_refusal(request, caller, group)
        if refusal is not None:
            turn.answer(reply, refused_join(wire_error(refusal), request.member_id))
            return self._end(turn)
        joiner = Joiner(request, caller, reply)
        if isinstance(group, ClassicGroup):
            join(group, joiner, turn, self._random)
        else:
            self._join_new(request.group_id, group, joiner, turn)
        return self._end(turn)

    def _join_refusal(self, request: JoinGroupRequest, caller: Caller, group: Group | None) -> str | None:
        if not request.group_id:
            return "INVALID_GROUP_ID"
        if not can_be_written(request, caller):
            return "INVALID_REQUEST"
        settings = self.settings()
        shortest_ms, longest_ms = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return "INVALID_SESSION_TIMEOUT"
        if request.member_id and not isinstance(group, ClassicGroup):
            return "UNKNOWN_MEMBER_ID"
        if group is not None and group.type == SHARE:
            return "INCONSISTENT_GROUP_PROTOCOL"
        return None

    def _join_new(self, group_id: str, before: Group | None, joiner: Joiner, turn: Turn) -> None:
        """The first member creates the group, or replaces one of another type; unless it is refused."""
        group = ClassicGroup(group_id, self.timers, self.settings)
        join(group, joiner, turn, self._random)
        if group.roster.by_id or group.pending:
            if before is not None:
                turn.write(*before.tombstones())
            turn.write(group.empty_record(turn.now))
            self.groups[group_id] = group

    def sync(self, request: SyncGroupRequest, caller: Caller, now: Now, reply: Reply) -> Effects:
        """SyncGroup: answered when the leader has sent the assignments."""
        turn = Turn(now)
        group = self.groups.get(request.group_id)
        if not request.group_id:
            turn.answer(
                reply, SyncGroupResponse(error_code=wire_error("INVALID_GROUP_ID").code, assignment=b"")
            )
        elif isinstance(group, ClassicGroup):
            sync(group, request, turn, reply)
        else:
            turn.answer(reply, SyncGroupResponse(error_code=_UNKNOWN_MEMBER_ID.code, assignment=b""))
        return self._end(turn)

    def sync_failed(self, request: SyncGroupRequest, now: Now, reply: Reply) -> Effects:
        """The records of a SyncGroup were too large to be written."""
        turn = Turn(now)
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            give_up(group, request, turn)
        turn.answer(reply, SyncGroupResponse(error_code=BarnabasError.wire.code, assignment=b""))
        return self._end(turn)

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now: Now, reply: Reply) -> Effects:
        """Heartbeat of a member."""
        group = self.groups.get(request.group_id)
        error_code = 0
        try:
            if not request.group_id:
                error_code = wire_error("INVALID_GROUP_ID").code
            elif isinstance(group, ClassicGroup):
                heartbeat(group, request, now)
            else:
                raise UnknownMember(f"Group {request.group_id} not found.")
        except BarnabasError as error:
            error_code = error.wire.code
        return Effects((), ((reply, HeartbeatResponse(error_code=error_code)),))

    def leave(self, request: LeaveGroupRequest, caller: Caller, now: Now, reply: Reply) -> Effects:
        """LeaveGroup."""
        turn = Turn(now)
        group = self.groups.get(request.group_id)
        if not request.group_id:
            response = LeaveGroupResponse(error_code=wire_error("INVALID_GROUP_ID").code, members=[])
        elif isinstance(group, ClassicGroup):
            response = LeaveGroupResponse(error_code=0, members=leave(group, request, turn))
        else:
            unknown = [response_of(one, _UNKNOWN_MEMBER_ID.code) for one in request.members]
            response = LeaveGroupResponse(error_code=0, members=unknown)
        turn.answer(reply, response)
        return self._end(turn)

    def _end(self, turn: Turn) -> Effects:
        self.rebalances += turn.generations
        return turn.effects()

    # ---- whole groups

    def topic_deleted(self, name: str, topic_id: bytes) -> Effects:
        """Remove the committed offsets of a deleted topic."""
        return forget_topics(self, {name: topic_id})

    # ---- replay

    def replay(self, record: KeyedRecord, producer: Producer | None) -> None:
        """Apply a record of the log."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            if value is not None and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(key.group, self.timers, self.settings)
            self.offsets.replay(key, value, producer)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_classic(key.group, value)
        else:
            self._replay_foreign(record)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self.groups.get(group_id)
        if value is not None:
            if not isinstance(group, ClassicGroup):
                group = self.groups[group_id] = ClassicGroup(group_id, self.timers, self.settings)
            group.replay(value)
        elif isinstance(group, ClassicGroup):
            group.close()
            del self.groups[group_id]

    def _replay_foreign(self, record: KeyedRecord) -> None:
        group_id: str = record.key.group_id  # type: ignore[attr-defined]
        group_type = type_of(record.key)
        group = self.groups.get(group_id)
        if record.value is not None and (group is None or group.type != group_type):
            if isinstance(group, ClassicGroup) and not group.is_empty:
                return
            group = self.groups[group_id] = ForeignGroup(group_id, group_type)
        if isinstance(group, ForeignGroup) and group.type == group_type:
            group.replay(record)
            if group.is_gone:
                del self.groups[group_id]

    def replay_end(self, producer: Producer, is_commit: bool) -> None:
        """A transaction has ended in this partition."""
        self.offsets.replay_end(producer, is_commit)

    # ---- time

    def loaded(self, now: Now) -> Effects:
        """All records have been replayed: start the members' sessions."""
        turn = Turn(now)
        max_size = self.settings().max_size
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.roster.by_id.values():
                    watch(group, member, now)
                if len(group.roster) > max_size:
                    begin(group, turn)
        self._expiry.begin(self, now)
        return self._end(turn)

    def tick(self, now: Now) -> Effects:
        """Do what is due, until something must be written and replayed first."""
        turn = Turn(now)
        while not turn.records and (timer := self.timers.take_due(now.seconds)) is not None:
            timer.fire(turn)
        effects = self._end(turn)
        return self._expiry.tick(self, now) if effects is NOTHING else effects

    def next_due_seconds(self) -> float | None:
        """The time at which `tick` must be called."""
        dues = [
            due
            for due in (self.timers.next_due_seconds(), self._expiry.next_due_seconds())
            if due is not None
        ]
        return min(dues, default=None)
