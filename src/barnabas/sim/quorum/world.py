"""A simulated quorum from beginning to end: nodes, network, faults, operators and checkers, from one seed.

When the faults have ended everything is healed; within `BOUND_S` a leader must exist, a new record must be
committed, and every node must hold it. Then the disks are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.core.errors import InvariantViolation
from barnabas.raft.config import RaftConfig
from barnabas.raft.election import NO_DIRECTORY, Election, State, VoterKey
from barnabas.raft.log_index import LeaderChange
from barnabas.raft.messages import (
    AddRaftVoter,
    ApiVersionsResponse,
    ConnectionLost,
    DialRefused,
    EndQuorumEpoch,
    FetchResponse,
    Received,
    RemoveRaftVoter,
    Response,
    Send,
    Vote,
    VoteResponse,
)
from barnabas.raft.messages import (
    Answered as Answers,
)
from barnabas.raft.ready import Ready
from barnabas.raft.voters import Endpoints, VoterInfo, VoterSet
from barnabas.sim.chance import happens, log_between, stream
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.quorum.checkers import (
    BOUND_S,
    LIVENESS,
    Answered,
    BusyLoop,
    Committed,
    HighWatermark,
    OneLeader,
    VotersChange,
    VotesNeverChange,
)
from barnabas.sim.quorum.disk import Disk
from barnabas.sim.quorum.engine import Engine
from barnabas.sim.quorum.nemesis import APPENDED, ELECTED, VOTED, Nemesis
from barnabas.sim.quorum.network import (
    CONTROLLER,
    Network,
    Token,
    bootstrap_server,
    endpoint_of,
    other_endpoint_of,
)
from barnabas.sim.quorum.node import Node
from barnabas.sim.quorum.operators import Operators
from barnabas.sim.quorum.plan import QuorumPlan, draw_plan
from barnabas.sim.quorum.stability import LAG, LAG_S, Undisturbed

WORLD = "world"
MAX_VIOLATIONS = 20
DISK_US = 500


class QuorumOutcome(NamedTuple):
    """What a simulation came to; `reached` counts what it went through."""

    seed: int
    trace_hash: str
    violations: list[Violation]
    simulated_seconds: float
    faults: Counter[str]
    reached: Counter[str]
    records_acknowledged: int
    records_committed: int
    healed_s: float  # how long it took after the last fault
    messages: int


class QuorumWorld:
    """Everything in a simulation; nodes tell it what can be seen."""

    def __init__(self, plan: QuorumPlan, on_line: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.engine = Engine(on_line)
        self.network = Network(self.engine, stream(plan.seed, "quorum network"))
        self.violations: list[Violation] = []
        self.faults: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.slow_disks: dict[int, int] = {}
        self.slow_reads: dict[int, tuple[int, int]] = {}  # the least and the most that they take
        self._disk_random = stream(plan.seed, "quorum disks")
        self._read_random = stream(plan.seed, "quorum reads")
        self._make_checkers()
        self.nodes = [self._node(number) for number in range(1, plan.voters + plan.observers + 1)]
        self.by_id = {node.id: node for node in self.nodes}
        self.controllers = [node for node in self.nodes if node.config.endpoints]
        self.network.nodes = self.by_id
        self.nemesis = Nemesis(self)
        self.operators = Operators(self)
        self.epoch = 0  # the highest that has had a leader
        self._changed_us = -10_000_000
        self._noticed: set[tuple[int, int]] = set()  # nodes and epochs whose leader was found gone
        self._questions: dict[Token, Vote] = {}

    def _make_checkers(self) -> None:
        say = self.say
        self.leaders = OneLeader(say)
        self.votes = VotesNeverChange(say)
        self.log = Committed(say)
        self.watermark = HighWatermark(say)
        self.answers = Answered(say)
        self.voters = VotersChange(say)
        self.busy = BusyLoop(say)
        self.undisturbed = Undisturbed(say)

    def _node(self, number: int) -> Node:
        plan = self.plan
        is_voter = number <= plan.voters
        infos = [
            VoterInfo(
                VoterKey(each, UUID(int=each) if plan.is_dynamic else NO_DIRECTORY),
                self.endpoints_of(each),
            )
            for each in range(1, plan.voters + 1)
        ]
        voters = VoterSet(infos if is_voter or not plan.is_dynamic else ())
        is_broker = number > plan.voters + plan.observers - plan.brokers
        config = RaftConfig(
            () if is_broker else self.endpoints_of(number),
            auto_join=plan.has_auto_join and (not is_voter or number % 2 == 0),
            controller_listener=CONTROLLER,
        )
        disk = Disk(voters, 1 if plan.is_dynamic else 0)
        node = Node(self, VoterKey(number, UUID(int=number)), disk, config)
        node.rate = plan.drifts[number - 1]
        return node

    def bootstrap(self) -> Endpoints:
        """controller.quorum.bootstrap.servers: names that lead to a controller wherever it is."""
        if not self.plan.is_dynamic:
            return ()
        return tuple(bootstrap_server(node.id) for node in self.nodes if node.config.endpoints)

    def endpoints_of(self, node_id: int, move: int = 0) -> Endpoints:
        """The listeners of a controller; settings (controller.quorum.voters) know but one."""
        endpoint = endpoint_of(node_id, move)
        has_two = self.plan.has_other_listener and self.plan.is_dynamic
        return (other_endpoint_of(node_id), endpoint) if has_two else (endpoint,)

    def run(self) -> QuorumOutcome:
        for node in self.nodes:
            self.engine.after(stream(self.plan.seed, f"start {node.id}").below(3_000_000), node.start)
        self.nemesis.begin()
        self.operators.begin()
        self.engine.run(int(self.plan.seconds * 1e6), lambda: self.busy.is_found)
        if self.busy.is_found:
            return self._outcome(0.0)  # it would go on for ever
        self.operators.finish()
        self.nemesis.heal()
        healed_s = self._settle()
        self._end()
        return self._outcome(healed_s)

    def _outcome(self, healed_s: float) -> QuorumOutcome:
        self.reached["leaders found gone"] = len(self._noticed)
        return QuorumOutcome(
            self.plan.seed,
            self.engine.hash,
            self.violations,
            self.engine.seconds,
            self.faults,
            self.reached,
            self.answers.count,
            self.log.end_offset,
            healed_s,
            self.network.messages,
        )

    def _settle(self) -> float:
        """Run until the quorum works again; returns how long that took."""
        began_us, before = self.engine.now_us, self.answers.count
        self.engine.run(began_us + int(BOUND_S * 1e6), lambda: self.busy.is_found or self._is_settled(before))
        took_s = (self.engine.now_us - began_us) / 1e6
        if not self._is_settled(before):
            states = ", ".join(
                f"{each.id} {each.raft.state.value} in epoch {each.raft.epoch} at {each.raft.end_offset}"
                for each in self.nodes
                if each.raft is not None
            )
            self.say(
                LIVENESS, f"no record is committed everywhere {BOUND_S:.0f} s after the faults: {states}"
            )
        return took_s

    def _is_settled(self, before: int) -> bool:
        if self.answers.count <= before:
            return False
        leaders = [each for each in self.nodes if each.raft and each.raft.state is State.LEADER]
        if len(leaders) != 1 or leaders[0].raft is None:
            return False
        epoch, committed = leaders[0].raft.epoch, leaders[0].raft.high_watermark
        return all(
            each.raft is not None and each.raft.epoch == epoch and each.raft.high_watermark >= committed - 5
            for each in self.nodes
        )

    def _end(self) -> None:
        self.answers.end(self.log)
        for node in self.nodes:
            if node.raft is not None:
                self.log.reported(node.id, node.raft.epoch, node.raft.high_watermark, node.disk.log)

    # --- told by nodes

    def say(self, checker: str, what: str) -> None:
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(Violation(checker, self.engine.seconds, what))
        self.engine.line(checker, what)

    def broken(self, node: Node, error: InvariantViolation) -> None:
        """A node stopped itself, which it never should."""
        self.say(WORLD, f"node {node.id}: {error}")

    def count(self, what: str) -> None:
        self.reached[what] += 1

    def fault(self, kind: str) -> None:
        self.faults[kind] += 1
        self.engine.line("nemesis", kind)

    def mend_disk(self, node: Node) -> None:
        self.slow_disks.pop(node.id, None)

    def mend_reads(self, node: Node) -> None:
        self.slow_reads.pop(node.id, None)

    def disk_us(self, node: Node) -> int:
        slow_us = self.slow_disks.get(node.id, 0)
        return DISK_US + int(self._disk_random.uniform() * (slow_us or DISK_US))

    def read_us(self, node: Node) -> int:
        """How long a read takes: mostly it finds everything in memory."""
        random, slow = self._read_random, self.slow_reads.get(node.id)
        if not happens(random, 0.02 if slow is None else 0.7):
            return 0
        return int(log_between(random, *(slow or (1_000, 20_000))))

    def started(self, node: Node) -> None:
        self.engine.line(node.name, f"starts: {node.disk.election} {node.disk.log.end_offset}")
        self.voters.started(node.key)
        self.undisturbed.lost(node.id)
        self.undisturbed.leads_no_more(node.id)

    def received(self, node: Node, event: Any) -> None:
        """A message or a notice reaches a node."""
        kind = type(event)
        if kind is Answers and type(event.response) is FetchResponse:
            if event.response.error == 0:
                self.undisturbed.fetched(node.id, event.response.known.epoch, self.engine.now_us)
        elif kind in (ConnectionLost, DialRefused) or (
            kind is Received and type(event.request) is EndQuorumEpoch
        ):
            self.undisturbed.lost(node.id)

    def is_well(self) -> bool:
        """Whether one node leads, at least two other voters follow it, and nothing else is going on."""
        leaders = [each for each in self.nodes if each.raft and each.raft.state is State.LEADER]
        if len(leaders) != 1 or any(each.raft is None for each in self.nodes) or self.is_changing:
            return False
        raft = leaders[0].raft
        assert raft is not None
        keys = {each.key for each in self.nodes}
        if len(raft.voters) < 3 or (self.plan.is_dynamic and not keys.issuperset(raft.voters.keys)):
            return False
        return all(
            each.raft is not None and each.raft.epoch == raft.epoch and each.raft.voters == raft.voters
            for each in self.nodes
        )

    def operated(self) -> None:
        """An operator has stopped a node."""
        self._changed_us = self.engine.now_us

    @property
    def is_changing(self) -> bool:
        """Whether operators have changed something within the last seconds."""
        return self.engine.now_us - self._changed_us < 3_000_000

    def election_written(self, node: Node, election: Election) -> None:
        self.engine.line(node.name, election)
        self.votes.written(node.key, election)
        if election.leader_id == node.id:  # from now on others may hear that it leads
            self.count("elections")
            self.epoch = max(self.epoch, election.epoch)
            self.undisturbed.leads(node.id, election.epoch)
            self.nemesis.noticed(ELECTED, node)
            self.leaders.leads(node.id, node.life, election.epoch)
            self.log.leads(node.id, election.epoch, node.disk.log)

    def written(self, node: Node, ready: Ready) -> None:
        """A node has changed its log; where it leads the epoch of what it wrote, that is its own."""
        raft = node.raft
        for entry in ready.entries:
            if raft is None or raft.state is not State.LEADER or raft.epoch != entry.epoch:
                return
            if not entry.control:
                self.nemesis.noticed(APPENDED, node)
            for control in entry.control:
                if isinstance(control, LeaderChange) and control.leader_id == node.id:
                    self.leaders.leads(node.id, node.life, entry.epoch)

    def sent(self, node: Node, send: Send) -> None:
        self.busy.acts(node.id, self.engine.now_us)
        self.votes.sent(node.key, send)
        if type(send.request) is EndQuorumEpoch:
            self.leaders.ended(send.request.epoch)
        elif type(send.request) is Vote:
            if not send.request.pre_vote:
                voters = node.disk.latest_voters()
                self.undisturbed.stands(node.id, send.request.epoch, voters, self.engine.now_us)
            self._questions[Token(node.id, node.life, send.correlation)] = send.request
            if send.request.pre_vote and node.raft is not None and node.raft.suspicion.is_gone:
                self._noticed.add((node.id, send.request.epoch))

    def replied(self, node: Node, token: Any, response: Response) -> None:
        self.busy.acts(node.id, self.engine.now_us)
        if not isinstance(response, ApiVersionsResponse):
            self.leaders.told(node.id, node.life, response.known)
        if type(response) is VoteResponse:
            self.votes.granted(node.key, self._questions[token], response)
            if response.granted and not self._questions[token].pre_vote:
                self.nemesis.noticed(VOTED, node)
        elif type(response) is FetchResponse:
            self.watermark.told(node.id, response)

    def change_asked(self, request: AddRaftVoter | RemoveRaftVoter) -> None:
        self.engine.line("operator", request)
        self._changed_us = self.engine.now_us
        node = self.by_id[request.voter.id]
        knows = node.is_up and node.key == request.voter and node.disk.latest_voters().has(node.key)
        self.voters.asked(request, knows=knows)

    def changed(self, node: Node, was: State, state: State, epoch: int) -> None:
        """A node is in another state, or in another epoch."""
        self.engine.note(node.id, 7, epoch)
        if self.engine.on_line is not None:
            self.engine.line(node.name, f"{was.value} -> {state.value} in epoch {epoch}")
        if was is State.LEADER:
            self.undisturbed.leads_no_more(node.id)
        if state is State.RESIGNED and was is State.LEADER:
            self.count("resignations")

    def committed(self, node: Node, high_watermark: int) -> None:
        before = len(self.log.entries)
        self.watermark.reported(node.id, node.life, high_watermark)
        epoch = node.raft.epoch if node.raft is not None else 0
        self.log.reported(node.id, epoch, high_watermark, node.disk.log)
        for entry in self.log.entries[before:]:
            for control in entry.control:
                if isinstance(control, VoterSet):
                    self._voters_committed(control)

    def _voters_committed(self, voters: VoterSet) -> None:
        before = self._last_voters
        self.voters.appended(before, voters)
        if before is not None:
            self.voters.removed(before, voters)
        self._last_voters = voters

    _last_voters: VoterSet | None = None

    def answered(self, node: Node, end_offset: int, value: int) -> None:
        self.answers.answered(node.id, end_offset, value)
        if self.nemesis.is_calm and self.is_well():
            self.engine.after(int(LAG_S * 1e6), self._check_lag, self.nemesis.last_us, end_offset)

    def _check_lag(self, since_us: int, end_offset: int) -> None:
        """What was committed a while ago is known to be by all that hold it, if all was well all the time."""
        if self.nemesis.last_us != since_us or self.operators.is_over or not self.is_well():
            return
        self.count("commits in calm")
        for node in self.nodes:
            if node.raft is not None and node.raft.high_watermark < end_offset <= node.raft.end_offset:
                self.say(LAG, f"node {node.id} does not know that {end_offset} is committed since {LAG_S} s")


def simulate_quorum(
    seed: int, *, seconds: float | None = None, on_line: Callable[[str], None] | None = None
) -> QuorumOutcome:
    """Run a seed."""
    return QuorumWorld(draw_plan(seed, seconds), on_line).run()
