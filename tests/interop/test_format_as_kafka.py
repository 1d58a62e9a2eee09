"""`barnabas format` beside Apache Kafka's storage tool: the same files for every node, the same refusals."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from barnabas.cli.main import main
from barnabas.log.checkpoints import uuid_from_text, uuid_to_text
from barnabas.records.batch import BatchHeader
from tests.broker.test_formatting import without_times
from tests.support.apache_kafka import KafkaFailed, tool

pytestmark = pytest.mark.java

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
VOTERS = "3@c3:9:07R5amHmR32VDA6jHkGbTA,1@c1:9:JEXY6aqzQY-32P5TStzaFg,2@127.0.0.1:9:MvDxzVmcRsaTz33bUuRU6A"
# what Kafka finalises by itself, and Barnabas only where it is asked for
CARRIED = {"group.version", "share.version", "streams.version"}
BOTH = {"process.roles": "broker,controller", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}
CONTROLLER = {"process.roles": "controller", "listeners": "CONTROLLER://h:9093"}
BROKER = {"process.roles": "broker", "listeners": "PLAINTEXT://:9092"}
DYNAMIC = {"controller.quorum.bootstrap.servers": "c1:9093"}
STATIC = {"controller.quorum.voters": "2@c2:9093,3@c3:9093"}


class Case(NamedTuple):
    """A node, and what it is formatted with; `log_dirs` below a folder of each tool's own."""

    settings: dict[str, str]
    arguments: tuple[str, ...] = ()
    node_id: int = 2
    log_dirs: tuple[str, ...] = ("a",)
    metadata_dir: str | None = None


CASES = {
    "standalone": Case(BOTH | DYNAMIC, ("--standalone",)),
    "advertised": Case(
        BOTH | DYNAMIC | {"advertised.listeners": "PLAINTEXT://h:9092,CONTROLLER://proxy:7"},
        ("--standalone",),
    ),
    "voter": Case(BOTH | DYNAMIC, ("--initial-controllers", VOTERS), log_dirs=("a", "b"), metadata_dir="m"),
    "controller": Case(CONTROLLER | DYNAMIC, ("--initial-controllers", VOTERS), log_dirs=("a", "b")),
    "broker": Case(BROKER | DYNAMIC, ("--initial-controllers", VOTERS), node_id=4),
    "broker-without": Case(BROKER | DYNAMIC, node_id=4, log_dirs=("b", "a")),
    "broker-static": Case(BROKER | STATIC, ("--release-version", "4.0"), node_id=4),
    "static": Case(CONTROLLER | STATIC, ("--feature", "transaction.version=1")),
    "joins": Case(CONTROLLER | DYNAMIC, ("--no-initial-controllers", "--release-version", "3.9-IV0")),
}
REFUSED = {
    "no-voters": Case(BOTH | DYNAMIC),
    "static-standalone": Case(BOTH | STATIC, ("--standalone",)),
    "static-initial": Case(BOTH | STATIC, ("--initial-controllers", VOTERS)),
    "broker-standalone": Case(BROKER | DYNAMIC, ("--standalone",), node_id=4),
    "same-voter": Case(BOTH | DYNAMIC, ("--initial-controllers", f"{VOTERS},{VOTERS}")),
    "elr": Case(
        BOTH | DYNAMIC,
        ("--standalone", "--feature", "eligible.leader.replicas.version=1", "--release-version", "3.9"),
    ),
    "two-releases": Case(
        BOTH | DYNAMIC, ("--standalone", "--release-version=4.0", "--feature", "metadata.version=25")
    ),
    "kraft": Case(BOTH | STATIC, ("--feature", "kraft.version=1")),
}


def settings_file(folder: Path, case: Case) -> Path:
    places = {"log.dirs": ",".join(str(folder / name) for name in case.log_dirs)}
    if case.metadata_dir is not None:
        places["metadata.log.dir"] = str(folder / case.metadata_dir)
    given = {
        "node.id": str(case.node_id),
        "controller.listener.names": "CONTROLLER",
        **case.settings,
        **places,
    }
    folder.mkdir()
    file = folder / "node.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in given.items()))
    return file


def format_with_kafka(folder: Path, case: Case) -> None:
    file = str(settings_file(folder, case))
    tool("kafka.tools.StorageTool", "format", f"--cluster-id={CLUSTER_ID}", "-c", file, *case.arguments)


def format_with_barnabas(folder: Path, case: Case, *more: str) -> int:
    file = str(settings_file(folder, case))
    return main(["format", f"--cluster-id={CLUSTER_ID}", "--config", file, *case.arguments, *more])


def files(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in found.items()
        if not name.endswith((".lock", "node.properties"))
    }


@pytest.mark.parametrize("name", CASES)
def test_directories_hold_what_kafkas_tool_leaves(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    format_with_kafka(tmp_path / "kafka", case)
    theirs = files(tmp_path / "kafka")
    carried = [each for each in CARRIED if any(each.encode() in data for data in theirs.values())]
    more = [word for each in carried for word in ("--feature", f"{each}=1")]
    assert format_with_barnabas(tmp_path / "barnabas", case, *more) == 0
    ours = files(tmp_path / "barnabas")
    assert ours.keys() == theirs.keys()
    for path, data in theirs.items():
        if path.endswith("meta.properties"):
            assert owner(ours[path], case, path) == owner(data, case, path)
        else:
            assert told(ours[path]) == told(data)


def owner(data: bytes, case: Case, path: str) -> dict[str, str]:
    """What is in `meta.properties`, without a directory id that is random."""
    lines = (line for line in data.decode().splitlines() if not line.startswith("#"))
    found = dict(line.split("=", 1) for line in lines)
    is_voters = path.startswith(f"{case.metadata_dir or case.log_dirs[0]}/") and case.node_id < 4
    if not (is_voters and "--initial-controllers" in case.arguments):
        assert uuid_from_text(found.pop("directory.id"))
    return found


def told(data: bytes) -> list[tuple[BatchHeader, list[object]]]:
    """What a checkpoint says, without times, and without directory ids that are random."""
    found = []
    for header, values in without_times(data):
        messages = [value[1] if header.is_control else value for value in values]  # type: ignore[index]
        for message in messages:
            for voter in getattr(message, "voters", ()):
                if uuid_to_text(UUID(bytes=bytes(voter.voter_directory_id))) not in VOTERS:
                    voter.voter_directory_id = bytes(16)
        found.append((header, messages))
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_kafkas(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = REFUSED[name]
    with pytest.raises(KafkaFailed):
        format_with_kafka(tmp_path / "kafka", case)
    assert files(tmp_path / "kafka") == {}
    assert format_with_barnabas(tmp_path / "barnabas", case) == 1
    assert "barnabas format: " in capsys.readouterr().err
    assert files(tmp_path / "barnabas") == {}
