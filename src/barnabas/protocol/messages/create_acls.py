"""CreateAcls: add access rules."""

from __future__ import annotations

from barnabas.protocol.schema import Int8, Int16, Int32, Message, String, Struct, field


class AclCreation(Struct):
    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = field(1, default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class CreateAclsRequest(Message, key=30, versions=(1, 3), flexible=2):
    creations: list[AclCreation]


class AclCreationResult(Struct):
    error_code: Int16
    error_message: String | None


class CreateAclsResponse(Message, key=30, versions=(1, 3), flexible=2):
    throttle_time_ms: Int32
    results: list[AclCreationResult]
