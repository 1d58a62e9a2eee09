"""A node with several log directories: made, found again, told of, and left out one by one."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from barnabas.broker.storage import founding
from barnabas.broker.storage.formatting import DirectoryRefused
from barnabas.controller.bootstrap import bootstrap_records
from barnabas.core.disk import DiskFailed
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.settings.definition import InvalidSetting
from barnabas.log import trimming
from barnabas.log.checkpoints import uuid_from_text
from barnabas.log.directories import PartitionTwice
from barnabas.log.moving import Move
from barnabas.metadata.image import METADATA_VERSION
from barnabas.metadata.parts import PartitionImage
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.protocol.schema import NO_UUID
from barnabas.testing import Broker
from tests.support.configs import BROKER, DELETE, DONE, SET, Answer
from tests.support.configs import alter as alter_config
from tests.support.raw_client import RawClient, fetch_request, produce_request, wait_until

T = TypeVar("T")


class Site:
    """A broker with the directories a, b and c below one root, or on disks in memory."""

    def __init__(self, root: Path | None, names: str = "abc", **settings: str) -> None:
        self.root = root
        self._given = {key.replace("_", "."): value for key, value in settings.items()}
        self.broker = self.make(names)

    def make(self, names: str) -> Broker:
        log_dirs = ",".join(self.path(name) for name in names)
        first = None if self.root is None else self.root / names[0]
        return Broker(first, {"log.dirs": log_dirs, **self._given})

    def path(self, name: str) -> str:
        return name if self.root is None else str(self.root / name)

    def memory_name(self, name: str) -> str:
        """The full name of a disk in memory: the first has none of its own."""
        return self.broker._disks[name].name if name in self.broker._disks else name

    def start(self, names: str | None = None) -> None:
        if names is not None:
            self.broker = self.make(names)
        self.broker.start()

    def try_to_create(self, name: str, partitions: int = 3) -> str:
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        with RawClient(self.broker.port) as client:
            answer = client.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        return WIRE_ERRORS[answer.topics[0].error_code].name

    def create(self, name: str, partitions: int = 3) -> None:
        assert self.try_to_create(name, partitions) == "NONE"
        wait_until(lambda: self.is_told(name), "the metadata tells where the partitions are")

    def delete(self, name: str) -> None:
        state = DeleteTopicState(name=name, topic_id=NO_UUID)
        with RawClient(self.broker.port) as client:
            answer = client.ask(DeleteTopicsRequest(topics=[state]), 6, DeleteTopicsResponse)
        assert [each.error_code for each in answer.responses] == [0]

    def cordoned(self) -> list[bool]:
        """Of each directory, whether DescribeLogDirs says so."""
        with RawClient(self.broker.port) as client:
            answer = client.ask(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse)
        return [each.is_cordoned for each in answer.results]

    def produce(self, name: str, partition: int, value: bytes = b"v") -> str:
        with RawClient(self.broker.port) as client:
            request = produce_request(name, [value], partition=partition)
            answer = client.ask(request, 9, ProduceResponse)
        return WIRE_ERRORS[answer.responses[0].partition_responses[0].error_code].name

    def fill(self, name: str, partitions: int = 3) -> None:
        self.create(name, partitions)
        assert [self.produce(name, number) for number in range(partitions)] == ["NONE"] * partitions

    def fetch(self, name: str, partition: int) -> tuple[str, int]:
        with RawClient(self.broker.port) as client:
            answer = client.ask(fetch_request(name, partition=partition), 12, FetchResponse)
        (found,) = answer.responses[0].partitions
        return WIRE_ERRORS[found.error_code].name, found.high_watermark

    def metadata(self, name: str) -> list[tuple[str, int, list[int]]]:
        topics = [MetadataRequestTopic(name=name)]
        with RawClient(self.broker.port) as client:
            answer = client.ask(MetadataRequest(topics=topics), 9, MetadataResponse)
        return [
            (WIRE_ERRORS[each.error_code].name, each.leader_id, each.offline_replicas)
            for each in answer.topics[0].partitions
        ]

    def describe(self, *topics: DescribableLogDirTopic, version: int = 5) -> dict[str, dict[str, int] | str]:
        request = DescribeLogDirsRequest(topics=list(topics) or None)
        with RawClient(self.broker.port) as client:
            answer = client.ask(request, version, DescribeLogDirsResponse)
        return {
            Path(each.log_dir).name: WIRE_ERRORS[each.error_code].name
            if each.error_code
            else {
                f"{topic.name}-{partition.partition_index}": partition.partition_size
                for topic in each.topics
                for partition in topic.partitions
            }
            for each in answer.results
        }

    def partitions(self, name: str) -> list[PartitionImage]:
        topic = self.broker.node.services.image.topic(name)
        assert topic is not None
        return list(topic.partitions)

    def is_told(self, name: str) -> bool:
        registered = self.broker.node.services.image.brokers[1].log_dirs
        return all(each.directories[0] in registered for each in self.partitions(name))

    def told(self, name: str) -> str:
        """In which directory the metadata says that each partition is."""
        names = {own.bytes: Path(each.where).name for own, each in self._directories.items()}
        return "".join(names.get(each.directories[0], "?") for each in self.partitions(name))

    @property
    def _directories(self) -> dict[UUID, object]:
        return dict(self.broker.node.storage.directories)  # type: ignore[arg-type]

    def held(self, name: str) -> str:
        """In which directory each partition has its files."""
        assert self.root is not None
        count = len(self.partitions(name))
        found = [
            [each.name for each in sorted(self.root.iterdir()) if (each / f"{name}-{number}").exists()]
            for number in range(count)
        ]
        return "".join("+".join(each) or "-" for each in found)

    def directory_id(self, name: str) -> UUID:
        assert self.root is not None
        lines = (self.root / name / "meta.properties").read_text().splitlines()
        return uuid_from_text(dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made.start()
    yield made
    made.broker.stop()


@pytest.fixture
def in_memory() -> Iterator[Site]:
    made = Site(None)
    made.start()
    yield made
    made.broker.stop()


# ---- made, found again, told of ----------------------------------------------------------------------------


def test_partitions_are_spread_and_the_metadata_tells_where(site: Site) -> None:
    site.fill("t")
    site.fill("u", 2)
    assert (site.held("t"), site.held("u")) == ("abc", "ab") == (site.told("t"), site.told("u"))
    assert all(each.leader_epoch == 0 for each in site.partitions("t"))
    for end in (site.broker.stop, site.broker.kill):
        end()
        site.start()
        assert (site.told("t"), site.told("u")) == ("abc", "ab")
        assert [site.fetch("t", number) for number in range(3)] == [("NONE", 1)] * 3
    assert sorted(site.broker.node.services.image.brokers[1].log_dirs) == sorted(
        site.directory_id(name).bytes for name in "abc"
    )


def test_each_directory_has_what_a_directory_has(site: Site, tmp_path: Path) -> None:
    site.fill("t")
    site.broker.stop()
    for name in "abc":
        files = {each.name for each in (tmp_path / name).iterdir()}
        assert {".lock", ".kafka_cleanshutdown", "meta.properties"} <= files
        assert {"recovery-point-offset-checkpoint", "replication-offset-checkpoint"} <= files
        assert ("__cluster_metadata-0" in files) == (name == "a")
        assert (tmp_path / name / "recovery-point-offset-checkpoint").read_text().count("t ") == 1
    assert len({site.directory_id(name) for name in "abc"}) == 3
    site.start()
    assert site.broker.node.storage.logs.was_clean


def test_a_place_outlives_a_restart_before_there_are_files(site: Site) -> None:
    site.create("t", 4)
    told = site.told("t")
    assert sorted(told) == ["a", "a", "b", "c"]
    site.broker.restart()
    assert site.told("t") == told
    for number in range(4):
        assert site.produce("t", number) == "NONE"
    assert site.held("t") == told


def test_a_topic_made_anew_may_be_elsewhere_and_leaves_nothing(site: Site) -> None:
    for _ in range(3):
        site.fill("t", 2)
        assert site.held("t") == site.told("t")
        site.delete("t")
    wait_until(lambda: not site.broker.node.storage.logs.partitions[1:], "the files are gone")


def test_another_order_of_the_directories_changes_nothing(site: Site) -> None:
    site.fill("t")
    site.broker.stop()
    site._given["metadata.log.dir"] = site.path("a")
    site.start("cba")
    assert site.told("t") == "abc"
    assert [site.produce("t", number) for number in range(3)] == ["NONE"] * 3


def test_a_further_directory_is_made_ready_and_used(tmp_path: Path) -> None:
    site = Site(tmp_path, "a")
    site.start()
    site.fill("t", 2)
    assert site.told("t") == "aa"
    site.broker.stop()
    site.start("ab")
    site.fill("u", 2)
    assert (site.told("t"), site.told("u")) == ("aa", "bb")
    site.broker.stop()


def test_the_metadata_may_be_apart(tmp_path: Path) -> None:
    site = Site(tmp_path, "ab", metadata_log_dir=str(tmp_path / "m"))
    site.start()
    site.fill("t", 2)
    assert site.told("t") == "ab"
    assert (tmp_path / "m" / "__cluster_metadata-0").exists()
    assert f"metadata.log.dir={tmp_path / 'm'}\n" in (tmp_path / "m" / "server.properties").read_text()
    assert list(site.describe()) == ["a", "b"]
    assert len(site.broker.node.services.image.brokers[1].log_dirs) == 2
    for end in (site.broker.stop, site.broker.kill):
        end()
        site.start()
        assert [site.fetch("t", number) for number in (0, 1)] == [("NONE", 1)] * 2
    site.broker.stop()


def test_metadata_that_cannot_tell_of_directories_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of an older version; and once that was raised, new topics are told of at once."""
    monkeypatch.setattr(founding, "bootstrap_records", lambda: bootstrap_records({METADATA_VERSION: 16}))
    site = Site(None)
    site.start()
    site.try_to_create("t")
    assert [site.produce("t", number) for number in range(3)] == ["NONE"] * 3
    assert alter(site, "t", 0, "b") == "NONE"
    wait_until(lambda: not moves_of(site), "it has moved")
    assert site.metadata("t") == [("NONE", 1, [])] * 3
    site.broker.restart()
    assert [site.fetch("t", number) for number in range(3)] == [("NONE", 1)] * 3
    update = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=30)
    with RawClient(site.broker.port) as client:
        request = UpdateFeaturesRequest(feature_updates=[update])
        assert client.ask(request, 1, UpdateFeaturesResponse).error_code == 0
    site.try_to_create("u")
    wait_until(lambda: "?" not in site.told("u"), "the metadata tells where the partitions are")
    assert [site.produce("u", number) for number in range(3)] == ["NONE"] * 3
    site.broker.stop()


def test_cordoned_directories_get_nothing_new(tmp_path: Path) -> None:
    site = Site(tmp_path, cordoned_log_dirs=str(tmp_path / "b"))
    site.start()
    site.fill("t", 4)
    assert site.told("t") == "acac"
    assert site.cordoned() == [False, True, False]
    site.broker.stop()


@pytest.mark.parametrize("names", ["ab", "a"])
def test_directories_are_cordoned_while_the_node_runs(tmp_path: Path, names: str) -> None:
    site = Site(tmp_path, names)
    site.start()

    def alter_cordoned(value: str | None, count: int) -> None:
        change = ("cordoned.log.dirs", DELETE if value is None else SET, value)
        with RawClient(site.broker.port) as client:
            assert alter_config(client, BROKER, "1", change) == DONE
        wait_until(
            lambda: len(site.broker.node.services.image.brokers[1].cordoned_log_dirs or ()) == count,
            "the metadata tells so",
        )

    alter_cordoned("*", len(names))
    assert site.try_to_create("t") == "INVALID_REPLICATION_FACTOR"
    site.broker.restart()
    wait_until(lambda: site.try_to_create("t") == "INVALID_REPLICATION_FACTOR", "it is so after a restart")
    alter_cordoned(None, 0)
    site.fill("t", 2)
    site.broker.stop()


def test_nothing_moves_into_a_cordoned_directory(tmp_path: Path) -> None:
    site = Site(tmp_path, cordoned_log_dirs=str(tmp_path / "b"))
    site.start()
    site.fill("t", 2)
    assert alter(site, "t", 0, "b") == alter(site, "nope", 0, "b") == "INVALID_REPLICA_ASSIGNMENT"
    with RawClient(site.broker.port) as client:
        assert alter_config(client, BROKER, "1", ("cordoned.log.dirs", SET, "")) == DONE
    assert alter(site, "t", 0, "b") == "NONE"
    wait_until(lambda: site.told("t") == "bc", "it has moved")
    with RawClient(site.broker.port) as client:
        assert alter_config(client, BROKER, "1", ("cordoned.log.dirs", SET, "*")) == DONE
    assert alter(site, "t", 0, "b") == "INVALID_REPLICA_ASSIGNMENT"  # though it is there
    site.broker.stop()


def test_metadata_that_cannot_tell_of_cordons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before 4.3-IV0: what is static counts on this node, and nothing is altered."""
    monkeypatch.setattr(founding, "bootstrap_records", lambda: bootstrap_records({METADATA_VERSION: 29}))
    site = Site(tmp_path, cordoned_log_dirs="*")
    site.start()
    site.fill("t", 2)  # the controller does not know
    assert alter(site, "t", 0, "c") == "INVALID_REPLICA_ASSIGNMENT"
    assert site.cordoned() == [False, False, False]
    problem = "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version"
    refused = Answer("INVALID_CONFIG", f"{problem} >= 4.3-IV0")
    with RawClient(site.broker.port) as client:
        for change in ((SET, str(tmp_path / "b")), (SET, ""), (DELETE, None)):
            assert alter_config(client, BROKER, "1", ("cordoned.log.dirs", *change)) == refused
        update = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=30)
        request = UpdateFeaturesRequest(feature_updates=[update])
        assert client.ask(request, 1, UpdateFeaturesResponse).error_code == 0
    wait_until(lambda: site.try_to_create("u") == "INVALID_REPLICATION_FACTOR", "the metadata tells so")
    assert site.cordoned() == [True, True, True]
    with RawClient(site.broker.port) as client:
        assert alter_config(client, BROKER, "1", ("cordoned.log.dirs", SET, "")) == DONE
    wait_until(lambda: site.try_to_create("v") == "NONE", "the metadata tells so")
    site.broker.stop()


def test_one_that_was_unregistered_heeds_settings_and_goes_on_without_a_disk(in_memory: Site) -> None:
    site = in_memory
    site.fill("t")
    with RawClient(site.broker.port) as client:
        request = UnregisterBrokerRequest(broker_id=1)
        assert client.ask(request, 0, UnregisterBrokerResponse).error_code == 0
        change = ("message.max.bytes", SET, "2000000")
        assert alter_config(client, BROKER, "", change) == DONE
    site.broker._disks["b"].fail("sync", errno.EIO)
    assert flush(site, "t", 1) == "KAFKA_STORAGE_ERROR"
    wait_until(lambda: not site.broker._disks["b"]._locks, "it is let go of")
    assert not site.broker.node._failure.done()


# ---- what is refused, and what is left out, at a start -----------------------------------------------------


def refused(site: Site, names: str, kind: type[T]) -> str:
    site.broker.stop()
    with pytest.raises(kind) as caught:  # type: ignore[type-var]
        site.start(names)
    return str(caught.value)


def test_a_directory_of_another_cluster_or_node_is_refused(site: Site, tmp_path: Path) -> None:
    other = Broker(tmp_path / "x")
    other.start()
    other.stop()
    assert f"{tmp_path / 'x'} belongs to cluster" in refused(site, "abcx", DirectoryRefused)
    meta = tmp_path / "b" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    assert f"{tmp_path / 'b'} belongs to node.id 2" in refused(site, "abc", DirectoryRefused)


@pytest.mark.parametrize("names", ["data,data/disk-1", "data/disk-1,data", "data,data/../data", "data,link"])
def test_a_directory_inside_another_or_named_twice_is_refused(tmp_path: Path, names: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    log_dirs = ",".join(str(tmp_path / name) for name in names.split(","))
    broker = Broker(tmp_path / names.split(",")[0], {"log.dirs": log_dirs})
    with pytest.raises((InvalidSetting, DirectoryRefused)):
        broker.start()
    assert not list(tmp_path.glob("data/disk*"))


def test_a_copy_of_a_directory_is_refused(site: Site, tmp_path: Path) -> None:
    site.broker.stop()
    shutil.copytree(tmp_path / "b", tmp_path / "d")
    assert "same directory.id" in refused(site, "abcd", DirectoryRefused)


def test_a_node_whose_metadata_is_elsewhere_is_not_started_anew(site: Site, tmp_path: Path) -> None:
    told = refused(site, "ba", DirectoryRefused)
    assert f"let metadata.log.dir name {tmp_path / 'a'}" in told or "not where the metadata is to be" in told
    told = refused(site, "xabc", DirectoryRefused)
    assert f"{tmp_path / 'x'} is to hold the metadata and is empty" in told
    assert not (tmp_path / "x").exists()


def test_a_partition_in_two_directories_is_refused(site: Site, tmp_path: Path) -> None:
    site.fill("t")
    site.broker.stop()
    shutil.copytree(tmp_path / "c" / "t-2", tmp_path / "a" / "t-2")
    shutil.move(tmp_path / "c" / "t-2", tmp_path / "b" / "t-2")
    told = refused(site, "abc", PartitionTwice)
    assert f"t-2 is in two log directories, {tmp_path / 'a'} and {tmp_path / 'b'}" in told
    shutil.rmtree(tmp_path / "a" / "t-2")
    site.start("abc")
    assert site.told("t") == "abb"
    assert [site.fetch("t", number) for number in range(3)] == [("NONE", 1)] * 3


def test_what_was_moved_by_hand_is_led_from_where_it_is(site: Site, tmp_path: Path) -> None:
    site.fill("t")
    site.broker.stop()
    shutil.move(tmp_path / "b" / "t-1", tmp_path / "c" / "t-1")
    site.start("ac")
    assert site.told("t") == "acc"
    assert [site.fetch("t", number) for number in range(3)] == [("NONE", 1)] * 3


def test_a_directory_that_cannot_be_read_is_left_out_until_it_can(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site.fill("t")
    site.broker.stop()
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").write_text("this is no directory")
    site.start()
    assert any(f"{tmp_path / 'b'} is left out" in record.getMessage() for record in caplog.records)
    assert site.metadata("t") == [("NONE", 1, []), ("LEADER_NOT_AVAILABLE", -1, [1]), ("NONE", 1, [])]
    assert [site.produce("t", number) for number in range(3)] == ["NONE", "KAFKA_STORAGE_ERROR", "NONE"]
    assert site.describe()["b"] == "KAFKA_STORAGE_ERROR"
    site.fill("u", 2)
    assert site.told("u") == "ac"
    site.broker.stop()
    (tmp_path / "b").unlink()
    (tmp_path / "away").rename(tmp_path / "b")
    site.start()
    assert site.told("t") == "abc"
    assert [site.fetch("t", number) for number in range(3)] == [("NONE", 2), ("NONE", 1), ("NONE", 2)]


def test_what_was_in_a_directory_that_is_replaced_is_not_led(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka: it is there, empty, but somebody has to want that."""
    site.fill("t")
    site.broker.stop()
    shutil.move(tmp_path / "b", tmp_path / "away")
    site.start()
    assert any("t-1 was in a directory that is not there any more" in each.message for each in caplog.records)
    assert [each.leader for each in site.partitions("t")] == [1, -1, 1]
    assert [site.produce("t", number) for number in (0, 1)] == ["NONE", "NOT_LEADER_OR_FOLLOWER"]
    asked = [TopicPartitions(topic="t", partitions=[1])]
    with RawClient(site.broker.port) as client:
        request = ElectLeadersRequest(election_type=1, topic_partitions=asked)
        answer = client.ask(request, 2, ElectLeadersResponse)
    assert answer.replica_election_results[0].partition_result[0].error_code == 0
    assert (site.fetch("t", 1), site.produce("t", 1), site.told("t")) == (("NONE", 0), "NONE", "abc")
    site.broker.stop()
    shutil.rmtree(tmp_path / "b")
    shutil.move(tmp_path / "away", tmp_path / "b")  # what was found again is what counts
    site.start()
    assert [site.fetch("t", number) for number in range(3)] == [("NONE", 2), ("NONE", 1), ("NONE", 1)]


def test_without_the_metadata_there_is_no_start(site: Site, tmp_path: Path) -> None:
    site.broker.stop()
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "a").write_text("this is no directory")
    with pytest.raises(DiskFailed):
        site.start()


# ---- what fails while the node runs ------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["sync", "append"])
def test_a_disk_that_fails_takes_its_own_partitions_along(
    in_memory: Site, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = in_memory
    site.fill("t")
    disk = site.broker._disks["b"]
    disk.fail(operation, errno.EIO)
    failing = site.produce("t", 1) if operation == "append" else flush(site, "t", 1)
    assert failing == "KAFKA_STORAGE_ERROR"
    wait_until(lambda: site.partitions("t")[1].leader == -1, "the controller knows")
    assert [site.produce("t", number) for number in range(3)] == ["NONE", "KAFKA_STORAGE_ERROR", "NONE"]
    assert site.fetch("t", 1)[0] == "KAFKA_STORAGE_ERROR"
    assert site.metadata("t") == [("NONE", 1, []), ("LEADER_NOT_AVAILABLE", -1, [1]), ("NONE", 1, [])]
    described = site.describe()
    assert [described[name] == "KAFKA_STORAGE_ERROR" for name in described] == [False, True, False]
    (told,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "is out of use, and its 1 partitions are offline" in told.getMessage()
    assert "restart the node" in told.getMessage()
    site.fill("u", 4)
    assert len(site.broker.node.services.image.brokers[1].log_dirs) == 2
    site.broker.stop()
    disk.heal()
    site.start()
    assert [site.produce("t", number) for number in range(3)] == ["NONE"] * 3
    assert site.metadata("t") == [("NONE", 1, [])] * 3


def flush(site: Site, name: str, partition: int) -> str:
    log = site.broker.node.storage.logs.opened(name, partition)
    assert log is not None
    with pytest.raises(DiskFailed) as caught:
        site.broker.run(log.flush())
    return caught.value.wire.name


def test_who_waits_there_is_told_at_once(in_memory: Site) -> None:
    site = in_memory
    site.fill("t")
    with RawClient(site.broker.port) as client:
        client.send(fetch_request("t", partition=1, offset=1, max_wait_ms=20_000), 12)
        wait_until(
            lambda: any(each.marks.polls for each in site.broker.node.broker.replicas.open), "it waits"
        )
        site.broker._disks["b"].fail("append", errno.EIO)
        assert site.produce("t", 1) == "KAFKA_STORAGE_ERROR"
        _, answer = client.receive_response(FetchResponse, 12, flexible=True)
    assert WIRE_ERRORS[answer.responses[0].partitions[0].error_code].name == "KAFKA_STORAGE_ERROR"


def test_a_full_disk_is_no_failed_one(in_memory: Site) -> None:
    site = in_memory
    site.fill("t")
    site.broker._disks["b"].fail("append", errno.ENOSPC, times=1)
    assert [site.produce("t", 1), site.produce("t", 1)] == ["KAFKA_STORAGE_ERROR", "NONE"]
    assert len(site.broker.node.directories) == 3


@pytest.mark.parametrize("names", ["ab", "a"])
def test_the_disk_of_the_metadata_ends_the_node(names: str) -> None:
    site = Site(None, names)
    site.start()
    site.fill("t", 2)
    site.broker._disks["a"].fail("sync", errno.EIO, path_glob="*.log")
    flush(site, "t", 0)
    assert isinstance(site.broker.run(site.broker.node.failed()), DiskFailed)
    site.broker.kill()


def test_the_last_disk_of_topics_ends_the_node(in_memory: Site) -> None:
    in_memory.broker.stop()
    site = Site(None, "bc", metadata_log_dir="a")
    site.start()
    site.fill("t", 2)
    for name, number in (("b", 0), ("c", 1)):
        site.broker._disks[name].fail("sync", errno.EIO, path_glob="*.log")
        flush(site, "t", number)
    assert isinstance(site.broker.run(site.broker.node.failed()), DiskFailed)
    site.broker.kill()


def test_a_checkpoint_that_cannot_be_written_is_a_disk_that_fails() -> None:
    site = Site(None, log_flush_offset_checkpoint_interval_ms="10")
    site.start()
    site.fill("t")
    site.broker._disks["c"].fail("rename", errno.EIO)
    wait_until(lambda: site.partitions("t")[2].leader == -1, "the directory is given up")
    assert [site.produce("t", number) for number in range(3)] == ["NONE", "NONE", "KAFKA_STORAGE_ERROR"]
    site.broker.stop()


def test_topics_are_deleted_and_made_while_a_directory_is_out(in_memory: Site) -> None:
    site = in_memory
    site.fill("t")
    site.broker._disks["b"].fail("append", errno.EIO)
    assert site.produce("t", 1) == "KAFKA_STORAGE_ERROR"
    wait_until(lambda: site.partitions("t")[1].leader == -1, "the controller knows")
    site.delete("t")
    site.fill("t")
    assert [site.fetch("t", number) for number in range(3)] == [("NONE", 1)] * 3
    site.broker.stop()
    site.broker._disks["b"].heal()
    site.start()  # the old one is set aside
    assert [site.fetch("t", number) for number in range(3)] == [("NONE", 1)] * 3


# ---- moves between directories -----------------------------------------------------------------------------


def alter(site: Site, name: str, partition: int, where: str, version: int = 2) -> str:
    path = site.path(where) if site.root is not None else f"{site.memory_name(where)}/"
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[partition])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    with RawClient(site.broker.port) as client:
        answer = client.ask(request, version, AlterReplicaLogDirsResponse)
    ((topic,),) = [answer.results]
    (one,) = topic.partitions
    assert (topic.topic_name, one.partition_index) == (name, partition)
    return WIRE_ERRORS[one.error_code].name


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_moves_while_it_is_in_use(site: Site, version: int) -> None:
    site.create("t")
    for number in range(20):
        assert site.produce("t", 1, b"%d" % number * 1000) == "NONE"
    before = site.describe()
    assert alter(site, "t", 1, "c", version) == "NONE"
    sent = 0
    while site.told("t") != "acc":
        sent += site.produce("t", 1) == "NONE"
    wait_until(lambda: site.held("t") == "-c-", "the original's files go")
    assert site.fetch("t", 1) == ("NONE", 20 + sent)
    assert site.produce("t", 1) == "NONE"
    assert sum(site.describe()["c"].values()) > before["b"]["t-1"]  # type: ignore[union-attr,index]
    for end in (site.broker.stop, site.broker.kill):
        end()
        site.start()
        assert site.told("t") == "acc"
        assert site.fetch("t", 1) == ("NONE", 21 + sent)


def test_a_move_keeps_what_only_the_log_knows(site: Site) -> None:
    """The start, the epochs, the producers and where it was compacted."""
    site.create("t")
    for _ in range(10):
        site.produce("t", 1)
    log = site.broker.node.storage.logs.opened("t", 1)
    assert log is not None
    site.broker.run(trimming.delete_records(log, 4))
    assert alter(site, "t", 1, "a") == "NONE"
    wait_until(lambda: site.held("t") == "-a-" and not moves_of(site), "it has moved")
    new = site.broker.node.storage.logs.opened("t", 1)
    assert new is not None
    assert new is not log
    assert (new.start_offset, new.end_offset, new.high_watermark) == (4, 10, 10)
    assert new.epochs.entries == log.epochs.entries
    assert (new.topic_id, new.config) == (log.topic_id, log.config)
    assert site.fetch("t", 1) == ("OFFSET_OUT_OF_RANGE", -1)


def test_one_without_files_gets_another_place(site: Site) -> None:
    site.create("t")
    assert alter(site, "t", 1, "a") == "NONE"
    assert site.told("t") == "aac"
    assert site.produce("t", 1) == "NONE"
    assert site.held("t") == "-a-"
    assert alter(site, "t", 1, "a") == "NONE"  # where it is


def test_what_cannot_move_is_told_why(site: Site) -> None:
    site.create("t")
    site.create("x" * 230)
    assert alter(site, "t", 1, "nowhere") == "LOG_DIR_NOT_FOUND"
    assert alter(site, "t", 9, "a") == alter(site, "nope", 0, "a") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert alter(site, "x" * 230, 0, "a") == "INVALID_TOPIC_EXCEPTION"


def slowed() -> Site:
    """Its moves take for ever, unless they are small."""
    site = Site(None, replica_alter_log_dirs_io_max_bytes_per_second="1")
    site.start()
    site.fill("t")
    return site


def moves_of(site: Site) -> list[Move]:
    moves = site.broker.node.services.moves
    assert moves is not None
    return [move for move, _ in list(moves._under_way.values())]


def under_way(site: Site) -> bool:
    return any(move.copy is not None for move in moves_of(site))


def test_a_copy_is_described_given_up_and_deleted_with_its_topic() -> None:
    site = slowed()
    assert alter(site, "t", 1, "c") == "NONE"
    wait_until(lambda: under_way(site), "it has begun")
    with RawClient(site.broker.port) as client:
        answer = client.ask(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse)
    found = [
        (each.log_dir, one.partition_index)
        for each in answer.results
        for topic in each.topics
        for one in topic.partitions
        if one.is_future_key
    ]
    assert found == [("memory:c/", 1)]
    assert alter(site, "t", 1, "b") == "NONE"  # never mind
    assert not under_way(site)
    assert alter(site, "t", 1, "a") == "NONE"
    wait_until(lambda: under_way(site), "it has begun")
    site.delete("t")
    wait_until(
        lambda: not under_way(site) and len(site.broker.node.storage.logs.partitions) == 1, "all is gone"
    )
    for disk in site.broker._disks.values():
        assert not [name for name in site.broker.run(disk.listdir("")) if name.endswith("-future")]
    site.broker.stop()


def test_a_move_that_is_taken_back_at_once_can_be_asked_for_again(in_memory: Site) -> None:
    site = in_memory
    site.fill("t")

    async def there_and_back() -> None:
        services = site.broker.node.services
        topic = services.image.topic("t")
        assert topic is not None
        assert services.moves is not None
        b, c = (each for each, one in services.storage.directories.items() if one.where != "memory:/")
        await services.moves.move(topic, 1, c)
        await services.moves.move(topic, 1, b)
        assert not services.moves._under_way

    site.broker.run(there_and_back())
    assert alter(site, "t", 1, "c") == "NONE"
    wait_until(lambda: not moves_of(site), "it is over")
    assert "t-1" in site.broker.run(site.broker._disks["c"].listdir(""))


def test_of_two_who_ask_for_another_place_at_once_one_moves_it() -> None:
    site = slowed()
    assert alter(site, "t", 1, "c") == "NONE"
    wait_until(lambda: under_way(site), "it has begun")

    async def ask_twice() -> None:
        services = site.broker.node.services
        topic, moves = services.image.topic("t"), services.moves
        assert topic is not None
        assert moves is not None
        (a,) = (each for each, one in services.storage.directories.items() if one.where == "memory:/")
        await asyncio.gather(moves.move(topic, 1, a), moves.move(topic, 1, a))
        running = [task for task in asyncio.all_tasks() if "Moves._run" in repr(task.get_coro())]
        assert len(running) == 1

    site.broker.run(ask_twice())
    site.broker.stop()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_an_unfinished_copy_goes_at_the_next_start(end: str) -> None:
    site = slowed()
    assert alter(site, "t", 1, "c") == "NONE"
    wait_until(lambda: under_way(site), "it has begun")
    getattr(site.broker, end)()
    site.start()
    assert [site.fetch("t", number) for number in range(3)] == [("NONE", 1)] * 3
    listed = site.broker._disks["c"].listdir
    wait_until(lambda: not any("-future" in name for name in site.broker.run(listed(""))), "it is gone")
    site.broker.stop()


@pytest.mark.parametrize("operation", ["mkdir", "append", "sync", "rename"])
def test_a_move_that_fails_leaves_the_partition_where_it_was(in_memory: Site, operation: str) -> None:
    site = in_memory
    site.fill("t")
    glob = "t-1*" if operation != "rename" else "t-1.*-future"
    site.broker._disks["c"].fail(operation, errno.ENOSPC, path_glob=glob)
    assert alter(site, "t", 1, "c") == "NONE"
    wait_until(lambda: not moves_of(site), "it is given up")
    site.broker._disks["c"].heal()
    assert [site.produce("t", number) for number in range(3)] == ["NONE"] * 3
    assert site.broker.run(site.broker._disks["b"].listdir("t-1"))
    site.broker.restart()
    assert [site.fetch("t", number) for number in range(3)] == [("NONE", 2)] * 3


@pytest.mark.parametrize(
    ("where", "operation", "glob", "place"),
    [
        ("c", "open", "t-1/*", "b"),  # the copy has its name, and is not told of
        ("b", "rename", "t-1", "c"),  # it is told of, and the original stays beside it
        ("b", "sync_dir", "", "c"),
    ],
)
def test_a_move_that_fails_half_way_leaves_no_doubt(
    in_memory: Site, where: str, operation: str, glob: str, place: str
) -> None:
    site = in_memory
    site.fill("t")
    site.broker._disks[where].fail(operation, errno.ENOSPC, path_glob=glob)
    assert alter(site, "t", 1, "c") == "NONE"
    wait_until(lambda: not moves_of(site), "it is over")
    site.broker._disks[where].heal()
    assert [site.produce("t", number) for number in range(3)] == ["NONE"] * 3
    for end in (site.broker.kill, site.broker.stop):
        end()
        site.start()
        assert [site.fetch("t", number) for number in range(3)] == [("NONE", 2)] * 3
        there = site.broker.node.storage.logs.where("t", 1)
        assert site.broker.node.storage.directories[there].where == f"memory:{place}/"  # type: ignore[index]


def test_of_two_the_one_that_the_metadata_names_counts(site: Site, tmp_path: Path) -> None:
    """As a crash leaves it in the last moment of a move."""
    site.fill("t")
    site.broker.stop()
    shutil.copytree(tmp_path / "b" / "t-1", tmp_path / "c" / "t-1")
    site.start()
    assert (site.told("t"), site.held("t")) == ("abc", "abc")
    (stray,) = [each.name for each in (tmp_path / "c").iterdir() if each.name.startswith("t-1")]
    assert stray.endswith("-stray")


# ---- DescribeLogDirs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
def test_directories_are_described(site: Site, version: int) -> None:
    site.create("empty", 1)
    site.fill("t")
    whole = site.describe(version=version)
    size = {name: each for part in whole.values() for name, each in part.items()}  # type: ignore[union-attr]
    assert list(whole) == ["a", "b", "c"]
    assert sorted(size) == ["empty-0", "t-0", "t-1", "t-2"]
    assert size["empty-0"] == 0
    assert 60 < size["t-0"] == size["t-1"] == size["t-2"]
    only = site.describe(
        DescribableLogDirTopic(topic="t", partitions=[1, 9]),
        DescribableLogDirTopic(topic="nope", partitions=[0]),
        version=version,
    )
    assert sorted(name for part in only.values() for name in part) == ["t-1"]


def test_a_directory_tells_its_size_and_full_name(site: Site, tmp_path: Path) -> None:
    with RawClient(site.broker.port) as client:
        answer = client.ask(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse)
    assert answer.error_code == 0
    usage = shutil.disk_usage(tmp_path)
    for each, name in zip(answer.results, "abc", strict=True):
        assert each.log_dir == str(tmp_path / name)
        assert each.total_bytes == usage.total
        assert 0 < each.usable_bytes <= usage.total
        assert not each.is_cordoned


def test_one_directory_is_described_too(make_broker: Callable[..., Broker]) -> None:
    site = Site(None, "a")
    site.broker = make_broker()
    site.fill("t", 2)
    ((name, found),) = site.describe().items()
    assert name == "memory:"
    assert sorted(found) == ["t-0", "t-1"]
