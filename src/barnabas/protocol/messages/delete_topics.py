"""DeleteTopics: by name up to version 5, by name or id from 6 on."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Message, String, Struct, Uuid, field


class DeleteTopicState(Struct):
    name: String | None = field(default=None)
    topic_id: Uuid


class DeleteTopicsRequest(Message, key=20, versions=(1, 6), flexible=4):
    topics: list[DeleteTopicState] = field(6)
    topic_names: list[String] = field(1, 5)
    timeout_ms: Int32


class DeletableTopicResult(Struct):
    name: String | None = field(nullable=6)
    topic_id: Uuid = field(6)
    error_code: Int16
    error_message: String | None = field(5, default=None)


class DeleteTopicsResponse(Message, key=20, versions=(1, 6), flexible=4):
    throttle_time_ms: Int32
    responses: list[DeletableTopicResult]
