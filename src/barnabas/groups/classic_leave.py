"""LeaveGroup to a classic group: members leave by id, or an administrator removes them by instance."""

from __future__ import annotations

from barnabas.core.errors import BarnabasError
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.classic_rebalance import advance, dismiss, forget
from barnabas.groups.errors import UnknownMember
from barnabas.groups.turn import Turn
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse


def leave(group: ClassicGroup, request: LeaveGroupRequest, turn: Turn) -> list[MemberResponse]:
    """The result for each member; all removals together cause one rebalance."""
    responses = [response_of(one, _error_code(group, one, turn)) for one in request.members]
    if any(response.error_code == 0 for response in responses) and not group.is_empty:
        advance(group, turn)
    return responses


def response_of(one: MemberIdentity, error_code: int) -> MemberResponse:
    return MemberResponse(
        member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error_code
    )


def _error_code(group: ClassicGroup, one: MemberIdentity, turn: Turn) -> int:
    try:
        _let_go(group, one, turn)
    except BarnabasError as error:
        return error.wire.code
    return 0


def _let_go(group: ClassicGroup, one: MemberIdentity, turn: Turn) -> None:
    if one.member_id in group.pending:
        forget(group, one.member_id)
        return
    member_id = one.member_id
    if not member_id:
        known_id = group.roster.by_instance.get(one.group_instance_id or "")
        if one.group_instance_id is None or known_id is None:
            raise UnknownMember(f"no member is instance {one.group_instance_id} of group {group.id}")
        member_id = known_id
    dismiss(group, group.member(member_id, one.group_instance_id), turn)
