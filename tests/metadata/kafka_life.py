"""The metadata that one life of Apache Kafka writes; `python -m tests.metadata.kafka_life` keeps a new one.

A node is formatted, started, given topics, settings, a credential and a quota, stopped, started, killed
(`kill -9`), started and stopped. What it wrote to `__cluster_metadata` is kept as lines of text, `<offset>
<value in hex>`, control batches left out; the last snapshot it took the same, with how far it reaches.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import NamedTuple

from barnabas.core.disk import Buffer
from barnabas.records.batch import LENGTH_AT, LOG_OVERHEAD_BYTES
from barnabas.records.reader import read_batch, read_batches
from tests.support.apache_kafka import VERSION, ApacheKafka, KafkaFailed, missing
from tests.support.fetched import made_for_this_run
from tests.support.kafka_tools import KafkaTools

FIXTURE = Path(__file__).resolve().parent / "fixtures" / f"kafka-{VERSION}-metadata.txt"
SETTINGS = {
    # after kill -9 a node waits for its own old session to end
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "metadata.log.max.record.bytes.between.snapshots": "200",
}


class Value(NamedTuple):
    """A metadata record as it stands in the log."""

    offset: int
    data: bytes


class KafkaLife(NamedTuple):
    log: list[Value]
    snapshot: list[bytes]
    snapshot_end: int


def live(home: Path) -> KafkaLife:
    """Run a node through its life; about half a minute."""
    kafka = ApacheKafka(home, settings=SETTINGS)
    with kafka, KafkaTools() as tools:
        _change(tools, kafka.bootstrap)
    with kafka:
        kafka.kill()
    with kafka:
        pass
    folder = kafka.data / "__cluster_metadata-0"
    log = [value for path in sorted(folder.glob("*.log")) for value in values(path.read_bytes())]
    last = max(folder.glob("*.checkpoint"))
    snapshot = [value.data for value in values(last.read_bytes())]
    return KafkaLife(log, snapshot, int(last.name.partition("-")[0]))


def fresh() -> KafkaLife:
    """A life of its own for this test run, lived once."""
    return read(made_for_this_run("kafka-life", _live_and_write) / "life.txt")


def _live_and_write(folder: Path) -> None:
    write(live(folder / "home"), folder / "life.txt")


def values(data: Buffer) -> list[Value]:
    """What the data batches of a metadata log or snapshot hold."""
    return [
        Value(record.offset, record.value or b"")
        for header, at in read_batches(data, 0, _end(data))
        if not header.is_control
        for record in read_batch(data, at, header)
    ]


def _end(data: Buffer) -> int:
    """Where the batches end; a killed node leaves nothing but zeros behind them."""
    position = 0
    while position + LOG_OVERHEAD_BYTES <= len(data):
        (length,) = struct.unpack_from(">i", data, position + LENGTH_AT)
        if length == 0:
            break
        position += LOG_OVERHEAD_BYTES + length
    return position


def _change(tools: KafkaTools, bootstrap: str) -> None:
    def run(tool: str, *arguments: str) -> None:
        done = tools.run(tool, "--bootstrap-server", bootstrap, *arguments)
        if done.status != 0:
            raise KafkaFailed(f"{tool} {arguments}: {done}")

    run("topics", "--create", "--topic", "first", "--partitions", "3", "--config", "retention.ms=1000")
    run("topics", "--create", "--topic", "second.topic", "--replica-assignment", "1,1")
    changes = "segment.bytes=2000000,min.insync.replicas=1"
    of_first = ("--alter", "--entity-type", "topics", "--entity-name", "first")
    run("configs", *of_first, "--add-config", changes, "--delete-config", "retention.ms")
    someone = ("--alter", "--entity-type", "users", "--entity-name", "someone")
    run("configs", *someone, "--add-config", "consumer_byte_rate=1024")
    run("configs", *someone, "--add-config", "SCRAM-SHA-256=[password=secret]")
    run("topics", "--delete", "--topic", "second.topic")


def write(life: KafkaLife, file: Path) -> None:
    lines = [f"{value.offset} {value.data.hex()}" for value in life.log]
    lines += [f"snapshot {life.snapshot_end}", *(data.hex() for data in life.snapshot)]
    file.write_text("\n".join(lines) + "\n")


def read(file: Path) -> KafkaLife:
    of_log, _, of_snapshot = file.read_text().partition("snapshot ")
    end, *snapshot = of_snapshot.split()
    pairs = (line.split() for line in of_log.splitlines())
    log = [Value(int(offset), bytes.fromhex(data)) for offset, data in pairs]
    return KafkaLife(log, [bytes.fromhex(data) for data in snapshot], int(end))


def read_fixture() -> KafkaLife:
    return read(FIXTURE)


def main() -> None:
    lacking = missing()
    if lacking is not None:
        sys.exit(f"cannot run Apache Kafka here: {lacking}")
    life = fresh()
    FIXTURE.parent.mkdir(exist_ok=True)
    write(life, FIXTURE)
    print(f"{FIXTURE}: {len(life.log)} records, {len(life.snapshot)} in the snapshot")


if __name__ == "__main__":
    main()
