"""A compacted partition changes hands: Apache Kafka serves what Barnabas compacted, and goes on; and back."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.core.clock import ManualClock
from barnabas.log.partition import Bound
from barnabas.records.record import Record
from tests.interop.barnabas_log import fetch_all, log_directory, without_aborted
from tests.interop.compaction_twins import FOLDER, TOPIC, append, clean_by_barnabas, committed_by_key
from tests.interop.compaction_workload import Settings, Writers, settings_of
from tests.interop.workload import SETTINGS, wait_until
from tests.support.apache_kafka import ApacheKafka

pytestmark = pytest.mark.java

IDLE = SETTINGS | {"log.cleaner.enable": "false"}
NO_TIMEOUT_S = 60.0


def settings_for(seed: int) -> Settings:
    """Small segments of every codec; room for all keys; tombstones that may go when a round is over."""
    settings = settings_of(seed)
    written = replace(
        settings.written,
        segment_bytes=1500,
        segment_ms=10**9,
        segment_index_bytes=4096,
        cleanup_policy=frozenset({"compact"}),
        log_append_time=False,
        min_compaction_lag_ms=0,
        delete_retention_ms=1000,
    )
    cleaned = replace(written, segment_bytes=3000)
    return replace(settings, written=written, cleaned=cleaned, is_compressed=True, dedupe_bytes=1 << 16)


def create_topic(node: ApacheKafka, settings: Settings) -> None:
    config = settings.kafkas() | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    topic = NewTopic(TOPIC, num_partitions=1, replication_factor=1, config=config)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    (made,) = admin.create_topics([topic]).values()
    made.result(NO_TIMEOUT_S)


def served(node: ApacheKafka, isolation: str) -> list[Record]:
    """All that a consumer gets, from the start to where its isolation lets it."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    while True:
        message = consumer.poll(NO_TIMEOUT_S)
        assert message is not None, f"nothing more after {found[-1:]}"
        if message.error() is None:
            headers = tuple(message.headers() or ())
            found.append(
                Record(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)
            )
        elif message.error().code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found


async def write_and_clean(data: Path, settings: Settings, writers: Writers) -> None:
    """Three rounds, each compacted; everything in the leader epoch that Kafka began with."""
    for _ in range(3):
        appends = [each._replace(leader_epoch=0) for each in writers.round()]
        await append(data, appends, settings)
        assert (await clean_by_barnabas(data, settings, writers.now_ms, None)).end_offset


async def seen_by_barnabas(data: Path, settings: Settings, now_ms: int) -> tuple[list[Record], list[Record]]:
    """Of all that is there, and of what is committed."""
    async with log_directory(data, ManualClock(now_ms)) as directory:
        log = await directory.partition(TOPIC, 0, config=settings.cleaned)
        log.advance_high_watermark(log.end_offset)
        fetches = await fetch_all(log, Bound.LOG_END)
        batches = [batch for fetched in fetches for batch in fetched.batches if not batch.header.is_control]
        everything = [record for batch in batches for record in batch.records()]
        return everything, without_aborted(await fetch_all(log, Bound.LAST_STABLE))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_kafka_serves_and_goes_on_compacting(seed: int, tmp_path: Path) -> None:
    settings = settings_for(seed)
    writers = Writers(settings, now_ms=int(time.time() * 1000) - 120_000)
    idle = ApacheKafka(tmp_path / "node", settings=IDLE)
    with idle:
        create_topic(idle, settings)
    asyncio.run(write_and_clean(idle.data, settings, writers))
    everything, committed = asyncio.run(seen_by_barnabas(idle.data, settings, writers.now_ms))
    active = int(max((idle.data / FOLDER).glob("*.log")).stem)
    latest = latest_values(idle.data / FOLDER, active)
    with idle:
        assert served(idle, "read_uncommitted") == everything
        assert served(idle, "read_committed") == committed
    complaints = (idle.home / "kafka.log").read_text().splitlines()
    assert [line for line in complaints if "WARN" in line and "storage.internals.log" in line] == []

    busy = ApacheKafka(tmp_path / "node", data=idle.data, settings=SETTINGS)
    checkpoint = busy.data / "cleaner-offset-checkpoint"
    with busy:
        wait_until(lambda: checkpoint.exists() and f"{TOPIC} 0 " in checkpoint.read_text(), "Kafka's cleaner")
        everything, committed = served(busy, "read_uncommitted"), served(busy, "read_committed")
    assert (everything, committed) == asyncio.run(seen_by_barnabas(busy.data, settings, writers.now_ms))
    assert latest_values(busy.data / FOLDER, active) == latest


def latest_values(folder: Path, end_offset: int) -> dict[bytes, Record]:
    found = {key: records[-1] for key, records in committed_by_key(folder, end_offset).items()}
    return {key: record for key, record in found.items() if record.value is not None}
