"""Requests of a group's members, one by one, as a raw client sends them."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


def joining(
    group: str,
    member: str = "",
    *,
    protocols: tuple[tuple[str, bytes], ...] = (("range", b"r"),),
    instance: str | None = None,
    kind: str = "consumer",
    session_ms: int = 10_000,
    rebalance_ms: int = 10_000,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        reason="a test",
    )


def syncing(
    group: str,
    joined: Any,
    parts: dict[str, bytes] | None = None,
    *,
    instance: str | None = None,
    **changed: Any,
) -> SyncGroupRequest:
    values: dict[str, Any] = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocol_name": joined.protocol_name or "range",
        "assignments": [
            SyncGroupRequestAssignment(member_id=member, assignment=part)
            for member, part in (parts or {}).items()
        ],
    }
    return SyncGroupRequest(**(values | changed))


def beating(group: str, generation: int, member: str, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
    )


def leaving(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    identities = [
        MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members
    ]
    return LeaveGroupRequest(group_id=group, members=identities, member_id=members[0][0] if members else "")
