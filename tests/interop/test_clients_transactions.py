"""Read, process, write: every transactional client, killed at every step, gives each input one output.

A life of the loop commits one transaction, and at a given step of the next it is killed, or stopped to come
back as a zombie when its successor has taken over. What was written is noted, so that the output is known
record for record: to those who read what is committed, to those who read everything, and in its length, which
counts the markers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.interop.reading import READERS, ends, read_all
from tests.support.apache_kafka import missing
from tests.support.clients import CLIENTS, Message, create_topic, until, values
from tests.support.foreign import missing_go, missing_node
from tests.support.stepped import StepFailed, SteppedProcess
from tests.support.targets import Target, make_target
from tests.support.transactors import JAVA, PYTHON, Transactors

PARTITIONS = 2  # of the output
IN_ONE = 2  # inputs in a transaction
STEPS = ("begin", "send 0", "send 1", "offsets", "committing", "commit")
LOOPS = [
    *PYTHON,
    pytest.param(JAVA[0], marks=pytest.mark.java),
    pytest.param(JAVA[1], marks=[pytest.mark.java, pytest.mark.long]),
    pytest.param("kafkajs", marks=pytest.mark.node),
    pytest.param("franz-go", marks=pytest.mark.go),
]
# what each client says to a zombie that sends, then aborts, and to one that commits
FENCED = {
    "confluent": ("_FENCED", "_FENCED", "_FENCED"),
    "aiokafka": ("ProducerFenced", "AssertionError", "ProducerFenced"),
    "kafka-python": ("ProducerFencedError", "KafkaError", "ProducerFencedError"),
    # it may abort, and go on, where the end of its own transaction is all that it missed
    "java-4.3.0": ("InvalidProducerEpochException", "ProducerFencedException", "ProducerFencedException"),
    "java-3.9.1": ("ProducerFencedException", "ProducerFencedException", "ProducerFencedException"),
    # it forgets a partition that was refused, and then knows of nothing to abort
    "kafkajs": ("INVALID_PRODUCER_EPOCH", "ok", "INVALID_PRODUCER_EPOCH"),
    "franz-go": ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "PRODUCER_FENCED"),
}
# and to one that commits what the broker has aborted
# (which a broker of transaction version 2 takes for a repeated end, and one in the other direction)
TOO_LATE = {client: told[2] for client, told in FENCED.items()} | {
    "java-4.3.0": "InvalidTxnStateException",
    "franz-go": "INVALID_TXN_STATE",
}
# dead members of clients that know no static ones are missed after a second
SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


@pytest.fixture(scope="module")
def target(target_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    made = make_target(target_kind, tmp_path_factory.mktemp("transactions"), SETTINGS)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def start() -> Iterator[Transactors]:
    with Transactors() as processes:
        yield processes


class Loop:
    """The lives of one loop, and what they wrote."""

    def __init__(self, start: Transactors, client: str, bootstrap: str, topic: str) -> None:
        self._start, self._client, self._bootstrap, self._name = start, client, bootstrap, topic
        self.source, self.output = f"{topic}.in", f"{topic}.out"
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.markers = [0] * PARTITIONS
        self.last_taken = ""
        self.is_known = True  # whatever was sent was acknowledged
        self.has_one_marker = True  # each transaction, in each partition
        self.has_successor = False  # which gets ready while the process before it still lives
        self._next: SteppedProcess | None = None

    def prepare(self, inputs: Sequence[Message]) -> None:
        create_topic(self._bootstrap, self.source)
        create_topic(self._bootstrap, self.output, PARTITIONS)
        CLIENTS[0].produce(self._bootstrap, self.source, inputs)

    def _made(self) -> SteppedProcess:
        return self._start(
            self._client, self._bootstrap, self._name, group=f"{self._name}.group", source=self.source
        )

    def life(self, until: str = "commit") -> SteppedProcess:
        """The next process: a transaction, and one up to a step."""
        process = self._next or self._made()
        self._next = self._made() if self.has_successor else None
        process.do("init")
        self.transaction(process)
        self.transaction(process, until=until)
        return process

    def transaction(self, process: SteppedProcess, *, until: str = "commit") -> None:
        """A transaction up to that step."""
        for step in self.steps(process):
            if step == until:
                return

    def steps(self, process: SteppedProcess) -> Iterator[str]:
        """A transaction, step by step; `committing` is one that was asked for, and may or may not be."""
        taken = process.do(f"take {IN_ONE}")
        process.do("begin")
        yield "begin"
        for number, each in enumerate(taken):
            self._send(process, each)
            yield f"send {number}"
        process.do("offsets")
        yield "offsets"
        process.ask("commit")
        yield "committing"
        process.given("commit")
        self.last_taken = taken[-1]
        yield "commit"

    def finish(self, process: SteppedProcess, inputs: Sequence[Message]) -> None:
        """Until the last of the inputs is part of a transaction that was committed."""
        last = inputs[-1].value
        assert last is not None
        while not self.last_taken.endswith(last.decode()):
            self.transaction(process)
        process.do("close")

    def check(self, inputs: Sequence[Message]) -> None:
        """Each input has one output; and all that was sent is there, committed or not."""
        for partition in range(PARTITIONS):
            once = [message.value for message in inputs[partition::PARTITIONS]]
            length = len(self.sent[partition]) + self.markers[partition]
            of = self._bootstrap, self.output, partition
            until(lambda of=of: len(set(ends(*of))) == 1, "end of the last transaction")
            assert ends(*of) == (length, length) or not self.has_one_marker
            for reader in READERS:
                assert read_all(reader, *of, committed=True) == once
                found = read_all(reader, *of, committed=False)
                assert found == self.sent[partition] or not self.is_known

    def _send(self, process: SteppedProcess, taken: str) -> None:
        _, offset, value = taken.split(":")
        partition = int(offset) % PARTITIONS
        (at,) = process.do(f"send {self.output} {partition} {value}")
        # each transaction has one record in a partition, and one marker, whatever becomes of it
        assert int(at) == len(self.sent[partition]) + self.markers[partition] or not self.has_one_marker
        self.sent[partition].append(value.encode())
        self.markers[partition] += 1


@pytest.mark.parametrize("client", LOOPS)
def test_each_input_has_one_output(target: Target, start: Transactors, topic: str, client: str) -> None:
    loop = Loop(start, client, target.bootstrap, topic)
    inputs = values(IN_ONE * 18, "letter")
    loop.prepare(inputs)
    loop.has_successor = True
    for step in STEPS:
        process = loop.life(until=step)
        process.kill()
    early = loop.life(until="begin")
    early.pause()
    late = loop.life(until="offsets")
    late.pause()
    early.wake()
    of_early = (early.told(f"send {loop.output} 0 zombie"), early.told("abort"))
    early.kill()
    loop.has_successor = False
    last = loop.life()
    late.wake()
    assert (*of_early, late.told("commit")) == FENCED[client]
    late.kill()
    loop.finish(last, inputs)
    loop.check(inputs)


def test_the_broker_dies_at_every_step(
    new_target: Callable[[Mapping[str, str]], Target], start: Transactors, topic: str
) -> None:
    """All clients at once, in the same step, when it is killed; who cannot go on has a successor.

    All but one: librdkafka (2.16) waits for ever to send offsets to a coordinator that was away, Kafka too.
    """
    target = new_target(SETTINGS)
    inputs = values(IN_ONE * 16, "letter")
    loops = [Loop(start, client, target.bootstrap, f"{topic}.{client}") for client in everybody()[1:]]
    for loop in loops:
        loop.prepare(inputs)
        loop.has_one_marker = False  # a coordinator that came back sends what it does not know to be there
    with ThreadPoolExecutor(len(loops)) as at_once:
        lives = dict(zip(loops, at_once.map(Loop.life, loops), strict=True))

        def go_on(loop: Loop, transaction: Iterator[str]) -> None:
            try:
                for _ in transaction:
                    pass
            except StepFailed:
                lives[loop].kill()
                loop.is_known = False
                lives[loop] = loop.life()

        for step in STEPS:
            transactions = [loop.steps(life) for loop, life in lives.items()]
            # each goes on up to the step
            assert all(at_once.map(lambda transaction, step=step: step in transaction, transactions))
            target.kill()
            target.start()
            list(at_once.map(go_on, loops, transactions))
        list(at_once.map(lambda loop: loop.finish(lives[loop], inputs), loops))
        list(at_once.map(lambda loop: loop.check(inputs), loops))


def everybody() -> list[str]:
    """The clients that this machine can run."""
    java = () if missing() else JAVA
    return [*PYTHON, *java, *([] if missing_node() else ["kafkajs"]), *([] if missing_go() else ["franz-go"])]


def test_all_clients_in_one_partition(target: Target, start: Transactors, topic: str) -> None:
    """Transactions of all versions side by side: what is stable ends where the oldest open one begins."""
    of = target.bootstrap, topic, 0
    create_topic(target.bootstrap, topic)
    processes = [start(client, target.bootstrap, f"{topic}.{client}") for client in everybody()]
    for process in processes:
        process.do("init")
    log: list[bytes | None] = []  # by offset; None is a marker
    committed: list[int] = []
    for turn in range(3):
        opened: dict[int, list[int]] = {}
        for which in range(2):
            for number, process in enumerate(processes):
                if which == 0:
                    process.do("begin")
                assert process.do(f"send {topic} 0 {turn}-{number}-{which}") == [str(len(log))]
                opened.setdefault(number, []).append(len(log))
                log.append(f"{turn}-{number}-{which}".encode())
        for place in range(len(processes)):
            number = (place + 2 * turn) % len(processes)
            is_commit = (place + turn) % 2 == 0
            processes[number].do("commit" if is_commit else "abort")
            log.append(None)
            offsets = opened.pop(number)
            committed += offsets if is_commit else []
            stable = min((first for first, *_ in opened.values()), default=len(log))
            bounds = (stable, len(log))
            until(lambda bounds=bounds: ends(*of) == bounds, f"stable and last offset {bounds}")
            if place in (0, len(processes) - 1):
                visible = [log[offset] for offset in sorted(committed) if offset < stable]
                assert [read_all(reader, *of, committed=True) for reader in READERS] == [visible] * 2
    for reader in READERS:
        assert read_all(reader, *of, committed=False) == [value for value in log if value is not None]


def test_what_takes_too_long_is_aborted(target: Target, start: Transactors, topic: str) -> None:
    """The broker aborts a transaction after its timeout, and fences its producer; the next one goes on."""
    clients = everybody()
    create_topic(target.bootstrap, topic, len(clients))
    slow = [start(client, target.bootstrap, f"{topic}.{client}", timeout_ms=1000) for client in clients]
    for number, process in enumerate(slow):
        process.do("init")
        process.do("begin")
        process.do(f"send {topic} {number} late")
    successors = [start(client, target.bootstrap, f"{topic}.{client}") for client in clients]
    for number in range(len(clients)):
        until(lambda of=number: ends(target.bootstrap, topic, of) == (2, 2), "marker of an abort")
    told = {client: process.told("commit") for client, process in zip(clients, slow, strict=True)}
    assert told == {client: TOO_LATE[client] for client in clients}
    for number, successor in enumerate(successors):
        for step in ("init", "begin", f"send {topic} {number} in-time", "commit"):
            successor.do(step)
        until(lambda of=number: ends(target.bootstrap, topic, of) == (4, 4), "marker of the commit")
        assert read_all(READERS[1], target.bootstrap, topic, number, committed=True) == [b"in-time"]
