"""What a partition on disk costs, beside the bare system calls it is made of.

Each comparison alternates its two sides in short rounds and takes the best of each: on a shared machine the
best round is the one that was disturbed least, and what is compared saw the same minute.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import uvloop

from barnabas.core.clock import SystemClock
from barnabas.core.descriptors import raise_open_file_limit
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import SystemRandom
from barnabas.core.workers import ThreadWorkers
from barnabas.log import reading
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import Bound
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from bench.options import Options
from bench.report import Row
from bench.scratch import scratch

TITLE = "log"
BATCH_BYTES = 16 << 10
# few enough to stay in the processor's cache, as what comes fresh from a socket does
BATCHES_AT_HAND = 8
NO_OFFSET = bytes(8)


def run(options: Options) -> list[Row]:
    """All rows."""
    # the crashes are made here on purpose; what recovery says of them would stand in the table's way
    logging.getLogger("barnabas.log").setLevel(logging.ERROR)
    return uvloop.run(_run(options.small))


async def _run(small: bool) -> list[Row]:
    rows = []
    for record_bytes in (100, 1024):
        rows.append(await append(record_bytes, rounds=3 if small else 40, count=3 if small else 60))
    rows.append(await idempotent_append(rounds=3 if small else 40, count=20 if small else 500))
    rows.append(await tail_read(rounds=3 if small else 20, count=20 if small else 500))
    rows += await recovery(total_bytes=(1 if small else 512) << 20)
    rows += await open_clean(count=5 if small else 1000)
    rows += await memory(count=20 if small else 10_000)
    return rows


@contextlib.asynccontextmanager
async def directory(root: Path, config: LogConfig | None = None) -> AsyncIterator[LogDirectory]:
    workers, clock = ThreadWorkers(2), SystemClock()
    disk = OsDisk(root, workers, clock)
    opened = await LogDirectory.open(disk, clock=clock, random=SystemRandom(), workers=workers, config=config)
    try:
        yield opened
    finally:
        await opened.close()
        disk.close()
        workers.close()


def batch(record_bytes: int, size: int = BATCH_BYTES, **options: int) -> bytearray:
    """A batch of about `size` bytes of such records."""
    now_ms = SystemClock().wall_ms()
    payload = os.urandom(record_bytes)
    count = size // (record_bytes + 8)
    return build_batch([Record(i, now_ms, None, payload) for i in range(count)], **options)  # type: ignore[arg-type]


async def append(record_bytes: int, rounds: int, count: int) -> Row:
    """Appends as leader against `os.write` of the same bytes."""
    batches = [batch(record_bytes) for _ in range(BATCHES_AT_HAND)]
    with scratch() as root:
        async with directory(root / "data") as logs:
            log = await logs.partition("bench", 0)
            raw = os.open(root / "raw", os.O_CREAT | os.O_WRONLY)
            bare, ours = [], []
            for _ in range(rounds):
                bare.append(sum(_timed_writes(raw, batches) for _ in range(count)))
                spent = 0.0
                for _ in range(count):
                    for data in batches:
                        data[:8] = NO_OFFSET  # as a client sends it; the log has numbered it
                    started = time.perf_counter()
                    for data in batches:
                        await log.append_as_leader(data, 0)
                    spent += time.perf_counter() - started
                ours.append(spent)
            os.close(raw)
    size = len(batches[0]) * len(batches) * count
    return _against(f"append, {record_bytes}-byte records", size, min(ours), min(bare), "os.write")


def _timed_writes(descriptor: int, batches: Sequence[bytearray]) -> float:
    started = time.perf_counter()
    for data in batches:
        os.write(descriptor, data)
    return time.perf_counter() - started


async def idempotent_append(rounds: int, count: int) -> Row:
    """The same with a producer id, whose sequences are followed."""
    size = len(batch(1024, producer_id=1, producer_epoch=0, base_sequence=0))
    per_batch = BATCH_BYTES // (1024 + 8)
    with scratch() as root:
        async with directory(root / "data") as logs:
            log = await logs.partition("bench", 0)
            raw = os.open(root / "raw", os.O_CREAT | os.O_WRONLY)
            bare, ours = [], []
            sequence = 0
            for _ in range(rounds):
                batches = []
                for _ in range(count):
                    batches.append(batch(1024, producer_id=1, producer_epoch=0, base_sequence=sequence))
                    sequence += per_batch
                bare.append(_timed_writes(raw, batches))
                started = time.perf_counter()
                for data in batches:
                    await log.append_as_leader(data, 0)
                ours.append(time.perf_counter() - started)
            os.close(raw)
    return _against("append, idempotent producer", size * count, min(ours), min(bare), "os.write")


async def tail_read(rounds: int, count: int) -> Row:
    """What a consumer at the tail asks: where the next batches stand, 64 KiB at a time."""
    data = batch(100)
    per_batch = BATCH_BYTES // 108
    with scratch() as root:
        async with directory(root / "data") as logs:
            log = await logs.partition("bench", 0)
            for _ in range(4 * count):
                data[:8] = NO_OFFSET
                await log.append_as_leader(data, 0)
            times = []
            for _ in range(rounds):
                started = time.perf_counter()
                for index in range(count):
                    await reading.read(log, 4 * index * per_batch, 1 << 16, Bound.LOG_END)
                times.append(time.perf_counter() - started)
    return Row("read: find 64 KiB by offset", min(times) / count * 1e6, "µs")


async def recovery(total_bytes: int) -> list[Row]:
    """The scan after a crash against bare reading of the same file, for two sizes of batches."""
    rows = []
    for size in (1 << 10, BATCH_BYTES):
        data = batch(100, size)
        with scratch() as root:
            async with directory(root) as logs:
                log = await logs.partition("bench", 0)
                for _ in range(total_bytes // len(data)):
                    data[:8] = NO_OFFSET
                    await log.append_as_leader(data, 0)
            (segment,) = (root / "bench-0").glob("*.log")
            bare = min(_timed_read(segment) for _ in range(3))
            ours = min([await _timed_recovery(root) for _ in range(3)])
            name = f"recovery scan, {len(data):,}-byte batches"
            rows.append(_against(name, segment.stat().st_size, ours, bare, "bare reading"))
    return rows


def _timed_read(path: Path) -> float:
    buffer = bytearray(1 << 20)
    started = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - started


async def _timed_recovery(root: Path) -> float:
    """Open the partition as after a crash: without the mark of a clean stop, nothing known to be synced."""
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (root / name).unlink(missing_ok=True)
    async with directory(root) as logs:
        started = time.perf_counter()
        await logs.partition("bench", 0)
        return time.perf_counter() - started


async def open_clean(count: int) -> list[Row]:
    """Partitions with data and producers, after a clean stop: the directory, then every one of them."""
    with scratch() as root:
        await _fill(root, count)
        started = time.perf_counter()
        async with directory(root) as logs:
            known = time.perf_counter() - started
            started = time.perf_counter()
            for partition in range(count):
                await logs.partition("bench", partition)
            touched = time.perf_counter() - started
    return [
        Row(f"open a directory of {count:,} clean partitions", known * 1e3, "ms"),
        Row(f"touch all {count:,} of them", touched * 1e3, "ms", f"{touched / count * 1e6:.0f} µs each"),
    ]


async def _fill(root: Path, count: int) -> None:
    async with directory(root) as logs:
        for partition in range(count):
            log = await logs.partition("bench", partition)
            await log.append_as_leader(
                batch(100, 2000, producer_id=partition, producer_epoch=0, base_sequence=0), 0
            )


async def memory(count: int) -> list[Row]:
    """Resident memory and descriptors that open partitions add, each with data and a producer."""
    raise_open_file_limit()
    with scratch() as root:
        await _fill(root, count)
        gc.collect()
        async with directory(root) as logs:
            before = _resident_bytes()
            for partition in range(count):
                await logs.partition("bench", partition)
            gc.collect()
            grown = _resident_bytes() - before
            descriptors = len(os.listdir("/proc/self/fd"))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return [
        Row(f"memory of {count:,} open partitions", grown / 1e6, "MB", f"{grown / count / 1e3:.1f} kB each"),
        Row(f"descriptors with {count:,} open partitions", descriptors, "", f"the limit is {limit:,}"),
    ]


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _against(name: str, size: int, ours: float, bare: float, what: str) -> Row:
    """A throughput and how it compares with the bare operation, which is 1."""
    return Row(name, size / ours / 1e6, "MB/s", f"{what}: {size / bare / 1e6:,.0f} MB/s", bare / ours)
