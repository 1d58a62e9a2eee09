"""Topics for tests with other people's clients; directories written by Apache Kafka, kept and fresh."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.make_fixture import unpack
from tests.interop.spark_session import BothFormats, Clusters, both_formats, clusters
from tests.interop.workload import KafkaDirectories, KafkaDirectory, make
from tests.support.fetched import made_for_this_run
from tests.support.group_members import PAUSES

_numbers = itertools.count(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long members did not read what they kept, while others came and went."""
    if PAUSES:
        terminalreporter.section("cooperative groups: the longest pause of a member that kept its partition")
        for line in PAUSES:
            terminalreporter.write_line(line)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test uses, and that does not exist yet."""
    return re.sub(r"[^a-zA-Z0-9.-]+", "-", request.node.name)[:80] + f".{next(_numbers)}"


@pytest.fixture
def sockets_of_kafka_python_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """kafka-python 3.0 does not close a socket whose connection was refused."""
    from tests.support.clients import kafka  # only for tests in which a broker is away

    made: list[socket.socket] = []
    factory = kafka.net.inet.KafkaNetSocket
    original = factory.socket

    def make(self: Any, *arguments: Any) -> socket.socket:
        made.append(original(self, *arguments))
        return made[-1]

    monkeypatch.setattr(factory, "socket", make)
    yield
    for one in made:
        one.close()


@pytest.fixture(
    scope="session", params=["kept", pytest.param("fresh", marks=[pytest.mark.java, pytest.mark.long])]
)
def kafka_directories(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> KafkaDirectories:
    """The three copies of a data directory; not to be written to."""
    if request.param == "kept":
        return unpack(tmp_path_factory.mktemp("kafka-kept"))
    return KafkaDirectories.at(made_for_this_run("kafka-directories", make))


@pytest.fixture(params=["clean", "killed", "recovered"])
def kafka_directory(request: pytest.FixtureRequest, kafka_directories: KafkaDirectories) -> KafkaDirectory:
    """One of them; not to be written to."""
    directory: KafkaDirectory = getattr(kafka_directories, request.param)
    return directory


@pytest.fixture(scope="session")
def spark_formats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothFormats]:
    """One Spark session with the official connector and ours."""
    with both_formats(tmp_path_factory.mktemp("formats")) as formats:
        yield formats


@pytest.fixture(scope="session")
def spark_clusters(
    spark_formats: BothFormats, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clusters]:
    """Two clusters that hold the same; Spark is starting meanwhile."""
    with clusters(tmp_path_factory.mktemp("clusters")) as both:
        yield both
