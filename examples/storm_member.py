"""A member of a group, in a process of its own: it reads, works on every record for a while, and commits.

Its settings come as JSON on the command line. Every line of its input says how long a record takes from now
on, in seconds; the end of its input is its end, and it closes in good order. What it does it tells in lines
of JSON, timed by the clock that all processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

WAIT_S = 0.05  # for as many records as it takes at a time
REPORT_S = 0.1


class Member:
    """Reads, works and commits until its input ends."""

    def __init__(self, topic: str, batch: int, settings: dict[str, str | int | float | bool]) -> None:
        self._topic = topic
        self._batch = batch
        self._cost_s = 0.0
        self._is_over = threading.Event()
        self._done: list[tuple[int, int, float]] = []  # what was not told yet
        self._told_at = 0.0
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic])

    def obey(self) -> None:
        for line in sys.stdin:
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
            if messages:
                self._work_on(messages)
        self._consumer.close()

    def _work_on(self, messages: list[Message]) -> None:
        """All of them, however long that takes; only then it is written down how far this is."""
        due = time.monotonic()
        ends: dict[int, int] = {}
        for message in messages:
            due += self._cost_s
            time.sleep(max(0.0, due - time.monotonic()))
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            ends[partition] = offset + 1
            self._done.append((partition, offset, time.monotonic()))
            self._report(REPORT_S)
            if self._is_over.is_set():
                break
        self._report(0)
        self._commit(ends)

    def _commit(self, ends: dict[int, int]) -> None:
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in ends.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as failure:
            tell("refused", error=failure.args[0].name())

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
