"""A broker for the client's tests: they take the address alone, and so run against any."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.apache_kafka import ApacheKafka


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running broker that creates no topics by itself."""
    home = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(home, settings={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka.bootstrap
