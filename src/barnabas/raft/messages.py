"""The messages between nodes of the quorum, and the driver's events, as values.

Requests and responses have the fields of Kafka's messages of the same name, without the cluster id and the
topic, which the driver adds and checks. Errors are Kafka's codes. Unknown offsets and epochs are -1, as on
the wire. Records travel as `Entry` values: a leader's fetch response names the range to be read (`read`), and
the driver replaces it by the bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas.raft.codes import (
    DUPLICATE_VOTER as DUPLICATE_VOTER,
)
from barnabas.raft.codes import (
    FENCED_LEADER_EPOCH as FENCED_LEADER_EPOCH,
)
from barnabas.raft.codes import (
    INVALID_REQUEST as INVALID_REQUEST,
)
from barnabas.raft.codes import (
    INVALID_UPDATE_VERSION as INVALID_UPDATE_VERSION,
)
from barnabas.raft.codes import (
    INVALID_VOTER_KEY as INVALID_VOTER_KEY,
)
from barnabas.raft.codes import (
    NONE as NONE,
)
from barnabas.raft.codes import (
    NOT_LEADER as NOT_LEADER,
)
from barnabas.raft.codes import (
    POSITION_OUT_OF_RANGE as POSITION_OUT_OF_RANGE,
)
from barnabas.raft.codes import (
    REQUEST_TIMED_OUT as REQUEST_TIMED_OUT,
)
from barnabas.raft.codes import (
    SNAPSHOT_NOT_FOUND as SNAPSHOT_NOT_FOUND,
)
from barnabas.raft.codes import (
    UNKNOWN_LEADER_EPOCH as UNKNOWN_LEADER_EPOCH,
)
from barnabas.raft.codes import (
    UNKNOWN_OFFSET as UNKNOWN_OFFSET,
)
from barnabas.raft.codes import (
    UNSUPPORTED_HIGH_WATERMARK as UNSUPPORTED_HIGH_WATERMARK,
)
from barnabas.raft.codes import (
    UNSUPPORTED_VERSION as UNSUPPORTED_VERSION,
)
from barnabas.raft.codes import (
    VOTER_NOT_FOUND as VOTER_NOT_FOUND,
)
from barnabas.raft.election import NO_DIRECTORY, NO_NODE, VoterKey
from barnabas.raft.log_index import Entry, EpochEnd
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.voters import Endpoint, Endpoints, VoterInfo

# --- requests


class Vote(NamedTuple):
    """A request for a vote in `epoch`; a pre-vote asks, in the present epoch, if it would be granted."""

    epoch: int
    candidate: VoterKey
    last_epoch: int
    end_offset: int
    pre_vote: bool = False
    voter: VoterKey | None = None  # the addressed voter; None in versions without the field


class BeginQuorumEpoch(NamedTuple):
    epoch: int
    leader_id: int
    endpoints: Endpoints = ()
    voter: VoterKey | None = None


class EndQuorumEpoch(NamedTuple):
    """The leader has resigned; `successors` are the preferred next leaders, the best first."""

    epoch: int
    leader_id: int
    successors: tuple[VoterKey, ...] = ()
    endpoints: Endpoints = ()


class Fetch(NamedTuple):
    epoch: int
    replica: VoterKey
    offset: int
    last_epoch: int
    high_watermark: int = UNSUPPORTED_HIGH_WATERMARK
    max_wait_ms: int = 500
    max_bytes: int = 1 << 20


class FetchSnapshot(NamedTuple):
    epoch: int
    replica: VoterKey
    snapshot: SnapshotId
    position: int
    max_bytes: int = 1 << 20


class AddRaftVoter(NamedTuple):
    voter: VoterKey
    endpoints: Endpoints
    timeout_ms: int = 30_000
    ack_when_committed: bool = True


class RemoveRaftVoter(NamedTuple):
    voter: VoterKey


class UpdateRaftVoter(NamedTuple):
    epoch: int
    voter: VoterInfo


class ApiVersions(NamedTuple):
    """Sent to a node that is to become a voter."""


Request = (
    Vote
    | BeginQuorumEpoch
    | EndQuorumEpoch
    | Fetch
    | FetchSnapshot
    | AddRaftVoter
    | RemoveRaftVoter
    | UpdateRaftVoter
    | ApiVersions
)

# --- responses


class Known(NamedTuple):
    """The leader as the answering node knows it; part of every response but that of ApiVersions."""

    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = ()


class VoteResponse(NamedTuple):
    error: int
    known: Known
    granted: bool = False


class EpochResponse(NamedTuple):
    """The answer to BeginQuorumEpoch and to EndQuorumEpoch."""

    error: int
    known: Known


class Read(NamedTuple):
    """The records that the driver must read and put into a response: from `offset` on, below `end_offset`."""

    offset: int
    end_offset: int
    max_bytes: int


class FetchResponse(NamedTuple):
    error: int
    known: Known
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging: EpochEnd | None = None
    snapshot: SnapshotId | None = None
    read: Read | None = None
    entries: tuple[Entry, ...] = ()


class FetchSnapshotResponse(NamedTuple):
    """`data` is what the driver read at `position`."""

    error: int
    known: Known
    snapshot: SnapshotId = SnapshotId(0, 0)
    size_bytes: int = 0
    position: int = 0
    max_bytes: int = 0
    data: Any = None
    data_bytes: int = 0


class VoterChangeResponse(NamedTuple):
    """The answer to AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter."""

    error: int
    known: Known
    message: str = ""


class ApiVersionsResponse(NamedTuple):
    error: int
    min_kraft_version: int = 0
    max_kraft_version: int = 0


Response = (
    VoteResponse
    | EpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | VoterChangeResponse
    | ApiVersionsResponse
)

# --- from the core to the driver


class Send(NamedTuple):
    """A request to a node at one of its endpoints; `node_id` is negative where only its address is known."""

    correlation: int
    node_id: int
    endpoint: Endpoint
    request: Request


class Reply(NamedTuple):
    """The response to the request that was received with `token`."""

    token: Any
    response: Response


# --- from the driver to the core


class Received(NamedTuple):
    """A request of another node, to be answered with the same token."""

    token: Any
    request: Request


class Answered(NamedTuple):
    correlation: int
    response: Response


class Failed(NamedTuple):
    """A request without a response: the connection was refused or closed, or the peer does not support the
    version (`unsupported`)."""

    correlation: int
    unsupported: bool = False


class ConnectionLost(NamedTuple):
    """The connection to that node, on which this one fetches, was closed by the other side."""

    node_id: int


class DialRefused(NamedTuple):
    """The node refuses connections: no process listens there any more."""

    node_id: int


class DialSucceeded(NamedTuple):
    node_id: int


class SnapshotTaken(NamedTuple):
    """This node wrote a snapshot of its own log."""

    snapshot: SnapshotId
    size_bytes: int


class LogTrimmed(NamedTuple):
    """The records below that snapshot were removed from the log, and older snapshots with them."""

    snapshot: SnapshotId


Event = (
    Received | Answered | Failed | ConnectionLost | DialRefused | DialSucceeded | SnapshotTaken | LogTrimmed
)

NO_KEY = VoterKey(NO_NODE, NO_DIRECTORY)
