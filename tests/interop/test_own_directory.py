"""A directory that Barnabas wrote from batches it built itself: Kafka's tool reads it without complaint."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from barnabas.core.clock import ManualClock
from barnabas.log.config import LogConfig
from barnabas.log.partition import PartitionLog
from barnabas.log.producers import Origin
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.reader import Record
from tests.interop.barnabas_log import log_directory
from tests.interop.dump import dump, files

NOW_MS = 1_790_000_000_000
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=300, segment_index_bytes=4096)
ROUNDS = 12


def records(round_number: int, count: int) -> list[Record]:
    """Keys, values and headers of all kinds, null ones too; the second record is the latest."""
    return [
        Record(
            offset=0,
            timestamp=NOW_MS + round_number * 1000 + (50 if index == 1 else index),
            key=None if index % 4 == 3 else f"key-{index}".encode(),
            value=None if index % 5 == 4 else f"round {round_number} {'of the Castle ' * index}".encode(),
            headers=(("trace", bytes([round_number])), ("é→", None), ("", b""))[: index % 4],
        )
        for index in range(count)
    ]


async def append(log: PartitionLog, batch: bytearray, origin: Origin = Origin.CLIENT) -> None:
    await log.append_as_leader(batch, leader_epoch=3, origin=origin)
    log.advance_high_watermark(log.end_offset)


async def write_codecs(log: PartitionLog) -> None:
    for round_number in range(ROUNDS):
        for codec in Codec:
            await append(
                log,
                build_batch(
                    records(round_number, 6),
                    codec=codec,
                    producer_id=100 + codec,
                    producer_epoch=1,
                    base_sequence=round_number * 6,
                ),
            )


async def write_transactions(log: PartitionLog) -> None:
    """Two producers whose transactions overlap: the first one commits, or aborts, inside the second."""
    for round_number in range(ROUNDS):
        for producer_id in (1, 2):
            batch = build_batch(
                records(round_number, 3),
                codec=Codec(round_number % len(Codec)),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=round_number * 3,
                transactional=True,
            )
            await append(log, batch)
        for producer_id in (1, 2):
            kind = ControlType.ABORT if (round_number + producer_id) % 2 else ControlType.COMMIT
            marker = build_end_transaction(
                kind,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=7,
                timestamp=NOW_MS + round_number,
            )
            await append(log, marker, Origin.COORDINATOR)
    await append(
        log, build_batch(records(99, 3), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def write() -> None:
        clock = ManualClock(NOW_MS)
        async with log_directory(tmp_path / "data", clock) as directory:
            await write_codecs(await directory.partition("codecs", 0, config=CONFIG))
            await write_transactions(await directory.partition("transactions", 0, config=CONFIG))
            stamped = LogConfig(segment_bytes=4000, index_interval_bytes=300, log_append_time=True)
            log = await directory.partition("stamped", 0, config=stamped)
            for round_number in range(ROUNDS):
                clock.advance(1.5)
                await append(
                    log, build_batch(records(round_number, 4), codec=Codec(round_number % len(Codec)))
                )

    asyncio.run(write())
    return tmp_path / "data"


@pytest.mark.java
def test_kafkas_tool_has_nothing_to_complain_of(data: Path) -> None:
    for options in (
        ["--deep-iteration", "--print-data-log"],
        ["--index-sanity-check"],
        ["--verify-index-only"],
    ):
        for file, lines in dump(data, files(data), *options).items():
            told = {line.split(" ")[0].rstrip(":") for line in lines}
            known = {
                ".log": {"Log", "baseOffset", "|"},
                ".index": {"offset", file},
                ".timeindex": {"timestamp", file},
                ".txnindex": {"version"},
                ".snapshot": {"producerId"},
            }
            if file.endswith(".log") and (base_offset := int(Path(file).stem)):
                # said of every segment, Kafka's own too, that does not begin at offset 0
                quirk = [f"Non-consecutive offsets in {file}", f"  -1 is followed by {base_offset}"]
                assert lines[-2:] == quirk or "--deep-iteration" not in options
                told -= {"Non-consecutive", ""}
            assert told <= known[Path(file).suffix], (file, lines)
            assert all(
                line.endswith(("passed sanity check.", "is empty."))
                for line in lines
                if line.startswith(file)
            )


@pytest.mark.java
def test_kafkas_tool_reads_every_record(data: Path) -> None:
    dumped = dump(data, files(data), "--deep-iteration", "--print-data-log")
    batches = [line for lines in dumped.values() for line in lines if line.startswith("baseOffset:")]
    assert all("isvalid: true" in line for line in batches)
    codecs = Counter(line.split("compresscodec: ")[1].split(" ")[0] for line in batches)
    assert codecs.keys() == {"none", "gzip", "snappy", "lz4", "zstd"}
    found = Counter(
        (file.split("/")[0], "endTxnMarker" in line)
        for file, lines in dumped.items()
        for line in lines
        if line.startswith("| offset:")
    )
    assert found == {
        ("codecs-0", False): ROUNDS * len(Codec) * 6,
        ("transactions-0", False): ROUNDS * 2 * 3 + 3,
        ("transactions-0", True): ROUNDS * 2,
        ("stamped-0", False): ROUNDS * 4,
    }
    aborted = [line for file, lines in dumped.items() if file.endswith(".txnindex") for line in lines]
    assert len(aborted) == ROUNDS
    last = dumped[
        max(file for file in dumped if file.startswith("transactions-0/") and file.endswith(".snapshot"))
    ]
    assert ["currentTxnFirstOffset: OptionalLong.empty" in line for line in last] == [True, True, False]
