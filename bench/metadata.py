"""What a change of the metadata costs at 100,000 partitions, beside the disk and on it.

A change is a decision's way without its command: the delta, the next image, its publication. Snapshots and
commands share the loop, so the longest wait of a command while a snapshot is written is measured, too. On the
disk, commands that come together share a flush: how many a second is held against one after another, and
against the flushes that the disk allows.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import uvloop

from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.broker.quorum.snapshots import SnapshotPolicy
from barnabas.controller.decisions import Decision
from barnabas.core.clock import SystemClock
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import SystemRandom
from barnabas.core.workers import ThreadWorkers
from barnabas.log.directory import LogDirectory
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord
from barnabas.metadata.replay import replay_all
from barnabas.protocol.schema import Message
from barnabas.raft.election import VoterKey
from barnabas.raft.voters import VoterInfo, VoterSet
from bench.options import Options
from bench.report import Row
from bench.scratch import scratch

TITLE = "metadata"
BROKERS = 5
TARGET_US = 50
AT_A_TIME = 100


def run(options: Options) -> list[Row]:
    """All rows."""
    scale = 100 if options.small else 1
    rows = [
        _change(topics // scale, partitions, changes=20_000 // scale)
        for topics, partitions in ((100_000, 1), (10_000, 10), (1_000, 100))
    ]
    with scratch() as root:
        rows += uvloop.run(_on_disk(root, partitions=100_000 // scale, commands=2_000 // scale))
    return rows


def _records(topics: int, partitions: int) -> Iterator[Message]:
    chance = random.Random(1)
    for number in range(topics):
        topic_id = chance.randbytes(16)
        yield TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        for index in range(partitions):
            replicas = [(number + index + step) % BROKERS + 1 for step in range(3)]
            yield PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes(16)] * 3,
            )


def _change(topics: int, partitions: int, changes: int) -> Row:
    """The median of changes of leaders and ISRs, each published to five subscribers."""
    metadata = MetadataPublisher(replay_all(ClusterImage(), _records(topics, partitions)))
    seen: list[int] = []
    for _ in range(5):
        metadata.subscribe(lambda image, delta: seen.append(len(delta.changed_partitions)))
    chance, ids = random.Random(2), list(metadata.image.topics_by_id)
    took: list[float] = []
    gc.collect()
    gc.freeze()
    for number in range(changes):
        topic_id, index = chance.choice(ids), chance.randrange(partitions)
        old = metadata.image.topics_by_id[topic_id].partitions[index]
        record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
        if number % 2:
            record.leader = old.replicas[number % 3]
        else:
            record.isr = [old.leader]
        began = time.perf_counter()
        delta = Delta(metadata.image)
        delta.replay(record)
        metadata.publish(delta.apply(number, 1), delta)
        took.append(time.perf_counter() - began)
    gc.unfreeze()
    assert len(seen) == 5 * changes
    name = f"change and publication, {topics:,} topics of {partitions}"
    return Row(name, statistics.median(took) * 1e6, "us", f"target: at most {TARGET_US} us")


async def _on_disk(root: Path, partitions: int, commands: int) -> list[Row]:
    workers, clock = ThreadWorkers(2), SystemClock()
    disk = OsDisk(root / "data", workers, clock)
    logs = await LogDirectory.open(disk, clock=clock, random=SystemRandom(), workers=workers)
    quorum = await MetadataQuorum.open(
        logs,
        disk,
        node_id=1,
        directory_id=UUID(int=1),
        clock=clock,
        voters=VoterSet([VoterInfo(VoterKey(1), ())]),
        policy=SnapshotPolicy(max_bytes=1 << 60, interval_ms=0),
    )
    await quorum.start()
    try:
        flushes = _flushes(root / "raw", count=max(10, commands // 10))
        one_by_one = await _rate(quorum, "a", commands // 10 or 1, at_a_time=1)
        together = await _rate(quorum, "b", commands, at_a_time=AT_A_TIME)
        topics = list(_records(partitions, 1))
        await quorum.controller.submit(lambda image: Decision(topics, None))
        gc.collect()
        gc.freeze()  # as `barnabas serve` does with what it loaded at its start
        alone_s = await _longest(quorum, "c", lambda: asyncio.sleep(1))
        during_s = await _longest(quorum, "d", quorum.snapshots.take)
    finally:
        gc.unfreeze()
        await quorum.close()
        await logs.close()
        disk.close()
        workers.close()
    return [
        Row("flushes the disk allows", flushes, "1/s", "write and fdatasync of 100 bytes"),
        Row("topics created, one after another", one_by_one, "1/s", "of the flushes", one_by_one / flushes),
        Row(f"topics created, {AT_A_TIME} at a time", together, "1/s", "of the flushes", together / flushes),
        Row(
            f"longest command while {partitions:,} partitions are snapshotted",
            during_s * 1e3,
            "ms",
            "of that without a snapshot",
            during_s / alone_s,
        ),
    ]


def _flushes(path: Path, count: int) -> float:
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        began = time.perf_counter()
        for _ in range(count):
            os.write(file, bytes(100))
            os.fdatasync(file)
        return count / (time.perf_counter() - began)
    finally:
        os.close(file)


async def _create(quorum: MetadataQuorum, name: str) -> None:
    topic = TopicRecord(name=name, topic_id=os.urandom(16))
    await quorum.controller.submit(lambda image: Decision([topic], None))


async def _rate(quorum: MetadataQuorum, prefix: str, commands: int, at_a_time: int) -> float:
    names = iter([f"{prefix}{number}" for number in range(commands)])

    async def client() -> None:
        for name in names:
            await _create(quorum, name)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(at_a_time)))
    return commands / (time.perf_counter() - began)


async def _longest(quorum: MetadataQuorum, prefix: str, work: object) -> float:
    """The longest that a command takes while something else runs."""
    running = asyncio.ensure_future(work())  # type: ignore[operator]
    longest, number = 0.0, 0
    while not running.done():
        began = time.perf_counter()
        await _create(quorum, f"{prefix}{number}")
        longest, number = max(longest, time.perf_counter() - began), number + 1
    await running
    return longest
