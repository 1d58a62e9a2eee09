"""A node of the metadata quorum, as Kafka's KRaft defines it: synchronous, without clock, disk or network.

The driver tells it what happened (`tick`: time passed; `step`: a voter answered; `propose`: append this) and
does what `ready` says, in that order (more may be proposed meanwhile, and the epoch may move):

1. write `election` to the disk, durably;
2. append `batches` to the log under `epoch`, and flush it;
3. call `advance`: only then do one's own vote and one's own end of the log count.

So nothing is ever told, to others or to oneself, that a crash could take back: persist before send. One's own
vote and offsets go through `step` like those of any other voter; a quorum of one differs only in that nobody
else has to be waited for, so it is elected by its first tick.

The high watermark is what a majority holds, and moves only once that includes a record of the leader's own
epoch (its LeaderChange): what earlier leaders left is committed with it, never by counting alone. Epochs and
the high watermark never go back. Every start and every election is a new epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from barnabas.core.errors import BarnabasError, InvariantViolation, wire_error
from barnabas.protocol.schema import Message
from barnabas.raft.control_records import LeaderChangeMessage, LeaderChangeVoter, control_batch
from barnabas.raft.election import TRANSITIONS, Election, State, VoterKey, is_elected, replicated_offset
from barnabas.records.batch import BatchHeader


class NotLeader(BarnabasError):
    """Only the leader of the metadata quorum appends to its log."""

    wire = wire_error("NOT_CONTROLLER")


class VoteGranted(NamedTuple):
    """A voter is for this node in that epoch; with `pre_vote` it only says that it would be."""

    voter: VoterKey
    epoch: int
    pre_vote: bool = False


class ReplicaOffset(NamedTuple):
    """A voter holds the leader's log, durably, up to that offset."""

    voter: VoterKey
    epoch: int
    end_offset: int


class Ready(NamedTuple):
    """What is to be done now: the election first, then the batches, both durably, then `advance`."""

    election: Election | None
    epoch: int
    base_offset: int
    batches: tuple[bytearray, ...]

    def __bool__(self) -> bool:
        return self.election is not None or bool(self.batches)


class Raft:
    """One node. `end_offset` is that of what is written; what was proposed comes behind it."""

    def __init__(
        self,
        me: VoterKey,
        voters: Collection[VoterKey],
        *,
        election: Election,
        log_epoch: int,
        end_offset: int,
        epoch_records: Sequence[Message] = (),
    ) -> None:
        """`epoch_records` are control records that the leader adds at the start of its epoch."""
        self.me = me
        self.voters = frozenset(voters)
        if election.epoch < log_epoch:  # the file was lost; the log still knows
            election = Election(log_epoch)
        self.election = election
        self.state = State.RESIGNED if election.leader_id == me.id else State.UNATTACHED
        self.end_offset = end_offset
        self.high_watermark = 0
        self._epoch_records = tuple(epoch_records)
        self._epoch_start_offset = end_offset
        self._persisted = election
        self._pending: list[bytearray] = []
        self._pending_records = 0
        self._granted: set[VoterKey] = set()
        self._held: dict[VoterKey, int] = {}
        self._wall_ms = 0

    @property
    def next_offset(self) -> int:
        """The offset of the first record that is proposed next."""
        return self.end_offset + self._pending_records

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def leader_id(self) -> int:
        """The node that leads the current epoch, -1 where none is known."""
        return self.election.leader_id

    # --- what happened

    def tick(self, wall_ms: int) -> None:
        """Time passed. A sole voter that does not lead stands for election at once.

        `wall_ms` is for the timestamps of records alone; what waits is to be timed by a monotonic clock.
        """
        self._wall_ms = wall_ms
        if self.voters == {self.me} and self.state in (State.UNATTACHED, State.RESIGNED):
            self._become(State.PROSPECTIVE)
            # one's own opinion is not a promise: there is nothing to write before it counts
            self.step(VoteGranted(self.me, self.epoch, pre_vote=True))

    def step(self, message: VoteGranted | ReplicaOffset) -> None:
        """A voter answered. What was meant for another epoch or comes from no voter counts for nothing."""
        if message.epoch != self.epoch or message.voter not in self.voters:
            return
        if isinstance(message, ReplicaOffset):
            self._count_offset(message)
        elif self.state is (State.PROSPECTIVE if message.pre_vote else State.CANDIDATE):
            self._granted.add(message.voter)
            if is_elected(self._granted, self.voters):
                if message.pre_vote:
                    self._stand()
                else:
                    self._lead()

    def propose(self, batches: Sequence[bytearray]) -> int:
        """Append these as the leader; returns the offset behind them, which is committed when the high
        watermark reaches it."""
        if self.state is not State.LEADER:
            raise NotLeader(f"node {self.me.id} is {self.state.value} in epoch {self.epoch}")
        self._pending += batches
        self._pending_records += _records_in(batches)
        return self.next_offset

    def withdraw(self) -> None:
        """What was proposed could not be written, and left no trace: it was never proposed."""
        self._drop_pending()

    def resign(self) -> None:
        """Lead no more in this epoch."""
        self._become(State.RESIGNED)
        self._drop_pending()

    # --- what is to be done

    def ready(self) -> Ready:
        """What to do next; false where there is nothing."""
        election = self.election if self.election != self._persisted else None
        return Ready(election, self.epoch, self.end_offset, tuple(self._pending))

    def advance(self, ready: Ready) -> None:
        """All of `ready` was done, and is durable. What was done in an epoch that is over is in the log, and
        counts for nothing else."""
        if ready.election is not None:
            self._persisted = ready.election
            if ready.election.voted == self.me:
                self.step(VoteGranted(self.me, ready.epoch))
        if ready.batches:
            written = _records_in(ready.batches)
            self.end_offset += written
            if self.state is State.LEADER and ready.epoch == self.epoch:
                del self._pending[: len(ready.batches)]
                self._pending_records -= written
            self.step(ReplicaOffset(self.me, ready.epoch, self.end_offset))

    # --- states

    def _become(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantViolation(f"a node that is {self.state.value} cannot become {state.value}")
        self.state = state
        self._granted.clear()

    def _stand(self) -> None:
        self._become(State.CANDIDATE)
        self.election = Election(self.epoch + 1, voted=self.me)

    def _lead(self) -> None:
        granting = sorted(self._granted)
        self._become(State.LEADER)
        self.election = Election(self.epoch, leader_id=self.me.id)
        self._held = dict.fromkeys(sorted(self.voters), 0)
        self._epoch_start_offset = self.end_offset
        change = LeaderChangeMessage(
            leader_id=self.me.id, voters=_named(sorted(self.voters)), granting_voters=_named(granting)
        )
        self._drop_pending()
        self.propose([control_batch([change, *self._epoch_records], self._wall_ms)])

    def _drop_pending(self) -> None:
        self._pending.clear()
        self._pending_records = 0

    def _count_offset(self, message: ReplicaOffset) -> None:
        if self.state is not State.LEADER:
            return
        self._held[message.voter] = message.end_offset
        replicated = replicated_offset(self._held.values())
        if replicated > self._epoch_start_offset:
            self.high_watermark = max(self.high_watermark, replicated)


def _named(voters: Sequence[VoterKey]) -> list[LeaderChangeVoter]:
    return [LeaderChangeVoter(voter_id=voter.id) for voter in voters]


def _records_in(batches: Sequence[bytearray]) -> int:
    return sum(BatchHeader.parse(batch).last_offset_delta + 1 for batch in batches)
