"""What holds for all tests.

Those that need another world skip by themselves where it is missing: one line of the summary says so.
Those with real clients run against a broker in this process; `--target=process` runs them against
`barnabas serve`, `--target=kafka` against Apache Kafka, which says whether the tests themselves are right.
Those of Hypothesis try the same examples in every run, and no example is judged by how long it took, since
a machine may be busy. `--hypothesis-profile=explore` tries new examples. Those marked `long` are left out
unless `--long` asks for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

import pytest
from hypothesis import settings

from tests.support.apache_kafka import ApacheKafka, missing
from tests.support.foreign import missing_go, missing_node
from tests.support.spark import missing_spark, quick_java
from tests.support.targets import KINDS, NO_RETENTION, Target, make_target

settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("repeat")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # raised from one place, all these skips fold into one line of the summary
    if item.get_closest_marker("java") is not None and (lacking := missing()) is not None:
        pytest.skip(f"needs Java 17 or later and Maven: {lacking}")
    if item.get_closest_marker("node") is not None and (lacking := missing_node()) is not None:
        pytest.skip(f"needs Node.js and npm: {lacking}")
    if item.get_closest_marker("go") is not None and (lacking := missing_go()) is not None:
        pytest.skip(f"needs Go: {lacking}")
    if item.get_closest_marker("spark") is not None:
        if (lacking := missing_spark()) is not None:
            pytest.skip(f"needs Spark: {lacking}")
        if (home := quick_java()) is not None:
            os.environ["JAVA_HOME"] = home  # of every Spark that tests start


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("long") is None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also tests that repeat what others show")
    parser.addoption(
        "--target", choices=KINDS, default="memory", help="what tests with real clients are run against"
    )


@pytest.fixture(scope="session")
def target_kind(request: pytest.FixtureRequest) -> str:
    """memory, process or kafka."""
    kind: str = request.config.getoption("--target")
    if kind == "kafka" and (lacking := missing()) is not None:
        pytest.skip(f"needs Java 17 or later and Maven: {lacking}")
    return kind


@pytest.fixture(scope="session")
def bootstrap(target_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of a broker that all tests share: each uses topics of its own."""
    target = make_target(target_kind, tmp_path_factory.mktemp("target"), NO_RETENTION)
    target.start()
    yield target.bootstrap
    target.stop()


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Apache Kafka that tests of our own tools share: each uses topics of its own."""
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=NO_RETENTION) as kafka:
        yield kafka.bootstrap


@pytest.fixture
def new_target(
    target_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Mapping[str, str]], Target]]:
    """A function that starts a broker of the test's own, by its settings, to be ended and started at will."""
    targets: list[Target] = []

    def start(given: Mapping[str, str]) -> Target:
        target = make_target(target_kind, tmp_path_factory.mktemp("target"), given)
        target.start()
        targets.append(target)
        return target

    yield start
    for target in reversed(targets):
        target.stop()
