"""Apache Kafka's cleaner and Barnabas's, given the same log and the same clock, leave the same behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from barnabas.broker.coordinators.journal import Encoded, Journal
from barnabas.coordination.effects import Producer
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.reader import read_records
from tests.interop.barnabas_log import batches_in
from tests.interop.compaction_twins import FOLDER, Twins
from tests.interop.compaction_workload import settings_of
from tests.interop.dump import Dumped, dump, files
from tests.support.kafka_cleaner import KafkaCleaner

pytestmark = pytest.mark.java

SEEDS = [*range(20), *(pytest.param(each, marks=pytest.mark.long) for each in range(20, 100))]
MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCleaner]:
    with KafkaCleaner() as cleaner:
        yield cleaner


@pytest.fixture
def swift_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where there is one: both cleaners would mostly wait for the disk."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir=MEMORY) as path:
        yield Path(path)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_is_left(seed: int, kafka: KafkaCleaner, swift_path: Path) -> None:
    twins = Twins(swift_path, settings_of(seed), kafka)
    for _ in range(twins.settings.rounds):
        twins.append()
        assert twins.clean() == []


def test_kafka_cleans_what_a_coordinator_wrote_in_transactions(kafka: KafkaCleaner, tmp_path: Path) -> None:
    """Part of a batch is replaced later on, so that Kafka writes the batch anew, and is strict about it."""
    producer = Producer(7, 0)
    marker = build_end_transaction(
        ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1000
    )
    parts = [
        journal([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], producer),
        marker,
        journal([(b"b", b"2")], None),
        journal([(b"z", b"3")], None),  # in the segment that is still written to
    ]
    data, offset = bytearray(), 0
    partition = tmp_path / "__consumer_offsets-0"
    partition.mkdir()
    for number, part in enumerate(parts):
        part[:8] = offset.to_bytes(8, "big")  # as the log does; it is outside of what is checked
        if number == len(parts) - 1:
            (partition / f"{0:020}.log").write_bytes(data)
            (partition / f"{offset:020}.log").write_bytes(part)
        data += part
        offset += 3 if number == 0 else 1
    done = kafka.clean(partition, now_ms=10_000, config={"delete.retention.ms": "1000"})
    assert done.end_offset == 5
    left = read_records((partition / f"{0:020}.log").read_bytes())
    assert [(record.key, record.value) for record in left if record.offset != 3] == [
        (b"a", b"1"),
        (b"c", b"1"),
        (b"b", b"2"),
    ]


def journal(records: list[tuple[bytes, bytes | None]], producer: Producer | None) -> bytearray:
    written = Journal(Codec.NONE)
    written.add([Encoded(records, producer, 1000)], 1000, 1 << 20)
    return written.take()


def test_workloads_have_all_that_matters(kafka: KafkaCleaner, swift_path: Path) -> None:
    """What the comparison rests on: rounds of several passes, horizons, empty batches, every codec."""
    batches, rounds_of_several_passes = [], 0
    for seed in range(12):
        twins = Twins(swift_path / str(seed), settings_of(seed), kafka)
        for _ in range(2):
            twins.append()
            assert twins.clean() == []
        batches += batches_in(twins.ours / FOLDER)
        rounds_of_several_passes += twins.rounds_of_several_passes
    headers = [batch.header for batch in batches]
    assert rounds_of_several_passes
    assert {header.codec for header in headers} == set(Codec)
    for is_control in (True, False):
        assert any(each.is_control is is_control and each.delete_horizon_ms is not None for each in headers)
    assert any(header.record_count == 0 for header in headers)
    assert any(0 < header.record_count <= header.last_offset_delta for header in headers)
    assert list(swift_path.glob("*/ours/*/*.txnindex"))


DUMPED_SEEDS = range(100, 106)
# of a compressed batch: what its compressor, or that of the batches before it, decides
BY_THE_COMPRESSOR = re.compile(r"(position|size|crc): \d+")


@pytest.mark.parametrize(
    "options",
    [["--deep-iteration", "--print-data-log"], ["--index-sanity-check"], ["--verify-index-only"]],
    ids=" ".join,
)
def test_kafkas_tool_says_of_both_the_same(cleaned: Path, options: list[str]) -> None:
    partitions = [f"{seed}/{FOLDER}" for seed in DUMPED_SEEDS]
    dumps = [dump(cleaned / who, files(cleaned / who, partitions), *options) for who in ("theirs", "ours")]
    theirs, ours = (comparable(each) for each in dumps)
    assert ours == theirs
    lines = [line for printed in ours.values() for line in printed]
    assert len(lines) > 100


@pytest.fixture(scope="module")
def cleaned(kafka: KafkaCleaner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`theirs` and `ours`, each with a directory for every seed."""
    root = tmp_path_factory.mktemp("cleaned")
    for seed in DUMPED_SEEDS:
        settings = replace(settings_of(seed), dedupe_bytes=1 << 16)  # room for all keys
        twins = Twins(root / "twins" / str(seed), settings, kafka)
        for _ in range(2):
            twins.append()
            assert twins.clean() == []
        for who, data in (("theirs", twins.theirs), ("ours", twins.ours)):
            (root / who).mkdir(exist_ok=True)
            data.rename(root / who / str(seed))
    return root


def comparable(dumped: Dumped) -> Dumped:
    """Without files that say nothing, and what may differ: sizes by compression, the order of producers."""
    found = {}
    for file, lines in dumped.items():
        is_compressed = settings_of(int(file.split("/")[0])).is_compressed
        if is_compressed and file.endswith("index"):
            continue
        if is_compressed:
            lines = [BY_THE_COMPRESSOR.sub(r"\1", line) for line in lines]
        if lines and not lines[0].endswith("is empty."):
            found[file] = sorted(lines) if file.endswith(".snapshot") else lines
    return found
