"""What nodes of the quorum say to each other and what the driver tells the core, as values.

Requests and responses have the fields of Kafka's messages of the same name, without the cluster id and the
topic, which the driver fills in and checks. Errors are Kafka's codes. Offsets and epochs that are not known
are -1, as on the wire. Records travel as `Entry` values: a leader's fetch answer names what is to be read
(`read`), and the driver puts the bytes in its place.
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
    """May this candidate lead `epoch`? A pre-vote asks whether it could, in its present epoch."""

    epoch: int
    candidate: VoterKey
    last_epoch: int
    end_offset: int
    pre_vote: bool = False
    voter: VoterKey | None = None  # whom it means to ask; None in versions that do not say


class BeginQuorumEpoch(NamedTuple):
    epoch: int
    leader_id: int
    endpoints: Endpoints = ()
    voter: VoterKey | None = None


class EndQuorumEpoch(NamedTuple):
    """The leader has resigned; `successors` are the voters that should follow it, the best first."""

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
    """Asked of a node that is to become a voter."""


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
    """What the driver is to read and put into an answer: from `offset` on, below `end_offset`."""

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

# --- what the driver sends


class Send(NamedTuple):
    """A request to a node at one of its endpoints; `node_id` is negative where only its address is known."""

    correlation: int
    node_id: int
    endpoint: Endpoint
    request: Request


class Reply(NamedTuple):
    """The answer to the request that was received with that token."""

    token: Any
    response: Response


# --- what the driver tells


class Received(NamedTuple):
    """A request of another node, to be answered with the same token."""

    token: Any
    request: Request


class Answered(NamedTuple):
    correlation: int
    response: Response


class Failed(NamedTuple):
    """A request has no answer: the connection was refused or closed, or the peer cannot read it
    (`unsupported`: the peer knows no such version)."""

    correlation: int
    unsupported: bool = False


class ConnectionLost(NamedTuple):
    """The connection to that node, on which this one fetches, was closed by the other side."""

    node_id: int


class DialRefused(NamedTuple):
    """Nothing listens any more where that node did."""

    node_id: int


class DialSucceeded(NamedTuple):
    node_id: int


class SnapshotTaken(NamedTuple):
    """This node wrote a snapshot of its own log."""

    snapshot: SnapshotId
    size_bytes: int


class LogTrimmed(NamedTuple):
    """What that snapshot stands for was removed from the log, and older snapshots with it."""

    snapshot: SnapshotId


Event = (
    Received | Answered | Failed | ConnectionLost | DialRefused | DialSucceeded | SnapshotTaken | LogTrimmed
)

NO_KEY = VoterKey(NO_NODE, NO_DIRECTORY)
