"""DescribeConfigs: settings, where they come from, and what they would be without."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int8, Int16, Int32, Message, String, Struct, field


class DescribeConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None


class DescribeConfigsRequest(Message, key=32, versions=(1, 4), flexible=4):
    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = field(default=False)
    include_documentation: Bool = field(3, default=False)


class DescribeConfigsSynonym(Struct):
    name: String
    value: String | None
    source: Int8


class DescribeConfigsResourceResult(Struct):
    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: Int8 = field(3, default=0)
    documentation: String | None = field(3)


class DescribeConfigsResult(Struct):
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResponse(Message, key=32, versions=(1, 4), flexible=4):
    throttle_time_ms: Int32
    results: list[DescribeConfigsResult]
