"""Compaction: how many records a second a core gets through, and what others notice of it.

The rates are of the cleaners alone, each over copies of one directory, with the map of offsets that Kafka
gives its cleaner by default. Kafka's runs in a JVM that has compacted the same before; its time on the CPU is
that of the whole JVM, as Barnabas's is that of its process. The latencies are of a live broker
(compaction_live.py).
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import uvloop

from barnabas.log.compaction.cleaning import CleanerIo, clean
from barnabas.log.compaction.survey import survey
from barnabas.records.compression import Codec
from barnabas.records.kernel import OffsetMap
from bench import compaction_live
from bench.compaction_data import CONFIG, START_MS, TOPIC, write
from bench.log import directory
from bench.options import Options
from bench.report import Pair, Target
from bench.scratch import scratch
from bench.sidebyside import announce, pair
from bench.systems import KAFKA_JVM
from tests.support.kafka_cleaner import KafkaCleaner

RECORDS = 3_000_000
NEEDED_BYTES = 4 << 30
# Kafka's defaults
DEDUPE_BYTES = 128 << 20
IO_BUFFER_BYTES, LOAD_FACTOR = 512 << 10, 0.9
WARM_UPS = 2
MILLION_A_CORE = Target("≥", 1e6, of_ratio=False)
CODECS = {"uncompressed": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
# a directory that may be changed -> records read, and CPU seconds
Measure = Callable[[Path], tuple[int, float]]


def run(options: Options) -> list[Pair]:
    return [*rates(options), *compaction_live.run(options)]


def rates(options: Options) -> Iterator[Pair]:
    records = 5_000 if options.small else RECORDS
    with scratch(0 if options.small else NEEDED_BYTES) as root, cleaners(options.systems) as measures:
        for title, codec in CODECS.items():
            announce(f"compaction, {title}")
            data = write(root / title, records, codec)
            results = in_turns(data, measures, options)
            shutil.rmtree(data)
            target = MILLION_A_CORE if codec is Codec.NONE else None
            yield pair(f"compaction of 100-byte records, {title}", "records/s a core", results, target)


def in_turns(data: Path, measures: Mapping[str, Measure], options: Options) -> dict[str, list[float]]:
    """Records a second of each, round by round, without those that warm it up."""
    results: dict[str, list[float]] = {name: [] for name in measures}
    warm_ups = 0 if options.small else WARM_UPS
    for number in range(warm_ups + (1 if options.small else options.rounds)):
        for name, measure in measures.items():
            copy = Path(shutil.copytree(data, data.parent / "copy"))
            records, cpu_s = measure(copy)
            shutil.rmtree(copy)
            if number >= warm_ups:
                results[name].append(records / cpu_s)
    return results


@contextlib.contextmanager
def cleaners(systems: tuple[str, ...]) -> Iterator[dict[str, Measure]]:
    with contextlib.ExitStack() as stack:
        measures: dict[str, Measure] = {}
        for name in systems:
            if name == "kafka":
                kafka = stack.enter_context(KafkaCleaner(KAFKA_JVM))
                measures[name] = lambda data, kafka=kafka: by_kafka(kafka, data)  # type: ignore[misc]
            else:
                measures[name] = by_barnabas
        yield measures


def by_kafka(kafka: KafkaCleaner, data: Path) -> tuple[int, float]:
    config = {"segment.bytes": str(CONFIG.segment_bytes)}
    cleaned = kafka.clean(data / f"{TOPIC}-0", now_ms=START_MS, config=config, dedupe_bytes=DEDUPE_BYTES)
    return cleaned.records_read, cleaned.cpu_s


def by_barnabas(data: Path) -> tuple[int, float]:
    return uvloop.run(_by_barnabas(data))


async def _by_barnabas(data: Path) -> tuple[int, float]:
    async def unthrottled(_: int) -> None:
        pass

    async with directory(data, CONFIG) as logs:
        log = await logs.partition(TOPIC, 0)
        log.advance_high_watermark(log.end_offset)
        planned = await survey(log)
        offsets = OffsetMap(DEDUPE_BYTES, bytes(16))
        io = CleanerIo(IO_BUFFER_BYTES, LOAD_FACTOR, unthrottled)
        before = time.process_time()
        cleaned = await clean(log, planned, offsets, io=io, now_ms=START_MS)
        return cleaned.stats.records_read, time.process_time() - before
