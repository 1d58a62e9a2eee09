"""IncrementalAlterConfigs: single settings set, deleted, appended to or subtracted from."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int8, Int16, Int32, Message, String, Struct


class AlterableConfig(Struct):
    name: String
    config_operation: Int8
    value: String | None


class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


class IncrementalAlterConfigsRequest(Message, key=44, versions=(0, 1), flexible=1):
    resources: list[AlterConfigsResource]
    validate_only: Bool


class AlterConfigsResourceResponse(Struct):
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String


class IncrementalAlterConfigsResponse(Message, key=44, versions=(0, 1), flexible=1):
    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]
