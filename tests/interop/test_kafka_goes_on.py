"""One directory in turns: Kafka writes and is killed, Barnabas recovers and appends, Kafka goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.clock import ManualClock
from barnabas.log.partition import Bound, PartitionLog
from barnabas.log.producers import Origin
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.reader import Record
from tests.interop.barnabas_log import COORDINATOR_TOPICS, fetch_all, log_directory, open_log, without_aborted
from tests.interop.make_fixture import unpack
from tests.interop.workload import SETTINGS, WORKLOAD, KafkaDirectory, describe
from tests.support.apache_kafka import LEAN_JVM, ApacheKafka, tool

pytestmark = pytest.mark.java

# the epoch in which the killed Kafka led
EPOCH = 4
PRODUCER_ID = 900_000


async def recover_and_append(kafka: KafkaDirectory, data: Path) -> None:
    async with log_directory(data, ManualClock(kafka.now_ms)) as directory:
        for topic in (*kafka.topics, *COORDINATOR_TOPICS):
            log = await open_log(directory, kafka, topic)
            if topic == "codecs":
                await append_every_codec(log, kafka.now_ms)
            elif topic == "transactions":
                await append_transactions(log, kafka.now_ms)


async def append_every_codec(log: PartitionLog, now_ms: int) -> None:
    for codec in Codec:
        for start in (0, 10):
            records = [
                Record(0, now_ms + start + i, b"k", b"by Barnabas " * i, (("h", None),)) for i in range(10)
            ]
            batch = build_batch(
                records, codec=codec, producer_id=PRODUCER_ID + codec, producer_epoch=0, base_sequence=start
            )
            await log.append_as_leader(batch, EPOCH)


async def append_transactions(log: PartitionLog, now_ms: int) -> None:
    for sequence, kind in enumerate((ControlType.ABORT, ControlType.COMMIT)):
        batch = build_batch(
            [Record(0, now_ms, None, f"to be {kind.name}".encode())],
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        await log.append_as_leader(batch, EPOCH)
        marker = build_end_transaction(
            kind, producer_id=PRODUCER_ID, producer_epoch=0, coordinator_epoch=0, timestamp=now_ms
        )
        await log.append_as_leader(marker, EPOCH, Origin.COORDINATOR)


async def seen_by_barnabas(kafka: KafkaDirectory, data: Path) -> dict[str, dict[str, Any]]:
    """Bounds, records and committed offsets of every topic."""
    seen = {}
    async with log_directory(data, ManualClock(kafka.now_ms)) as directory:
        for topic in kafka.topics:
            log = await open_log(directory, kafka, topic)
            batches = [batch for fetched in await fetch_all(log, Bound.LOG_END) for batch in fetched.batches]
            records = [
                (record.offset, record.timestamp, record.value)
                for batch in batches
                if not batch.header.is_control
                for record in batch.records()
                if record.offset >= log.start_offset
            ]
            committed = without_aborted(await fetch_all(log, Bound.LAST_STABLE))
            seen[topic] = {
                "bounds": (log.start_offset, log.last_stable_offset, log.end_offset),
                "records": records,
                "committed": [record.offset for record in committed if record.offset >= log.start_offset],
            }
    return seen


def seen_by_kafka(kafka: KafkaDirectory) -> dict[str, dict[str, Any]]:
    return {
        topic: {
            "bounds": (described["start"], described["stable"], described["end"]),
            "records": [
                (
                    each["offset"],
                    each["timestamp"],
                    bytes.fromhex(each["value"]) if each["value"] is not None else None,
                )
                for each in described["records"]
            ],
            "committed": described["committed"],
        }
        for topic, described in kafka.topics.items()
    }


def test_kafka_goes_on_where_barnabas_stopped(tmp_path: Path) -> None:
    killed = unpack(tmp_path / "kept").killed
    node = ApacheKafka(tmp_path / "node", settings=SETTINGS)
    killed.copy(node.data)
    asyncio.run(recover_and_append(killed, node.data))
    by_barnabas = asyncio.run(seen_by_barnabas(killed, node.data))
    with node:
        after_start = describe(node, tmp_path / "after-start")
        tool(WORKLOAD, "third", node.bootstrap, str(killed.now_ms), jvm=LEAN_JVM)
        at_the_end = describe(node, tmp_path / "at-the-end")
    assert seen_by_kafka(after_start) == by_barnabas
    assert after_start.contents["offsets"] == killed.contents["offsets"]
    before, after = (each.topics["codecs"]["end"] for each in (killed, after_start))
    assert after == before + len(Codec) * 20
    # and back once more: what Kafka appended behind Barnabas's batches
    assert asyncio.run(seen_by_barnabas(at_the_end, node.data)) == seen_by_kafka(at_the_end)
    assert at_the_end.topics["transactions"]["end"] > after_start.topics["transactions"]["end"]
    assert "WARN" not in starting_log(node)


def starting_log(node: ApacheKafka) -> str:
    """What Kafka said of the logs it found; its own warnings about itself left out."""
    lines = (node.home / "kafka.log").read_text().splitlines()
    return "\n".join(line for line in lines if "storage.internals.log" in line or "kafka.log" in line)
