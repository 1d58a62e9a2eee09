"""ListConfigResources: what has settings, by type; in version 0 subscriptions to client metrics alone."""

from __future__ import annotations

from barnabas.protocol.schema import Int8, Int16, Int32, Message, String, Struct, field


class ListConfigResourcesRequest(Message, key=74, versions=(0, 1), flexible=0):
    resource_types: list[Int8] = field(1)


class ConfigResource(Struct):
    resource_name: String
    resource_type: Int8 = field(1, default=16)


class ListConfigResourcesResponse(Message, key=74, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    config_resources: list[ConfigResource]
