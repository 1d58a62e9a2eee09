"""Who leads a partition, and where: what Produce and Fetch tell those who asked the wrong node (KIP-951)."""

from __future__ import annotations

from barnabas.protocol.schema import Int32, String, Struct, field


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


class NodeEndpoint(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)
