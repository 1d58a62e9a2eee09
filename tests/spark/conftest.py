"""One Spark session for all tests that need one: a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.testing import Broker
from tests.support.targets import NO_RETENTION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "5",
    "log.cleaner.min.cleanable.ratio": "0.01",
    **NO_RETENTION,
}

DEADLINE_S = 900.0  # a test starts several queries, and a busy machine takes minutes for each


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(DEADLINE_S))


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[Broker]:
    """A broker that creates no topics by itself, and compacts at once."""
    with Broker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def spark_log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark and its Python processes have to say."""
    return tmp_path_factory.mktemp("spark") / "spark.log"


@pytest.fixture(scope="session")
def spark(spark_log_file: Path) -> Iterator[SparkSession]:
    """A session on two cores."""
    from barnabas.spark.session import local_session

    session = local_session("tests", cores=2, log_file=spark_log_file)
    yield session
    session.stop()
