"""Features and the quorum, asked of Apache Kafka and of Barnabas on copies of one directory: they agree.

The directory is formatted by Kafka for a release of 3.9, as that of a cluster which was upgraded and whose
levels were not: static voters, an old metadata.version. Then it is raised, step by step, with all that is
refused on the way. (Kafka's own tools ask both in test_kafka_tools.py.)
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.metadata.records import RECORDS
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_quorum import (
    AskedPartition,
    AskedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.interop.workload import wait_until
from tests.support.apache_kafka import ApacheKafka, free_ports, tool
from tests.support.raw_client import RawClient
from tests.support.serve_process import ServeProcess

METADATA, ELR, KRAFT = "metadata.version", "eligible.leader.replicas.version", "kraft.version"
UP, SAFE, UNSAFE = 1, 2, 3
SERVED = {METADATA, ELR, KRAFT}

# what is asked, one after another
UPDATES: list[list[tuple[str, int, int]]] = [
    [(METADATA, 21, UP)],
    [(METADATA, 31, UP)],
    [(METADATA, 6, SAFE)],
    [(METADATA, -1, UP)],
    [(METADATA, 21, 0)],
    [(METADATA, 21, 9)],
    [(METADATA, 22, SAFE)],
    [(METADATA, 20, UP)],
    [(METADATA, 20, SAFE)],  # nothing is lost by that
    [(METADATA, 16, SAFE)],  # directories would be
    [(METADATA, 16, UNSAFE)],
    [(METADATA, 21, UP)],
    [(ELR, 1, UP)],  # too early
    [(ELR, 2, UP)],
    [(ELR, 1, UP), (METADATA, 22, UP)],
    [("nope", 1, UP)],
    [("nope", 0, SAFE)],
    [("", 1, UP)],
    [],
    [(METADATA, 30, UP), ("nope", 1, UP)],  # all or nothing
    [(METADATA, 24, UP), (METADATA, 25, UP)],
    [(METADATA, 25, UP)],
    [(ELR, 1, UP)],
    [(ELR, 0, UP)],
    [(ELR, 0, SAFE)],
    [(ELR, 1, UNSAFE)],
    [(ELR, 1, UP), (METADATA, 30, UP)],
    [(METADATA, 29, UNSAFE)],
    [(KRAFT, 0, UP)],
    [(KRAFT, 2, UP)],
    [(KRAFT, 1, UP)],
    [(KRAFT, 0, SAFE)],
    [(KRAFT, 1, UP)],
]


class Pair(NamedTuple):
    kafka: ApacheKafka
    barnabas: ServeProcess
    barnabas_controller_port: int


class OfAnOlderRelease(ApacheKafka):
    def format(self) -> Path:
        properties = self.home / "server.properties"
        if not properties.exists():
            self.home.mkdir(parents=True)
            text = "".join(f"{key}={value}\n" for key, value in self._properties().items())
            properties.write_text(text)
            arguments = ["--cluster-id=AAAAAAAAAAAAAAAAAAAAAQ", "--release-version", "3.9", "-c", properties]
            tool("kafka.tools.StorageTool", "format", *map(str, arguments))
        return properties


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    home = tmp_path_factory.mktemp("features")
    kafka = OfAnOlderRelease(home / "kafka")
    properties = kafka.format()
    data = home / "barnabas"
    shutil.copytree(kafka.data, data)
    port, controller_port = free_ports(2)
    moved = [
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
    ]
    arguments = ["--config", str(properties), *(word for line in moved for word in ("--set", line))]
    with kafka, ServeProcess(data, *arguments, listen=None) as barnabas:
        yield Pair(kafka, barnabas, controller_port)


def asked(pair: Pair, ask: Any, *, controller: bool = False) -> list[Any]:
    """What both answer."""
    ports = (pair.kafka.port, pair.barnabas.port)
    if controller:
        ports = (pair.kafka.controller_port, pair.barnabas_controller_port)
    answers = []
    for port in ports:
        with RawClient(port) as client:
            answers.append(ask(client))
    return answers


@pytest.mark.java
def test_levels_are_raised_and_refused_as_kafka_does(pair: Pair) -> None:
    def levels(client: RawClient) -> dict[str, Any]:
        request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
        answer = client.ask(request, 4, ApiVersionsResponse)
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        return {name: (supported[name], finalized.get(name, 0)) for name in SERVED}

    seen = []
    for number, updates in enumerate(UPDATES):
        version = 1 + number % 2

        def update(client: RawClient) -> tuple[Any, ...]:
            request = UpdateFeaturesRequest(
                feature_updates=[
                    FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                    for name, level, kind in updates  # noqa: B023
                ],
                validate_only=False,
            )
            request.validate_only = True
            tried = client.ask(request, version, UpdateFeaturesResponse)  # noqa: B023
            request.validate_only = False
            done = client.ask(request, version, UpdateFeaturesResponse)  # noqa: B023
            assert tried == done
            return done.error_code, done.error_message, list(done.results)

        kafka, barnabas = asked(pair, update)
        assert barnabas == kafka, updates
        # Kafka's broker follows its controller a little later
        wait_until(lambda: agree(asked(pair, levels)), f"the same levels after {updates}")
        seen.append(kafka[0])
    assert seen.count(0) > 10
    assert seen.count(95) > 15


def agree(answers: list[Any]) -> bool:
    return bool(answers[0] == answers[1])


@pytest.mark.java
def test_version_0_can_only_upgrade(pair: Pair) -> None:
    def downgrade(client: RawClient) -> tuple[Any, ...]:
        update = FeatureUpdateKey(feature=ELR, max_version_level=0, allow_downgrade=True)
        answer = client.ask(UpdateFeaturesRequest(feature_updates=[update]), 0, UpdateFeaturesResponse)
        return answer.error_code, answer.error_message, list(answer.results)

    kafka, barnabas = asked(pair, downgrade)
    assert barnabas == kafka
    assert kafka[0] == 95


@pytest.mark.java
def test_the_quorum_is_described_as_kafka_does(pair: Pair) -> None:
    questions = [
        [("__cluster_metadata", [0])],
        [],
        [("letters", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 1])],
        [("__cluster_metadata", [])],
        [("__cluster_metadata", [0]), ("letters", [0])],
    ]
    for version in range(3):
        for question in questions:
            request = DescribeQuorumRequest(
                topics=[
                    AskedTopic(
                        topic_name=name,
                        partitions=[AskedPartition(partition_index=index) for index in indexes],
                    )
                    for name, indexes in question
                ]
            )
            for controller in (False, True):
                told = asked(
                    pair,
                    lambda client: comparable(client.ask(request, version, DescribeQuorumResponse)),  # noqa: B023
                    controller=controller,
                )
                assert told[0] == told[1], (version, question)


def comparable(answer: DescribeQuorumResponse) -> DescribeQuorumResponse:
    """Without what is another one in every node: offsets, times and ports; but they are sound."""
    for topic in answer.topics:
        for partition in topic.partitions:
            for voter in partition.current_voters:
                assert voter.log_end_offset >= partition.high_watermark > 0
                assert voter.last_caught_up_timestamp == voter.last_fetch_timestamp
                voter.log_end_offset = partition.high_watermark = 0
                voter.last_fetch_timestamp = voter.last_caught_up_timestamp = 0
    for node in answer.nodes:
        for listener in node.listeners:
            assert listener.port > 0
            listener.port = 0
    return answer


@pytest.mark.java
def test_a_listener_of_the_quorum_tells_of_the_controllers(pair: Pair) -> None:
    def describe(client: RawClient) -> list[tuple[Any, ...]]:
        answers = []
        for version, endpoint_type in ((1, 2), (2, 2), (1, 1), (2, 3)):
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=False, endpoint_type=endpoint_type
            )
            answer = client.ask(request, version, DescribeClusterResponse)
            nodes = [(node.broker_id, node.host, node.rack) for node in answer.brokers]
            answers.append((answer.error_code, answer.endpoint_type, answer.controller_id, nodes))
        return answers

    kafka, barnabas = asked(pair, describe, controller=True)
    assert barnabas == kafka


def test_every_record_of_kafkas_is_known() -> None:
    """The keys of metadata records in Kafka 4.3; those left out were never released, or went with 3.x."""
    assert sorted(RECORDS) == [*range(6), 7, 8, 9, 10, 11, 12, 14, 15, *range(17, 29)]
