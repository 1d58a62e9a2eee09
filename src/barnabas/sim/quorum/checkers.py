"""What must hold in a quorum whatever happens, each a small class that is told what can be seen from outside.

They know messages as they leave, what is on the disks, and what nodes report as committed; nothing of what
the core remembers. `Committed` is the one log that all agree on: what any node has ever called committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from barnabas.raft.election import Election, VoterKey, same_replica
from barnabas.raft.log_index import Entry
from barnabas.raft.messages import (
    AddRaftVoter,
    FetchResponse,
    Known,
    RemoveRaftVoter,
    Send,
    Vote,
    VoteResponse,
)
from barnabas.raft.voters import VoterSet
from barnabas.sim.quorum.disk import Log

Say = Callable[[str, str], None]  # which checker, and what is wrong

LEADERS, VOTES, COMMITTED, PREFIX = "leaders", "votes", "committed", "prefix"
WATERMARK, ANSWERS, VOTERS, LIVENESS, BUSY = "watermark", "answers", "voters", "liveness", "busy"

# A leader exists, a new record commits and every node has it, so long after the last fault at the latest.
BOUND_S = 10.0
# So many messages and looks at its clock may one node have in a second of virtual time.
ACTS_A_SECOND = 1_500


class OneLeader:
    """An epoch has one leader, in one life of its process, and that says so only while it leads."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._by_epoch: dict[int, tuple[int, int]] = {}
        self._ended: set[int] = set()  # epochs whose leaders have said that they resigned

    def leads(self, node: int, life: int, epoch: int) -> None:
        first = self._by_epoch.setdefault(epoch, (node, life))
        if first[0] != node:
            self._say(LEADERS, f"nodes {first[0]} and {node} both lead epoch {epoch}")
        elif first[1] != life:
            self._say(LEADERS, f"node {node} leads epoch {epoch} again after a restart")

    def ended(self, epoch: int) -> None:
        """The leader of that epoch tells others that it leads no more."""
        self._ended.add(epoch)

    def told(self, node: int, life: int, known: Known) -> None:
        """A node names the leader that it knows."""
        if known.leader_id != node:
            return
        if known.epoch in self._ended:
            self._say(LEADERS, f"node {node} says that it leads epoch {known.epoch}, and has resigned")
        elif self._by_epoch.get(known.epoch) not in (None, (node, life)):
            self._say(LEADERS, f"node {node} says that it leads epoch {known.epoch}, and did before it died")


class VotesNeverChange:
    """A replica votes once in an epoch, and its file never forgets that nor goes back."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._votes: dict[tuple[VoterKey, int], VoterKey] = {}
        self._files: dict[VoterKey, Election] = {}

    def votes(self, voter: VoterKey, epoch: int, candidate: VoterKey) -> None:
        """A vote leaves, or a candidate asks, which has voted for itself."""
        first = self._votes.setdefault((voter, epoch), candidate)
        if not same_replica(first, candidate):
            self._say(VOTES, f"node {voter.id} votes for {first.id} and {candidate.id} in epoch {epoch}")

    def sent(self, node: VoterKey, send: Send) -> None:
        request = send.request
        if type(request) is Vote and not request.pre_vote:
            self.votes(node, request.epoch, node)

    def granted(self, node: VoterKey, request: Vote, response: VoteResponse) -> None:
        if response.granted and not request.pre_vote:
            self.votes(node, request.epoch, request.candidate)

    def written(self, node: VoterKey, election: Election) -> None:
        before = self._files.get(node, Election())
        self._files[node] = election
        if election.epoch < before.epoch:
            self._say(VOTES, f"the file of node {node.id} goes from epoch {before.epoch} to {election.epoch}")
        elif election.epoch > before.epoch or election.leader_id == node.id or before.voted is None:
            return
        elif election.voted is None or not same_replica(before.voted, election.voted):
            self._say(VOTES, f"the file of node {node.id} forgets its vote in epoch {election.epoch}")


class Committed:
    """The committed log: every node's is a prefix of it, and every later leader has all of it."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.end_offset = 0
        self.entries: list[Entry] = []
        self._ends: dict[int, int] = {}  # what was called committed in each epoch first
        self._chains: dict[int, int] = {0: 0}

    def reported(self, node: int, epoch: int, high_watermark: int, log: Log) -> None:
        """A node, in that epoch, calls everything below committed."""
        if high_watermark > log.end_offset:
            self._say(PREFIX, f"node {node} commits up to {high_watermark}, its log ends at {log.end_offset}")
            return
        if high_watermark > self.end_offset:
            if log.start_offset > self.end_offset:
                self._say(PREFIX, f"node {node} has a snapshot of what nobody called committed")
                return
            if not self._agrees(node, self.end_offset, log):
                return
            for entry in log.between(self.end_offset, high_watermark, len(log.entries)):
                self.entries.append(entry)
                self.end_offset = entry.end_offset
                self._chains[self.end_offset] = log.chain_at(self.end_offset) or 0
            self._ends[epoch] = self.end_offset
        self._agrees(node, high_watermark, log)

    def _agrees(self, node: int, offset: int, log: Log) -> bool:
        if offset < log.start_offset:
            return True  # a snapshot stands for it, and its chain goes into every later one
        if log.chain_at(offset) == self._chains.get(offset):
            return True
        self._say(PREFIX, f"the log of node {node} below {offset} is not the committed one")
        return False

    def leads(self, node: int, epoch: int, log: Log) -> None:
        """Told when a node becomes the leader, with its log as it is then. What was committed in later epochs
        it need not have: a candidate may hear of the last vote when the others are long in the next one."""
        end_offset = max((end for committed, end in self._ends.items() if committed < epoch), default=0)
        if log.end_offset < end_offset:
            self._say(COMMITTED, f"node {node} leads epoch {epoch}, its log ends before {end_offset}")
        elif end_offset >= log.start_offset and log.chain_at(end_offset) != self._chains[end_offset]:
            self._say(COMMITTED, f"node {node} leads epoch {epoch} with another log below {end_offset}")

    def value_at(self, end_offset: int) -> int | None:
        """The value of the entry that ends there."""
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].end_offset < end_offset:
                low = middle + 1
            else:
                high = middle
        found = self.entries[low] if low < len(self.entries) else None
        return found.data if found is not None and found.end_offset == end_offset else None


class HighWatermark:
    """It never falls: within the life of a process, and in what the leader of an epoch tells."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._of_life: dict[tuple[int, int], int] = {}
        self._of_epoch: dict[int, int] = {}

    def reported(self, node: int, life: int, high_watermark: int) -> None:
        if high_watermark < self._of_life.get((node, life), 0):
            self._say(WATERMARK, f"the high watermark of node {node} falls to {high_watermark}")
        self._of_life[node, life] = high_watermark

    def truncated(self, node: int, life: int, end_offset: int) -> None:
        """The log of a node was cut."""
        committed = self._of_life.get((node, life), 0)
        if end_offset < committed:
            self._say(WATERMARK, f"node {node} cuts its log at {end_offset}, committed were {committed}")

    def told(self, node: int, response: FetchResponse) -> None:
        epoch, told = response.known.epoch, response.high_watermark
        if response.error or told < 0:
            return
        if told < self._of_epoch.get(epoch, 0):
            self._say(WATERMARK, f"the high watermark told in epoch {epoch} falls to {told}")
        self._of_epoch[epoch] = told


class Answered:
    """A record whose client was answered is in the committed log for ever."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._answers: list[tuple[int, int, int]] = []

    def answered(self, node: int, end_offset: int, value: int) -> None:
        self._answers.append((node, end_offset, value))

    @property
    def count(self) -> int:
        return len(self._answers)

    def end(self, committed: Committed) -> None:
        for node, end_offset, value in self._answers:
            found = committed.value_at(end_offset)
            if found != value:
                self._say(ANSWERS, f"record {value} that node {node} answered is not below {end_offset}")


class VotersChange:
    """Committed voters change by one at a time, and none joins again by itself once it was removed."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._asked: set[VoterKey] = set()  # operators have asked for these to be added
        self._knew: set[VoterKey] = set()  # running as voters when operators asked to remove them
        self._removed: set[VoterKey] = set()

    def asked(self, request: AddRaftVoter | RemoveRaftVoter, *, knows: bool) -> None:
        """An operator asks for a change; `knows`: the node runs, and its log says that it is a voter."""
        if isinstance(request, AddRaftVoter):
            self._asked.add(request.voter)
        elif knows:
            self._knew.add(request.voter)

    def started(self, node: VoterKey) -> None:
        """Another process may join anew."""
        self._removed.discard(node)
        self._knew.discard(node)

    def appended(self, before: VoterSet | None, after: VoterSet) -> None:
        """A leader's log has these voters behind those."""
        if before is None:
            return
        if len(before) and not before.overlaps(after):
            self._say(VOTERS, f"the voters change from {before} to {after} at once")
        for key in after.keys:
            if key in self._removed and key not in self._asked:
                self._say(VOTERS, f"node {key.id} was removed and is a voter again, though nobody asked")

    def removed(self, before: VoterSet, after: VoterSet) -> None:
        """A change of voters is committed."""
        for key in before.keys:
            if not after.has(key):
                self._asked.discard(key)
                if key in self._knew:
                    self._removed.add(key)


class BusyLoop:
    """No node sends, or looks at its clock, without pause."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._times: dict[int, deque[int]] = {}
        self.most = 0  # a second
        self.is_found = False

    def acts(self, node: int, now_us: int) -> None:
        times = self._times.get(node)
        if times is None:
            times = self._times[node] = deque()
        times.append(now_us)
        while times[0] <= now_us - 1_000_000:
            times.popleft()
        self.most = max(self.most, len(times))
        if len(times) > ACTS_A_SECOND and not self.is_found:
            self.is_found = True
            self._say(BUSY, f"node {node} acts more than {ACTS_A_SECOND} times within a second")
