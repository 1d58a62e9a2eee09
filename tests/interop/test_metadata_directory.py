"""The metadata log goes both ways: Apache Kafka starts on what Barnabas wrote, and Barnabas on Kafka's."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.broker.storage.formatting import (
    METADATA_DIRECTORY,
    SERVER_PROPERTIES,
    InitialVoter,
    check_directory,
    format_directory,
)
from barnabas.broker.storage.server_properties import server_properties
from barnabas.controller import brokers, topics
from barnabas.controller.bootstrap import SUPPORTED_FEATURES, bootstrap_records
from barnabas.core.clock import SystemClock
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import SeededRandom
from barnabas.core.settings.listeners import Listener
from barnabas.core.workers import InlineWorkers
from barnabas.log.checkpoints import MetaProperties, uuid_to_text
from barnabas.log.directory import LogDirectory
from barnabas.metadata.image import ClusterImage
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from barnabas.protocol.messages.broker_registration import Listener as RegisteredListener
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.records.reader import read_batches
from tests.interop.workload import KafkaDirectory, wait_until
from tests.support.apache_kafka import ApacheKafka, free_ports, tool
from tests.support.images import contents

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LOG = "00000000000000000000.log"


class Node(NamedTuple):
    quorum: MetadataQuorum
    directory_id: UUID


class OnItsDirectory(ApacheKafka):
    """Started with the settings that Barnabas left beside the data."""

    def format(self) -> Path:
        self.home.mkdir(exist_ok=True)
        return self.data / SERVER_PROPERTIES


def listeners(port: int, controller_port: int) -> tuple[list[Listener], list[Listener]]:
    return (
        [Listener("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")],
        [Listener("CONTROLLER", "127.0.0.1", controller_port, "PLAINTEXT")],
    )


@asynccontextmanager
async def barnabas(data: Path, ports: tuple[int, int] = (0, 0)) -> AsyncIterator[Node]:
    """The quorum over a directory, which is formatted if it is new, up to a clean stop."""
    clock, workers, random = SystemClock(), InlineWorkers(), SeededRandom(5)
    disk = OsDisk(data, workers, clock)
    own, controllers = listeners(*ports)
    try:
        meta = await check_directory(disk, 1)
        if meta is None:
            own_id = random.uuid()
            meta = await format_directory(
                disk,
                MetaProperties(CLUSTER_ID, 1, own_id),
                voters=[InitialVoter(1, each.host, each.port, own_id) for each in controllers],
                listener="CONTROLLER",
                bootstrap=bootstrap_records(),
                properties=server_properties(
                    {"log.dirs": str(data)}, node_id=1, listeners=own, controllers=controllers
                ),
                now_ms=clock.wall_ms(),
            )
        assert meta.directory_id is not None
        directory = await LogDirectory.open(disk, clock=clock, random=random, workers=workers)
        quorum = await MetadataQuorum.open(
            directory,
            disk,
            node_id=1,
            directory_id=meta.directory_id,
            clock=clock,
            controllers=controllers,
        )
        await quorum.start()
        yield Node(quorum, meta.directory_id)
        await quorum.close()
        await directory.close()
    finally:
        disk.close()


async def register(node: Node, port: int) -> int:
    """As a broker that starts: registered, and unfenced."""
    request = BrokerRegistrationRequest(
        broker_id=1,
        cluster_id=CLUSTER_ID,
        incarnation_id=UUID(int=node.quorum.driver.epoch).bytes,
        listeners=[RegisteredListener(name="PLAINTEXT", host="127.0.0.1", port=port, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[node.directory_id.bytes],
    )
    response = await node.quorum.controller.submit(
        lambda image: brokers.register_broker(
            image,
            request,
            cluster_id=CLUSTER_ID,
            next_offset=node.quorum.controller.next_offset,
            may_be_alive=False,
        )
    )
    assert response.error_code == 0
    await heartbeat(node, response.broker_epoch)
    return response.broker_epoch


async def heartbeat(node: Node, broker_epoch: int, *, want_shut_down: bool = False) -> bool:
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=broker_epoch,
        current_metadata_offset=node.quorum.driver.high_watermark - 1,
        want_fence=False,
        want_shut_down=want_shut_down,
    )
    response = await node.quorum.controller.submit(partial(brokers.heartbeat, request=request))
    assert response.error_code == 0
    return response.should_shut_down


async def create(node: Node, name: str, partitions: int, **configs: str) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )
    response = await node.quorum.controller.submit(
        partial(
            topics.create_topics,
            request=CreateTopicsRequest(topics=[topic]),
            random=SeededRandom(int.from_bytes(name.encode())),
            policy=topics.TopicPolicy(),
        )
    )
    assert [result.error_code for result in response.topics] == [0]


async def life(data: Path, ports: tuple[int, int], created: dict[str, int]) -> ClusterImage:
    """A node starts, makes topics and stops, as a broker does that leaves in good order."""
    async with barnabas(data, ports) as node:
        epoch = await register(node, ports[0])
        for name, partitions in created.items():
            await create(node, name, partitions, retention_ms="86400000")
        for _ in range(5):
            if await heartbeat(node, epoch, want_shut_down=True):
                break
        return node.quorum.metadata.image


def told_by_kafka(bootstrap: str) -> str:
    return tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap, "--describe")


@pytest.mark.java
def test_kafka_starts_on_barnabas_metadata_and_barnabas_on_what_kafka_made_of_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    port, controller_port = free_ports(2)
    image = asyncio.run(life(data, (port, controller_port), {"letters": 3, "replies": 1}))
    kafka = OnItsDirectory(tmp_path / "kafka", data=data, port=port)
    with kafka:
        described = told_by_kafka(kafka.bootstrap)
        for topic in image.topics_by_name.values():
            assert f"Topic: {topic.name}\tTopicId: {uuid_to_text(UUID(bytes=topic.id))}" in described
            assert f"PartitionCount: {len(topic.partitions)}\t" in described
        assert described.count("retention.ms=86400000") == 2
        assert described.count("Leader: 1\t") == 4
        arguments = ["--create", "--topic", "from-kafka", "--partitions", "2"]
        tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap, *arguments)

    image = asyncio.run(life(data, (port, controller_port), {"again": 1}))
    counts = {name: len(topic.partitions) for name, topic in image.topics_by_name.items()}
    assert counts == {"letters": 3, "replies": 1, "from-kafka": 2, "again": 1}
    with kafka:
        described = told_by_kafka(kafka.bootstrap)
        assert all(f"Topic: {name}\t" in described for name in counts)
        assert described.count("Leader: 1\t") == 7


@pytest.mark.java
def test_kafkas_tool_reads_every_record_of_the_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(2):
        asyncio.run(life(data, (19092, 20092), {}))
    asyncio.run(life(data, (19092, 20092), {"letters": 2}))
    folder = data / METADATA_DIRECTORY
    files = [*folder.glob("*.log"), *folder.glob("*.checkpoint"), data / "bootstrap.checkpoint"]
    arguments = ["--cluster-metadata-decoder", "--files", ",".join(map(str, files))]
    dumped = tool("org.apache.kafka.tools.DumpLogSegments", *arguments).splitlines()
    read = [line for line in dumped if line.startswith(("| offset", "baseOffset"))]
    assert all("isvalid: true" in line for line in read if line.startswith("baseOffset"))
    records = [line.split("headerKeys: [] ")[1] for line in read if line.startswith("|")]
    assert sum(record.startswith("LeaderChange") for record in records) == 3
    assert sum('"type":"REGISTER_BROKER_RECORD"' in record for record in records) == 3
    assert sum('"type":"PARTITION_RECORD"' in record for record in records) == 2
    known = ("LeaderChange", "KRaft", "Snapshot", "payload: {")
    assert all(record.startswith(known) and "Error" not in record for record in records)


def test_barnabas_replays_kafkas_metadata(kafka_directory: KafkaDirectory, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(kafka_directory.data, data)

    async def run() -> list[ClusterImage]:
        images = []
        for _ in range(2):
            async with barnabas(data) as node:
                images.append(node.quorum.metadata.image)
                assert node.quorum.driver.epoch > 2
        return images

    before = kafka_directory.data / METADATA_DIRECTORY
    first, second = asyncio.run(run())
    assert contents(first) == contents(second)
    assert first.features["metadata.version"] == 30
    live = {path.name for path in data.iterdir() if path.is_dir() and path.name != METADATA_DIRECTORY}
    partitions = {
        f"{topic.name}-{index}"
        for topic in first.topics_by_name.values()
        for index in range(len(topic.partitions))
    }
    assert partitions == {name for name in live if not name.endswith("-delete")}
    for topic in first.topics_by_name.values():
        told = (data / f"{topic.name}-0" / "partition.metadata").read_text()
        assert uuid_to_text(UUID(bytes=topic.id)) in told
    # what Kafka wrote stands as it stood, and what came is behind it
    assert (data / METADATA_DIRECTORY / LOG).read_bytes().startswith((before / LOG).read_bytes())


@pytest.mark.java
def test_barnabas_begins_with_kafkas_newest_snapshot(tmp_path: Path) -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": "1"}
    kafka = ApacheKafka(tmp_path / "kafka", settings=settings)
    folder = kafka.data / METADATA_DIRECTORY
    with kafka:
        command = ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap]
        tool(*command, "--create", "--topic", "letters", "--partitions", "3")
        offset = (folder / LOG).stat().st_size
        wait_until(lambda: (folder / LOG).stat().st_size > offset, "Kafka to go on writing")
        before = newest_snapshot(folder)
        wait_until(lambda: newest_snapshot(folder) > before, "Kafka to take a snapshot")
    # without what the snapshot stands for, as once its segments are deleted
    end_offset = int(newest_snapshot(folder).split("-")[0])
    cut_before(folder, end_offset)

    async def run() -> ClusterImage:
        async with barnabas(kafka.data) as node:
            assert node.quorum.driver.high_watermark > end_offset
            return node.quorum.metadata.image

    image = asyncio.run(run())
    assert {name: len(topic.partitions) for name, topic in image.topics_by_name.items()} == {"letters": 3}
    assert image.brokers.keys() == {1}
    assert image.features["transaction.version"] == 2


def newest_snapshot(folder: Path) -> str:
    return max((path.name for path in folder.glob("*-*.checkpoint")), default="")


def cut_before(folder: Path, offset: int) -> None:
    """Let the log begin at `offset`, in a segment of that name."""
    data = (folder / LOG).read_bytes()
    kept = next((at for header, at in read_batches(data) if header.base_offset >= offset), len(data))
    for path in (*folder.glob(f"{Path(LOG).stem}.*"), *folder.glob("*.snapshot")):
        path.unlink()
    (folder / f"{offset:020d}.log").write_bytes(data[kept:])
