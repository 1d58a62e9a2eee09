"""A node of the metadata quorum, as Kafka's KRaft defines it: synchronous, without clock, disk or network.

The driver passes in what happened (`tick`: time passed; `step`: a message or an event; `propose`: batches to
append) and carries out what `ready` returns, one `Ready` at a time, in this order:

1. write `election` to the disk, durably; only then may `messages` be sent; 2. truncate the log, write the
   chunk of a snapshot, append `entries`, and flush; 3. call `advance`: only then does any of it count, for
   others and for this node itself.

So no message ever says anything that a crash could undo. A follower fetches again only when what it fetched
is durable, and a leader counts its own end likewise. `messages` depend on the election alone: messages that
depend on the log are sent after `advance`. More may be stepped, ticked and proposed while a Ready is carried
out.

The node's data and states are in `node`; the work in each state is in `standing`, `following` and `leading`;
requests and responses are in `voting`, `following`, `serving` and `voter_changes`, and `stepping` dispatches
to them. Epochs and the high watermark never go back. Times are monotonic milliseconds, given by the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.raft import invariants, leading, standing
from barnabas.raft.codes import REQUEST_TIMED_OUT
from barnabas.raft.log_index import Entry
from barnabas.raft.node import RaftNode
from barnabas.raft.ready import NOTHING, Ready
from barnabas.raft.replication import Leadership
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.states import Follower, Resigned, Unattached
from barnabas.raft.voters import VoterSet

if TYPE_CHECKING:
    from barnabas.raft.messages import Event


class NotLeader(BarnabasError):
    """Only the leader of the metadata quorum appends to its log."""

    wire = wire_error("NOT_CONTROLLER")


class Raft(RaftNode):
    """One node of the quorum, as its driver uses it."""

    # --- what happened

    def tick(self, now_ms: int) -> None:
        """Time has passed. A sole voter that does not lead starts an election at once."""
        if isinstance(self.role, (Unattached, Resigned)) and self.voters.is_only(self.me):
            self.become_prospective(now_ms)
        self._poll(now_ms)

    def step(self, event: Event, now_ms: int) -> None:
        """Process a message, or an event that the driver has noticed."""
        from barnabas.raft import stepping

        stepping.step(self, event, now_ms)
        self._poll(now_ms)

    def propose(self, batches: Sequence[tuple[Any, int]]) -> int:
        """Append these batches as the leader, each with its number of records. Returns the offset after them;
        they are committed when the high watermark reaches it."""
        if not isinstance(self.role, Leadership):
            raise NotLeader(f"node {self.me.id} is {self.state.value} in epoch {self.epoch}")
        for data, count in batches:
            self._propose(Entry(self.next_offset, count, self.epoch, data))
        return self.next_offset

    def raise_kraft_version(self, version: int) -> int:
        """Store the voters in the log from now on; returns the offset after the records that do so."""
        from barnabas.raft import voter_changes

        return voter_changes.raise_kraft_version(self, version)

    def raise_problem(self, version: int) -> str:
        """The reason why kraft.version cannot be raised to `version` now; empty if it can."""
        from barnabas.raft import voter_changes

        return voter_changes.raise_problem(self, version)

    def resign(self, now_ms: int) -> None:
        """Stop leading in this epoch."""
        self.become_resigned(now_ms)
        self._poll(now_ms)

    # --- what is to be done

    def ready(self) -> Ready:
        """The next actions. While one Ready is carried out there is no other."""
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
        """All of `ready` was carried out and is durable; `installed` are the voters and the kraft.version in
        a snapshot that is now complete. `ready` may have fewer entries than were requested."""
        self._writing = None
        if ready.truncate_to is not None:
            self.log.truncate(ready.truncate_to)
            self._truncate_to = None
        if ready.chunk is not None:
            from barnabas.raft import following

            following.advance_snapshot(self, ready.chunk, installed, now_ms)
            self._chunk = None
        if ready.entries:
            self._written(ready.entries)
        if ready.election is not None:
            self._persisted = ready.election
        if ready.changes_log:
            self._log_changed(now_ms)
        if ready.election is not None:
            standing.count_own_vote(self, ready.election, now_ms)
        self._poll(now_ms)

    def _written(self, entries: Sequence[Entry]) -> None:
        self.log.append(entries)
        for entry in entries:
            if any(isinstance(each, VoterSet) and each.has(self.me) for each in entry.control):
                self.has_voted_here = True
        if self._pending and self._pending[0] is entries[0]:  # otherwise they were dropped with the lead
            del self._pending[: len(entries)]
            self._pending_records -= sum(entry.records for entry in entries)

    def _log_changed(self, now_ms: int) -> None:
        """The durable log has changed: from now on the change counts."""
        self.has_voted_here = self.has_voted_here or self.is_voter
        if isinstance(self.role, Leadership):
            leading.log_changed(self, self.role, now_ms)
        elif self.leader_high_watermark >= 0:
            self.commit(min(self.leader_high_watermark, self.log.end_offset))

    def withdraw(self, ready: Ready, now_ms: int) -> None:
        """The election of `ready` is durable, but its changes of the log failed without a trace: treat them
        as never requested. A leader that could not even write the first record of its epoch resigns."""
        self._writing = None
        if ready.election is not None:
            self._persisted = ready.election
            standing.count_own_vote(self, ready.election, now_ms)
        self._drop_pending()
        role = self.role
        if isinstance(role, Leadership):
            if role.change is not None and role.change.end_offset > self.log.end_offset:
                from barnabas.raft import voter_changes

                message = "the record could not be written"
                voter_changes.finish(self, role, REQUEST_TIMED_OUT, message)
            if self.log.end_offset <= role.epoch_start_offset:
                self.become_resigned(now_ms)
        elif isinstance(role, Follower):
            role.loading = None
            self.outbound.back_off(self.election.leader_id, now_ms)
        self._poll(now_ms)

    def next_deadline(self) -> int:
        """The time by which `tick` must be called."""
        return self._deadline_ms

    def snapshot_id(self, end_offset: int) -> SnapshotId:
        """The id of a snapshot of everything below `end_offset`, which must be committed."""
        invariants.require(
            end_offset <= self.high_watermark,
            f"a snapshot up to {end_offset} beyond the high watermark {self.high_watermark}",
        )
        return self.log.snapshot_id(end_offset)

    def _poll(self, now_ms: int) -> None:
        """Do what is due in the present state, which may change it, and compute the next deadline."""
        while True:
            role = self.role
            deadline_ms = _POLLS[type(role)](self, role, now_ms)
            if self.role is role:
                break
        self._deadline_ms = deadline_ms


def _poll_following(raft: Raft, role: Any, now_ms: int) -> int:
    """For a node that does not lead; loads code that a quorum of one never needs."""
    from barnabas.raft import following

    _POLLS.update(following.POLLS)
    return int(_POLLS[type(role)](raft, role, now_ms))


_POLLS: dict[type, Any] = {
    **standing.POLLS,
    Leadership: leading.poll_leader,
    Resigned: leading.poll_resigned,
    Unattached: _poll_following,
    Follower: _poll_following,
}
