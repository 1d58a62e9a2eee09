"""A node of the metadata quorum, as Kafka's KRaft defines it: synchronous, without clock, disk or network.

The driver tells it what happened (`tick`: time passed; `step`: a message or an event came; `propose`: append
this) and does what `ready` says, one `Ready` at a time, in this order:

1. write `election` to the disk, durably; only then may `messages` be sent;
2. truncate the log, write the piece of a snapshot, append `entries`, and flush;
3. call `advance`: only then does any of it count, for others and for this node itself.

So nothing is ever told that a crash could take back. A follower fetches on only when what it fetched is
durable, and a leader counts its own end likewise. Messages rest on the election alone: whatever rests on the
log is said after `advance`. More may be stepped, ticked and proposed while a Ready is carried out.

This file holds the state, the transitions and the turn of a Ready; what is asked and answered in each state
is in `voting`, `following`, `leading` and `voter_changes`. Only this package changes a `Raft`.
Epochs and the high watermark never go back. Times are monotonic milliseconds, given by the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.core.random import Random
from barnabas.raft import following, invariants, leading, voter_changes, voting
from barnabas.raft.config import RaftConfig
from barnabas.raft.election import NO_NODE, TRANSITIONS, Election, State, VoterKey, same_replica
from barnabas.raft.log_index import Control, Entry, KRaftVersion, LeaderChange, LogIndex, LogState
from barnabas.raft.messages import (
    NONE,
    UNKNOWN_OFFSET,
    Answered,
    ConnectionLost,
    DialRefused,
    DialSucceeded,
    Event,
    Failed,
    Known,
    LogTrimmed,
    Received,
    Reply,
    Request,
    Response,
    Send,
    SnapshotTaken,
)
from barnabas.raft.outbound import Outbound
from barnabas.raft.replication import Leadership
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.states import NEVER, Candidate, Follower, Prospective, Resigned, Suspicion, Unattached
from barnabas.raft.voters import BOOTSTRAP_OFFSET, Endpoint, Endpoints, VoterInfo, VoterSet

Role = Unattached | Prospective | Candidate | Leadership | Follower | Resigned


class NotLeader(BarnabasError):
    """Only the leader of the metadata quorum appends to its log."""

    wire = wire_error("NOT_CONTROLLER")


class SnapshotChunk(NamedTuple):
    """Bytes of a snapshot, to be written at `position` of its file. With the last of them it is whole, and
    takes the place of the log and of all other snapshots."""

    snapshot: SnapshotId
    position: int
    size_bytes: int
    data: Any
    is_last: bool


class Ready(NamedTuple):
    """What is to be done now; false where there is nothing. `high_watermark` is what is committed by now."""

    election: Election | None = None
    truncate_to: int | None = None
    chunk: SnapshotChunk | None = None
    entries: tuple[Entry, ...] = ()
    messages: tuple[Send | Reply, ...] = ()
    high_watermark: int = 0

    def __bool__(self) -> bool:
        return self is not NOTHING

    @property
    def changes_log(self) -> bool:
        return bool(self.entries) or self.truncate_to is not None or self.chunk is not None


NOTHING = Ready()


class Raft:
    """One node. Fields without an underscore may be read by the driver."""

    def __init__(
        self,
        me: VoterKey,
        *,
        election: Election,
        log: LogState,
        config: RaftConfig,
        random: Random,
        now_ms: int = 0,
    ) -> None:
        self.me = me
        self.config = config
        self.random = random
        self.log = LogIndex(log)
        self.high_watermark = log.start_offset
        self.election = election
        self.outbound = Outbound(config)
        self.suspicion = Suspicion(never_connected=True)
        self.has_voted_here = False  # this process has been a voter: it never joins by itself again
        self.has_told_epoch = -1  # the epoch whose leader knows this node's listeners and versions
        self.leader_high_watermark = UNKNOWN_OFFSET
        self.leader_endpoint: Endpoint | None = None  # where the leader of this epoch was followed
        self.own_voter = VoterInfo(me, config.endpoints, 0, config.max_kraft_version)
        self._seen_voters: VoterSet | None = None
        self._is_voter = False
        self._persisted = election
        self._told_high_watermark = self.high_watermark
        self._messages: list[Send | Reply] = []
        self._pending: list[Entry] = []
        self._pending_records = 0
        self._truncate_to: int | None = None
        self._chunk: SnapshotChunk | None = None
        self._writing: Ready | None = None
        self._deadline_ms = now_ms
        self.role: Role = self._first_role(now_ms)
        self.has_voted_here = self.is_voter

    def _first_role(self, now_ms: int) -> Role:
        """What a start makes of the file and the log."""
        election = self.election
        soon_ms = self.staggered_ms(now_ms, NO_NODE)
        if election.epoch < self.log.last_epoch:  # the file was lost; the log still knows
            self.election = Election(self.log.last_epoch)
            return Unattached(soon_ms)
        if election.leader_id == self.me.id:
            # it may have led: it votes for nobody else in this epoch, and never leads it again
            return Resigned(soon_ms, set(), ())
        if election.leader_id != NO_NODE:
            endpoint = self.endpoint_of(election.leader_id)
            if endpoint is not None:
                return Follower(endpoint, now_ms + self.config.fetch_timeout_ms)
        elif election.voted is not None and same_replica(election.voted, self.me) and self.may_stand:
            candidate = Candidate(self.election_deadline_ms(now_ms))
            candidate.granted.add(self.me.id)
            return candidate
        return Unattached(soon_ms)

    # --- what is known

    @property
    def state(self) -> State:
        return self.role.state

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def leader_id(self) -> int:
        """The node that leads the current epoch, -1 where none is known."""
        return NO_NODE if isinstance(self.role, Resigned) else self.election.leader_id

    @property
    def voters(self) -> VoterSet:
        return self.log.voters.latest

    @property
    def kraft_version(self) -> int:
        return self.log.kraft_version.latest

    @property
    def is_voter(self) -> bool:
        voters = self.log.voters.latest
        if voters is not self._seen_voters:
            self._seen_voters, self._is_voter = voters, voters.has(self.me)
        return self._is_voter

    @property
    def may_stand(self) -> bool:
        """Whether this node stands for election: as a voter, or as one whose removal may not be committed.
        The others may need its log to commit that, if it holds more than they do."""
        if self.is_voter:
            return True
        voters = self.log.voters
        return voters.latest_offset >= self.high_watermark and voters.previous.has(self.me)

    @property
    def end_offset(self) -> int:
        """The end of what is durable."""
        return self.log.end_offset

    @property
    def next_offset(self) -> int:
        """The offset of the first record that is proposed next."""
        return self.log.end_offset + self._pending_records

    @property
    def is_writing(self) -> bool:
        """Whether the log is about to change, so that its end is not to be told to anyone."""
        if self._pending or self._truncate_to is not None or self._chunk is not None:
            return True
        return self._writing is not None and self._writing.changes_log

    def next_deadline(self) -> int:
        """When `tick` is to be called at the latest."""
        return self._deadline_ms

    def known(self) -> Known:
        """What every answer tells of the leader."""
        leader_id = self.leader_id
        return Known(self.election.epoch, leader_id, self.endpoints_of(leader_id))

    def endpoints_of(self, node_id: int) -> Endpoints:
        if node_id == self.me.id:
            return self.config.endpoints
        if isinstance(self.role, Follower) and node_id == self.election.leader_id:
            return (self.role.endpoint,)
        voter = self.voters.get(node_id)
        return () if voter is None else voter.endpoints

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """Where that voter is reached: on its first listener."""
        voter = self.voters.get(node_id)
        return voter.endpoints[0] if voter is not None and voter.endpoints else None

    def snapshot_id(self, end_offset: int) -> SnapshotId:
        """The id of a snapshot of everything below that offset, which must be committed."""
        invariants.require(
            end_offset <= self.high_watermark,
            f"a snapshot up to {end_offset} beyond the high watermark {self.high_watermark}",
        )
        return self.log.snapshot_id(end_offset)

    # --- what happened

    def tick(self, now_ms: int) -> None:
        """Time passed. A sole voter that does not lead stands for election at once."""
        if isinstance(self.role, (Unattached, Resigned)) and self.voters.is_only(self.me):
            self.become_prospective(now_ms)
        self._poll(now_ms)

    def step(self, event: Event, now_ms: int) -> None:
        """A message came, or the driver has noticed something."""
        kind = type(event)
        if kind is Received:
            _RECEIVERS[type(event.request)](self, event.token, event.request, now_ms)  # type: ignore[union-attr]
        elif kind is Answered:
            peer = self.outbound.answered(event.correlation)  # type: ignore[union-attr]
            if peer is not None:
                _take_answer(self, peer, event.response, now_ms)  # type: ignore[union-attr]
        elif kind is Failed:
            peer = self.outbound.failed(event.correlation, now_ms)  # type: ignore[union-attr]
            if peer is not None:
                _take_failure(self, peer, event, now_ms)  # type: ignore[arg-type]
        else:
            _NOTICES[kind](self, event, now_ms)
        self._poll(now_ms)

    def propose(self, batches: Sequence[tuple[Any, int]], now_ms: int) -> int:
        """Append these as the leader, each with its number of records; returns the offset behind them, which
        is committed when the high watermark reaches it."""
        if not isinstance(self.role, Leadership):
            raise NotLeader(f"node {self.me.id} is {self.state.value} in epoch {self.epoch}")
        for data, count in batches:
            self._propose(Entry(self.next_offset, count, self.epoch, data))
        return self.next_offset

    def propose_control(self, *records: Control) -> int:
        """The same for records about the quorum itself."""
        self._propose(Entry(self.next_offset, len(records), self.epoch, None, records))
        return self.next_offset

    def _propose(self, entry: Entry) -> None:
        self._pending.append(entry)
        self._pending_records += entry.records

    def raise_kraft_version(self, version: int, now_ms: int) -> int:
        """Keep the voters in the log from now on; returns the offset behind the records that say so."""
        return voter_changes.raise_kraft_version(self, version)

    def resign(self, now_ms: int) -> None:
        """Lead no more in this epoch."""
        self.become_resigned(now_ms)
        self._poll(now_ms)

    # --- what is to be done

    def ready(self) -> Ready:
        """What to do next. While one Ready is carried out there is no other."""
        if self._writing is not None:
            return NOTHING
        election = self.election if self.election != self._persisted else None
        if not (
            self._messages
            or self._pending
            or election is not None
            or self._told_high_watermark != self.high_watermark
            or self._truncate_to is not None
            or self._chunk is not None
        ):
            return NOTHING
        ready = Ready(
            election,
            self._truncate_to,
            self._chunk,
            tuple(self._pending),
            tuple(self._messages),
            self.high_watermark,
        )
        self._messages.clear()
        self._told_high_watermark = self.high_watermark
        self._writing = ready
        return ready

    def advance(self, ready: Ready, now_ms: int, installed: tuple[VoterSet, int] | None = None) -> None:
        """All of `ready` was done, and is durable; `installed` are the voters and the kraft.version in a
        snapshot that has become whole. `ready` may have fewer entries than were asked for."""
        self._writing = None
        if ready.truncate_to is not None:
            self.log.truncate(ready.truncate_to)
            self._truncate_to = None
        if ready.chunk is not None:
            following.advance_snapshot(self, ready.chunk, installed, now_ms)
            self._chunk = None
        if ready.entries:
            self._written(ready.entries)
        if ready.election is not None:
            self._persisted = ready.election
        if ready.changes_log:
            self._log_changed(now_ms)
        if ready.election is not None:
            voting.count_own_vote(self, ready.election, now_ms)
        self._poll(now_ms)

    def _written(self, entries: Sequence[Entry]) -> None:
        self.log.append(entries)
        for entry in entries:
            if any(isinstance(each, VoterSet) and each.has(self.me) for each in entry.control):
                self.has_voted_here = True
        if self._pending and self._pending[0] is entries[0]:  # else they were dropped with the lead
            del self._pending[: len(entries)]
            self._pending_records -= sum(entry.records for entry in entries)

    def _log_changed(self, now_ms: int) -> None:
        """What this node holds has changed: it counts from now on."""
        self.has_voted_here = self.has_voted_here or self.is_voter
        if isinstance(self.role, Leadership):
            leading.log_changed(self, self.role, now_ms)
        elif self.leader_high_watermark >= 0:
            self.commit(min(self.leader_high_watermark, self.log.end_offset))

    def withdraw(self, ready: Ready, now_ms: int) -> None:
        """The election of `ready` is durable, but its changes of the log failed and left no trace: they were
        never asked for. A leader that could not even write the first record of its epoch resigns."""
        self._writing = None
        if ready.election is not None:
            self._persisted = ready.election
            voting.count_own_vote(self, ready.election, now_ms)
        self._drop_pending()
        role = self.role
        if isinstance(role, Leadership):
            if role.change is not None and role.change.end_offset > self.log.end_offset:
                voter_changes.abandon(self, role)
            if self.log.end_offset <= role.epoch_start_offset:
                self.become_resigned(now_ms)
        elif isinstance(role, Follower):
            role.loading = None
            self.outbound.back_off(self.election.leader_id, now_ms)
        self._poll(now_ms)

    def commit(self, high_watermark: int) -> None:
        """What is below is committed. It never falls."""
        self.high_watermark = max(self.high_watermark, high_watermark)

    def send(
        self, node_id: int, endpoint: Endpoint, request: Request, now_ms: int, channel: str = ""
    ) -> None:
        """Queue a request; one at a time on each channel to a node."""
        peer = (node_id, channel) if channel else node_id
        self._messages.append(Send(self.outbound.sent(peer, now_ms), node_id, endpoint, request))

    def reply(self, token: Any, response: Response) -> None:
        self._messages.append(Reply(token, response))

    def append_fetched(self, entries: tuple[Entry, ...]) -> None:
        """A follower's entries, as they came from the leader."""
        self._pending += entries
        self._pending_records += sum(entry.records for entry in entries)

    def truncate(self, end_offset: int) -> None:
        """A follower's log goes on from there."""
        invariants.require(
            end_offset >= self.high_watermark,
            f"truncation to {end_offset} below the high watermark {self.high_watermark}",
        )
        self._truncate_to = end_offset

    def write_chunk(self, chunk: SnapshotChunk) -> None:
        self._chunk = chunk

    # --- states

    def _enter(self, role: Role) -> None:
        invariants.require(
            role.state in TRANSITIONS[self.role.state],
            f"a node that is {self.role.state.value} cannot become {role.state.value}",
        )
        if isinstance(self.role, Leadership):
            leading.release(self, self.role)
        self._drop_pending()
        self.outbound.reset()
        self.role = role

    def _drop_pending(self) -> None:
        self._pending.clear()
        self._pending_records = 0
        self._truncate_to = None
        self._chunk = None

    def _elect(self, epoch: int, leader_id: int, voted: VoterKey | None = None) -> None:
        """Take on an epoch; within one, the vote is kept."""
        invariants.require(epoch >= self.epoch, f"epoch {epoch} after {self.epoch}")
        if epoch == self.epoch:
            voted = voted or self.election.voted
        else:
            self.leader_high_watermark = UNKNOWN_OFFSET
            self.leader_endpoint = None
            self.suspicion = Suspicion()
        self.election = Election(epoch, leader_id, voted)

    def become_unattached(
        self, epoch: int, now_ms: int, *, leader_id: int = NO_NODE, deadline_ms: int | None = None
    ) -> None:
        """No leader is known for `epoch`, or not where it is."""
        deadline = self.election_deadline_ms(now_ms) if deadline_ms is None else deadline_ms
        self._elect(epoch, leader_id)
        self._enter(Unattached(deadline))

    def become_prospective(self, now_ms: int) -> None:
        """Ask whether this node would be elected, before it disturbs anyone."""
        deadline_ms = self.election_deadline_ms(now_ms)
        if self.suspicion.is_gone:
            # the leader will not answer; who refuses may only not have noticed yet, and is asked again soon
            deadline_ms = min(deadline_ms, now_ms + (self.config.stagger_ms << min(self.suspicion.asks, 10)))
        role = Prospective(deadline_ms)
        role.granted.add(self.me.id)
        self._enter(role)
        voting.check_pre_votes(self, role, now_ms)

    def become_candidate(self, now_ms: int) -> None:
        """Stand for election; the node's own vote counts once it is durable."""
        self._enter(Candidate(self.election_deadline_ms(now_ms)))
        self._elect(self.epoch + 1, NO_NODE, self.me)

    def become_leader(self, granting: Sequence[int], now_ms: int) -> None:
        """Lead the epoch; its first record tells of it."""
        invariants.require(not self.is_writing, "elected while the log changes")
        self._enter(Leadership(self.log.end_offset, now_ms))
        self.election = Election(self.epoch, self.me.id)
        voters = self.voters
        keys = {voter.key.id: voter.key for voter in voters.voters}
        named = tuple(keys[each] for each in sorted(granting) if each in keys)
        records: list[Control] = [LeaderChange(self.me.id, voters.keys, named)]
        mine = voters.get(self.me.id)
        if self.kraft_version > 0 and mine is not None:
            now = self.own_voter if self.config.endpoints else mine
            if now != mine or self.log.voters.latest_offset == BOOTSTRAP_OFFSET:
                records += (KRaftVersion(self.kraft_version), voters.with_voter(now))
        self.propose_control(*records)

    def become_follower(self, epoch: int, leader_id: int, endpoint: Endpoint, now_ms: int) -> None:
        """Follow the leader of `epoch`."""
        invariants.require(
            epoch > self.epoch or self.election.leader_id in (NO_NODE, leader_id),
            f"nodes {self.election.leader_id} and {leader_id} both lead epoch {epoch}",
        )
        is_again = epoch == self.epoch and leader_id == self.election.leader_id
        self._elect(epoch, leader_id)
        if not is_again:
            self.suspicion = Suspicion()
        role = Follower(endpoint, now_ms + self.config.fetch_timeout_ms)
        self.leader_endpoint = endpoint
        self._enter(role)
        if self.suspicion.is_gone:
            following.plan_to_ask(self, role, now_ms)

    def become_resigned(self, now_ms: int) -> None:
        """Lead no more, and tell the voters which of them should."""
        role = self.role
        successors = role.successors(self.voters, self.me) if isinstance(role, Leadership) else ()
        untold = {key.id for key in successors}
        self._enter(Resigned(self.election_deadline_ms(now_ms), untold, successors))

    def heed(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        """Somebody tells of an epoch, and perhaps of its leader: follow it where that is news."""
        endpoint = endpoints[0] if endpoints else self.endpoint_of(leader_id)
        is_news = leader_id not in (NO_NODE, self.me.id) and endpoint is not None
        if epoch > self.epoch:
            if is_news and endpoint is not None:
                self.become_follower(epoch, leader_id, endpoint, now_ms)
            else:
                known = leader_id if leader_id != self.me.id else NO_NODE
                self.become_unattached(epoch, now_ms, leader_id=known)
        elif epoch == self.epoch and is_news and endpoint is not None:
            is_leaderless = isinstance(self.role, (Unattached, Candidate)) or (
                isinstance(self.role, Prospective) and self.election.leader_id == NO_NODE
            )
            if is_leaderless:
                self.become_follower(epoch, leader_id, endpoint, now_ms)
            elif leader_id == self.election.leader_id and endpoints and self.suspicion.dial_refused:
                self.find_leader_at(endpoint)

    def find_leader_at(self, endpoint: Endpoint) -> None:
        """The leader is somewhere else than this node thought."""
        self.leader_endpoint = endpoint
        if isinstance(self.role, Follower):
            self.role.endpoint = endpoint

    # --- time

    def election_deadline_ms(self, now_ms: int) -> int:
        timeout = self.config.election_timeout_ms
        return now_ms + timeout + self.random.below(timeout)

    def staggered_ms(self, now_ms: int, without: int) -> int:
        """When this voter is to ask, so that no two that noticed the same thing ask at once."""
        rank = self.voters.rank(self.me.id, without)
        return now_ms + rank * self.config.stagger_ms + self.random.below(self.config.stagger_jitter_ms)

    def _poll(self, now_ms: int) -> None:
        """Do what is due in this state, which may lead to another, and learn when something is due next."""
        while True:
            role = self.role
            deadline_ms = _POLLS[type(role)](self, role, now_ms)
            if self.role is role:
                break
        self._deadline_ms = deadline_ms


def _take_answer(raft: Raft, peer: object, response: Response, now_ms: int) -> None:
    if response.error == NONE:
        raft.outbound.succeeded(peer)
    node_id = peer[0] if isinstance(peer, tuple) else peer
    _ANSWERS[type(response)](raft, node_id, response, now_ms)


def _take_failure(raft: Raft, peer: object, failed: Failed, now_ms: int) -> None:
    if failed.unsupported and isinstance(raft.role, Prospective):
        raft.become_candidate(now_ms)  # a voter of a version without pre-votes
    elif isinstance(raft.role, Leadership):
        raft.role.duty_ms = 0
        if isinstance(peer, tuple):
            voter_changes.unreachable(raft, raft.role, peer)


def _snapshot_taken(raft: Raft, event: SnapshotTaken, now_ms: int) -> None:
    raft.log.add_snapshot(event.snapshot, event.size_bytes)


def _log_trimmed(raft: Raft, event: LogTrimmed, now_ms: int) -> None:
    raft.log.start_at(event.snapshot)


_NOTICES: dict[type, Any] = {
    ConnectionLost: following.connection_lost,
    DialRefused: following.dial_refused,
    DialSucceeded: following.dial_succeeded,
    SnapshotTaken: _snapshot_taken,
    LogTrimmed: _log_trimmed,
}
_RECEIVERS: dict[type, Any] = {
    **voting.RECEIVERS,
    **leading.RECEIVERS,
    **following.RECEIVERS,
    **voter_changes.RECEIVERS,
}
_ANSWERS: dict[type, Any] = {
    **voting.ANSWERS,
    **leading.ANSWERS,
    **following.ANSWERS,
    **voter_changes.ANSWERS,
}
_POLLS: dict[type, Any] = {**voting.POLLS, **leading.POLLS, **following.POLLS}

__all__ = ["NEVER", "NOTHING", "NotLeader", "Raft", "Ready", "SnapshotChunk"]
