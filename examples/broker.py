"""A broker at work with a client that knows nothing of it: start, produce, consume, kill -9, carry on.

The broker is `barnabas serve` in a process of its own, the client is confluent-kafka. Every record says its
own number, so what comes back can be checked against nothing but itself. In the second half the broker is
killed in the middle of the work, without any warning, and started again: an idempotent producer goes on by
itself, and afterwards every acknowledged record is there once, in order.

    python examples/broker.py                     a directory of its own, removed afterwards
    python examples/broker.py --dir data          a new directory, left for you to look at
    python examples/broker.py --records 5000000   more of it
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from serving import free_port, start, stop

TOPIC = "letters"
PARTITIONS = 3
VALUE_BYTES = 100

console = Console()


class Stretch(NamedTuple):
    """What one step did, and how long it took."""

    what: str
    records: int
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description="A broker at work with a real client.")
    parser.add_argument("--dir", help="keep the data in this new directory")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many to send in the first half")
    options = parser.parse_args()
    if options.dir is not None:
        return run(Path(options.dir), options.records)
    with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as directory:
        return run(Path(directory) / "data", options.records)


def run(directory: Path, count: int) -> int:
    port = free_port()
    bootstrap = f"127.0.0.1:{port}"
    broker, start_seconds = start(directory, port, f"num.partitions={PARTITIONS}")
    console.print(f"[bold]barnabas serve[/] answers at {bootstrap} after {start_seconds * 1000:.0f} ms")
    try:
        done = [produce(bootstrap, 0, count), consume(bootstrap, count)]
        broker, restart_seconds, stretch = produce_through_a_kill(broker, directory, port, count)
        console.print(
            f"killed with SIGKILL in the middle; answering again after {restart_seconds * 1000:.0f} ms"
        )
        done += [stretch, consume(bootstrap, count + stretch.records)]
    finally:
        stop(broker)
    show(done, directory)
    return 0


def client(bootstrap: str) -> dict[str, object]:
    # a broker that is killed is gone for a moment, which librdkafka would tell at length
    return {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}


class Sender:
    """An idempotent producer of numbered records, which counts what is acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"enable.idempotence": True, "acks": "all", "linger.ms": 5, "statistics.interval.ms": 0}
        self._producer = Producer(client(bootstrap) | settings | {"queue.buffering.max.messages": 500_000})
        self.acknowledged = 0

    def send(self, number: int) -> None:
        while True:
            try:
                value = f"{number:020d}".ljust(VALUE_BYTES)
                self._producer.produce(
                    TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered
                )
                return
            except BufferError:
                self._producer.poll(0.05)

    def serve(self) -> None:
        self._producer.poll(0)

    def finish(self) -> None:
        if self._producer.flush(60):
            raise SystemExit("not every record was acknowledged within a minute")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        self.acknowledged += 1


def bar() -> Progress:
    return Progress(TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), console=console)


def produce(bootstrap: str, first: int, count: int) -> Stretch:
    sender = Sender(bootstrap)
    began = time.perf_counter()
    with bar() as progress:
        task = progress.add_task("produce", total=count)
        for number in range(first, first + count):
            sender.send(number)
            if number % 10_000 == 0:
                sender.serve()
                progress.update(task, completed=sender.acknowledged)
        sender.finish()
        progress.update(task, completed=sender.acknowledged)
    return Stretch("produced, acks=all", sender.acknowledged, time.perf_counter() - began)


def produce_through_a_kill(
    broker: subprocess.Popen[bytes], directory: Path, port: int, first: int
) -> tuple[subprocess.Popen[bytes], float, Stretch]:
    """Send on while the broker dies and comes back; the new process, how long it was away, what was sent."""
    sender = Sender(f"127.0.0.1:{port}")
    count = first // 5
    began = time.perf_counter()
    away_seconds = 0.0
    for number in range(first, first + count):
        sender.send(number)
        if number % 1000 == 0:
            sender.serve()
        if number == first + count // 2:
            broker.kill()
            broker.wait()
            broker, away_seconds = start(directory, port, f"num.partitions={PARTITIONS}")
    sender.finish()
    return (
        broker,
        away_seconds,
        Stretch("produced through a kill", sender.acknowledged, time.perf_counter() - began),
    )


def consume(bootstrap: str, count: int) -> Stretch:
    """Read everything from the beginning, and check that each record is there once, in order."""
    settings = {"group.id": "demo", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer(client(bootstrap) | settings | {"queued.min.messages": 500_000})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    expected = {number: number for number in range(PARTITIONS)}
    seen = 0
    began = time.perf_counter()
    with bar() as progress:
        task = progress.add_task("consume and check", total=count)
        while seen < count:
            messages = consumer.consume(20_000, timeout=10)
            if not messages:
                raise SystemExit(f"{count - seen} records did not come back")
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                number = int(message.value())
                partition = number % PARTITIONS
                if number != expected[partition]:
                    raise SystemExit(
                        f"expected {expected[partition]} in partition {partition}, found {number}"
                    )
                expected[partition] += PARTITIONS
            seen += len(messages)
            progress.update(task, completed=seen)
    consumer.close()
    return Stretch("consumed, each once and in order", seen, time.perf_counter() - began)


def show(done: list[Stretch], directory: Path) -> None:
    table = Table("step", "records", "seconds", "records/s", "MB/s", title="What happened")
    for one in done:
        rate = one.records / one.seconds
        table.add_row(
            one.what,
            f"{one.records:,}",
            f"{one.seconds:.1f}",
            f"{rate:,.0f}",
            f"{rate * VALUE_BYTES / 1e6:.0f}",
        )
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)
    stored = sum(path.stat().st_size for path in directory.glob(f"{TOPIC}-*/*.log"))
    console.print(f"on disk, in Kafka's own files: {stored / 1e6:.0f} MB in {directory}/{TOPIC}-*")


if __name__ == "__main__":
    sys.exit(main())
