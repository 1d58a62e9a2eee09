"""BrokerHeartbeat: a broker says that it lives, and asks to be unfenced or let go; from node to node only."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Int64, Message, Uuid, field


class BrokerHeartbeatRequest(Message, key=63, versions=(0, 2), flexible=0):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    current_metadata_offset: Int64
    want_fence: Bool
    want_shut_down: Bool
    offline_log_dirs: list[Uuid] = field(1, tag=0)
    cordoned_log_dirs: list[Uuid] | None = field(2, tag=1)


class BrokerHeartbeatResponse(Message, key=63, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    is_caught_up: Bool = field(default=False)
    is_fenced: Bool = field(default=True)
    should_shut_down: Bool
