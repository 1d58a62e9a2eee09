"""AddRaftVoter: make a node a voter of the metadata quorum (KIP-853).

Version 1 may ask to be answered before the change is committed.
"""

from __future__ import annotations

from barnabas.protocol.messages.quorum_nodes import Listener
from barnabas.protocol.schema import Bool, Int16, Int32, Message, String, Uuid, field


class AddRaftVoterRequest(Message, key=80, versions=(0, 1), flexible=0):
    cluster_id: String | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: Bool = field(1, default=True)


class AddRaftVoterResponse(Message, key=80, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
