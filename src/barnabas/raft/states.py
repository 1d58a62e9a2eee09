"""The data of a node in each of its states. It is in memory only, and dropped with the state.

The `Election` survives a crash; the leader's data about its replicas is in `replication`.
"""

from __future__ import annotations

from typing import Final

from barnabas.raft.election import State, VoterKey
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.voters import Endpoint

NEVER: Final = 1 << 62


class Search:
    """The search for the leader by asking other nodes in turn."""

    __slots__ = ("asked", "due_ms", "turn")

    def __init__(self) -> None:
        self.asked = 0  # the number of requests so far
        self.due_ms = 0  # when the next one may be sent
        self.turn = 0  # the index of the next node


class Unattached:
    """Knows no leader, or not its endpoint."""

    __slots__ = ("deadline_ms", "search")
    state: Final = State.UNATTACHED

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms  # of the election timeout; observers have none
        self.search = Search()


class Nominee:
    """Collects votes or pre-votes."""

    __slots__ = ("deadline_ms", "granted", "rejected")
    state: State = State.PROSPECTIVE

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.granted: set[int] = set()  # ids of voters
        self.rejected: set[int] = set()


class Prospective(Nominee):
    __slots__ = ()
    state = State.PROSPECTIVE


class Candidate(Nominee):
    __slots__ = ()
    state = State.CANDIDATE


class Follower:
    """Fetches from the leader."""

    __slots__ = (
        "ask_ms",
        "endpoint",
        "fetch_deadline_ms",
        "has_fetched",
        "loading",
        "search",
        "told_ms",
    )
    state: Final = State.FOLLOWER

    def __init__(self, endpoint: Endpoint, fetch_deadline_ms: int) -> None:
        self.endpoint = endpoint
        self.fetch_deadline_ms = fetch_deadline_ms
        self.has_fetched = False
        self.ask_ms = NEVER  # when to ask for pre-votes because the leader is gone
        self.search = Search()  # for another leader, if this one is gone
        self.loading: tuple[SnapshotId, int] | None = None  # the snapshot being fetched, and the position
        self.told_ms = 0  # when the next request about this node as a voter may be sent to the leader


class Resigned:
    """Was the leader of this epoch and has stopped; tells the voters."""

    __slots__ = ("deadline_ms", "successors", "untold")
    state: Final = State.RESIGNED

    def __init__(self, deadline_ms: int, untold: set[int], successors: tuple[VoterKey, ...]) -> None:
        self.deadline_ms = deadline_ms
        self.untold = untold
        self.successors = successors


class Suspicion:
    """The signs that the leader of this epoch is gone: the connection to it was lost *and* a new one was
    refused, it has resigned, or it was silent for too long."""

    __slots__ = ("asks", "connection_lost", "dial_refused", "has_ended", "is_silent")

    def __init__(self, *, never_connected: bool = False) -> None:
        self.connection_lost = never_connected
        self.dial_refused = False
        self.has_ended = False
        self.is_silent = False  # for the fetch timeout
        self.asks = 0  # how often this node has asked for pre-votes because of it

    @property
    def is_gone(self) -> bool:
        return self.has_ended or self.is_silent or (self.connection_lost and self.dial_refused)
