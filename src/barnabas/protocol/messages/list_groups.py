"""ListGroups: the groups of one coordinator, by state from version 4 on, by type from 5 on."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Message, String, Struct, field


class ListGroupsRequest(Message, key=16, versions=(0, 5), flexible=3):
    states_filter: list[String] = field(4)
    types_filter: list[String] = field(5)


class ListedGroup(Struct):
    group_id: String
    protocol_type: String
    group_state: String = field(4)
    group_type: String = field(5)


class ListGroupsResponse(Message, key=16, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = field(1)
    error_code: Int16
    groups: list[ListedGroup]
