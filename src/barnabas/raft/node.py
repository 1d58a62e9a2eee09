"""The state of a node of the quorum: its data, its roles, and its pending actions.

Every transition goes through `_enter`, which checks it against the table, forgets requests in flight and
drops pending writes. An epoch never goes back, and within one the vote is kept. Requests and responses in
each role are in `standing`, `voting`, `following`, `leading`, `serving` and `voter_changes`, which change a
node through the methods here; the driver uses `core`. Messages and their handlers are imported when the first
one is needed: a quorum of one has none, and starts faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barnabas.core.random import Random
from barnabas.raft import invariants, leading, standing
from barnabas.raft.codes import UNKNOWN_OFFSET
from barnabas.raft.config import RaftConfig
from barnabas.raft.election import NO_NODE, TRANSITIONS, Election, State, VoterKey, same_replica
from barnabas.raft.log_index import Control, Entry, KRaftVersion, LeaderChange, LogIndex, LogState
from barnabas.raft.outbound import Outbound
from barnabas.raft.ready import Ready, SnapshotChunk
from barnabas.raft.replication import Leadership
from barnabas.raft.states import (
    NEVER,
    Candidate,
    Follower,
    Prospective,
    Resigned,
    Search,
    Suspicion,
    Unattached,
)
from barnabas.raft.voters import BOOTSTRAP_OFFSET, Endpoint, Endpoints, VoterInfo, VoterSet

if TYPE_CHECKING:
    from barnabas.raft.messages import Known, Reply, Request, Response, Send

Role = Unattached | Prospective | Candidate | Leadership | Follower | Resigned


class RaftNode:
    """The driver may read fields without an underscore; only this package changes them."""

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
        # everything in a snapshot was committed
        self.high_watermark = max([log.start_offset, *(each.end_offset for each, _ in log.snapshots)])
        self.election = election
        self.outbound = Outbound(config)
        self.suspicion = Suspicion(never_connected=True)
        self.has_voted_here = False  # this process has been a voter: it never joins automatically again
        self.has_told_epoch = -1  # the epoch whose leader knows this node's listeners and versions
        self.leader_high_watermark = UNKNOWN_OFFSET
        self.heard_ms = now_ms  # when a leader last answered; at first, when this node started
        self.heard_id = NO_NODE  # the leader that last answered
        self.leader_endpoint: Endpoint | None = None  # the endpoint at which this epoch's leader was followed
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
        """The first role, from the stored election and the log."""
        election = self.election
        soon_ms = self.staggered_ms(now_ms, NO_NODE)
        if election.epoch < self.log.last_epoch:  # the file was lost; the epoch is taken from the log
            self.election = Election(self.log.last_epoch)
            return Unattached(soon_ms)
        if election.leader_id == self.me.id:
            # it may have led: it votes for no other node in this epoch, and never leads it again
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

    # --- reading

    @property
    def state(self) -> State:
        return self.role.state

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def leader_id(self) -> int:
        """The leader of the current epoch, -1 if unknown."""
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
        """Whether this node may be a candidate: as a voter, or as one whose removal may not be committed. The
        others may need its log to commit the removal, if it has more than they do."""
        if self.is_voter:
            return True
        voters = self.log.voters
        return voters.latest_offset >= self.high_watermark and voters.previous.has(self.me)

    @property
    def end_offset(self) -> int:
        """The end of the durable log."""
        return self.log.end_offset

    @property
    def next_offset(self) -> int:
        """The offset of the next proposed record."""
        return self.log.end_offset + self._pending_records

    @property
    def is_writing(self) -> bool:
        """Whether the log is about to change, so that its end must not be sent to others."""
        if self._pending or self._truncate_to is not None or self._chunk is not None:
            return True
        return self._writing is not None and self._writing.changes_log

    def known(self) -> Known:
        """The leader as it is reported in every response."""
        from barnabas.raft.messages import Known

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
        """The endpoint of that voter."""
        voter = self.voters.get(node_id)
        return None if voter is None else self.config.reached_at(voter.endpoints)

    # --- pending actions

    def commit(self, high_watermark: int) -> None:
        """Raise the high watermark; it never goes back."""
        self.high_watermark = max(self.high_watermark, high_watermark)

    def send(
        self, node_id: int, endpoint: Endpoint, request: Request, now_ms: int, channel: str = ""
    ) -> None:
        """Queue a request; one at a time on each channel to a node."""
        from barnabas.raft.messages import Send

        peer = (node_id, channel) if channel else node_id
        self._messages.append(Send(self.outbound.sent(peer, now_ms), node_id, endpoint, request))

    def reply(self, token: Any, response: Response) -> None:
        from barnabas.raft.messages import Reply

        self._messages.append(Reply(token, response))

    def append_fetched(self, entries: tuple[Entry, ...]) -> None:
        """Append a follower's entries, as they came from the leader."""
        self._pending += entries
        self._pending_records += sum(entry.records for entry in entries)

    def truncate(self, end_offset: int) -> None:
        """Truncate a follower's log to `end_offset`."""
        invariants.require(
            end_offset >= self.high_watermark,
            f"truncation to {end_offset} below the high watermark {self.high_watermark}",
        )
        self._truncate_to = end_offset

    def write_chunk(self, chunk: SnapshotChunk) -> None:
        self._chunk = chunk

    def propose_control(self, *records: Control) -> int:
        """As `propose`, for the quorum's own records."""
        self._propose(Entry(self.next_offset, len(records), self.epoch, None, records))
        return self.next_offset

    def _propose(self, entry: Entry) -> None:
        self._pending.append(entry)
        self._pending_records += entry.records

    # --- transitions

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
        """Adopt an epoch; within one, the vote is kept."""
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
        """No leader is known for `epoch`, or its endpoint is not."""
        deadline = self.election_deadline_ms(now_ms) if deadline_ms is None else deadline_ms
        self._elect(epoch, leader_id)
        self._enter(Unattached(deadline))

    def become_prospective(self, now_ms: int) -> None:
        """Ask for pre-votes, before a real election disturbs others."""
        deadline_ms = self.election_deadline_ms(now_ms)
        if self.suspicion.is_gone:
            # the leader will not answer; voters that refuse may not have detected that yet, and are asked
            # again soon
            deadline_ms = min(deadline_ms, now_ms + (self.config.stagger_ms << min(self.suspicion.asks, 10)))
        role = Prospective(deadline_ms)
        role.granted.add(self.me.id)
        self._enter(role)
        standing.check_pre_votes(self, role, now_ms)

    def become_candidate(self, now_ms: int) -> None:
        """Become a candidate; the node's own vote counts once it is durable."""
        self._enter(Candidate(self.election_deadline_ms(now_ms)))
        self._elect(self.epoch + 1, NO_NODE, self.me)

    def become_leader(self, granting: Sequence[int], now_ms: int) -> None:
        """Lead the epoch; its first record announces it."""
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
            if not now.is_told_by(mine) or self.log.voters.latest_offset == BOOTSTRAP_OFFSET:
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
            self.plan_to_ask(role, now_ms)

    def become_resigned(self, now_ms: int) -> None:
        """Stop leading, and tell the voters which of them should lead next."""
        role = self.role
        successors = role.successors(self.voters, self.me) if isinstance(role, Leadership) else ()
        untold = {key.id for key in successors}
        self._enter(Resigned(self.election_deadline_ms(now_ms), untold, successors))

    def heed(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        """Process an epoch, and perhaps its leader, from a message: follow the leader if it was not known."""
        endpoint = self.config.reached_at(endpoints) or self.endpoint_of(leader_id)
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
        """The leader has another endpoint than this node knew."""
        self.leader_endpoint = endpoint
        if isinstance(self.role, Follower):
            self.role.endpoint = endpoint

    def find_leader_reachable(self, role: Follower) -> None:
        """The leader accepts connections."""
        self.suspicion.connection_lost = self.suspicion.dial_refused = False
        if not self.suspicion.is_gone:
            role.ask_ms = NEVER

    def hear_leader(self, role: Follower, now_ms: int) -> None:
        """The leader has answered."""
        self.heard_ms, self.heard_id = now_ms, self.election.leader_id
        role.fetch_deadline_ms = now_ms + self.config.fetch_timeout_ms
        role.has_fetched = True
        if role.search.turn:
            role.search = Search()
        self.suspicion.is_silent = False
        self.find_leader_reachable(role)

    # --- times

    def plan_to_ask(self, role: Follower, now_ms: int) -> None:
        """The leader is gone: ask for pre-votes soon, at first by rank, then with back-off."""
        config, asks = self.config, self.suspicion.asks
        later_ms = min(config.election_backoff_max_ms, config.stagger_ms << min(asks, 10)) if asks else 0
        role.ask_ms = self.staggered_ms(now_ms, self.election.leader_id) + later_ms

    def election_deadline_ms(self, now_ms: int) -> int:
        timeout = self.config.election_timeout_ms
        return now_ms + timeout + self.random.below(timeout)

    def staggered_ms(self, now_ms: int, without: int) -> int:
        """When this voter is to ask, so that no two voters that detected the same thing ask at once."""
        rank = self.voters.rank(self.me.id, without)
        return now_ms + rank * self.config.stagger_ms + self.random.below(self.config.stagger_jitter_ms)
