"""A new directory, what is refused for one, and what a crash in the middle of formatting leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from barnabas.broker.storage.formatting import (
    METADATA_DIRECTORY,
    DirectoryRefused,
    InitialVoter,
    check_directory,
    format_directory,
)
from barnabas.broker.storage.server_properties import server_properties
from barnabas.core.disk import Disk
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.core.settings.listeners import Listener
from barnabas.core.settings.properties import parse_properties
from barnabas.log.checkpoints import CorruptCheckpoint, MetaProperties, read_whole
from barnabas.metadata.records import FeatureLevelRecord
from barnabas.raft.control_records import SnapshotHeaderRecord, read_control_batch
from barnabas.records.batch import BatchHeader
from barnabas.records.reader import read_batch, read_batches

NOW_MS = 1_790_000_000_000
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
DIRECTORY_ID = UUID(int=77)
META = MetaProperties(CLUSTER_ID, 1, DIRECTORY_ID)
BROKER = [Listener("PLAINTEXT", "127.0.0.1", 19092, "PLAINTEXT")]
CONTROLLER = [Listener("CONTROLLER", "127.0.0.1", 19093, "PLAINTEXT")]
# what Kafka 4.3 finalises in a new directory, in the order in which it does
FEATURES = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
CHECKPOINT = f"{METADATA_DIRECTORY}/00000000000000000000-0000000000.checkpoint"


async def formatted(
    disk: Disk, directory_id: UUID = DIRECTORY_ID, properties: Mapping[str, str] | None = None
) -> MetaProperties:
    own = server_properties({"log.dirs": "/data"}, node_id=1, listeners=BROKER, controllers=CONTROLLER)
    return await format_directory(
        disk,
        MetaProperties(CLUSTER_ID, 1, directory_id),
        voters=[InitialVoter(1, CONTROLLER[0].host, CONTROLLER[0].port, directory_id)],
        listener=CONTROLLER[0].name,
        bootstrap=[FeatureLevelRecord(name=name, feature_level=level) for name, level in FEATURES.items()],
        properties=own if properties is None else properties,
        now_ms=NOW_MS,
    )


def write(disk: MemoryDisk, path: str, data: bytes = b"") -> None:
    async def put() -> None:
        await disk.mkdir(path.rpartition("/")[0])
        file = await disk.open(path, create=True)
        await file.append(data)
        file.close()

    asyncio.run(put())


def check(disk: MemoryDisk, node_id: int = 1) -> MetaProperties | None:
    return asyncio.run(check_directory(disk, node_id))


def test_an_empty_directory_is_new_and_a_formatted_one_is_this_nodes() -> None:
    disk = MemoryDisk()
    assert check(disk) is None
    assert asyncio.run(formatted(disk)) == META
    assert check(disk) == META


def test_a_directory_is_formatted_once() -> None:
    """Two processes may have seen it empty: the second finds what the first made of it."""
    disk = MemoryDisk()
    assert asyncio.run(formatted(disk)) == META
    whole = contents(disk)
    assert asyncio.run(formatted(disk, UUID(int=78))) == META
    assert contents(disk) == whole


@pytest.mark.parametrize(
    "path",
    [
        *("letters-0/x.log", "notes.txt", f"{METADATA_DIRECTORY}/{'0' * 20}.log"),
        *(f"{METADATA_DIRECTORY}/quorum-state", f"{METADATA_DIRECTORY}/{'0' * 18}12-{'0' * 9}1.checkpoint"),
    ],
)
def test_what_holds_something_without_an_owner_is_refused(path: str) -> None:
    disk = MemoryDisk()
    write(disk, path)
    with pytest.raises(DirectoryRefused, match=f"not empty.*{path.split('/')[0]}"):
        check(disk)


@pytest.mark.parametrize("path", ["lost+found/x", ".lock", "bootstrap.checkpoint", CHECKPOINT])
def test_what_is_nobodys_is_new(path: str) -> None:
    disk = MemoryDisk()
    write(disk, path)
    assert check(disk) is None


def test_another_nodes_directory_is_refused_naming_both() -> None:
    disk = MemoryDisk()
    asyncio.run(formatted(disk))
    with pytest.raises(DirectoryRefused, match=r"node\.id 1, this is node\.id 2"):
        check(disk, node_id=2)


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("version=0\nbroker.id=1\n", DirectoryRefused, "ZooKeeper"),
        ("version=1\ncluster.id=x\nnode.id=1\n", DirectoryRefused, r"directory\.id"),
        ("version=2\ncluster.id=x\nnode.id=1\n", CorruptCheckpoint, "version 2"),
        ("version=1\ncluster.id=x\n", CorruptCheckpoint, r"node\.id is missing"),
        ("version=1\ncluster.id=x\nnode.id=one\n", CorruptCheckpoint, "line 3"),
        ("", CorruptCheckpoint, "version is missing"),
    ],
)
def test_an_owner_that_cannot_be_read_is_an_error(text: str, error: type[Exception], told: str) -> None:
    disk = MemoryDisk()
    write(disk, "meta.properties", text.encode())
    with pytest.raises(error, match=f"meta.properties.*{told}|{told}.*meta.properties"):
        check(disk)


def test_someones_own_server_properties_is_kept() -> None:
    disk = MemoryDisk()
    write(disk, "server.properties", b"mine=1\n")
    asyncio.run(formatted(disk))
    assert asyncio.run(read_whole(disk, "server.properties")) == b"mine=1\n"


def test_the_settings_for_kafka_are_read_back_as_they_are() -> None:
    """As Java reads them: whatever the directory is called, it is not another one."""
    settings = {"log.dirs": "/Schloß/letters \\ \u4fe1 "}
    disk = MemoryDisk()
    asyncio.run(formatted(disk, properties=settings))
    data = asyncio.run(read_whole(disk, "server.properties"))
    assert data is not None
    assert parse_properties(data.decode("latin-1")) == settings


def test_the_settings_for_kafka_name_where_the_node_reaches_itself() -> None:
    everywhere = [Listener("CONTROLLER", "", 19093, "PLAINTEXT")]
    settings = server_properties({"log.dirs": "/data"}, node_id=4, listeners=BROKER, controllers=everywhere)
    assert settings["controller.quorum.bootstrap.servers"] == "localhost:19093"
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:19092,CONTROLLER://:19093"
    assert (settings["log.dirs"], settings["node.id"]) == ("/data", "4")


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "2"), (3, None, None), (None, None, None)]
)
def test_the_settings_for_kafka_name_no_more_replicas_than_brokers(
    brokers: int | None, replicas: str | None, in_sync: str | None
) -> None:
    settings = server_properties(
        {"log.dirs": "/data"}, node_id=1, listeners=BROKER, controllers=CONTROLLER, brokers=brokers
    )
    assert settings.get("offsets.topic.replication.factor") == replicas
    assert settings.get("transaction.state.log.replication.factor") == replicas
    assert settings.get("transaction.state.log.min.isr") == in_sync


@pytest.mark.parametrize("seed", [None, *range(8)])
def test_a_crash_at_any_operation_leaves_a_directory_that_is_formatted_or_new(seed: int | None) -> None:
    """Of the process, or of the power."""
    disk, forks = MemoryDisk(), list[MemoryDisk]()
    disk.before = lambda operation, path: forks.append(disk.fork())
    asyncio.run(formatted(disk))
    disk.before = None
    whole = contents(disk)
    outcomes = set()
    for number, fork in enumerate([*forks, disk]):
        if seed is None:
            fork.crash_process()
        else:
            fork.crash_power(SeededRandom(seed * 1000 + number))
        found = check(fork)
        outcomes.add(found)
        if found is None:
            asyncio.run(formatted(fork))
        assert check(fork) == META
        assert contents(fork) == whole
    assert outcomes == {None, META}
    assert len(forks) > 15


def contents(disk: MemoryDisk) -> dict[str, bytes | None]:
    async def read() -> dict[str, bytes | None]:
        paths = [*await disk.listdir(""), *await disk.listdir(METADATA_DIRECTORY)]
        paths += [f"{METADATA_DIRECTORY}/{name}" for name in await disk.listdir(METADATA_DIRECTORY)]
        found = {path: await read_whole(disk, path) for path in paths if path != METADATA_DIRECTORY}
        return {path: data for path, data in found.items() if data and not path.endswith(".tmp")}

    return asyncio.run(read())


def without_times(data: bytes) -> list[tuple[BatchHeader, Sequence[object]]]:
    """All of a checkpoint but when it was written."""
    found: list[tuple[BatchHeader, Sequence[object]]] = []
    for header, position in read_batches(data):
        plain = header._replace(crc=0, base_timestamp=0, max_timestamp=0)
        if not header.is_control:
            records = [
                (each.offset, each.key, each.value, each.headers) for each in read_batch(data, position)
            ]
            found.append((plain, records))
            continue
        controls = read_control_batch(data, position)
        for _, message in controls:
            if isinstance(message, SnapshotHeaderRecord):
                assert message.last_contained_log_timestamp == 0 or header.base_offset == 0
                message.last_contained_log_timestamp = min(1, message.last_contained_log_timestamp)
        found.append((plain, controls))
    return found
