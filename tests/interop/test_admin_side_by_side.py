"""Other people's admin clients do the same to Barnabas as to Apache Kafka, step by step: kafkajs (Node.js),
franz-go (Go), confluent-kafka and kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.python_admin import Steps, with_confluent, with_kafka_python
from tests.support import foreign
from tests.support.apache_kafka import ApacheKafka
from tests.support.targets import NO_RETENTION, Served

pytestmark = pytest.mark.java  # for what they do to Apache Kafka


@pytest.fixture(scope="module")
def bootstraps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Where Apache Kafka is, and where Barnabas is."""
    root = tmp_path_factory.mktemp("foreign")
    served = Served(Path(root / "barnabas"), NO_RETENTION)
    with ApacheKafka(root / "kafka", standalone=True, settings=NO_RETENTION) as kafka:
        served.start()
        try:
            yield kafka.bootstrap, served.bootstrap
        finally:
            served.kill()


@pytest.mark.node
def test_kafkajs_administers_as_with_kafka(bootstraps: tuple[str, str]) -> None:
    theirs, ours = (foreign.run_node("admin.js", bootstrap) for bootstrap in bootstraps)
    assert ours == theirs
    assert len(theirs) > 25


@pytest.mark.go
def test_franz_go_administers_as_with_kafka(bootstraps: tuple[str, str]) -> None:
    theirs, ours = (foreign.run_go(bootstrap) for bootstrap in bootstraps)
    assert ours == theirs
    assert len(theirs) > 20


@pytest.mark.parametrize("administer", [with_confluent, with_kafka_python])
def test_python_clients_administer_as_with_kafka(
    administer: Callable[[str], Steps], bootstraps: tuple[str, str]
) -> None:
    theirs, ours = (administer(bootstrap) for bootstrap in bootstraps)
    assert ours == theirs
    refused = [result for result in theirs.values() if isinstance(result, dict) and "error" in result]
    assert 0 < len(refused) < len(theirs) / 2
