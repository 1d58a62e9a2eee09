"""DeleteGroups: groups without members go, with what they committed."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Message, String, Struct


class DeleteGroupsRequest(Message, key=42, versions=(0, 2), flexible=2):
    groups_names: list[String]


class DeletableGroupResult(Struct):
    group_id: String
    error_code: Int16


class DeleteGroupsResponse(Message, key=42, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32
    results: list[DeletableGroupResult]
