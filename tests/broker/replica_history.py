"""What must hold of a replicated topic that writers with acks=all and idempotence write to.

`Reader` reads the topic all the time, as a consumer does, and keeps what it has read in memory. `faults` and
`Reader.check` are the judges:

- every acknowledged record can be read at the offset that its acknowledgement named;
- no record is there twice;
- of one writer the records of a partition are in the order in which they were sent;
- what was read once is there at the end, unchanged, and nothing that nobody sent;
- the logs of all replicas are equal at the end, byte for byte.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition

from tests.interop.numbered_writer import value
from tests.support.numbered_writers import Answer, NumberedWriter
from tests.support.replicated_topic import ReplicatedTopic

Sent = tuple[str, int]  # the writer's name and the number
READ_DEADLINE_S = 120.0
SHOWN = 5
UNKNOWN = ("unknown bytes", -1)


def parsed(partition: int, data: bytes) -> Sent:
    """Which record it is; `UNKNOWN` where it is not what a writer sends."""
    try:
        name, where, number, _ = data.split(b"/", 3)
        sent = name.decode(), int(number)
    except ValueError:
        return UNKNOWN
    return sent if value(sent[0], partition, sent[1]) == data and int(where) == partition else UNKNOWN


def faults(log: Sequence[Sent], answers: Mapping[str, Sequence[Answer]]) -> list[str]:
    """What is wrong with a partition, whose offsets begin at 0, after these acknowledgements, by writer."""
    there = set(log)
    found = [
        f"{each.number} of {name} was acknowledged with offset {each.offset}, which holds "
        f"{log[each.offset] if 0 <= each.offset < len(log) else 'nothing'}"
        for name, given in answers.items()
        for each in given
        if (name, each.number) not in there
        or (each.offset >= 0 and log[each.offset : each.offset + 1] != [(name, each.number)])
    ]
    last: dict[str, tuple[int, int]] = {}
    for offset, (name, number) in enumerate(log):
        if name not in answers:
            found.append(f"offset {offset} holds what nobody has sent: {name}")
            continue
        before, at = last.get(name, (-1, -1))
        if number <= before:
            found.append(f"{name} has record {number} at offset {offset}, and {before} at offset {at}")
        last[name] = number, offset
    return found


class Reader:
    """Reads all partitions in a thread, from the `with` on, and compares with what was acknowledged."""

    def __init__(self, topic: ReplicatedTopic, writers: Sequence[NumberedWriter]) -> None:
        self._topic, self._writers = topic, writers
        self.logs: list[list[Sent]] = [[] for _ in range(topic.partitions)]  # as far as they are read
        self._problems: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = self._consumer()
        while not self._stopping.is_set():
            self._problems += read_some(consumer, self.logs, 0.1)
        consumer.close()

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._topic.cluster.bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        everything = [TopicPartition(self._topic.name, each, 0) for each in range(self._topic.partitions)]
        consumer.assign(everything)
        return consumer

    @property
    def records(self) -> int:
        return sum(map(len, self.logs))

    def check(self) -> list[str]:
        """Wait until everything that is acknowledged now is read; what is wrong."""
        answers = self._answers()
        wanted = [
            max((each.offset for given in of_partition.values() for each in given), default=-1)
            for of_partition in answers
        ]
        deadline = time.monotonic() + READ_DEADLINE_S
        while any(len(log) <= offset for log, offset in zip(self.logs, wanted, strict=True)):
            if self._problems or time.monotonic() > deadline:
                read = [len(each) for each in self.logs]
                return [*self._problems, f"acknowledged up to offsets {wanted}, read up to {read}"]
            time.sleep(0.01)
        return [*self._problems, *self._compare(answers, self.logs)]

    def _answers(self) -> list[dict[str, list[Answer]]]:
        """Of each partition the acknowledgements so far, by writer."""
        found: list[dict[str, list[Answer]]] = [
            {each.name: [] for each in self._writers} for _ in range(self._topic.partitions)
        ]
        for writer in self._writers:
            for each in list(writer.answers):
                found[each.partition][writer.name].append(each)
        return found

    def _compare(
        self, answers: Sequence[Mapping[str, Sequence[Answer]]], logs: Sequence[Sequence[Sent]]
    ) -> list[str]:
        return [
            f"partition {number}: {fault}"
            for number, (log, given) in enumerate(zip(logs, answers, strict=True))
            for fault in faults(log, given)[:SHOWN]
        ]

    def check_at_end(self) -> list[str]:
        """When nobody writes any more and all replicas are in sync: everything is read anew, and the
        replicas' files are compared."""
        again: list[list[Sent]] = [[] for _ in self.logs]
        problems: list[str] = []
        consumer = self._consumer()
        ends = [
            consumer.get_watermark_offsets(TopicPartition(self._topic.name, each), timeout=60)[1]
            for each in range(self._topic.partitions)
        ]
        deadline = time.monotonic() + READ_DEADLINE_S
        while not problems and any(len(log) < end for log, end in zip(again, ends, strict=True)):
            if time.monotonic() > deadline:
                problems.append(f"to be read up to {ends}, read up to {[len(each) for each in again]}")
            problems += read_some(consumer, again, 0.1)
        consumer.close()
        for number, (now, before) in enumerate(zip(again, self.logs, strict=True)):
            if now[: len(before)] != before:
                problems.append(f"partition {number} is not what was read of it before")
        return [*problems, *self._compare(self._answers(), again), *different_replicas(self._topic)]


def read_some(consumer: Consumer, logs: Sequence[list[Sent]], timeout_s: float) -> list[str]:
    """Add what comes to what was read; what is wrong."""
    problems = []
    for message in consumer.consume(500, timeout=timeout_s):
        error, partition = message.error(), message.partition()
        if error is not None:
            if not error.retriable() and error.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
                problems.append(f"a consumer was told: {error}")
            continue
        assert partition is not None
        if message.offset() != len(logs[partition]):
            problems.append(f"partition {partition}: {message.offset()} follows {len(logs[partition]) - 1}")
            continue
        logs[partition].append(parsed(partition, message.value() or b""))
    return problems


def different_replicas(topic: ReplicatedTopic) -> list[str]:
    """Where the files of replicas differ."""
    first, *others = topic.cluster.ids
    return [
        f"partition {number}: the logs of nodes {first} and {each} differ"
        for number in range(topic.partitions)
        for each in others
        if topic.log(each, number) != topic.log(first, number)
    ]
