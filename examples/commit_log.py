"""A commit log at work: write with every codec, read back, look up by time, die by kill -9, recover.

Every record says at which offset it stands, so whatever comes back can be checked against nothing but
itself. The writer that dies is another process: it reports each append that returned, and is killed in the
middle of its work. After that half a batch is added to the file, as a power failure may leave it. What was
reported must be there afterwards, and nothing else but whole batches.

    python examples/commit_log.py                a directory of its own, removed afterwards
    python examples/commit_log.py --dir data     a new directory, left for you to look at
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from barnabas.core.clock import SystemClock
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import SystemRandom
from barnabas.core.workers import ThreadWorkers
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import PartitionLog
from barnabas.log.reading import offset_for_timestamp, read
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.reader import read_records
from barnabas.records.record import Record

TOPIC, PARTITION = "orders", 0
# small segments, to show several of them; Kafka's default is 1 GiB
CONFIG = LogConfig(segment_bytes=256 << 10, segment_index_bytes=4 << 10)
BATCH_RECORDS = 100
BATCHES_A_CODEC = 20
REPORTS_BEFORE_THE_KILL = 50
FIRST_MS = 1_750_000_000_000
SUFFIXES = (".log", ".index", ".timeindex", ".snapshot")

console = Console()


class Written(NamedTuple):
    codec: Codec
    first_offset: int
    last_offset: int
    stored_bytes: int
    plain_bytes: int


def order(offset: int) -> Record:
    """The record that stands at that offset, and nowhere else: a second later than the one before it."""
    value = f"order {offset}: one copy of The Castle, to be delivered by messenger, if he is let in"
    return Record(offset, FIRST_MS + 1000 * offset, b"customer-%d" % (offset % 10), value.encode())


def batch_at(offset: int, codec: Codec) -> bytearray:
    return build_batch([order(offset + number) for number in range(BATCH_RECORDS)], codec=codec)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[LogDirectory, PartitionLog]]:
    """The directory and its one partition, stopped cleanly at the end."""
    clock, workers = SystemClock(), ThreadWorkers()
    disk = OsDisk(path, workers, clock)
    try:
        directory = await LogDirectory.open(disk, clock=clock, random=SystemRandom(), workers=workers)
        log = await directory.partition(TOPIC, PARTITION, config=CONFIG)
        log.advance_high_watermark(log.end_offset)  # the only replica: what it has is replicated
        yield directory, log
        await directory.close()
    finally:
        disk.close()
        workers.close()


async def write(log: PartitionLog) -> list[Written]:
    """Append batches with every codec."""
    written = []
    for codec in Codec:
        first_offset, stored_bytes, plain_bytes = log.end_offset, 0, 0
        for _ in range(BATCHES_A_CODEC):
            batch = batch_at(log.end_offset, codec)
            stored_bytes += len(batch)
            plain_bytes += len(batch_at(log.end_offset, Codec.NONE))
            await log.append_as_leader(batch, leader_epoch=0)
        written.append(Written(codec, first_offset, log.end_offset - 1, stored_bytes, plain_bytes))
    log.advance_high_watermark(log.end_offset)
    return written


async def read_all(log: PartitionLog, max_bytes: int = 64 << 10) -> list[Record]:
    """Every record, as a consumer reads: from behind the last one, whole batches, a bounded answer."""
    records: list[Record] = []
    offset = log.start_offset
    while (found := (await read(log, offset, max_bytes)).range) is not None:
        records += read_records(await found.file.read(found.position, found.size))
        offset = records[-1].offset + 1
    return records


def wrong(records: list[Record]) -> int:
    """How many records are not the one that was written at their offset."""
    return sum(record != order(offset) for offset, record in enumerate(records))


def show_written(written: list[Written]) -> None:
    table = Table("codec", "offsets", "bytes stored", "of plain", title="Appended", title_justify="left")
    for codec, first_offset, last_offset, stored_bytes, plain_bytes in written:
        share = f"{stored_bytes / plain_bytes:.0%}"
        table.add_row(codec.name.lower(), f"{first_offset} - {last_offset}", f"{stored_bytes:,}", share)
    console.print(table)


async def show_look_ups(log: PartitionLog) -> None:
    table = Table("seconds", "first offset at or after", title="Looked up by time", title_justify="left")
    for seconds in (0.0, 1234.5, 9998.5, 10_000.0):
        found = await offset_for_timestamp(log, FIRST_MS + round(seconds * 1000))
        table.add_row(f"{seconds:,}", str(found.offset) if found.offset >= 0 else "none: all are earlier")
    console.print(table)


def show_files(path: Path, title: str) -> None:
    """A row a segment, named by its first offset, and the size of each of its files; then the rest."""
    partition = path / f"{TOPIC}-{PARTITION}"
    table = Table(partition.name, *SUFFIXES, title=title, title_justify="left")
    for base in sorted({file.stem for file in partition.iterdir() if file.suffix in SUFFIXES}):
        files = [partition / (base + suffix) for suffix in SUFFIXES]
        table.add_row(base, *(f"{file.stat().st_size:,}" if file.exists() else "" for file in files))
    console.print(table)
    others = (file for file in path.rglob("*") if file.is_file() and file.suffix not in SUFFIXES)
    console.print(*("  " + str(file.relative_to(path)) for file in sorted(others)), "", sep="\n")


async def write_until_killed(path: Path) -> None:
    """The writer that dies: appends without end, and reports the last offset of each that returned."""
    async with opened(path) as (_, log):
        while True:
            appended = await log.append_as_leader(batch_at(log.end_offset, Codec.NONE), leader_epoch=1)
            print(appended.last_offset, flush=True)


def kill_a_writer(path: Path) -> int:
    """Start it, wait for some reports, kill -9; returns the last offset that it reported."""
    command = [sys.executable, __file__, "--write-until-killed", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        reports = [int(writer.stdout.readline()) for _ in range(REPORTS_BEFORE_THE_KILL)]
        writer.kill()
        # it went on until it died: these were reported too. A last line may be cut short.
        reports += [int(line) for line in writer.stdout if line.endswith("\n")]
    return reports[-1]


def tear_the_last_write(path: Path) -> Path:
    """Leave half a batch at the end of the newest segment, as a power failure may."""
    newest = max((path / f"{TOPIC}-{PARTITION}").glob("*.log"))
    batch = batch_at(0, Codec.NONE)
    with newest.open("ab") as file:
        file.write(batch[: len(batch) // 2])
    return newest


async def recover(path: Path, reported: int) -> bool:
    """Open what the crash left, and see what is there."""
    async with opened(path) as (directory, log):
        records = await read_all(log)
        lost = max(0, reported + 1 - log.end_offset)
        table = Table(title="After the crash", title_justify="left", show_header=False)
        table.add_row("last stop", "clean" if directory.was_clean else "not clean")
        table.add_row("reported as appended", f"{reported + 1:,} records")
        table.add_row("recovered", f"{len(records):,} records, offsets 0 - {log.end_offset - 1}")
        table.add_row("lost", str(lost))
        table.add_row("wrong or torn", str(wrong(records)))
        table.add_row(
            "leader epochs", ", ".join(f"{epoch} from {start}" for epoch, start in log.epochs.entries)
        )
        console.print(table)
        return not lost and not wrong(records) and len(records) == log.end_offset


async def show(path: Path) -> bool:
    async with opened(path) as (_, log):
        show_written(await write(log))
        records = await read_all(log)
        console.print(f"Read back: {len(records):,} records, {wrong(records)} of them wrong.\n")
        await show_look_ups(log)
    show_files(path, "On disk after a clean stop, in Kafka's own files")
    reported = kill_a_writer(path)
    newest = tear_the_last_write(path)
    console.print(
        f"A second process wrote on and was killed (kill -9) after it had reported offset {reported}."
    )
    console.print(f"Half a batch was added to {newest.relative_to(path)}. Opening it again:\n")
    is_sound = await recover(path, reported)
    show_files(path, "On disk after recovery and a clean stop")
    return is_sound


def main() -> int:
    parser = argparse.ArgumentParser(description="A commit log at work.")
    parser.add_argument("--dir", type=Path, help="a new directory to leave behind")
    parser.add_argument("--write-until-killed", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write_until_killed:
        logging.getLogger("barnabas").setLevel(logging.ERROR)  # the parent has said it already
        asyncio.run(write_until_killed(options.write_until_killed))
    if options.dir and options.dir.exists():
        parser.error(f"{options.dir} exists already; name a new directory")
    logging.basicConfig(format="%(levelname)s %(message)s\n", stream=sys.stdout)
    with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
        is_sound = asyncio.run(show(options.dir or Path(folder)))
    console.print("[green]Nothing that was reported is lost." if is_sound else "[red]Something is wrong.")
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
