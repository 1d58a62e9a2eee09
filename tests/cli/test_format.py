"""`barnabas format`: ids, voters and features of a node of several, and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.storage.formatting import METADATA_DIRECTORY
from barnabas.cli.main import main
from barnabas.core.clock import SystemClock
from barnabas.core.os_disk import OsDisk
from barnabas.core.settings.properties import parse_properties
from barnabas.core.workers import InlineWorkers
from barnabas.log.checkpoints import MetaProperties, read_meta_properties, uuid_from_text
from barnabas.metadata.records import FeatureLevelRecord, decode_record
from barnabas.raft.control_records import KRaftVersionRecord, VotersRecord
from barnabas.raft.snapshot import Snapshot, read_snapshot

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
ID_1, ID_2, ID_3 = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A", "07R5amHmR32VDA6jHkGbTA"
VOTERS = f"1@c1:9093:{ID_1},2@[::1]:9094:{ID_2},3@c3:9095:{ID_3}"
VOTERS_FILE = f"{METADATA_DIRECTORY}/{'0' * 20}-{'0' * 10}.checkpoint"


class Console:
    """Runs `barnabas format` for one cluster."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def __call__(self, *arguments: object, cluster_id: str = CLUSTER_ID) -> str:
        status = main(["format", "--cluster-id", cluster_id, *map(str, arguments)])
        printed = self._captured.readouterr()
        assert status == 0, printed.err
        return printed.out

    def refused(self, *arguments: object, cluster_id: str = CLUSTER_ID) -> str:
        assert main(["format", "--cluster-id", cluster_id, *map(str, arguments)]) == 1
        printed = self._captured.readouterr()
        assert printed.out == ""
        return printed.err


@pytest.fixture
def format_node(capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(capsys)


def meta_of(directory: Path) -> MetaProperties | None:
    disk = OsDisk(directory, InlineWorkers(), SystemClock())
    try:
        return asyncio.run(read_meta_properties(disk))
    finally:
        disk.close()


def snapshot(path: Path) -> Snapshot:
    return read_snapshot(path.read_bytes(), str(path))


def levels(directory: Path) -> dict[str, int]:
    records = [decode_record(value) for value in snapshot(directory / "bootstrap.checkpoint").values]
    assert all(isinstance(record, FeatureLevelRecord) for record in records)
    return {record.name: record.feature_level for record in records}  # type: ignore[attr-defined]


def voters(directory: Path) -> list[tuple[int, str, int, str]]:
    version, record = snapshot(directory / VOTERS_FILE).controls
    assert isinstance(version, KRaftVersionRecord)
    assert version.k_raft_version == 1
    assert isinstance(record, VotersRecord)
    return [(each.voter_id, at.host, at.port, at.name) for each in record.voters for at in each.endpoints]


def files(directory: Path) -> set[str]:
    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    return found - {".lock"}


def settings_of(folder: Path, **given: str) -> Path:
    lines = {
        "log.dirs": str(folder / "data"),
        **{name.replace("_", "."): each for name, each in given.items()},
    }
    file = folder / "node.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
    return file


def test_standalone_controller_is_the_only_voter(tmp_path: Path, format_node: Console) -> None:
    data = tmp_path / "data"
    said = format_node("--dir", data, "--listen", "127.0.0.1:19092", "--standalone")
    assert said == f"{data} formatted: metadata and data of node 1, cluster {CLUSTER_ID}\n"
    assert files(data) == {"meta.properties", "bootstrap.checkpoint", "server.properties", VOTERS_FILE}
    assert voters(data) == [(1, "127.0.0.1", 20092, "CONTROLLER")]
    meta = meta_of(data)
    assert meta is not None
    assert (meta.cluster_id, meta.node_id) == (CLUSTER_ID, 1)
    record = snapshot(data / VOTERS_FILE).controls[1]
    assert isinstance(record, VotersRecord)
    assert meta.directory_id is not None
    assert record.voters[0].voter_directory_id == meta.directory_id.bytes


def test_voter_has_the_directory_id_by_which_others_know_it(tmp_path: Path, format_node: Console) -> None:
    listeners = "PLAINTEXT://:9092,CONTROLLER://:9094"
    file = settings_of(tmp_path, node_id="2", listeners=listeners, metadata_log_dir=str(tmp_path / "meta"))
    format_node("--config", file, "--initial-controllers", VOTERS)
    expected = [(1, "c1", 9093, "CONTROLLER"), (2, "::1", 9094, "CONTROLLER"), (3, "c3", 9095, "CONTROLLER")]
    assert voters(tmp_path / "meta") == expected
    meta, data = meta_of(tmp_path / "meta"), meta_of(tmp_path / "data")
    assert meta == MetaProperties(CLUSTER_ID, 2, uuid_from_text(ID_2))
    assert data is not None
    assert data._replace(directory_id=None) == MetaProperties(CLUSTER_ID, 2, None)
    assert data.directory_id not in (None, meta.directory_id)
    assert files(tmp_path / "meta") == {"meta.properties", "bootstrap.checkpoint", VOTERS_FILE}
    assert files(tmp_path / "data") == {"meta.properties", "bootstrap.checkpoint"}


def test_broker_alone_follows_the_voters(tmp_path: Path, format_node: Console) -> None:
    roles = {"process_roles": "broker", "controller_quorum_bootstrap_servers": "c1:9093"}
    file = settings_of(tmp_path, node_id="4", **roles)
    format_node("--config", file, "--initial-controllers", VOTERS)
    assert [each[0] for each in voters(tmp_path / "data")] == [1, 2, 3]
    meta = meta_of(tmp_path / "data")
    assert meta is not None
    assert meta.directory_id not in {uuid_from_text(each) for each in (ID_1, ID_2, ID_3)}


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({"process_roles": "broker", "controller_quorum_bootstrap_servers": "c1:9093"}, ()),
        ({"controller_quorum_voters": "1@c1:9093,2@c2:9093"}, ()),
        ({"controller_quorum_bootstrap_servers": "c1:9093"}, ("--no-initial-controllers",)),
    ],
)
def test_log_without_voters(
    tmp_path: Path, format_node: Console, settings: dict[str, str], arguments: tuple[str, ...]
) -> None:
    format_node("--config", settings_of(tmp_path, **settings), *arguments)
    assert files(tmp_path / "data") == {"meta.properties", "bootstrap.checkpoint"}


def test_features_are_those_of_the_release_and_those_asked_for(tmp_path: Path, format_node: Console) -> None:
    def formatted(name: str, *arguments: str) -> dict[str, int]:
        format_node("--dir", tmp_path / name, "--standalone", *arguments)
        return levels(tmp_path / name)

    elr, transactions = "eligible.leader.replicas.version", "transaction.version"
    assert formatted("a") == {"metadata.version": 30, elr: 1, transactions: 2}
    assert formatted("b", "--release-version", "4.0") == {"metadata.version": 25, transactions: 2}
    assert formatted("c", "--release-version=3.9.1") == {"metadata.version": 21}
    given = ("--feature", "metadata.version=23", "--feature", f"{elr}=1", "--feature", "group.version=1")
    assert formatted("d", *given) == {"metadata.version": 23, elr: 1, "group.version": 1}
    assert formatted("e", "--feature", f"{elr}=0", "--feature", "kraft.version=1") == {
        "metadata.version": 30,
        transactions: 2,
    }


@pytest.mark.parametrize(
    ("settings", "arguments", "words"),
    [
        ({}, (), "--standalone"),
        ({"controller_quorum_voters": "1@c1:9093"}, ("--standalone",), "controller.quorum.voters names"),
        (
            {"controller_quorum_voters": "1@c1:9093"},
            ("--initial-controllers", VOTERS),
            "controller.quorum.voters names",
        ),
        (
            {"process_roles": "broker", "controller_quorum_bootstrap_servers": "c1:9093"},
            ("--standalone",),
            "--standalone is for a controller",
        ),
        (
            {"process_roles": "broker", "controller_quorum_bootstrap_servers": "c1:9093"},
            ("--initial-controllers", VOTERS),
            "names node 1, which is no controller",
        ),
        ({}, ("--initial-controllers", f"1@c1:9093:{ID_1},1@c2:9093:{ID_2}"), "one twice"),
        ({}, ("--initial-controllers", ","), "names no voter"),
        ({}, ("--initial-controllers", f"1@c1:9093:{ID_1},2@c2:9093"), "'2@c2:9093' is no voter"),
        ({}, ("--initial-controllers", f"1@c1:99999:{ID_1}"), "is no voter"),
        ({}, ("--initial-controllers", f"x@c1:9093:{ID_1}"), "is no voter"),
        ({}, ("--initial-controllers", f"1@::1:9093:{ID_1}"), "is no voter"),
        ({}, ("--initial-controllers", "1@c1:9093:short"), "is no voter"),
        ({}, ("--standalone", "--release-version", "9.9"), "no release from 3.3-IV3 to 4.3-IV0"),
        ({}, ("--standalone", "--feature", "metadata.version=31"), "metadata.version=31"),
        ({}, ("--standalone", "--feature", "metadata.version=30", "--release-version=4.3"), "give one"),
        ({}, ("--standalone", "--feature", "transaction.version=3"), "are 0 to 2"),
        ({}, ("--standalone", "--feature", "share.groups=1"), "there is no feature share.groups"),
        ({}, ("--standalone", "--feature", "kraft.version=0"), "the voters stand in the metadata log"),
        (
            {"controller_quorum_voters": "1@c1:9093"},
            ("--feature", "kraft.version=1"),
            "the voters stand in controller.quorum.voters",
        ),
        (
            {},
            ("--standalone", "--release-version=3.9", "--feature", "eligible.leader.replicas.version=1"),
            "needs metadata.version 23",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_written(
    tmp_path: Path, format_node: Console, settings: dict[str, str], arguments: tuple[str, ...], words: str
) -> None:
    assert words in format_node.refused("--config", settings_of(tmp_path, **settings), *arguments)
    assert not (tmp_path / "data").exists()


def test_formatted_directories_are_left_alone_where_that_is_wanted(
    tmp_path: Path, format_node: Console
) -> None:
    file = settings_of(tmp_path, listeners="PLAINTEXT://:9092,CONTROLLER://:9093")
    format_node("--config", file, "--initial-controllers", VOTERS)
    before = {name: (tmp_path / "data" / name).read_bytes() for name in files(tmp_path / "data")}
    with_another = ("--config", file, "--set", f"log.dirs={tmp_path / 'data'},{tmp_path / 'more'}")
    again = (*with_another, "--initial-controllers", VOTERS)
    assert "is formatted already, for node 1" in format_node.refused(*again)
    assert not (tmp_path / "more").exists()
    told: dict[str, Any] = json.loads(format_node(*again, "--ignore-formatted", "--json"))
    assert [(each["metadata"], each["formatted"]) for each in told["directories"]] == [
        (True, False),
        (False, True),
    ]
    assert {name: (tmp_path / "data" / name).read_bytes() for name in files(tmp_path / "data")} == before
    assert files(tmp_path / "more") == {"meta.properties", "bootstrap.checkpoint"}


def test_directory_of_another_node_or_cluster_is_refused(tmp_path: Path, format_node: Console) -> None:
    file = settings_of(tmp_path)
    format_node("--config", file, "--standalone")
    ignoring = ("--config", file, "--standalone", "--ignore-formatted")
    assert "belongs to node.id 1, this is node.id 2" in format_node.refused(*ignoring, "--set", "node.id=2")
    refusal = format_node.refused(*ignoring, cluster_id=ID_3)
    assert f"belongs to cluster {CLUSTER_ID}, this is cluster {ID_3}" in refusal
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "notes.txt").touch()
    assert "holds notes.txt" in format_node.refused("--dir", tmp_path / "else", "--standalone")


def test_settings_are_written_beside_where_there_is_no_file_of_them(
    tmp_path: Path, format_node: Console
) -> None:
    servers = "127.0.0.1:20092,127.0.0.1:20093"
    format_node(
        *("--dir", tmp_path / "data", "--listen", "127.0.0.1:19092", "--initial-controllers", VOTERS),
        *("--set", f"controller.quorum.bootstrap.servers={servers}"),
    )
    written = parse_properties((tmp_path / "data" / "server.properties").read_text())
    assert written["controller.quorum.bootstrap.servers"] == servers
    assert written["log.dirs"] == str(tmp_path / "data")
    assert written["listeners"] == "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:20092"


@pytest.mark.parametrize("flag", ["--random-cluster-id", "--random-uuid"])
def test_new_ids(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = set()
    for _ in range(3):
        assert main(["format", flag]) == 0
        printed.add(capsys.readouterr().out.strip())
    assert len(printed) == 3
    assert all(uuid_from_text(text) and not text.startswith("-") for text in printed)
