"""RemoveRaftVoter: a node is no voter of the metadata quorum any more (KIP-853)."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Message, String, Uuid


class RemoveRaftVoterRequest(Message, key=81, versions=(0, 0), flexible=0):
    cluster_id: String | None
    voter_id: Int32
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Message, key=81, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
