"""UpdateRaftVoter: a voter tells the leader its listeners and its kraft.versions; from node to node only."""

from __future__ import annotations

from barnabas.protocol.messages.quorum_nodes import Listener
from barnabas.protocol.schema import Int16, Int32, Message, String, Struct, Uuid, field


class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16


class UpdateRaftVoterRequest(Message, key=82, versions=(0, 0), flexible=0):
    cluster_id: String | None
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    k_raft_version_feature: KRaftVersionFeature


class CurrentLeader(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    host: String
    port: Int32


class UpdateRaftVoterResponse(Message, key=82, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    current_leader: CurrentLeader | None = field(tag=0)
