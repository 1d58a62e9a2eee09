"""Brokers for the client's tests: those take the address alone, and so run against each kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.testing import Broker
from tests.support.targets import NO_RETENTION


@pytest.fixture(scope="session")
def barnabas() -> Iterator[str]:
    """The address of a Barnabas."""
    with Broker(settings={"group.initial.rebalance.delay.ms": "0", **NO_RETENTION}) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session", params=["barnabas", pytest.param("apache_kafka", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of a running broker."""
    address: str = request.getfixturevalue(request.param)
    return address
