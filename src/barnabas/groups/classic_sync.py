"""SyncGroup and Heartbeat to a classic group: the leader sends the assignments, members receive their own."""

from __future__ import annotations

from barnabas.coordination.effects import Now, Reply
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.classic_members import Member
from barnabas.groups.classic_rebalance import begin, end_sync, watch
from barnabas.groups.classic_states import COMPLETING, PREPARING
from barnabas.groups.errors import InconsistentProtocol, RebalanceInProgress, UnknownMember
from barnabas.groups.turn import Turn
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_REBALANCE_IN_PROGRESS = wire_error("REBALANCE_IN_PROGRESS")


def sync(group: ClassicGroup, request: SyncGroupRequest, turn: Turn, reply: Reply) -> None:
    """Answer a member's SyncGroup, or let it wait if the leader has not sent the assignments yet."""
    try:
        member = _checked(group, request)
    except BarnabasError as error:
        turn.answer(reply, SyncGroupResponse(error_code=error.wire.code, assignment=b""))
        return
    group.unsynced.pop(member.id, None)
    if not group.unsynced and group.phase is not None:
        group.phase.cancel()
    if group.state != COMPLETING:
        turn.answer(reply, _part(group, member.assignment))
        watch(group, member, turn.now)  # the member relies on this response for a whole session
    elif member.id == group.leader:
        _hand_out(group, request, turn, reply)
    else:
        end_sync(group, member, turn, _REBALANCE_IN_PROGRESS)  # an earlier request, given up by its client
        member.syncing = reply


def _checked(group: ClassicGroup, request: SyncGroupRequest) -> Member:
    if group.is_empty:
        raise UnknownMember(f"group {group.id} is empty")
    member = group.member_of(request.member_id, request.group_instance_id, request.generation_id)
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol):
        raise InconsistentProtocol(f"group {group.id} speaks {group.protocol_type}, {group.protocol}")
    if group.state == PREPARING:
        raise RebalanceInProgress(f"group {group.id} prepares a rebalance")
    return member


def _differ(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known


def _hand_out(group: ClassicGroup, request: SyncGroupRequest, turn: Turn, reply: Reply) -> None:
    """The leader has sent the assignments: write the generation, and answer the waiting members.

    Their requests count as waiting until the record is replayed: if it is too large to be written, see
    `give_up`.
    """
    assignments = {one.member_id: bytes(one.assignment) for one in request.assignments}
    turn.write(group.record(assignments, group.generation, turn.now))
    turn.answer(reply, _part(group, assignments.get(request.member_id, b"")))
    watch(group, group.roster.by_id[request.member_id], turn.now)
    for member in group.roster.by_id.values():
        if member.syncing is not None:
            turn.answer(member.syncing, _part(group, assignments.get(member.id, b"")))
            watch(group, member, turn.now)


def give_up(group: ClassicGroup, request: SyncGroupRequest, turn: Turn) -> None:
    """The assignments could not be written: waiting members get an error, and all join again."""
    if group.state == COMPLETING and group.generation == request.generation_id:
        for member in group.roster.by_id.values():
            end_sync(group, member, turn, BarnabasError.wire)
        begin(group, turn)


def _part(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=0,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=assignment,
    )


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, now: Now) -> None:
    """Process a heartbeat; raises if the member must join again."""
    member = group.member_of(request.member_id, request.group_instance_id, request.generation_id)
    group.touch(member, now)
    if group.state == PREPARING:
        raise RebalanceInProgress(f"group {group.id} prepares a rebalance")
