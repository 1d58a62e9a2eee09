"""Fixtures for pytest, found by themselves where Barnabas is installed.

    def test_round_trip(broker):
        producer = Producer({"bootstrap.servers": broker.bootstrap})

`broker` is fresh for every test and keeps its data in memory; override `barnabas_settings` to set it up
otherwise. `make_broker(directory=..., settings=...)` gives as many as a test wants, each stopped at its end.
`cluster` and `make_cluster` are the same with three nodes each.

pytest rewrites the asserts of everything that is distributed with a plugin, as it is imported: here of all
of Barnabas. Brokers import much of themselves when it is first needed, in threads of their own, and Python
before 3.11.8 and 3.12.2 cannot parse in two threads at once (SystemError: AST constructor recursion depth
mismatch). So Barnabas is imported as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker
    from barnabas.testing.cluster import Cluster


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    hook: Any = early_config.pluginmanager.rewrite_hook
    marked = getattr(hook, "_must_rewrite", None)  # a part of pytest that has no other name
    if isinstance(marked, set):
        marked.discard("barnabas")


@pytest.fixture
def barnabas_settings() -> dict[str, str]:
    """Settings of `broker` and `cluster`, by Kafka's names; override it where you need others."""
    return {}


@pytest.fixture
def make_broker() -> Iterator[Callable[..., Broker]]:
    """A function that starts a broker; it takes what `barnabas.testing.Broker` takes."""
    from barnabas.testing.broker import Broker  # only where a test uses it

    brokers: list[Broker] = []

    def make(*arguments: Any, **named: Any) -> Broker:
        broker = Broker(*arguments, **named)
        broker.start()
        brokers.append(broker)
        return broker

    yield make
    for broker in reversed(brokers):
        broker.stop()


@pytest.fixture
def broker(make_broker: Callable[..., Broker], barnabas_settings: dict[str, str]) -> Broker:
    """A running broker, fresh for this test, its data in memory."""
    return make_broker(settings=barnabas_settings)


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """A function that starts a cluster; it takes what `barnabas.testing.Cluster` takes."""
    from barnabas.testing.cluster import Cluster  # only where a test uses it

    clusters: list[Cluster] = []

    def make(*arguments: Any, **named: Any) -> Cluster:
        cluster = Cluster(*arguments, **named)
        clusters.append(cluster)
        return cluster.start()

    yield make
    for cluster in reversed(clusters):
        cluster.stop()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster], barnabas_settings: dict[str, str]) -> Cluster:
    """Three running nodes, fresh for this test, their data in memory."""
    return make_cluster(settings=barnabas_settings)
