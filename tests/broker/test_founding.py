"""A node on an empty directory founds a cluster of one, unless its settings make it part of a larger one."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.storage.formatting import METADATA_DIRECTORY, InitialVoter, format_directory
from barnabas.broker.storage.founding import NotFormatted, found_cluster
from barnabas.controller.bootstrap import bootstrap_records
from barnabas.core.clock import ManualClock
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.core.settings.listeners import read_listeners
from barnabas.core.settings.properties import parse_properties
from barnabas.core.settings.sources import resolve
from barnabas.log.checkpoints import MetaProperties, read_whole
from barnabas.raft.control_records import VotersRecord
from barnabas.raft.snapshot import read_snapshot
from tests.broker.test_formatting import CHECKPOINT, DIRECTORY_ID, META


def found(disk: MemoryDisk, host_name: str = "me", **given: str) -> MetaProperties:
    settings = resolve(file={name.replace("_", "."): text for name, text in given.items()})
    founding = found_cluster(
        disk,
        {"log.dirs": "/data"},
        settings=settings,
        listeners=read_listeners(settings),
        host_name=host_name,
        clock=ManualClock(1_790_000_000_000),
        random=SeededRandom(3),
    )
    return asyncio.run(founding)


def written(disk: MemoryDisk, path: str) -> bytes | None:
    return asyncio.run(read_whole(disk, path))


def properties(disk: MemoryDisk) -> dict[str, str]:
    data = written(disk, "server.properties")
    assert data is not None
    return parse_properties(data.decode("latin-1"))


LISTENERS = "PLAINTEXT://:9092,CONTROLLER://:9093"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"controller_quorum_voters": "1@a:1,2@b:1,3@c:1"}, "controller.quorum.voters=1@a:1,2@b:1,3@c:1"),
        ({"controller_quorum_bootstrap_servers": "a:9093,b:9093"}, "bootstrap.servers names a:9093"),
        ({"controller_quorum_bootstrap_servers": "me:9093,b:9093"}, "bootstrap.servers names b:9093"),
        ({"controller_quorum_bootstrap_servers": "localhost:9094"}, "bootstrap.servers names localhost:9094"),
        (
            {
                "process_roles": "broker",
                "controller_quorum_bootstrap_servers": "localhost:9093",
                "listeners": "PLAINTEXT://:9092",
            },
            "process.roles=broker",
        ),
        ({"process_roles": "controller", "listeners": "CONTROLLER://:9093"}, "process.roles=controller"),
    ],
)
def test_node_of_a_larger_cluster_founds_none(given: dict[str, str], words: str) -> None:
    disk = MemoryDisk()
    with pytest.raises(NotFormatted, match="barnabas format --cluster-id") as refusal:
        found(disk, **{"listeners": LISTENERS, **given})
    assert words in str(refusal.value)
    assert asyncio.run(disk.listdir("")) == []


@pytest.mark.parametrize(
    "servers", ["localhost:9093", "me:9093", "127.0.0.1:9093,me:9093", "[::1]:9093", "kafka:9093", "proxy:1"]
)
def test_bootstrap_servers_that_are_the_node_itself(servers: str) -> None:
    disk = MemoryDisk()
    advertised = "PLAINTEXT://kafka:9092,CONTROLLER://proxy:1"
    found(
        disk,
        listeners=LISTENERS,
        advertised_listeners=advertised,
        controller_quorum_bootstrap_servers=servers,
    )
    assert properties(disk)["controller.quorum.bootstrap.servers"] == servers
    assert properties(disk)["advertised.listeners"] == advertised
    (_, voters) = read_snapshot(written(disk, CHECKPOINT) or b"", CHECKPOINT).controls
    assert isinstance(voters, VotersRecord)
    assert [(at.host, at.port) for each in voters.voters for at in each.endpoints] == [("proxy", 1)]


def test_voter_in_the_settings_is_not_in_the_log() -> None:
    """As in Kafka: kraft.version is 0 then."""
    disk = MemoryDisk()
    meta = found(disk, listeners=LISTENERS, controller_quorum_voters="1@localhost:9093")
    assert meta.node_id == 1
    assert written(disk, CHECKPOINT) is None
    assert properties(disk)["controller.quorum.voters"] == "1@localhost:9093"
    assert "controller.quorum.bootstrap.servers" not in properties(disk)


def test_voters_of_an_unfinished_formatting_do_not_count() -> None:
    disk, forks = MemoryDisk(), list[MemoryDisk]()
    disk.before = lambda operation, path: forks.append(disk.fork())
    voter = InitialVoter(1, "a", 1, DIRECTORY_ID)

    async def formatted(where: MemoryDisk, *voters: InitialVoter) -> None:
        await format_directory(
            where, META, bootstrap=bootstrap_records(), voters=voters, listener="CONTROLLER", now_ms=1
        )

    asyncio.run(formatted(disk, voter))
    left = [fork for fork in forks if written(fork, CHECKPOINT) and written(fork, "meta.properties") is None]
    assert len(left) > 3
    for fork in left:
        asyncio.run(formatted(fork))
        assert written(fork, "meta.properties")
        assert asyncio.run(fork.listdir(METADATA_DIRECTORY)) == []
