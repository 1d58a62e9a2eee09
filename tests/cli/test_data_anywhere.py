"""`produce`, `consume` and `doctor` on Barnabas and on Apache Kafka alike."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.records import make_topic
from tests.cli.running import Commands


def test_records_go_in_and_come_out(anywhere: Commands, tmp_path: Path) -> None:
    source = make_topic(anywhere.bootstrap, "data-source", 3)
    keyed = b"".join(b"k%d:%d\n" % (n % 7, n) for n in range(500))
    out = anywhere.ok("produce", source, "--key-separator", ":", "--compression", "zstd", stdin=keyed)
    assert out.startswith(b"data-source: 500 records, ")
    out = anywhere.ok("consume", source, "--format", "{key}:{value}", "--filter", "key=k3")
    assert out == b"".join(line + b"\n" for line in keyed.split() if line.startswith(b"k3:"))
    last = anywhere.ok("consume", source, "--from", "-1", "--format", "{partition}@{offset}").split()
    assert len(last) == 3
    assert anywhere.ok("consume", source, "--from", "-1h", "--count", 5, "--values").count(b"\n") == 5
    dumped = anywhere.ok("consume", source, "--json")
    copy = make_topic(anywhere.bootstrap, "data-copy", 3)
    assert json.loads(anywhere.ok("produce", copy, "--json", stdin=dumped))["records"] == 500
    copied = anywhere.ok("consume", copy, "--json").replace(b'"data-copy"', b'"data-source"')
    assert sorted(copied.splitlines()) == sorted(dumped.splitlines())


def test_a_topic_comes_into_being_by_being_written_to(anywhere: Commands) -> None:
    anywhere.ok("produce", "data-new", stdin=b"dear sir\n")
    assert anywhere.ok("consume", "data-new", "--values") == b"dear sir\n"


def test_what_is_refused_is_told(anywhere: Commands) -> None:
    topic = make_topic(anywhere.bootstrap, "data-compacted", cleanup_policy="compact")
    done = anywhere("produce", topic, stdin=b"without a key\n")
    assert (done.status, "INVALID_RECORD" in done.err) == (1, True)


def test_a_cluster_is_looked_at(anywhere: Commands) -> None:
    done = anywhere("doctor", "--bootstrap", anywhere.bootstrap, "--write", "--json")
    found = json.loads(done.out)
    assert (done.status, found["problems"]) == (0, 0), found
    told = [finding["what"] for finding in found["findings"]]
    for part in ("agree on the time", "every partition has a leader", "a record was written"):
        assert any(part in each for each in told), told


@pytest.mark.java
def test_read_committed(apache_kafka: str, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    from aiokafka import AIOKafkaProducer

    topic = make_topic(apache_kafka, "data-transactions")

    async def fill() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=apache_kafka, transactional_id="cli")
        await producer.start()
        for number in range(4):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
        await producer.stop()

    asyncio.run(fill())
    barnabas = Commands(apache_kafka, capfdbinary, tmp_path)
    assert barnabas.ok("consume", topic, "--values").split() == [b"0", b"1", b"2", b"3"]
    committed = barnabas.ok("consume", topic, "--values", "--isolation", "read_committed")
    assert committed.split() == [b"0", b"2"]
