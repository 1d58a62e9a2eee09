"""SyncGroup: the leader hands in what each member gets, and every member asks for its part."""

from __future__ import annotations

from barnabas.protocol.schema import Bytes, Int16, Int32, Message, String, Struct, field


class SyncGroupRequestAssignment(Struct):
    member_id: String
    assignment: Bytes


class SyncGroupRequest(Message, key=14, versions=(0, 5), flexible=4):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(3, default=None)
    protocol_type: String | None = field(5, default=None)
    protocol_name: String | None = field(5, default=None)
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupResponse(Message, key=14, versions=(0, 5), flexible=4):
    throttle_time_ms: Int32 = field(1)
    error_code: Int16
    protocol_type: String | None = field(5, default=None)
    protocol_name: String | None = field(5, default=None)
    assignment: Bytes
