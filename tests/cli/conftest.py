"""Clusters for tests of commands that are for any Kafka: Barnabas, and Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.cli.running import Commands
from tests.support.targets import NO_RETENTION


@pytest.fixture(scope="session")
def own_cluster() -> Iterator[str]:
    """The address of a Barnabas."""
    with Broker(settings={"group.initial.rebalance.delay.ms": "0", **NO_RETENTION}) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session", params=["own_cluster", pytest.param("apache_kafka", marks=pytest.mark.java)])
def any_cluster(request: pytest.FixtureRequest) -> str:
    """The address of a cluster of either kind, which all tests share: each uses topics of its own."""
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.fixture
def anywhere(any_cluster: str, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Commands:
    """Runs commands against either kind."""
    return Commands(any_cluster, capfdbinary, tmp_path)
