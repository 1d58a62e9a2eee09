"""DescribeClientQuotas: quotas, by whom they are for."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Float64, Int8, Int16, Int32, Message, String, Struct


class ComponentData(Struct):
    entity_type: String
    match_type: Int8
    match: String | None


class DescribeClientQuotasRequest(Message, key=48, versions=(0, 1), flexible=1):
    components: list[ComponentData]
    strict: Bool


class EntityData(Struct):
    entity_type: String
    entity_name: String | None


class ValueData(Struct):
    key: String
    value: Float64


class EntryData(Struct):
    entity: list[EntityData]
    values: list[ValueData]


class DescribeClientQuotasResponse(Message, key=48, versions=(0, 1), flexible=1):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    entries: list[EntryData] | None
