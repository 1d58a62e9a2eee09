"""DescribeGroups: state, protocol and members of classic groups."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Bytes, Int16, Int32, Message, String, Struct, field


class DescribeGroupsRequest(Message, key=15, versions=(0, 6), flexible=5):
    groups: list[String]
    include_authorized_operations: Bool = field(3)


class DescribedGroupMember(Struct):
    member_id: String
    group_instance_id: String | None = field(4, default=None)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Struct):
    error_code: Int16
    error_message: String | None = field(6, default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = field(3, default=-2147483648)


class DescribeGroupsResponse(Message, key=15, versions=(0, 6), flexible=5):
    throttle_time_ms: Int32 = field(1)
    groups: list[DescribedGroup]
