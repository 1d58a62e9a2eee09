"""Barnabas's log over a directory on disk, as the interop tests drive it: at a time of their choosing,
without threads, with the settings that the workload gave to each topic of Apache Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.core.clock import ManualClock
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import SeededRandom
from barnabas.core.workers import InlineWorkers
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import Bound, PartitionLog
from barnabas.log.reading import read
from barnabas.log.txn_index import AbortedTransaction
from barnabas.records.batch import BatchHeader
from barnabas.records.control import parse_end_transaction
from barnabas.records.reader import Record, read_batch, read_batches
from tests.interop.workload import SETTINGS, KafkaDirectory

COORDINATOR_TOPICS = ("__consumer_offsets", "__transaction_state")
# what Barnabas's log reads of a topic's settings; the rest is the cleaner's, or the broker's
READ_BY_THE_LOG = (
    "cleanup.policy",
    "index.interval.bytes",
    "message.timestamp.type",
    "segment.index.bytes",
    "segment.ms",
)


@asynccontextmanager
async def log_directory(data: Path, clock: ManualClock) -> AsyncIterator[LogDirectory]:
    """The directory, stopped cleanly at the end (unless the test fails: then only its files are closed)."""
    workers = InlineWorkers()
    disk = OsDisk(data, workers, clock)
    try:
        directory = await LogDirectory.open(disk, clock=clock, random=SeededRandom(1), workers=workers)
        yield directory
        await directory.close()
    finally:
        disk.close()


def config_of(kafka: KafkaDirectory, topic: str) -> LogConfig:
    """The settings under which Kafka wrote that topic."""
    given = {"cleanup.policy": "compact"} if topic in COORDINATOR_TOPICS else kafka.topics[topic]["config"]
    properties = {"segment.index.bytes": SETTINGS["log.index.size.max.bytes"]}
    properties |= {name: value for name, value in given.items() if name in READ_BY_THE_LOG}
    config = LogConfig.from_properties(properties)
    # smaller than users may ask for
    return replace(config, segment_bytes=int(given.get("internal.segment.bytes", config.segment_bytes)))


async def open_log(
    directory: LogDirectory, kafka: KafkaDirectory, topic: str, topic_id: UUID | None = None
) -> PartitionLog:
    """Partition 0 as the leader of a single replica has it: all that is in the log is replicated."""
    log = await directory.partition(topic, 0, topic_id=topic_id, config=config_of(kafka, topic))
    log.advance_high_watermark(log.end_offset)
    return log


class Batch(NamedTuple):
    header: BatchHeader
    data: bytes

    def records(self) -> list[Record]:
        return list(read_batch(self.data))


def batches_in(folder: Path) -> list[Batch]:
    """Every batch of a partition, straight from its files."""
    found = []
    for file in sorted(folder.glob("*.log")):
        contents = file.read_bytes()
        found += [
            Batch(header, contents[at : at + header.size_bytes]) for header, at in read_batches(contents)
        ]
    return found


def expected(described: dict[str, Any]) -> list[Record]:
    """The records that Kafka's consumer saw."""

    def raw(text: str | None) -> bytes | None:
        return None if text is None else bytes.fromhex(text)

    return [
        Record(
            each["offset"],
            each["timestamp"],
            raw(each["key"]),
            raw(each["value"]),
            tuple((key, raw(value)) for key, value in each["headers"]),
        )
        for each in described["records"]
    ]


class Fetch(NamedTuple):
    """What one read gave."""

    batches: list[Batch]
    aborted: tuple[AbortedTransaction, ...]


async def fetch(log: PartitionLog, offset: int, max_bytes: int, bound: Bound) -> Fetch:
    fetched = await read(log, offset, max_bytes, bound)
    if fetched.range is None:
        return Fetch([], fetched.aborted or ())
    file, position, size = fetched.range
    data = await file.read(position, size)
    batches = [Batch(header, data[at : at + header.size_bytes]) for header, at in read_batches(data)]
    return Fetch(batches, fetched.aborted or ())


async def fetch_all(log: PartitionLog, bound: Bound, max_bytes: int = 1000) -> list[Fetch]:
    """Read from the start to the bound, as a client does: each time from behind the last batch."""
    fetches = []
    offset = log.start_offset
    while (fetched := await fetch(log, offset, max_bytes, bound)).batches:
        fetches.append(fetched)
        offset = fetched.batches[-1].header.next_offset
    assert offset >= log.bound(bound)
    return fetches


def without_aborted(fetches: list[Fetch]) -> list[Record]:
    """The records that a client shows at read_committed, by the rule that every client implements."""
    shown: list[Record] = []
    for fetched in fetches:
        begun = sorted(fetched.aborted, key=lambda aborted: aborted.first_offset)
        skipped: set[int] = set()
        for batch in fetched.batches:
            header = batch.header
            while begun and begun[0].first_offset <= header.last_offset:
                skipped.add(begun.pop(0).producer_id)
            if header.is_control:
                marker = parse_end_transaction(batch.data)
                if marker is not None and not marker.is_commit:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                shown += batch.records()
    return shown
