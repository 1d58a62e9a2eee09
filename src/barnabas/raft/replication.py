"""The leader's state: the progress of its replicas, the high watermark that follows, and waiting fetches.

The high watermark is unknown when an epoch begins. It is the offset up to which a majority of the voters has
the log; the leader counts only if it is a voter itself. It moves only once that includes a record of the
leader's own epoch: records of earlier leaders are committed with that record, never by counting alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.raft.codes import UNKNOWN_OFFSET
from barnabas.raft.config import RaftConfig
from barnabas.raft.election import State, VoterKey, replicated_offset
from barnabas.raft.voters import VoterInfo, VoterSet

if TYPE_CHECKING:
    from barnabas.raft.messages import Fetch


class ReplicaProgress:
    """How much of the log a replica has, by its fetches."""

    __slots__ = ("caught_up_ms", "end_offset", "fetched_ms", "leader_end_offset")

    def __init__(self) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.fetched_ms = UNKNOWN_OFFSET
        self.caught_up_ms = UNKNOWN_OFFSET  # when it last had the whole log
        self.leader_end_offset = 0  # the leader's end at its last fetch


class ParkedFetch(NamedTuple):
    """A fetch that waits until it can be answered."""

    token: Any
    request: Fetch
    deadline_ms: int


class VoterChange:
    """The change of voters in progress; `end_offset` is after its record, once that is proposed.

    Its client is answered by `deadline_ms`; the next change waits as long as it takes.
    """

    __slots__ = ("ack_when_committed", "asked_ms", "deadline_ms", "end_offset", "kind", "token", "voter")

    def __init__(self, kind: str, token: Any, voter: VoterInfo, deadline_ms: int, *, acks: bool) -> None:
        self.kind = kind
        self.token = token
        self.voter = voter
        self.deadline_ms = deadline_ms
        self.asked_ms = deadline_ms  # until when the new voter must have sent its versions
        self.ack_when_committed = acks
        self.end_offset = UNKNOWN_OFFSET


class Leadership:
    """The state of the leader of an epoch."""

    __slots__ = (
        "_latest",
        "acknowledged",
        "begun_ms",
        "change",
        "duty_ms",
        "elected_ms",
        "epoch_start_offset",
        "high_watermark",
        "known_voters",
        "parked",
        "replicas",
    )
    state: Final = State.LEADER

    def __init__(self, epoch_start_offset: int, now_ms: int) -> None:
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = UNKNOWN_OFFSET
        self.elected_ms = now_ms
        self.replicas: dict[VoterKey, ReplicaProgress] = {}
        self.parked: list[ParkedFetch] = []
        self.acknowledged: set[int] = set()  # voters that know of this epoch
        self.begun_ms: dict[int, int] = {}  # when each was last told of this epoch
        self.change: VoterChange | None = None
        self.known_voters: dict[int, VoterInfo] = {}  # what voters of kraft.version 0 report of themselves
        self.duty_ms = 0  # when to announce the epoch, or to check the contact with the voters, next
        self._latest: dict[int, tuple[VoterKey, ReplicaProgress]] = {}  # by node, the one that fetched last

    def progress(self, key: VoterKey) -> ReplicaProgress:
        found = self.replicas.get(key)
        if found is None:
            found = self.replicas[key] = ReplicaProgress()
            self._latest[key.id] = key, found
        return found

    def of_voter(self, voter: VoterInfo) -> ReplicaProgress | None:
        """The progress of a voter; with voters from the settings, the directory is not known."""
        found = self.replicas.get(voter.key)
        if found is not None:
            return found
        latest = self._latest.get(voter.key.id)
        return latest[1] if latest is not None and voter.is_same(latest[0]) else None

    def saw(self, key: VoterKey, now_ms: int) -> ReplicaProgress:
        """Note a request of that replica."""
        progress = self.progress(key)
        progress.fetched_ms = now_ms
        self._latest[key.id] = key, progress
        self.acknowledged.add(key.id)
        return progress

    def count(self, key: VoterKey, offset: int, end_offset: int, now_ms: int) -> None:
        """Note that a replica has this log, durably, up to `offset`; the leader's own end is `end_offset`."""
        progress = self.progress(key)
        if offset >= end_offset:
            progress.caught_up_ms = now_ms
        elif offset >= progress.leader_end_offset and progress.fetched_ms >= 0:
            progress.caught_up_ms = progress.fetched_ms
        progress.fetched_ms = now_ms
        self._latest[key.id] = key, progress
        progress.end_offset = offset
        progress.leader_end_offset = end_offset

    def ends(self, voters: VoterSet, me: VoterKey, end_offset: int) -> list[int]:
        """The end offset of each voter; this node counts only if it is a voter."""
        found = []
        for voter in voters.voters:
            if voter.is_same(me):
                found.append(end_offset)
            else:
                progress = self.of_voter(voter)
                found.append(UNKNOWN_OFFSET if progress is None else progress.end_offset)
        return found

    def commit(self, voters: VoterSet, me: VoterKey, end_offset: int) -> bool:
        """Advance the high watermark; returns whether it has moved."""
        replicated = replicated_offset(self.ends(voters, me, end_offset))
        if not self.may_commit(replicated):
            return False
        self.high_watermark = replicated
        return True

    def may_commit(self, replicated: int) -> bool:
        return replicated > self.epoch_start_offset and replicated > self.high_watermark

    def quorum_deadline_ms(self, voters: VoterSet, me: VoterKey, config: RaftConfig, now_ms: int) -> int:
        """Until when this node may lead without further fetches of voters."""
        heard = []
        for voter in voters.voters:
            if voter.is_same(me):
                heard.append(now_ms)
            else:
                progress = self.of_voter(voter)
                heard.append(max(self.elected_ms, -1 if progress is None else progress.fetched_ms))
        heard.sort(reverse=True)
        return heard[voters.majority - 1] + config.check_quorum_ms

    def successors(self, voters: VoterSet, me: VoterKey) -> tuple[VoterKey, ...]:
        """The other voters, those with the longest logs first."""
        others = [voter for voter in voters.voters if not voter.is_same(me)]
        found = {voter.key: self.of_voter(voter) for voter in others}
        ends = {key: -1 if each is None else each.end_offset for key, each in found.items()}
        return tuple(sorted(ends, key=lambda key: (-ends[key], key.id)))

    def forget_observers(self, voters: VoterSet, config: RaftConfig, now_ms: int) -> None:
        gone = now_ms - config.observer_session_ms
        for key in [key for key, each in self.replicas.items() if each.fetched_ms < gone]:
            if not voters.has(key):
                del self.replicas[key]
                latest = self._latest.get(key.id)  # it may be that of another directory, or missing
                if latest is not None and latest[0] == key:
                    del self._latest[key.id]
