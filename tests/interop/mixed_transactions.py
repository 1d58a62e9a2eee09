"""Transactional loops (read, process, write, and the offset of what was read) that go on while brokers and
coordinators change under them; afterwards each input has exactly one committed output, in order.

`ConfluentLoop` treats errors as librdkafka asks an application to: what may be tried again is, what asks for
an abort is aborted and read again. `JavaLoop` is led step by step, and no step may fail: Kafka's own client
tries again by itself. `OpenTransactions` are open exactly while a coordinator moves.

librdkafka waits for ever in `send_offsets_to_transaction` when the coordinator of the group has died, even if
it comes back (its issues 5456 and 5511); so its producers are made anew whenever a broker is killed.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.interop.mixed_replication_acts import PATIENCE_S, ReplicationActs
from tests.support.mixed_node import POLL_S, ClusterFailed
from tests.support.stepped import SteppedProcess
from tests.support.transactors import JAVA, command

TRANSACTION_TIMEOUT_MS = 60_000
_ASK_AGAIN = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


def shared(acts: ReplicationActs) -> dict[str, str | int]:
    """Settings of librdkafka's clients."""
    return {"bootstrap.servers": acts.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500}


def made_producer(acts: ReplicationActs, name: str) -> Producer:
    """A transactional producer in the place of a former one."""
    transactional = {"transactional.id": name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    producer = Producer(shared(acts) | transactional | {"linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    return producer


class Loop:
    """Copies a topic to another one, in a thread; ends when it has copied as much as it was told to."""

    batch: int  # records in a transaction, at most

    def __init__(self, acts: ReplicationActs, source: str, target: str, inputs: Callable[[], int]) -> None:
        """`inputs`: how many records there are to copy so far."""
        self.acts = acts
        self.inputs = inputs
        self.source, self.target = source, target
        self.committed = 0  # records whose transaction is known to be committed
        self.aborted = 0  # transactions
        self.failure = ""
        self._goal: int | None = None
        self._is_over = Event()
        self._thread = Thread(target=self._run, name=target, daemon=True)

    def __enter__(self) -> Loop:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self.go_on()
        self._thread.join(None if error is None else PATIENCE_S)

    def _run(self) -> None:
        try:
            self.begin()
            while not self._is_over.is_set():
                self.committed += self.step()
                if self._goal is not None and self.committed >= self._goal:
                    break
            self.close()
        except Exception as error:  # noqa: BLE001 told by the thread that waits for it
            self.failure = f"{type(self).__name__} {self.target}: {error!r}"

    def begin(self) -> None:
        raise NotImplementedError

    def step(self) -> int:
        """One transaction, or nothing; returns how many records were committed."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def hold(self) -> None:
        """Wait between two transactions, where the client cannot bear what is done next; until `go_on`."""

    def go_on(self) -> None:
        """After `hold`; harmless when repeated."""

    def progress(self, transactions: int = 3) -> None:
        """Wait until so many more have been committed."""
        goal = self.committed + transactions * self.batch
        self._wait(f"{goal} records in {self.target}", lambda: self.committed >= goal)

    def finish(self, count: int) -> None:
        """Wait until all these records are copied."""
        self._goal = count
        self._wait(f"all {count} records in {self.target}", lambda: not self._thread.is_alive())
        found = list(self.acts.read(self.target, isolation="read_committed").values())
        numbers = [int(value.partition(b"=")[0]) for value in found]
        if numbers != list(range(count)):
            wrong = next((at for at, each in enumerate(numbers) if at != each), len(numbers))
            raise ClusterFailed(
                f"{self.target}: {len(numbers)} committed of {count}; at {wrong} {numbers[wrong : wrong + 5]}"
            )

    def _wait(self, what: str, is_done: Callable[[], bool]) -> None:
        self.acts.cluster.wait_for(what, lambda: self.failure or is_done() or None)
        if self.failure:
            raise ClusterFailed(self.failure)


class ConfluentLoop(Loop):
    """With librdkafka."""

    batch = 20

    def __init__(self, acts: ReplicationActs, source: str, target: str, inputs: Callable[[], int]) -> None:
        super().__init__(acts, source, target, inputs)
        self._may_go_on, self._is_held = Event(), Event()
        self._may_go_on.set()

    def begin(self) -> None:
        self._producer = made_producer(self.acts, self.target)
        reading = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        self._consumer = Consumer(
            shared(self.acts) | reading | {"group.id": self.target, "isolation.level": "read_committed"}
        )
        self._consumer.subscribe([self.source])

    def hold(self) -> None:
        self._is_held.clear()
        self._may_go_on.clear()
        self._wait(f"{self.target} is held", self._is_held.is_set)

    def go_on(self) -> None:
        self._may_go_on.set()

    def step(self) -> int:
        if not self._may_go_on.is_set():
            self._is_held.set()
            self._may_go_on.wait()
            self._producer = made_producer(self.acts, self.target)
        messages = [each for each in self._consumer.consume(self.batch, 0.1) if each.error() is None]
        if not messages:
            return 0
        try:
            self._producer.begin_transaction()
            for each in messages:
                self._producer.produce(self.target, each.value(), partition=0)
            position = TopicPartition(self.source, 0, messages[-1].offset() + 1)
            metadata = self._consumer.consumer_group_metadata()
            self._again(lambda: self._producer.send_offsets_to_transaction([position], metadata, PATIENCE_S))
            self._again(lambda: self._producer.commit_transaction(PATIENCE_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._again(lambda: self._producer.abort_transaction(PATIENCE_S))
            self._consumer.seek(TopicPartition(self.source, 0, messages[0].offset()))
            self.aborted += 1
            return 0
        return len(messages)

    def _again(self, ask: Callable[[], None]) -> None:
        while True:
            try:
                return ask()
            except KafkaException as error:
                if not error.args[0].retriable() or self._is_over.is_set():
                    raise

    def close(self) -> None:
        self._consumer.close()


class JavaLoop(Loop):
    """With Kafka's own client; each step is a round trip to its process."""

    batch = 5

    def begin(self) -> None:
        arguments = [self.acts.bootstrap, self.target, str(TRANSACTION_TIMEOUT_MS), self.target, self.source]
        self._process = SteppedProcess(command(JAVA[0]), arguments)
        self._process.do("init")

    def step(self) -> int:
        count = min(self.batch, self.inputs() - self.committed)
        if not count:
            self._is_over.wait(POLL_S)
            return 0
        taken = self._process.do(f"take {count}")
        self._process.do("begin")
        for each in taken:
            self._process.do(f"send {self.target} 0 {each.split(':')[2]}")
        self._process.do("offsets")
        self._process.do("commit")
        return count

    def close(self) -> None:
        self._process.kill()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._process.kill()


class OpenTransactions:
    """A transaction with a record and a group's offset, open while something happens; every second one is
    aborted."""

    def __init__(self, acts: ReplicationActs, target: str) -> None:
        self._acts = acts
        self._target = target
        self._consumer = Consumer(shared(acts) | {"group.id": target, "enable.auto.commit": False})
        self._number = 0
        self._expected: list[bytes] = []

    def __enter__(self) -> OpenTransactions:
        self._producer = made_producer(self._acts, self._target)
        self._number += 1
        self._producer.begin_transaction()
        self._producer.produce(self._target, b"%d=" % self._number, partition=0)
        position = TopicPartition(self._target, 0, self._number)
        metadata = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([position], metadata, PATIENCE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return
        if self._number % 2:
            self._producer.commit_transaction(PATIENCE_S)
            self._expected.append(b"%d=" % self._number)
        else:
            self._producer.abort_transaction(PATIENCE_S)
        self.check()

    def check(self) -> None:
        """Only what was committed is read, and the group has the offset of the last of them: soon, since the
        markers are written after the answer."""
        wait_for = self._acts.cluster.wait_for
        wait_for(f"records of {self._target}: {self._expected}", lambda: self._read() == self._expected)
        offset = self._number - (self._number + 1) % 2
        wait_for(f"offset {offset} of {self._target}", lambda: self._committed() == offset)

    def _read(self) -> list[bytes]:
        return list(self._acts.read(self._target, isolation="read_committed").values())

    def _committed(self) -> int | None:
        """None where the coordinator is elsewhere now: librdkafka does not ask again by itself."""
        try:
            (told,) = self._consumer.committed([TopicPartition(self._target, 0)], PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() in _ASK_AGAIN:
                return None
            raise
        assert told.error is None
        return int(told.offset)

    def close(self) -> None:
        self._consumer.close()
