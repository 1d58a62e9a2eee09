"""How fast the record kernel is, compiled and pure.

Every rate is the best of a few runs on one core, over stored batches of 16 KiB with records of 100 bytes. The
ratio of a compiled row is how many times faster than the pure twin it is; that of a checksum, how it compares
with the crc32c package.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Any

import crc32c

from barnabas.records import _pure, _pure_columns, columnar
from barnabas.records.batch import HEADER_BYTES, BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from bench.options import Options
from bench.report import Row

VALUE_BYTES = 100
BATCH_ROWS = 150
NOW_MS = 1_700_000_000_000


class Work:
    """The bytes that every measurement is made on."""

    def __init__(self, batches: int) -> None:
        random = Random(1)
        records = [
            Record(0, NOW_MS + i, b"key-%06d" % random.randrange(10**6), random.randbytes(VALUE_BYTES))
            for i in range(BATCH_ROWS)
        ]
        self.records = records
        self.batch = bytes(build_batch(records))
        self.plain = bytes(build_batch([record._replace(key=None) for record in records]))
        self.header = BatchHeader.parse(self.batch)
        self.stored = self.plain * batches
        self.rows = BATCH_ROWS * batches
        self.columns = columnar.decode(self.batch * batches)


def run(options: Options) -> list[Row]:
    """The rates of both twins, or of the pure one alone where the other is not built."""
    small = options.small
    pure = rates(_pure, _pure_columns, Work(2 if small else 20), repeats=1 if small else 3)
    try:
        compiled = importlib.import_module("barnabas.records._kernel")
    except ImportError:
        return [Row(f"{name}, pure", value, unit) for name, value, unit in pure]
    work = Work(2 if small else 2000)
    fast = rates(compiled, compiled, work, repeats=2 if small else 7)
    rows = [checksum(compiled, work, small)]
    for (name, value, unit), (_, slow, _) in zip(fast, pure, strict=True):
        rows.append(Row(name, value, unit, "times the pure twin", value / slow))
        rows.append(Row(f"{name}, pure", slow, unit))
    return rows


def rates(kernel: ModuleType, tabular: ModuleType, work: Work, repeats: int) -> list[tuple[str, float, str]]:
    """(what, millions of records or batches a second, unit) of one twin."""
    batch, header, size = work.batch, work.header, len(work.batch)
    encoder = tabular.ColumnEncoder(work.columns)
    measured: list[tuple[str, Callable[[], Any], int, str]] = [
        (
            "check a batch's header and CRC",
            lambda: kernel.check_batch(batch, 0, size),
            1,
            "million batches/s",
        ),
        (
            "check a batch's records",
            lambda: kernel.check_records(batch, HEADER_BYTES, size, header, True, 0, 1 << 62),
            BATCH_ROWS,
            "million records/s",
        ),
        ("walk headers", lambda: kernel.scan(batch, 0, size, False), 1, "million batches/s"),
        ("decode into columns", lambda: decode(tabular, work.stored), work.rows, "million records/s"),
        ("encode from columns", lambda: encode(encoder, work.rows), work.rows, "million records/s"),
        (
            "iterate as objects",
            lambda: sum(1 for _ in kernel.iterate(batch, HEADER_BYTES, size, header)),
            BATCH_ROWS,
            "million records/s",
        ),
        ("build from objects", lambda: append_all(kernel, work.records), BATCH_ROWS, "million records/s"),
        (
            "partitions of keys (murmur2)",
            lambda: tabular.partition_column(work.columns.key, work.rows, 12),
            work.rows,
            "million keys/s",
        ),
        (
            "hashes of keys (SipHash-128)",
            lambda: tabular.key_hashes(batch, HEADER_BYTES, size, header, bytes(16)),
            BATCH_ROWS,
            "million keys/s",
        ),
    ]
    return [(name, count / best(call, repeats) / 1e6, unit) for name, call, count, unit in measured]


def checksum(kernel: Any, work: Work, small: bool) -> Row:
    """CRC-32C of one batch against the crc32c package's."""
    repeats = 2 if small else 7
    ours = best(lambda: kernel.crc32c(work.batch, 0, len(work.batch)), repeats)
    theirs = best(lambda: crc32c.crc32c(work.batch), repeats)
    return Row("CRC-32C", len(work.batch) / ours / 1e9, "GB/s", "against the crc32c package", theirs / ours)


def decode(tabular: ModuleType, stored: bytes) -> Any:
    return columnar.decode(stored, into=tabular.ColumnDecoder())


def encode(encoder: Any, rows: int) -> None:
    row = 0
    while row < rows:
        _, row = encoder.batch(row, rows, columnar.BATCH_BYTES, 0, -1, -1, -1)


def append_all(kernel: ModuleType, records: list[Record]) -> bytearray:
    buffer = bytearray()
    for delta, record in enumerate(records):
        kernel.append_record(
            buffer, NOW_MS, record.timestamp, delta, record.key, record.value, record.headers
        )
    return buffer


def best(call: Callable[[], Any], repeats: int) -> float:
    """Seconds for one call, by the best of some runs of about ten milliseconds each."""
    started = time.perf_counter()
    call()
    times = max(1, int(0.01 / max(time.perf_counter() - started, 1e-7)))
    results = []
    for _ in range(repeats):
        started = time.perf_counter()
        for _ in range(times):
            call()
        results.append((time.perf_counter() - started) / times)
    return min(results)
