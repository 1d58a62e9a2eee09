"""How many may begin a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from barnabas.broker.connections.pace import UNLIMITED, Pace
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.testing import Broker
from tests.support.configs import BROKER, DELETE, DONE, SET, alter
from tests.support.raw_client import RawClient, metadata_request


def test_a_second_worth_may_come_at_once_and_the_rest_comes_in_step() -> None:
    pace = Pace(4, now=10.0)
    assert [pace.wait_seconds(10.0) for _ in range(7)] == [0, 0, 0, 0, 0.25, 0.5, 0.75]
    assert pace.wait_seconds(10.75) == 0.25  # those before it have taken what came meanwhile
    assert pace.wait_seconds(20.0) == 0
    assert [pace.wait_seconds(20.0) for _ in range(4)] == [0, 0, 0, 0.25]


def test_without_a_limit_nobody_waits() -> None:
    pace = Pace(UNLIMITED, now=0.0)
    assert {pace.wait_seconds(0.0) for _ in range(100)} == {0.0}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_a_client_that_comes_too_soon_is_served_later(broker: Broker) -> None:
    with RawClient(broker.port) as first:
        assert alter(first, BROKER, "1", ("max.connection.creation.rate", SET, "1")) == DONE
        with ExitStack() as clients:
            for _ in range(9):
                last = clients.enter_context(RawClient(broker.port))
            last.send(metadata_request(), 12)
            assert last.is_silent(0.1)  # it has to wait for eight seconds
            assert alter(first, BROKER, "1", ("max.connection.creation.rate", DELETE, None)) == DONE
            with RawClient(broker.port) as another:
                assert another.ask(metadata_request(), 12, MetadataResponse).brokers
