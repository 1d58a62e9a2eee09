"""LeaveGroup: one member leaves up to version 2, several from 3 on."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Message, String, Struct, field


class MemberIdentity(Struct):
    member_id: String
    group_instance_id: String | None = field(default=None)
    reason: String | None = field(5, default=None)


class LeaveGroupRequest(Message, key=13, versions=(0, 5), flexible=4):
    group_id: String
    members: list[MemberIdentity] = field(3)
    member_id: String = field(0, 2)


class MemberResponse(Struct):
    member_id: String
    group_instance_id: String | None
    error_code: Int16


class LeaveGroupResponse(Message, key=13, versions=(0, 5), flexible=4):
    throttle_time_ms: Int32 = field(1)
    error_code: Int16
    members: list[MemberResponse] = field(3)
