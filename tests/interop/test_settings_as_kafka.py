"""Settings that depend on how a node was started or formatted, asked of Apache Kafka and of Barnabas.

The metadata are those of a release before cordoned directories (4.2), formatted by Kafka; then the level is
raised. Both nodes cordon one of their two directories from the start.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.interop.admin_steps import create
from tests.support.apache_kafka import ApacheKafka, free_ports, tool
from tests.support.configs import APPEND, BROKER, DELETE, SET, SUBTRACT, alter, described, replace
from tests.support.raw_client import RawClient, wait_until
from tests.support.serve_process import ServeProcess

pytestmark = pytest.mark.java

CORDONED = "cordoned.log.dirs"


class Side(NamedTuple):
    """One of the two."""

    client: RawClient
    bootstrap: str
    directories: tuple[Path, Path]


class OfAnOlderRelease(ApacheKafka):
    """Formatted without a place for cordoned directories in the metadata."""

    def format(self) -> Path:
        properties = self.home / "server.properties"
        if not properties.exists():
            self.home.mkdir(parents=True)
            lines = (f"{key}={value}\n" for key, value in self._properties().items())
            properties.write_text("".join(lines))
            arguments = ["--cluster-id=AAAAAAAAAAAAAAAAAAAAAQ", "--release-version", "4.2", "-c", properties]
            tool("kafka.tools.StorageTool", "format", *map(str, arguments))
        return properties


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka, and Barnabas on a copy of what Kafka formatted."""
    home = tmp_path_factory.mktemp("settings")
    theirs = (home / "kafka-1", home / "kafka-2")
    ours = (home / "barnabas-1", home / "barnabas-2")
    port, our_port = free_ports(2)
    settings = {
        "log.dirs": ",".join(map(str, theirs)),
        CORDONED: str(theirs[1]),
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
    kafka = OfAnOlderRelease(home / "kafka", data=theirs[0], port=port, settings=settings)
    kafka.format()
    for source, target in zip(theirs, ours, strict=True):
        shutil.copytree(source, target)
    arguments = [
        *("--dir", ",".join(map(str, ours))),
        *("--set", f"controller.quorum.voters=1@127.0.0.1:{our_port + 1000}"),
        *("--set", f"{CORDONED}={ours[1]}"),
    ]
    node = ServeProcess(home / "barnabas", *arguments, listen=f"127.0.0.1:{our_port}")
    with kafka, node, RawClient(kafka.port) as one, RawClient(node.port) as other:
        yield Side(one, kafka.bootstrap, theirs), Side(other, f"127.0.0.1:{our_port}", ours)


def both(sides: tuple[Side, Side], ask: Callable[[Side], Any]) -> Any:
    """What both answer, once it is the same."""
    expected, got = (ask(side) for side in sides)
    assert got == expected
    return got


def plain(side: Side, text: str | None) -> str | None:
    """A value without what is different by construction."""
    if text is None:
        return None
    for number, directory in enumerate(side.directories, 1):
        text = text.replace(str(directory), f"<directory {number}>")
    return text.replace(side.bootstrap, "<bootstrap>")


# ---- what the command line decides ------------------------------------------------------------------------


def test_listeners_are_static_settings(sides: tuple[Side, Side]) -> None:
    """`--listen` decides what Kafka's server.properties says."""

    def ask(side: Side) -> Any:
        _, found = described(
            side.client, BROKER, "1", "advertised.listeners", "listeners", "log.dirs", CORDONED
        )
        return {
            name: (
                plain(side, one.value) if name != "listeners" else one.value is not None,
                one.config_source,
                one.read_only,
                [(each.name, each.source) for each in one.synonyms],
            )
            for name, one in found.items()
        }

    static = 4
    answer = both(sides, ask)
    assert {name: one[1] for name, one in answer.items()} == dict.fromkeys(answer, static)
    assert answer["advertised.listeners"][0] == "PLAINTEXT://<bootstrap>"


# ---- cordoned.log.dirs before metadata.version 4.3-IV0, and after -----------------------------------------


def create_topic(side: Side, topic: str) -> Any:
    step = create(topic, 4)
    (answer,) = side.client.ask(step.request, step.version, step.response).topics  # type: ignore[attr-defined]
    return WIRE_ERRORS[answer.error_code].name, answer.error_message


def directories(side: Side) -> Any:
    """Of each, whether it is cordoned, and its partitions."""
    answer = side.client.ask(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse)
    return {
        plain(side, each.log_dir): (
            each.is_cordoned,
            sorted((topic.name, one.partition_index) for topic in each.topics for one in topic.partitions
                   if not topic.name.startswith("__")),
        )
        for each in answer.results
    }  # fmt: skip


def moved(side: Side, directory: int, *partitions: tuple[str, int]) -> Any:
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[number]) for name, number in partitions]
    asked = AlterReplicaLogDir(path=str(side.directories[directory]), topics=topics)
    answer = side.client.ask(AlterReplicaLogDirsRequest(dirs=[asked]), 2, AlterReplicaLogDirsResponse)
    return {
        (topic.topic_name, one.partition_index): WIRE_ERRORS[one.error_code].name
        for topic in answer.results
        for one in topic.partitions
    }


def altered(side: Side, name: str, operation: int, value: str | None, *, validate_only: bool = False) -> Any:
    value = None if value is None else value.replace("<second>", str(side.directories[1]))
    return alter(side.client, BROKER, name, (CORDONED, operation, value), validate_only=validate_only)


def replaced(side: Side, name: str) -> Any:
    return replace(side.client, BROKER, name, [(CORDONED, str(side.directories[1]))])


def test_cordoned_directories_need_a_metadata_version(sides: tuple[Side, Side]) -> None:
    unaltered = [
        both(sides, lambda side, name=name, how=how: altered(side, name, *how, validate_only=name == "1"))
        for name in ("1", "")
        for how in (
            (SET, "<second>"),
            (SET, ""),
            (DELETE, None),
            (APPEND, "<second>"),
            (SUBTRACT, "<second>"),
        )
    ]
    unaltered += [both(sides, lambda side, name=name: replaced(side, name)) for name in ("1", "")]
    assert {each.error for each in unaltered[:5]} == {"INVALID_CONFIG"}
    assert "NONE" not in {each.error for each in unaltered}
    assert both(sides, lambda side: create_topic(side, "before")) == ("NONE", None)
    everywhere = [("before", number) for number in range(4)]
    for side in sides:
        told = {"<directory 1>": (False, everywhere), "<directory 2>": (False, [])}
        wait_until(lambda side=side, told=told: directories(side) == told, "all partitions in the first")
    refused = both(sides, lambda side: moved(side, 1, ("before", 0), ("before", 9), ("nope", 0)))
    assert set(refused.values()) == {"INVALID_REPLICA_ASSIGNMENT"}

    for side in sides:
        update = FeatureUpdateKey(feature="metadata.version", max_version_level=30)
        request = UpdateFeaturesRequest(feature_updates=[update])
        assert side.client.ask(request, 1, UpdateFeaturesResponse).error_code == 0
        told = {"<directory 1>": (False, everywhere), "<directory 2>": (True, [])}
        wait_until(lambda side=side, told=told: directories(side) == told, "the second one cordoned")
    assert both(sides, lambda side: altered(side, "1", SET, "*")).error == "NONE"
    for side in sides:
        wait_until(lambda side=side: all(each[0] for each in directories(side).values()), "both cordoned")
    nowhere = ("INVALID_REPLICATION_FACTOR", "Unable to replicate the partition 1 time(s): All brokers are "
               "currently fenced, or have all their log directories cordoned.")  # fmt: skip
    for side in sides:
        wait_until(lambda side=side: create_topic(side, "none") == nowhere, "the controller knows")
    assert both(sides, lambda side: altered(side, "1", SET, "")).error == "NONE"
    for side in sides:
        wait_until(lambda side=side: not any(each[0] for each in directories(side).values()), "none cordoned")
    some = both(sides, lambda side: moved(side, 1, ("before", 0), ("before", 9), ("nope", 0)))
    assert list(some.values()).count("UNKNOWN_TOPIC_OR_PARTITION") == 2
    for side in sides:
        wait_until(lambda side=side: directories(side)["<directory 2>"][1] == [("before", 0)], "it has moved")
