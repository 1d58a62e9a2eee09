"""Requests about whole groups: describe, list, delete."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from barnabas.coordination.effects import Caller, Effects, Reply, Write
from barnabas.core.errors import BarnabasError
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.classic_states import STABLE
from barnabas.groups.errors import GroupNotFound, NonEmptyGroup
from barnabas.groups.group import DEAD
from barnabas.groups.offsets import tombstones
from barnabas.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from barnabas.protocol.messages.list_groups import ListedGroup

if TYPE_CHECKING:
    from barnabas.groups.shard import GroupShard

COMMITS_A_TURN = 2000

_FIRST_WITH_NOT_FOUND = 6


def describe(shard: GroupShard, group_id: str, caller: Caller, reply: Reply) -> Effects:
    """DescribeGroups, for one group."""
    group = shard.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        described = _described(group)
    else:
        told = "not found." if group is None else "is not a classic group."
        described = missing(group_id, caller.api_version, f"Group {group_id} {told}")
    return Effects((), ((reply, DescribeGroupsResponse(groups=[described])),))


def missing(group_id: str, api_version: int, message: str) -> DescribedGroup:
    """The description of a missing group; for clients before version 6 only its state shows that."""
    knows_error = api_version >= _FIRST_WITH_NOT_FOUND
    return DescribedGroup(
        error_code=GroupNotFound.wire.code if knows_error else 0,
        error_message=message if knows_error else None,
        group_id=group_id,
        group_state=DEAD,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _described(group: ClassicGroup) -> DescribedGroup:
    protocol = (group.protocol or "") if group.state == STABLE else ""
    return DescribedGroup(
        error_code=0,
        group_id=group.id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=[
            DescribedGroupMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.protocols.get(protocol, b""),
                member_assignment=member.assignment,
            )
            for member in group.roster.by_id.values()
        ],
    )


def listed(shard: GroupShard, states: Sequence[str], types: Sequence[str]) -> list[ListedGroup]:
    """The groups in one of these states and of one of these types, if any are given; case is ignored."""
    wanted_states = {state.lower().strip() for state in states}
    wanted_types = {name.lower() for name in types}
    return [
        ListedGroup(
            group_id=group.id,
            protocol_type=group.protocol_type or "",
            group_state=group.state,
            group_type=group.type,
        )
        for group in shard.groups.values()
        if (not states or group.state.lower() in wanted_states)
        and (not types or group.type.lower() in wanted_types)
    ]


def delete(shard: GroupShard, group_id: str, reply: Reply) -> Effects:
    """DeleteGroups, for one group: it is removed with its offsets, unless it has members.

    Very many offsets are removed a slice at a time: a response without a result means that the request must
    be repeated.
    """
    try:
        writes, is_gone = _deleted(shard, group_id)
    except BarnabasError as error:
        return Effects((), ((reply, _result(group_id, error.wire.code)),))
    response = _result(group_id, 0) if is_gone else DeleteGroupsResponse(throttle_time_ms=0, results=[])
    return Effects(writes, ((reply, response),))


def _deleted(shard: GroupShard, group_id: str) -> tuple[list[Write], bool]:
    group = shard.groups.get(group_id)
    if group is None:
        raise GroupNotFound(f"Group {group_id} not found.")
    if not group.is_empty:
        raise NonEmptyGroup(f"group {group_id} has members")
    offsets = shard.offsets.by_group.get(group_id)
    ended = [] if offsets is None else list(islice(offsets.partitions(), COMMITS_A_TURN))
    writes = tombstones(group_id, ended)
    is_gone = len(ended) < COMMITS_A_TURN
    if is_gone:
        writes.append(Write(group.tombstones()))
    return writes, is_gone


def _result(group_id: str, error_code: int) -> DeleteGroupsResponse:
    result = DeletableGroupResult(group_id=group_id, error_code=error_code)
    return DeleteGroupsResponse(throttle_time_ms=0, results=[result])
