"""kafkajs (Node.js) and franz-go (Go) administer Barnabas as they do Apache Kafka: step by step the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import foreign
from tests.support.apache_kafka import ApacheKafka
from tests.support.targets import Served

pytestmark = pytest.mark.java  # for what they do to Apache Kafka


@pytest.fixture(scope="module")
def bootstraps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Where Apache Kafka is, and where Barnabas is."""
    root = tmp_path_factory.mktemp("foreign")
    served = Served(Path(root / "barnabas"), {})
    with ApacheKafka(root / "kafka", standalone=True) as kafka:
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
