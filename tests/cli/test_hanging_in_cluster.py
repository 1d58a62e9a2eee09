"""Transactions that hang on several nodes: found and aborted by `barnabas txn` and by kafka-transactions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.testing import Cluster
from tests.cli.running import Commands
from tests.support.kafka_tools import KafkaTools
from tests.support.raw_client import RawClient, wait_until
from tests.support.raw_transactions import COMMITTED, Transactor, latest

HOUR_MS = 3_600_000
TOPIC = "payments"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes that verify nothing; a topic with a partition that each of them leads."""
    with Cluster(settings={"transaction.partition.verification.enable": "false"}) as made:
        yield made


def client_of(cluster: Cluster, partition: int) -> RawClient:
    """A connection to the leader of a partition."""
    return RawClient(int(cluster.address_of(cluster.leader_of(TOPIC, partition)).rpartition(":")[2]))


def hang(cluster: Cluster, partition: int, producer_id: int) -> None:
    """A transaction of which no coordinator knows, open for an hour."""
    data = build_batch(
        [Record(0, int(time.time() * 1000) - HOUR_MS, None, b"x")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    request = ProduceRequest(
        transactional_id="nobody",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=TOPIC,
                partition_data=[PartitionProduceData(index=partition, records=memoryview(data))],
            )
        ],
    )
    with client_of(cluster, partition) as client:
        answer = client.ask(request, 10, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0


def stable_end(cluster: Cluster, partition: int) -> int:
    with client_of(cluster, partition) as client:
        return latest(client, TOPIC, COMMITTED, partition)


@pytest.fixture
def run(cluster: Cluster, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Commands:
    """Commands on the cluster, which has the topic whichever test runs first, or alone."""
    commands = Commands(cluster.bootstrap, capfdbinary, tmp_path)
    if TOPIC.encode() not in commands.ok("topic", "list"):
        commands.ok("topic", "create", TOPIC, "--assign", "1:2:3,2:3:1,3:1:2")
    return commands


def test_transactions_that_hang_on_each_node_are_found_and_aborted(cluster: Cluster, run: Commands) -> None:
    for partition in range(3):
        hang(cluster, partition, 900_000 + partition)
    # one that is open and known to its coordinator does not hang
    address = cluster.address_of(cluster.transaction_coordinator_of("alive"))
    with RawClient(int(address.rpartition(":")[2])) as client:
        alive = Transactor(client, "alive")
        assert alive.add(TOPIC, 0) == "NONE"
    with client_of(cluster, 0) as alive.client:
        assert alive.produce(TOPIC, b"a", version=10) == "NONE"

    found = json.loads(run.ok("txn", "hanging", "--topic", TOPIC, "--json", "--open-for", "0s"))
    assert [(each["partition"], each["producer_id"]) for each in found] == [
        (0, 900_000),
        (1, 900_001),
        (2, 900_002),
    ]
    for each in found:
        offset = each["transaction_start_offset"]
        run.ok("txn", "abort", f"{TOPIC}:{each['partition']}", "--offset", offset, "--yes")
    assert run.ok("txn", "hanging", "--topic", TOPIC, "--open-for", "0s") == b"no transaction hangs\n"
    for partition in (1, 2):
        wait_until(lambda partition=partition: stable_end(cluster, partition) == 2, "the marker")  # type: ignore[misc]


@pytest.mark.java
def test_kafka_transactions_finds_and_aborts_them(cluster: Cluster, run: Commands) -> None:
    hang(cluster, 2, 910_000)
    before = stable_end(cluster, 2)
    leader = str(cluster.leader_of(TOPIC, 2))
    at = ("--bootstrap-server", cluster.bootstrap)
    with KafkaTools() as tools:
        search = ("find-hanging", "--broker-id", leader, "--max-transaction-timeout", "15")
        found = tools.run("transactions", *at, *search)
        assert found.status == 0, found.err
        (row,) = [line.split() for line in found.out.splitlines() if line.startswith(TOPIC)]
        assert row[:3] == [TOPIC, "2", "910000"]
        aborting = ("abort", "--topic", TOPIC, "--partition", "2", "--start-offset", str(before))
        aborted = tools.run("transactions", *at, *aborting)
        assert aborted.status == 0, aborted.err
        wait_until(lambda: stable_end(cluster, 2) == before + 2, "the marker")
        again = tools.run("transactions", *at, *search)
        assert [line for line in again.out.splitlines() if line.startswith(TOPIC)] == []
