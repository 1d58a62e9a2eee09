"""`barnabas log dump`: it tells what Kafka's own tool tells, finds what is broken, and changes nothing."""

from __future__ import annotations

import errno
import json
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.dump.segments import check_index, survey
from barnabas.cli.main import main
from barnabas.records.batch import HEADER_BYTES, BatchHeader
from barnabas.testing import Broker
from tests.cli.records import write
from tests.interop import dump as kafka_dump
from tests.interop.make_fixture import unpack

SEGMENT = "00000000000000000000.log"


@pytest.fixture(scope="module")
def kafka_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that Apache Kafka wrote; not to be written to."""
    return unpack(tmp_path_factory.mktemp("kafka")).clean.data


@pytest.fixture
def partition(kafka_data: Path, tmp_path: Path) -> Path:
    """A copy of one of its partitions, to break things in."""
    return Path(shutil.copytree(kafka_data / "transactions-0", tmp_path / "transactions-0"))


def dumped(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> list[dict[str, Any]]:
    """The objects that `log dump --json` prints."""
    assert main(["log", "dump", "--json", *map(str, arguments)]) == status
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def problems(items: list[dict[str, Any]]) -> list[str]:
    return [item["problem"] for item in items if item["kind"] == "problem"]


# ---- beside Kafka's own tool -----------------------------------------------------------------------------


@pytest.mark.java
def test_it_tells_what_kafkas_own_tool_tells(kafka_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = kafka_dump.files(kafka_data)
    theirs = kafka_dump.dump(kafka_data, files, "--print-data-log")
    ours = dumped(capsys, "--records", "--verify", *files)
    kinds = {"batch", "record", "entry"}
    by_file: dict[str, list[dict[str, Any]]] = {}
    for item in ours:
        file = by_file.setdefault(str(Path(item["file"]).relative_to(kafka_data)), [])
        if item["kind"] in kinds:
            file.append(item)
    assert sum(map(len, by_file.values())) > 1000
    for name, lines in theirs.items():
        is_metadata = name.startswith("__cluster_metadata")
        told = [fields for line in lines if (fields := _kafka_fields(line)) is not None]
        assert [_as_kafka(item, is_metadata=is_metadata) for item in by_file[name]] == told, name


@pytest.mark.java
@pytest.mark.parametrize(
    ("partition", "decoder"),
    [("__consumer_offsets-0", "--offsets-decoder"), ("__transaction_state-0", "--transaction-log-decoder")],
)
def test_it_decodes_what_kafkas_own_tool_decodes(
    kafka_data: Path, capsys: pytest.CaptureFixture[str], partition: str, decoder: str
) -> None:
    files = kafka_dump.files(kafka_data, [partition], [".log"])
    theirs = []
    for lines in kafka_dump.dump(kafka_data, files, decoder).values():
        for line in lines:
            found = re.fullmatch(r"\| .* key: (\{.*?\}) payload: (.*)", line)
            if found is not None:
                theirs.append((json.loads(found[1])["data"], _payload(found[2])))
    ours = [
        (_camel_all(item["key"]), item["data"] and (item["version"], _camel_all(item["data"])))
        for item in dumped(capsys, *files, "--records")
        if item["kind"] == "record" and "control_type" not in item
    ]
    assert len(ours) > 10
    assert ours == theirs


def _payload(text: str) -> tuple[int, Any] | None:
    if text == "<DELETE>":
        return None
    document = json.loads(text)
    assert document["data"].pop("classicMemberMetadata", None) is None  # the one thing that is left out
    _drop_opaque(document["data"])
    return int(document["version"]), document["data"]


def _drop_opaque(data: dict[str, Any]) -> dict[str, Any]:
    """What clients put in a member's record is bytes to us; Kafka's tool looks into it."""
    for member in data.get("members", []):
        del member["subscription"], member["assignment"]
    return data


def _camel_all(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"base64"}:
            return value["base64"]
        return _drop_opaque({_camel(name): _camel_all(each) for name, each in value.items()})
    return [_camel_all(each) for each in value] if isinstance(value, list) else value


_BATCH = re.compile(
    r"baseOffset: (\S+) lastOffset: (\S+) count: (\S+) baseSequence: (\S+) lastSequence: (\S+) "
    r"producerId: (\S+) producerEpoch: (\S+) partitionLeaderEpoch: (\S+) isTransactional: (\S+) "
    r"isControl: (\S+) deleteHorizonMs: (\S+) position: (\S+) (\w+): (\S+) size: (\S+) magic: (\S+) "
    r"compresscodec: (\S+) crc: (\S+) isvalid: (\S+)"
)
_RECORD = re.compile(
    r"\| offset: (\S+) \w+: (\S+) keySize: (\S+) valueSize: (\S+)(?: sequence: (\S+))? headerKeys: \[(.*?)\]"
    r"(?: endTxnMarker: (\w+) coordinatorEpoch: (\S+))?.*"
)


def _kafka_fields(line: str) -> tuple[str, ...] | None:
    """A line of Kafka's tool as the fields that are compared."""
    if line.startswith("baseOffset:"):
        found = _BATCH.fullmatch(line)
        assert found is not None, line
        return tuple(found.groups())
    if line.startswith("| "):
        found = _RECORD.fullmatch(line)
        assert found is not None, line
        offset, time, key_size, value_size, sequence, *rest = (each or "" for each in found.groups())
        return (offset, time, key_size, value_size, sequence.replace("-1", ""), *rest)
    if re.match(r"(version|producerId|offset|timestamp): ", line):
        line = re.sub(r"OptionalLong\[(\d+)\]|OptionalLong\.(empty)", r"\1\2", line)
        return tuple(f"{name}={value}" for name, value in re.findall(r"(\w+): (\S+)", line))
    return None


def _as_kafka(item: dict[str, Any], *, is_metadata: bool) -> tuple[str, ...]:
    if item["kind"] == "batch":
        horizon = item.get("delete_horizon_ms")
        names = ("base_offset", "last_offset", "count", "base_sequence", "last_sequence", "producer_id")
        names += ("producer_epoch", "leader_epoch", "is_transactional", "is_control")
        flags = [str(item[name]).lower() for name in names]
        shown = "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]"
        rest = ("position", "timestamp_type", "max_timestamp", "size", "magic", "codec", "crc", "is_valid")
        return (
            *flags,
            shown,
            *(str(item[name]).lower() if name == "is_valid" else str(item[name]) for name in rest),
        )
    if item["kind"] == "record":
        is_marker = item.get("control_type") in ("COMMIT", "ABORT")
        return (
            *(str(item[name]) for name in ("offset", "timestamp", "key_size", "value_size")),
            str(item.get("sequence", "")),
            ",".join(header["key"] for header in item["headers"]),
            item["control_type"] if is_marker else "",
            str(item["coordinator_epoch"]) if is_marker else "",
        )
    return tuple(_entry(item))


def _entry(item: dict[str, Any]) -> Iterator[str]:
    for name, value in item.items():
        if name in ("kind", "file"):
            continue
        if name == "last_sequence" and value < 0 and item["last_offset"] < 0:
            return  # a producer of which only markers are known: Kafka leaves out what it has not
        if name == "last_sequence":
            yield f"firstSequence={value - item['offset_delta']}"
        yield f"{_camel(name)}={'empty' if value is None else value}"
    if "last_sequence" in item:
        yield f"timestamp={item['last_timestamp']}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


# ---- what it prints --------------------------------------------------------------------------------------


def test_a_whole_directory_is_in_order(kafka_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", str(kafka_data), "--verify", "--quiet"]) == 0
    assert re.fullmatch(r"\d{3} files checked: nothing wrong\n", capsys.readouterr().out)


def test_the_metadata_log_is_decoded(kafka_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = dumped(capsys, kafka_data / "__cluster_metadata-0", "--records")
    topics = [item["data"]["name"] for item in items if item.get("type") == "Topic"]
    assert "transactions" in topics
    assert items[0]["file"].startswith(str(kafka_data))
    (leader,) = [item for item in items if item.get("control_type") == "LEADER_CHANGE"][:1]
    assert leader["data"]["leader_id"] == 1
    bootstrap = dumped(capsys, kafka_data / "bootstrap.checkpoint", "--records")
    assert "metadata.version" in [item["data"].get("name") for item in bootstrap if "data" in item]


def test_offsets_and_transactions_are_decoded(
    kafka_data: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    items = dumped(capsys, *(kafka_data / "__consumer_offsets-0").glob("*.log"), "--records")
    first = next(item for item in items if item.get("type") == "OffsetCommit")
    assert first["key"] == {"group": "alone", "topic": "segments", "partition": 0}
    assert (first["data"]["offset"], first["data"]["metadata"]) == (7, "some metadata")
    assert any(item.get("type") == "ConsumerGroupMemberMetadata" and item["data"] is None for item in items)
    (moved,) = (kafka_data / "__transaction_state-0").glob("*0.log")
    copy = Path(shutil.copy(moved, tmp_path / SEGMENT))  # where its place does not tell what it is
    assert not any("type" in item for item in dumped(capsys, copy, "--records") if item["kind"] == "record")
    items = dumped(capsys, copy, "--records", "--decode", "transactions")
    assert "a" in [item["key"]["transactional_id"] for item in items if "key" in item]
    as_offsets = dumped(capsys, copy, "--records", "--decode", "metadata")
    assert any("not_decoded" in item for item in as_offsets)


def test_every_small_file_is_read(kafka_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = {}
    for name in ("meta.properties", "recovery-point-offset-checkpoint", "transactions-0/partition.metadata"):
        entries[name] = [item for item in dumped(capsys, kafka_data / name) if item["kind"] == "entry"]
    assert entries["meta.properties"][0]["node.id"] == "1"
    assert {"topic", "partition", "offset"} < set(entries["recovery-point-offset-checkpoint"][0])
    assert len(entries["transactions-0/partition.metadata"][0]["topic_id"]) == 22


def test_lines_for_people(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", str(partition / SEGMENT), "--records", "--verify"]) == 0
    out = capsys.readouterr().out
    assert f"{partition / SEGMENT}: segment, " in out
    assert re.search(r"  0-\d+: \d+ records, at byte 0, \d+ bytes, .*crc 0x[0-9a-f]{8} ok\n", out)
    assert re.search(r"    \d+  2026-\S+  ABORT, coordinator epoch \d+\n", out)
    assert re.search(r"\n  \d+ batches, \d+ records, offsets 0 to \d+\n1 file checked: nothing wrong\n$", out)


def test_a_running_node_is_not_disturbed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(tmp_path / "data") as broker:
        write(broker.bootstrap, "letters", [b"dear sir", b"yours"])
        before = _contents(tmp_path / "data")
        items = dumped(capsys, tmp_path / "data" / "letters-0", "--records", "--verify")
        assert [item["value"] for item in items if item["kind"] == "record"] == ["dear sir", "yours"]
        assert _contents(tmp_path / "data" / "letters-0").items() <= before.items()
        write(broker.bootstrap, "letters", [b"again"])


def _contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# ---- what is broken --------------------------------------------------------------------------------------


def test_a_flipped_bit_is_found_and_named(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = partition / SEGMENT
    data = bytearray(log.read_bytes())
    second = BatchHeader.parse(data).size_bytes
    data[second + HEADER_BYTES + 3] ^= 1
    log.write_bytes(data)
    assert problems(dumped(capsys, log)) == []  # headers alone do not show it
    items = dumped(capsys, log, "--verify", status=1)
    (problem,) = problems(items)
    assert problem.startswith(f"the batch at byte {second} (offset ")
    assert [item["is_valid"] for item in items if item["kind"] == "batch"].count(False) == 1


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (bytes(100), None),
        (b"\x00\x01", "2 bytes are too few for a batch's header"),
        (b"x" * 100, "magic 120"),
    ],
    ids=["zeros", "two bytes", "letters"],
)
def test_what_stands_behind_the_last_batch(
    partition: Path, capsys: pytest.CaptureFixture[str], tail: bytes, said: str | None
) -> None:
    log = partition / SEGMENT
    with log.open("ab") as file:
        file.write(tail)
    items = dumped(capsys, log, status=0 if said is None else 1)
    (total,) = [item for item in items if item["kind"] == "total"]
    assert total["tail_bytes"] == len(tail)
    assert (said is None) == (not problems(items))
    assert said is None or said in problems(items)[0]


def test_a_torn_batch_is_told_from_a_whole_one(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = partition / SEGMENT
    data = log.read_bytes()
    log.write_bytes(data[:-5])
    assert "lacks its last 5" in problems(dumped(capsys, log, status=1))[0]


def test_indexes_that_lead_astray(
    kafka_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Path(shutil.copytree(kafka_data / "deleted-0", tmp_path / "deleted-0"))
    index, time_index = broken / "00000000000000000000.index", broken / "00000000000000000000.timeindex"
    data = bytearray(index.read_bytes())
    data[7] += 1
    index.write_bytes(data)
    times = bytearray(time_index.read_bytes())
    times[7] -= 1
    time_index.write_bytes(times)
    found = {
        Path(item["file"]).name: item["problem"]
        for item in dumped(capsys, broken, "--verify", status=1)
        if item["kind"] == "problem"
    }
    assert "where no batch begins" in found[index.name]
    assert "stands before it" in found[time_index.name]
    assert len(found) == 2


def test_an_index_that_grows_while_it_is_read(kafka_data: Path, tmp_path: Path) -> None:
    growing = Path(shutil.copytree(kafka_data / "deleted-0", tmp_path / "deleted-0"))
    log, index = growing / SEGMENT, growing / "00000000000000000000.index"
    seen = survey(log, verify=False)
    with log.open("ab") as file:
        file.write(bytes(100))
    with index.open("ab") as file:
        file.write(struct.pack(">ii", 30, seen.valid_bytes))
    assert check_index(index, seen) == []
    log.write_bytes(log.read_bytes()[: seen.valid_bytes])
    assert len(check_index(index, seen)) == 1


def test_a_snapshot_and_a_checkpoint_that_are_torn(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = sorted(partition.glob("*.snapshot"))[-1]
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    (partition / "leader-epoch-checkpoint").write_text("0\n7\n0 0\n")
    found = problems(dumped(capsys, partition, status=1))
    assert any("CRC" in each for each in found)
    assert any("7 entries are announced" in each for each in found)


def test_what_may_not_be_read(
    partition: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert main(["log", "dump", str(partition)]) == 1
    assert f"cannot read {partition}: Permission denied\n  look as the user" in capsys.readouterr().err


def test_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", str(tmp_path / "nothing")]) == 1
    assert f"there is no {tmp_path / 'nothing'}" in capsys.readouterr().err
    stranger = tmp_path / "notes.txt"
    stranger.write_text("dear sir")
    assert main(["log", "dump", str(stranger)]) == 1
    assert "none of Kafka's files" in capsys.readouterr().out
