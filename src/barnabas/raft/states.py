"""What a node remembers in each of its states. All of it is memory only, and goes with the state.

What must outlive a crash is the `Election`; what the leader knows of its replicas is in `replication`.
"""

from __future__ import annotations

from typing import Final

from barnabas.raft.election import State, VoterKey
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.voters import Endpoint

NEVER: Final = 1 << 62


class Search:
    """How far a node is in asking others, in turn, for the leader."""

    __slots__ = ("asked", "due_ms", "turn")

    def __init__(self) -> None:
        self.asked = 0  # how many were asked
        self.due_ms = 0  # when the next may be
        self.turn = 0  # whose turn it is


class Unattached:
    """Knows of no leader, or not where it is."""

    __slots__ = ("deadline_ms", "search")
    state: Final = State.UNATTACHED

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms  # of the election timeout; observers have none
        self.search = Search()


class Nominee:
    """Collects votes, or pre-votes."""

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
        self.search = Search()  # for another leader, where this one is gone
        self.loading: tuple[SnapshotId, int] | None = None  # the snapshot that is fetched, and how far
        self.told_ms = 0  # when the leader may next be told something about this node as a voter


class Resigned:
    """Led this epoch, and does not any more; tells the voters so."""

    __slots__ = ("deadline_ms", "successors", "untold")
    state: Final = State.RESIGNED

    def __init__(self, deadline_ms: int, untold: set[int], successors: tuple[VoterKey, ...]) -> None:
        self.deadline_ms = deadline_ms
        self.untold = untold
        self.successors = successors


class Suspicion:
    """What speaks against the leader of this epoch being alive. It is gone when the connection to it was lost
    *and* a new dial was refused, when it said so itself, or when it was silent for too long."""

    __slots__ = ("asks", "connection_lost", "dial_refused", "has_ended", "is_silent")

    def __init__(self, *, never_connected: bool = False) -> None:
        self.connection_lost = never_connected
        self.dial_refused = False
        self.has_ended = False
        self.is_silent = False  # for the fetch timeout
        self.asks = 0  # how often this node asked for pre-votes because of it

    @property
    def is_gone(self) -> bool:
        return self.has_ended or self.is_silent or (self.connection_lost and self.dial_refused)
