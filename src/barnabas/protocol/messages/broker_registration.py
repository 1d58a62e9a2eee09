"""BrokerRegistration: a broker that starts asks the controller for an epoch; from node to node only."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Int64, Message, String, Struct, UInt16, Uuid, field


class Listener(Struct):
    name: String
    host: String
    port: UInt16
    security_protocol: Int16


class Feature(Struct):
    name: String
    min_supported_version: Int16
    max_supported_version: Int16


class BrokerRegistrationRequest(Message, key=62, versions=(0, 4), flexible=0):
    broker_id: Int32
    cluster_id: String
    incarnation_id: Uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: String | None
    is_migrating_zk_broker: Bool = field(1, default=False)
    log_dirs: list[Uuid] = field(2)
    previous_broker_epoch: Int64 = field(3, default=-1)


class BrokerRegistrationResponse(Message, key=62, versions=(0, 4), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    broker_epoch: Int64 = field(default=-1)
