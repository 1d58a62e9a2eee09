"""`barnabas doctor`: what it finds in directories, settings and clusters that are not in order."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas.cli.checks import cluster, cluster_state, directory, machine
from barnabas.cli.checks.findings import Finding, Level
from barnabas.cli.clusters.health import Health
from barnabas.cli.clusters.lag import ReplicaLag
from barnabas.cli.main import main
from barnabas.client.admin import Broker as BrokerDescription
from barnabas.client.admin import (
    LogDirDescription,
    NewTopic,
    PartitionDescription,
    QuorumDescription,
    QuorumReplica,
    TopicDescription,
)
from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import wire_error
from barnabas.core.network import Address
from barnabas.core.settings.properties import format_properties
from barnabas.metadata.records import AccessControlEntryRecord, EndTransactionRecord, encode_record
from barnabas.raft.batches import data_batches
from barnabas.testing import Broker, Cluster
from tests.cli.records import make_topic, write
from tests.cli.running import until
from tests.client.real import Clients
from tests.interop.make_fixture import unpack

Examine = Callable[..., dict[str, list[str]]]


@pytest.fixture
def examine(capsys: pytest.CaptureFixture[str]) -> Examine:
    """Run it; what it found, by level, each with the next step behind it."""

    def run(*arguments: object) -> dict[str, list[str]]:
        status = main(["doctor", "--json", *map(str, arguments)])
        document = json.loads(capsys.readouterr().out)
        found: dict[str, list[str]] = {level.value: [] for level in Level}
        for finding in document["findings"]:
            found[finding["level"]].append(f"{finding['what']} -> {finding['next']}")
        assert (document["problems"], document["warnings"]) == (len(found["problem"]), len(found["warning"]))
        assert status == (1 if found["problem"] else 0)
        return found

    return run


def has(found: list[str], *parts: str) -> bool:
    return any(all(part in each for part in parts) for each in found)


# ---- directories -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kafka_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that Apache Kafka left after a clean stop; not to be written to."""
    return unpack(tmp_path_factory.mktemp("kafka")).clean.data


@pytest.fixture
def data(kafka_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kafka_data, tmp_path / "data"))


def test_a_directory_in_order(kafka_data: Path, examine: Examine) -> None:
    found = examine("--dir", kafka_data, "--verify")
    assert found["problem"] == []
    assert has(found["ok"], "of node 1 in cluster ")
    assert has(found["ok"], "the last stop was clean")
    assert has(found["ok"], "metadata: ", "12 topics")
    assert has(found["ok"], "13 partitions", "every byte read")


def _unclean(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()


def _no_owner(data: Path) -> None:
    (data / "meta.properties").unlink()


def _zookeeper(data: Path) -> None:
    (data / "meta.properties").write_text("version=0\nbroker.id=1\n")


def _no_directory_id(data: Path) -> None:
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")


def _torn_owner(data: Path) -> None:
    (data / "meta.properties").write_bytes(b"version=1\ncluster.id=\\u12")


def _bad_checkpoint(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\nmany\n")


def _torn(data: Path) -> None:
    log = sorted((data / "codecs-0").glob("*.log"))[-1]
    log.write_bytes(log.read_bytes()[:-3])


def _torn_in_a_crash(data: Path) -> None:
    _unclean(data)
    log = sorted((data / "transactions-0").glob("*.log"))[-1]
    with log.open("ab") as file:
        file.write(b"half a batch")


def _lost_tail(data: Path) -> None:
    for log in sorted((data / "codecs-0").glob("*.log"))[-1:]:
        log.write_bytes(b"")


def _flipped(data: Path) -> None:
    log = sorted((data / "codecs-0").glob("*.log"))[0]
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(content)


def _bad_epochs(data: Path) -> None:
    (data / "codecs-0" / "leader-epoch-checkpoint").write_text("nonsense\n")


def _strangers(data: Path) -> None:
    (data / "notes.txt").write_text("x")
    (data / "codecs-0" / "backup.tar").write_text("x")


def _stray(data: Path) -> None:
    (data / "codecs-0").rename(data / "codecs-7")


def _set_aside(data: Path) -> None:
    (data / "codecs-0").rename(data / f"codecs-0.{UUID(int=5).hex}-stray")
    (data / "aged-0").rename(data / f"aged-0.{UUID(int=6).hex}-delete")
    (data / "epochs-0").rename(data / f"epochs-0.{UUID(int=7).hex}-future")


def _acl(data: Path) -> None:
    rule = AccessControlEntryRecord(
        id=bytes(16),
        resource_type=2,
        resource_name="letters",
        pattern_type=3,
        principal="User:K",
        host="*",
        operation=3,
        permission_type=2,
    )
    _append_metadata(data, encode_record(rule))


def _newer(data: Path) -> None:
    _append_metadata(data, b"\x01\x63\x00")


def _contradictory(data: Path) -> None:
    _append_metadata(data, encode_record(EndTransactionRecord()))


def _append_metadata(data: Path, value: bytes) -> None:
    log = data / "__cluster_metadata-0" / "00000000000000000000.log"
    with log.open("ab") as file:
        for batch in data_batches([value], 0, base_offset=100_000, leader_epoch=1):
            file.write(batch)


@pytest.mark.parametrize(
    ("harm", "level", "parts"),
    [
        (_unclean, "warning", ["not clean", "the next start"]),
        (_no_owner, "problem", ["no meta.properties but is not empty", "refuses it"]),
        (_zookeeper, "problem", ["ZooKeeper", "migrate"]),
        (_no_directory_id, "problem", ["directory.id missing", "restore"]),
        (_torn_owner, "problem", ["meta.properties cannot be read: line 2", "restore"]),
        (_bad_checkpoint, "warning", ["recovery-point-offset-checkpoint", "made anew"]),
        (_torn, "problem", ["codecs-0/", "are no batch", "the stop was clean"]),
        (_torn_in_a_crash, "warning", ["transactions-0/", "12 bytes", "cuts it off"]),
        (_lost_tail, "problem", ["codecs-0 ends at", "was synced up to"]),
        (_flipped, "problem", ["codecs-0/", "the batch at byte 0", "restore"]),
        (_bad_epochs, "warning", ["leader-epoch-checkpoint", "makes it anew"]),
        (_strangers, "warning", ["codecs-0/backup.tar, notes.txt", "leaves them alone"]),
        (_stray, "warning", ["1 partition of no topic", "codecs-7", "-stray"]),
        (_set_aside, "warning", ["1 partition set aside as stray", "once you are sure"]),
        (_set_aside, "warning", ["1 partition on the way here", "-future"]),
        (_set_aside, "ok", ["1 deleted partition", "at the next start"]),
        (_acl, "problem", ["1 access rules (ACLs)", "barnabas.allow.unenforced.security=true"]),
        (_newer, "problem", ["the metadata cannot be read", "newer Kafka"]),
        (_contradictory, "problem", ["the metadata cannot be read", "ends that never began"]),
    ],
    ids=lambda each: each.__name__.strip("_") if callable(each) else None,
)
def test_what_is_wrong_with_a_directory(
    data: Path, examine: Examine, harm: Callable[[Path], None], level: str, parts: list[str]
) -> None:
    assert not has(examine("--dir", data, "--verify")[level], *parts)
    harm(data)
    assert has(examine("--dir", data, "--verify")[level], *parts)


def test_a_directory_that_may_not_be_looked_at(
    data: Path, tmp_path: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def refuse(path: Path, **how: bool) -> os.stat_result:
        if path.is_relative_to(data):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **how)

    settings = tmp_path / "server.properties"
    settings.write_text(f"process.roles=broker,controller\nnode.id=1\nlog.dirs={data}\n")
    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(Path, "exists", lambda path: bool(path.stat()))  # as it was before Python 3.12
    said = f"{data} cannot be read: Permission denied -> look as the user that runs the node"
    assert said in examine("--dir", data)["problem"]
    assert said in examine("--config", settings)["problem"]


def test_an_index_is_held_against_its_segment(data: Path, examine: Examine) -> None:
    index = data / "deleted-0" / "00000000000000000000.index"
    content = bytearray(index.read_bytes())
    content[7] += 1
    index.write_bytes(content)
    assert not has(examine("--dir", data)["warning"], "deleted-0")
    assert has(examine("--dir", data, "--verify")["warning"], "deleted-0/", "where no batch begins", "anew")


def test_new_and_missing_directories(tmp_path: Path, examine: Examine) -> None:
    assert has(examine("--dir", tmp_path)["ok"], "is empty: the first start formats it")
    assert has(examine("--dir", tmp_path / "nothing")["problem"], "is not there")
    (tmp_path / "letters-0").mkdir()
    assert has(examine("--dir", tmp_path / "letters-0")["problem"], "a partition's directory", "lies in")
    (tmp_path / "file").write_text("x")
    assert has(examine("--dir", tmp_path / "file")["problem"], "is no directory")


def test_a_directory_in_use(tmp_path: Path, examine: Examine) -> None:
    data = tmp_path / "data"
    with Broker(data) as broker:
        write(broker.bootstrap, "letters", [b"dear sir"])
        found = examine("--dir", data)
        assert has(found["ok"], f"a node is running on it (process {os.getpid()})")
        assert found["problem"] == []
        assert not has(found["warning"], "not clean")
        assert has(found["ok"], "settings") or has(found["ok"], "all known")
    assert has(examine("--dir", data)["ok"], "the last stop was clean")
    with Broker(data) as broker:  # nothing was in its way, before or after
        write(broker.bootstrap, "letters", [b"yours"])


def test_a_file_that_vanishes_while_it_looks(
    kafka_data: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = directory.look_at_partitions, []

    def vanishing(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) < 3:
            raise FileNotFoundError(2, "No such file or directory", "00000000000000000000.log.deleted")
        return real(*arguments, **options)

    monkeypatch.setattr(directory, "look_at_partitions", vanishing)
    found = examine("--dir", kafka_data)
    assert (found["problem"], len(calls)) == ([], 3)
    assert sum("13 partitions" in each for each in found["ok"]) == 1


def test_little_room(kafka_data: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage(kafka_data))
    for total, free, level in ((1 << 42, 150, "ok"), (1 << 40, 50, "warning"), (1 << 40, 10, "problem")):
        monkeypatch.setattr(directory.shutil, "disk_usage", lambda _, t=total, f=free: usage(t, 0, f << 30))
        assert has(examine("--dir", kafka_data)[level], f"{free}.0 GiB of ")


# ---- settings --------------------------------------------------------------------------------------------


def settings_file(tmp_path: Path, **settings: str) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(format_properties({name.replace("_", "."): text for name, text in settings.items()}))
    return file


@pytest.mark.parametrize(
    ("settings", "level", "parts"),
    [
        ({"log_retention_hours": "24"}, "ok", ["1 setting, all known"]),
        ({"log_segment_bytes": "abc"}, "problem", ["log.segment.bytes", "does not start"]),
        ({"log_retentoin_hours": "1"}, "warning", ["did you mean log.retention.hours?"]),
        ({"zookeeper_connect": "x"}, "warning", ["no ZooKeeper in Kafka 4"]),
        ({"num_network_threads": "8"}, "warning", ["without effect", "num.network.threads"]),
        ({"authorizer_class_name": "x.Y"}, "problem", ["refused", "no access is checked yet", "remove it"]),
        (
            {"listeners": "SSL://:9092,CONTROLLER://:9093"},
            "problem",
            ["listener SSL", "neither TLS nor SASL"],
        ),
        ({"listeners": "nonsense"}, "problem", ["nonsense"]),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "warning", ["beyond this machine"]),
        (
            {"advertised_listeners": "PLAINTEXT://no.such.host.invalid:9092"},
            "warning",
            ["no.such.host.invalid", "cannot be resolved"],
        ),
    ],
)
def test_settings(
    tmp_path: Path, examine: Examine, settings: dict[str, str], level: str, parts: list[str]
) -> None:
    assert has(examine("--config", settings_file(tmp_path, **settings))[level], *parts)


def test_all_wrong_values_are_told_at_once(tmp_path: Path, examine: Examine) -> None:
    file = settings_file(tmp_path, log_segment_bytes="x", num_partitions="0", log_retentoin_ms="1")
    found = examine("--config", file)
    assert len(found["problem"]) == 2
    assert has(found["warning"], "log.retentoin.ms")


def test_the_directories_of_the_settings_are_looked_at(data: Path, tmp_path: Path, examine: Examine) -> None:
    found = examine("--config", settings_file(tmp_path, log_dirs=str(data), node_id="2"))
    assert has(found["problem"], "the settings are those of node 2", "node.id=1")
    assert has(examine("--config", tmp_path / "none")["problem"], "cannot be read")


# ---- clusters --------------------------------------------------------------------------------------------


def test_a_cluster_in_order(broker: Broker, examine: Examine) -> None:
    make_topic(broker.bootstrap, "letters", 3)
    found = examine("--bootstrap", broker.bootstrap)
    assert found["problem"] == []
    assert has(found["ok"], f"broker 1 at {broker.bootstrap} answers in ")
    assert has(found["ok"], "the controller and this machine agree on the time")
    assert has(found["ok"], "1 topic, 3 partitions")
    assert has(found["ok"], "nothing was written")
    found = examine("--bootstrap", broker.bootstrap, "--write")
    assert has(found["ok"], "a record was written to the broker in ")
    assert has(examine("--bootstrap", broker.bootstrap)["ok"], "1 topic, 3 partitions")  # none is left


def test_nobody_answers(examine: Examine) -> None:
    assert has(examine("--bootstrap", "127.0.0.1:1")["problem"], "no Kafka answers at 127.0.0.1:1", "serve")


def test_an_advertised_address_astray(make_broker: Callable[..., Broker], examine: Examine) -> None:
    broker = make_broker(settings={"advertised.listeners": "PLAINTEXT://127.0.0.1:1"})
    found = examine("--bootstrap", broker.bootstrap, "--timeout", 1)
    assert has(found["problem"], "broker 1 is advertised at 127.0.0.1:1", "advertised.listeners")


def findings(
    partitions: list[PartitionDescription], *, internal: bool = False, lag: int = 0, brokers: int = 2
) -> Iterator[Finding]:
    topic = TopicDescription("letters", bytes(16), internal, partitions)
    every = [Health(TopicPartition("letters", each.partition), each, 2) for each in partitions]
    lags = {TopicPartition("letters", 0): [ReplicaLag(2, lag, 12.0)]}
    return cluster_state.partition_findings({"letters": topic}, every, lags, brokers_of(brokers))


def brokers_of(count: int) -> list[BrokerDescription]:
    return [BrokerDescription(number, Address("h", 9092), None) for number in range(1, count + 1)]


def partition(leader: int, replicas: list[int], in_sync: list[int]) -> PartitionDescription:
    return PartitionDescription(0, leader, 0, replicas, in_sync)


@pytest.mark.parametrize(
    ("told", "level", "said", "advice"),
    [
        (partition(-1, [1, 2], [1]), Level.PROBLEM, "no leader of 1 partition: letters-0", "start broker 1:"),
        (partition(1, [1, 2], [1]), Level.PROBLEM, "1 partition under min.insync.replicas", "broker 2"),
        (partition(1, [1, 2, 3], [1, 3]), Level.WARNING, "1 partition under-replicated", "broker 2 runs"),
        (partition(2, [1, 2], [1, 2]), Level.WARNING, "1 partition not led by the preferred", "go back"),
        (partition(1, [1, 2], [1, 2]), Level.OK, "every partition has a leader", ""),
    ],
)
def test_partitions_in_trouble(told: PartitionDescription, level: Level, said: str, advice: str) -> None:
    found = [each for each in findings([told]) if said in each.what]
    assert [each.level for each in found] == [level]
    assert advice in (found[0].next_step or "")


def test_followers_that_lag_are_named() -> None:
    found = list(findings([partition(1, [1, 2], [1])], lag=1204))
    assert any("follower 2 of letters-0 lacks 1,204 records" in each.what for each in found)
    assert any("is 12 s old" in each.what for each in found)


def test_internal_topics_with_too_few_replicas() -> None:
    (found,) = [each for each in findings([partition(1, [1], [1])], internal=True) if each.next_step]
    assert found.level is Level.WARNING
    assert "letters has partitions with 1 replica" in found.what
    assert "grow-internal" in (found.next_step or "")
    assert not any(each.next_step for each in findings([partition(1, [1], [1])], internal=True, brokers=1))


def test_fenced_brokers() -> None:
    one, two = brokers_of(2)
    (found,) = cluster_state.fenced_brokers([one, two._replace(is_fenced=True)])
    assert found.level is Level.PROBLEM
    assert "broker 2 at h:9092 is fenced" in found.what


def quorum(*fetched_ms: int | None, ends: tuple[int, ...] = (9, 9, 9), leader: int = 1) -> QuorumDescription:
    voters = [
        QuorumReplica(number, None, end, at, None)
        for number, (at, end) in enumerate(zip(fetched_ms, ends, strict=False), 1)
    ]
    return QuorumDescription(leader, 3, 9, voters, [], {})


@pytest.mark.parametrize(
    ("told", "level", "said"),
    [
        (quorum(50_000, 49_900, 49_800), Level.OK, "leads a quorum of 3, of which 2 are needed"),
        (quorum(50_000, 49_900, 15_000), Level.PROBLEM, "controller 3 has not fetched for 35 s: 2 of 3"),
        (quorum(50_000, 49_900, None), Level.PROBLEM, "controller 3 has not fetched since the leader"),
        (quorum(50_000, 49_900, 49_800, ends=(9, 9, 4)), Level.WARNING, "controller 3 lacks 5 committed"),
        (quorum(50_000, 49_900), Level.WARNING, "two voters, and needs both"),
        (quorum(50_000, leader=-1), Level.PROBLEM, "no controller leads the quorum"),
        (None, Level.PROBLEM, "no controller answers: fewer than a majority"),
    ],
)
def test_controllers_in_trouble(told: QuorumDescription | None, level: Level, said: str) -> None:
    found = list(cluster_state.quorum_findings(told, is_answered=False))
    assert [each.level for each in found if said in each.what] == [level]


@pytest.mark.parametrize(
    ("told", "level", "said"),
    [
        (LogDirDescription(wire_error("KAFKA_STORAGE_ERROR"), {}, None, None), Level.PROBLEM, "cannot use"),
        (
            LogDirDescription(None, {}, 100 << 30, 2 << 30),
            Level.PROBLEM,
            "2.0 GiB of 100.0 GiB (2%) are free",
        ),
        (
            LogDirDescription(None, {}, 100 << 30, 8 << 30),
            Level.WARNING,
            "8.0 GiB of 100.0 GiB (8%) are free",
        ),
        (LogDirDescription(None, {}, 100 << 30, 20 << 30), None, ""),
        (LogDirDescription(None, {}, None, None), None, ""),
    ],
)
def test_log_directories_in_trouble(told: LogDirDescription, level: Level | None, said: str) -> None:
    found = list(cluster_state.log_dir_findings({2: {"/data": told}}))
    assert [each.level for each in found] == ([] if level is None else [level])
    assert all(said in each.what and "broker 2" in each.what for each in found)


async def replicated_topic(bootstrap: str, name: str, partitions: int) -> None:
    async with Clients(bootstrap).admin() as admin:
        await admin.create_topics([NewTopic(name, partitions)])


def test_a_cluster_that_has_lost_a_node_and_then_its_majority(examine: Examine) -> None:
    with Cluster() as running:
        asyncio.run(replicated_topic(running.bootstrap, "letters", 3))
        running.wait_until_in_sync("letters")
        found = examine("--bootstrap", running.bootstrap, "--write")
        assert found["problem"] == []
        assert has(found["ok"], "leads a quorum of 3")
        assert has(found["ok"], "written to each of 3 brokers")
        running.kill(3)
        running.wait_until_fenced(3)
        found = examine("--bootstrap", running.bootstrap)
        assert has(found["problem"], "broker 3 at", "is fenced", "start it")
        assert has(found["warning"], "3 partitions under-replicated", "broker 3 runs and keeps up")
        running.kill(2)

        def no_majority() -> bool:  # an active controller notices it after a while
            found = examine("--bootstrap", running.address_of(1), "--timeout", 5)
            assert has(found["problem"], "broker 2 ", "start it")
            return has(found["problem"], "no controller answers", "until a majority runs")

        until(no_majority)


@pytest.mark.parametrize(
    ("told_ms", "level", "said"),
    [
        (10_050, Level.OK, "agree on the time, to 100 ms"),
        (10_600, Level.OK, "agree on the time, to 500 ms"),
        (15_100, Level.WARNING, "5.0 s ahead of"),
        (5_000, Level.WARNING, "5.0 s behind"),
        (None, Level.OK, "does not tell its time"),
    ],
)
def test_clocks(told_ms: int | None, level: Level, said: str) -> None:
    finding = cluster._skew("the broker", told_ms, 10_000, 10_100)
    assert finding.level is level
    assert said in finding.what


# ---- this machine, and the output ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hard", "level"), [(100, Level.PROBLEM), (4096, Level.WARNING), (1 << 20, Level.OK)]
)
def test_open_files(monkeypatch: pytest.MonkeyPatch, hard: int, level: Level) -> None:
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (100, hard))
    assert machine._open_files().level is level


def test_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.kernel, "PURE_REASON", "no compiler")
    assert machine._kernel().level is Level.WARNING
    monkeypatch.setattr(machine.kernel, "PURE_REASON", None)
    assert machine._kernel().level is Level.OK


def test_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--dir", str(tmp_path / "nothing")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "this machine"
    at = lines.index(f"directory {tmp_path / 'nothing'}")
    assert lines[at + 1] == "  problem  is not there"
    assert lines[at + 2] == "           -> name a log directory: log.dirs in the settings"
    assert lines[-1].startswith("1 problem")
