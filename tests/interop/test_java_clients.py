"""Kafka's Java clients against a broker in this process: an application's tour, and Kafka's own perf test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.apache_kafka import tool
from tests.support.java_clients import NEW, OLD, run_java

HERE = Path(__file__).resolve().parent
PARTS = ["admin", "none", "gzip", "snappy", "lz4", "zstd", "places", "acks", "large", "many", "long poll"]

pytestmark = pytest.mark.java


@pytest.mark.parametrize("version", [NEW, pytest.param(OLD, marks=pytest.mark.long)])
def test_a_tour_with_the_java_client(broker: Broker, caplog: pytest.LogCaptureFixture, version: str) -> None:
    lines = run_java(version, HERE / "java" / "ClientTour.java", broker.bootstrap, f"v{version}")
    assert [line.removeprefix("done ") for line in lines if line.startswith("done ")] == PARTS
    # nothing on the way had to be closed or refused
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR", "CRITICAL")]


@pytest.mark.parametrize("acks", ["1", "all"])
def test_kafkas_own_producer_perf_test(broker: Broker, acks: str) -> None:
    count = 100_000
    said = tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "perf", "--num-records", str(count), "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", f"acks={acks}"),
    )
    found = re.findall(r"(\d+) records sent, ([\d.]+) records/sec", said)  # one more where it takes its time
    assert found, said
    assert int(found[-1][0]) == count
    assert float(found[-1][1]) > 1000
