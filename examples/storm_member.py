"""A member of a group, in a process of its own: it reads, works on every record for a while, and commits.

Its settings come as JSON on the command line. Every line of its input says how long a record takes from now
on, in seconds, or with a + how much longer the next one takes; the end of its input is its end, and it closes
in good order. What it does it tells in lines of JSON, timed by the clock that all processes share.

It commits without waiting: the answer would wait behind that to a JoinGroup on the same connection, so for as
long as a rebalance takes, although a cooperative member has partitions to read meanwhile. Only for partitions
that it has to give up it waits.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

WAIT_S = 0.05  # for as many records as it takes at a time
REPORT_S = 0.1
QUIET = logging.getLogger("librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class Member:
    """Reads, works and commits until its input ends."""

    def __init__(self, topic: str, batch: int, settings: dict[str, str | int | float | bool]) -> None:
        self._topic = topic
        self._batch = batch
        self._cost_s = 0.0
        self._extra_s = 0.0
        self._is_over = threading.Event()
        self._ends: dict[int, int] = {}  # how far it is, by partition
        self._done: list[tuple[int, int, float]] = []  # what was not told yet
        self._told_at = 0.0
        self._settings = {**settings, "on_commit": self._committed}
        self._consumer = self._new_consumer()

    def _new_consumer(self) -> Consumer:
        consumer = Consumer(self._settings, logger=QUIET)
        consumer.subscribe([self._topic], on_revoke=self._revoked, on_lost=self._lost)
        return consumer

    def obey(self) -> None:
        for line in sys.stdin:
            if line.startswith("+"):
                self._extra_s = float(line)
            else:
                self._cost_s = float(line)
        self._is_over.set()

    def run(self) -> None:
        while not self._is_over.is_set():
            messages = []
            for message in self._consumer.consume(self._batch, timeout=WAIT_S):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
                    tell("late")
                elif error.code() == KafkaError._FATAL:
                    self._begin_anew()
            if messages:
                self._work_on(messages)
        self._consumer.close()

    def _begin_anew(self) -> None:
        """As whoever looks after a process would have it: a consumer that has failed does not recover."""
        tell("failed")
        self._consumer.close()
        self._consumer = self._new_consumer()

    def _work_on(self, messages: list[Message]) -> None:
        """All of them, however long that takes; only then it is written down how far this is."""
        due = time.monotonic()
        for message in messages:
            due += self._cost_s + self._extra_s
            self._extra_s = 0.0
            time.sleep(max(0.0, due - time.monotonic()))
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self._ends[partition] = offset + 1
            self._done.append((partition, offset, time.monotonic()))
            self._report(REPORT_S)
            if self._is_over.is_set():
                break
        self._report(0)
        self._commit(self._ends, waits=False)

    def _commit(self, ends: dict[int, int], *, waits: bool) -> None:
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in ends.items()]
        with suppress(KafkaException):  # what is refused is told by the callback
            if places and waits:
                self._consumer.commit(offsets=places, asynchronous=False)
            elif places:
                self._consumer.commit(offsets=places, asynchronous=True)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        ends = {one.partition: self._ends.pop(one.partition, None) for one in partitions}
        self._commit({partition: end for partition, end in ends.items() if end is not None}, waits=True)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._ends.pop(one.partition, None)

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            tell("refused", error=error.name())

    def _report(self, after_s: float) -> None:
        now = time.monotonic()
        if self._done and now >= self._told_at + after_s:
            tell("worked", done=self._done)
            self._done, self._told_at = [], now


def tell(event: str, **details: object) -> None:
    sys.stdout.write(json.dumps({"event": event, "at": time.monotonic(), **details}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    member = Member(**json.loads(sys.argv[1]))
    threading.Thread(target=member.obey, daemon=True).start()
    member.run()
