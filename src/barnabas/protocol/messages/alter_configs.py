"""AlterConfigs: all that is set for a resource, in place of what was set before."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int8, Int16, Int32, Message, String, Struct


class AlterableConfig(Struct):
    name: String
    value: String | None


class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


class AlterConfigsRequest(Message, key=33, versions=(0, 2), flexible=2):
    resources: list[AlterConfigsResource]
    validate_only: Bool


class AlterConfigsResourceResponse(Struct):
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String


class AlterConfigsResponse(Message, key=33, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]
