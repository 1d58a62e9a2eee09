"""ControllerRegistration: a node of the quorum says where it is reached; from node to node only."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Message, String, Struct, UInt16, Uuid


class Listener(Struct):
    name: String
    host: String
    port: UInt16
    security_protocol: Int16


class Feature(Struct):
    name: String
    min_supported_version: Int16
    max_supported_version: Int16


class ControllerRegistrationRequest(Message, key=70, versions=(0, 0), flexible=0):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    listeners: list[Listener]
    features: list[Feature]


class ControllerRegistrationResponse(Message, key=70, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
