"""A process that writes numbered records with librdkafka, acks=all and idempotent, and tells of the answers.

    python -m tests.interop.numbered_writer HOST:PORT,... TOPIC NAME PARTITIONS TICK-MS

Every tick it sends one record to each partition, numbered from 0 on in each; its value is
`value(NAME, partition, number)`. Of each record one line says what came of it, with the times at which it was
sent and answered by the system's monotonic clock:

    PARTITION NUMBER OFFSET SENT-NS ANSWERED-NS
    error PARTITION NUMBER what the client says

librdkafka takes a batch as acknowledged, too, when a later one of the partition is: its offset is -1.

A line of input (or its end) makes it stop sending, wait for all answers, say `end` and exit. The Java program
of the same name (java/NumberedWriter.java) does the same with Kafka's own client.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

IN_FLIGHT = 5000  # no more is sent until some is answered
PATIENCE_S = 300.0  # longer than any fault


def value(name: str, partition: int, number: int) -> bytes:
    """What the record of that number holds: it can be told from all others, and has a size of its own."""
    return f"{name}/{partition}/{number}/".encode().ljust(20 + number * 37 % 500, b".")


class NumberedWriter:
    """The producer and what it has sent."""

    def __init__(self, bootstrap: str, topic: str, name: str, partitions: int) -> None:
        self._topic, self._name, self._partitions = topic, name, partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": int(PATIENCE_S * 1000),
                "error_cb": self._told,
                "log_level": 0,
            }
        )
        self._number = 0

    def _told(self, error: KafkaError) -> None:
        if error.fatal():  # any other is one of connections, and it tries again
            _say(f"error -1 -1 {error}")

    def tick(self) -> None:
        """One record to each partition, unless too many are on their way."""
        if len(self._producer) < IN_FLIGHT:
            for partition in range(self._partitions):
                self._send(partition, self._number)
            self._number += 1
        self._producer.poll(0)

    def _send(self, partition: int, number: int) -> None:
        sent_ns = time.monotonic_ns()

        def answered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                _say(f"error {partition} {number} {error}")
            else:
                at = message.offset()
                _say(f"{partition} {number} {-1 if at is None else at} {sent_ns} {time.monotonic_ns()}")

        sent: Any = value(self._name, partition, number)
        self._producer.produce(self._topic, sent, partition=partition, on_delivery=answered)

    def finish(self) -> None:
        """Wait for all answers."""
        left = self._producer.flush(PATIENCE_S)
        if left:
            _say(f"error -1 -1 {left} records were never answered")
        _say("end")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main(bootstrap: str, topic: str, name: str, partitions: str, tick_ms: str) -> None:
    stopping = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stopping.set()

    threading.Thread(target=listen, daemon=True).start()
    writer = NumberedWriter(bootstrap, topic, name, int(partitions))
    while not stopping.wait(int(tick_ms) / 1000):
        writer.tick()
        sys.stdout.flush()
    writer.finish()
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
