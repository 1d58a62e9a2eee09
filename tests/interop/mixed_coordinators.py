"""Groups and transactions whose coordinators move between brokers of Apache Kafka and of Barnabas.

`__consumer_offsets` and `__transaction_state` have one partition each, with a replica on every broker: who
leads it is the coordinator of all groups, or transactions. A group of two clients reads and commits, two
loops read, process and write, and a transaction is open while a coordinator moves. What each kind of broker
has written, the other one has to read before anything can go on.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from tests.interop.mixed_load import MixedLoad
from tests.interop.mixed_replication_acts import ReplicationActs
from tests.interop.mixed_transactions import ConfluentLoop, JavaLoop, Loop, OpenTransactions
from tests.support.group_history import Partition
from tests.support.group_members import Feeder, Group, Hosts
from tests.support.mixed_node import ClusterFailed

INTERNAL = ("__consumer_offsets", "__transaction_state")
INPUT, OPEN = "input", "open"
AHEAD = 60  # how far the input is ahead of the slower loop
# A static member that ends is missed only then: the coordinator writes it down, and must not do so when some
# of the brokers have stopped already.
STATIC_SESSION_MS = 300_000
READ = [Partition(f"read-{number}", 0) for number in (1, 2)]
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class Coordinated:
    """Everything that goes on at a cluster of three brokers. `readers` are the clients of the group;
    `java`: one of the loops is Kafka's own client."""

    def __init__(self, acts: ReplicationActs, readers: tuple[str, str], *, java: bool) -> None:
        self.acts = acts
        everybody = [each.node_id for each in acts.brokers]
        outputs = {"output-1": ConfluentLoop, "output-2": JavaLoop if java else ConfluentLoop}
        for name in (INPUT, OPEN, *outputs, *(each.topic for each in READ)):
            acts.create(name, everybody, min_insync_replicas=2)
        self._hosts = Hosts()
        topics = [each.topic for each in READ]
        self._group = Group(self._hosts, acts.bootstrap, "readers", topics, ["roundrobin"])
        self._readers = readers
        self._loops: list[Loop] = [kind(acts, INPUT, name, self._inputs) for name, kind in outputs.items()]
        self._stack = ExitStack()

    def __enter__(self) -> Coordinated:
        with ExitStack() as stack:
            stack.callback(self._hosts.end)
            load = MixedLoad(self.acts.cluster, self.acts.bootstrap, [INPUT], 1, self._is_input_wanted)
            self._load = stack.enter_context(load)
            self._feeder = Feeder(self.acts.bootstrap, READ)
            stack.callback(self._feeder.ask_to_stop)
            for loop in self._loops:
                stack.enter_context(loop)
            self._open = OpenTransactions(self.acts, OPEN)
            stack.callback(self._open.close)
            self._group.join(self._readers[0])
            self._group.join(self._readers[1], instance="static", session_ms=STATIC_SESSION_MS)
            self._group.settle(len(READ))
            for name in INTERNAL:
                self.acts.adopt(name)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _inputs(self) -> int:
        return len(self._load.acknowledged[INPUT])

    def _is_input_wanted(self) -> bool:
        return self._load.sent[INPUT] < min(each.committed for each in self._loops) + AHEAD

    def progress(self) -> None:
        """Everybody goes on: the group commits what it reads, each loop commits transactions."""
        goals = {each: offset + 20 for each, offset in self._group.history.committed().items()}

        def is_committed() -> bool:
            found = self._group.history.committed()
            return all(found[each] >= goal for each, goal in goals.items())

        for loop in self._loops:
            loop.progress()
        self._group.wait(is_committed, f"commits behind {goals}")

    def move_to(self, broker: int) -> None:
        """That broker becomes the coordinator of all, with a transaction open."""
        with self._open:
            for name in INTERNAL:
                self.acts.lead(name, broker)
        self.progress()

    def kill(self, broker: int) -> None:
        """The same broker is killed, with a transaction open, and comes back into every ISR."""
        everybody = [each.node_id for each in self.acts.brokers]
        node = self.acts.cluster.nodes[broker]
        for loop in self._loops:
            loop.hold()
        with self._open:
            node.kill()
            for name in self.acts.topics:
                self.acts.wait_for_state(name, None, [each for each in everybody if each != broker])
        for loop in self._loops:
            loop.go_on()
        self.progress()
        node.start_again()
        for name in self.acts.topics:
            self.acts.wait_for_state(name, None, everybody)

    def finish(self) -> None:
        """Everything is read, processed, and committed, exactly once."""
        self._open.check()
        self._load.stop()
        self._load.check(INPUT, self.acts.read(INPUT))
        for loop in self._loops:
            loop.finish(self._load.sent[INPUT])
        self._feeder.ask_to_stop()
        produced = self._feeder.stop()
        self._group.finish(produced)
        if faults := self._group.history.faults(produced, once=True):
            raise ClusterFailed(f"{faults[:10]}\n{self._group.told()}")

    def told(self) -> str:
        return (
            f"{self._load.sent[INPUT]:,} inputs, each with one committed output of either loop "
            f"({sum(each.aborted for each in self._loops)} transactions aborted); "
            f"{sum(self._group.history.committed().values()):,} records read by the group, each once"
        )
