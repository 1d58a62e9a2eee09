"""Directories that Apache Kafka wrote: read, looked up in and recovered by Barnabas.

What is expected is what Kafka itself answered from the same directory; and after a crash, what Kafka's own
recovery made of the same files.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.clock import ManualClock
from barnabas.log.partition import Bound, PartitionLog
from barnabas.log.reading import LATEST, MAX_TIMESTAMP, end_offset_for_epoch, offset_for_timestamp
from barnabas.records.builder import build_batch
from barnabas.records.reader import Record
from tests.interop.barnabas_log import (
    COORDINATOR_TOPICS,
    batches_in,
    config_of,
    expected,
    fetch,
    fetch_all,
    log_directory,
    open_log,
    without_aborted,
)
from tests.interop.same_files import different_epochs, different_files
from tests.interop.workload import KafkaDirectories, KafkaDirectory

# the leader epoch in which Kafka was when it described each directory
EPOCHS = {"clean": 2, "killed": 4, "recovered": 6}

Check = Callable[[str, PartitionLog, dict[str, Any]], Awaitable[None]]


@pytest.fixture
def check_every_topic(kafka_directory: KafkaDirectory, tmp_path: Path) -> Callable[[Check], None]:
    """Run a check over each topic of a copy of the directory, opened as one."""

    def check_every(check: Check) -> None:
        async def run() -> None:
            data = kafka_directory.copy(tmp_path / "data")
            async with log_directory(data, ManualClock(kafka_directory.now_ms)) as directory:
                for topic, described in kafka_directory.topics.items():
                    await check(topic, await open_log(directory, kafka_directory, topic), described)

        asyncio.run(run())

    return check_every


def test_bounds(check_every_topic: Callable[[Check], None]) -> None:
    async def check(topic: str, log: PartitionLog, described: dict[str, Any]) -> None:
        found = (log.start_offset, log.last_stable_offset, log.end_offset)
        assert found == (described["start"], described["stable"], described["end"]), topic

    check_every_topic(check)


@pytest.mark.parametrize("max_bytes", [1, 1000, 1 << 20])
def test_every_record_is_read_back(check_every_topic: Callable[[Check], None], max_bytes: int) -> None:
    async def check(topic: str, log: PartitionLog, described: dict[str, Any]) -> None:
        fetches = await fetch_all(log, Bound.LOG_END, max_bytes)
        batches = [batch for fetched in fetches for batch in fetched.batches if not batch.header.is_control]
        records = [record for batch in batches for record in batch.records()]
        assert [record for record in records if record.offset >= log.start_offset] == expected(described), (
            topic
        )

    check_every_topic(check)


@pytest.mark.parametrize("max_bytes", [1, 1000, 1 << 20])
def test_read_committed_shows_what_kafka_showed(
    check_every_topic: Callable[[Check], None], max_bytes: int
) -> None:
    async def check(topic: str, log: PartitionLog, described: dict[str, Any]) -> None:
        shown = without_aborted(await fetch_all(log, Bound.LAST_STABLE, max_bytes))
        offsets = [record.offset for record in shown if record.offset >= log.start_offset]
        assert offsets == described["committed"], topic

    check_every_topic(check)


def test_a_read_from_any_offset_begins_with_its_batch(check_every_topic: Callable[[Check], None]) -> None:
    async def check(topic: str, log: PartitionLog, _: dict[str, Any]) -> None:
        for offset in range(log.start_offset, log.end_offset):
            first = (await fetch(log, offset, 1, Bound.LOG_END)).batches[0].header
            assert first.last_offset >= offset, topic
            # compaction leaves gaps, and with them batches that begin later
            assert first.base_offset <= offset or topic == "compacted", topic

    check_every_topic(check)


def test_look_ups_by_timestamp(check_every_topic: Callable[[Check], None]) -> None:
    async def check(topic: str, log: PartitionLog, described: dict[str, Any]) -> None:
        for asked, *answer in described["lookups"]:
            found = await offset_for_timestamp(log, MAX_TIMESTAMP if asked == "max" else asked)
            if topic == "deleted" and answer[0] == -1:
                # Kafka stops at a segment below the log's start, and answers that there is nothing
                answer = first_at_or_after(described, asked)
            assert [found.offset, found.timestamp_ms, found.leader_epoch] == answer, (topic, asked)
        assert (await offset_for_timestamp(log, LATEST)).offset == described["end"]

    check_every_topic(check)


def first_at_or_after(described: dict[str, Any], timestamp: int) -> list[int]:
    for record in described["records"]:
        if record["timestamp"] >= timestamp:
            return [record["offset"], record["timestamp"], record["epoch"]]
    return [-1, -1, -1]


def test_look_ups_by_leader_epoch(
    check_every_topic: Callable[[Check], None], kafka_directory: KafkaDirectory
) -> None:
    async def check(topic: str, log: PartitionLog, described: dict[str, Any]) -> None:
        log.begin_epoch(EPOCHS[kafka_directory.path.name], log.end_offset)
        for epoch, answered, end in described["epochs"]:
            assert end_offset_for_epoch(log, epoch) == (answered, end), (topic, epoch)

    check_every_topic(check)


def reopened(kafka: KafkaDirectory, data: Path) -> None:
    """Open every partition, which recovers it if need be, and stop cleanly."""

    async def run() -> None:
        async with log_directory(data, ManualClock(kafka.now_ms)) as directory:
            for topic in (*kafka.topics, *COORDINATOR_TOPICS):
                await open_log(directory, kafka, topic)

    asyncio.run(run())


def test_a_clean_directory_is_left_as_it_was(kafka_directories: KafkaDirectories, tmp_path: Path) -> None:
    kafka = kafka_directories.clean
    data = kafka.copy(tmp_path / "data")
    reopened(kafka, data)
    different = different_files(kafka.data, data) + different_epochs(kafka.data, data)
    # a snapshot taken at an earlier stop, in the middle of a segment, goes at a start, as in Kafka
    assert [line for line in different if not line.endswith(".snapshot: missing in ours")] == []


def test_recovery_makes_of_a_crash_what_kafka_makes_of_it(
    kafka_directories: KafkaDirectories, tmp_path: Path
) -> None:
    data = kafka_directories.killed.copy(tmp_path / "data")
    reopened(kafka_directories.killed, data)
    recovered = kafka_directories.recovered.data
    assert different_files(recovered, data) + different_epochs(recovered, data) == []


def test_everything_but_the_batches_can_be_rebuilt(
    kafka_directories: KafkaDirectories, tmp_path: Path
) -> None:
    kafka = kafka_directories.recovered
    data = kafka.copy(tmp_path / "data")
    for pattern in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot", "leader-epoch-checkpoint"):
        for file in data.glob(f"*-0/{pattern}"):
            file.unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).unlink()
    reopened(kafka, data)
    # of an aborted transaction whose records are compacted away, only the marker is left; and Kafka keeps
    # no snapshots from before the log's start
    unknowable = ("compacted-0/.*txnindex: missing in ours", "deleted-0/.*18.snapshot: missing in theirs")
    different = different_files(kafka.data, data)
    assert [line for line in different if not any(re.match(known, line) for known in unknowable)] == []
    assert different_epochs(kafka.data, data) == []


def test_a_torn_tail_is_cut_and_nothing_else(kafka_directories: KafkaDirectories, tmp_path: Path) -> None:
    kafka = kafka_directories.killed
    for topic, torn_bytes in (("segments", 1), ("transactions", 40), ("epochs", 100)):
        data = kafka.copy(tmp_path / topic)
        whole = batches_in(data / f"{topic}-0")
        last = max((data / f"{topic}-0").glob("*.log"))
        with last.open("r+b") as file:
            file.truncate(last.stat().st_size - torn_bytes)
        reopened(kafka, data)
        assert batches_in(data / f"{topic}-0") == whole[:-1]


def test_partitions_that_were_not_recovered_are_not_called_clean(
    kafka_directories: KafkaDirectories, tmp_path: Path
) -> None:
    data = kafka_directories.killed.copy(tmp_path / "data")

    async def touch_one() -> None:
        async with log_directory(data, ManualClock(kafka_directories.killed.now_ms)) as directory:
            await open_log(directory, kafka_directories.killed, "codecs")

    asyncio.run(touch_one())
    # a torn tail that the first start did not look at
    last = max((data / "segments-0").glob("*.log"))
    whole = batches_in(data / "segments-0")
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 1)
    reopened(kafka_directories.killed, data)
    assert batches_in(data / "segments-0") == whole[:-1]


def test_gaps_between_segments_survive_a_crash_whatever_the_policy_is_now(
    kafka_directories: KafkaDirectories, tmp_path: Path
) -> None:
    kafka = kafka_directories.killed
    data = kafka.copy(tmp_path / "data")
    (data / "recovery-point-offset-checkpoint").unlink()
    # as the cleaner leaves it where it removes the last batches of a segment
    first = min((data / "compacted-0").glob("*.log"))
    first.write_bytes(b"")
    compacted = batches_in(data / "compacted-0")

    async def open_as_deleting() -> None:
        async with log_directory(data, ManualClock(kafka.now_ms)) as directory:
            config = replace(config_of(kafka, "compacted"), cleanup_policy=frozenset({"delete"}))
            await directory.partition("compacted", 0, config=config)

    asyncio.run(open_as_deleting())
    assert batches_in(data / "compacted-0") == compacted


def test_an_epoch_that_was_cut_away_does_not_come_back(
    kafka_directories: KafkaDirectories, tmp_path: Path
) -> None:
    kafka = kafka_directories.killed
    data = kafka.copy(tmp_path / "data")
    batches = batches_in(data / "epochs-0")
    kept = [batch for batch in batches if batch.header.leader_epoch < EPOCHS["killed"]]
    (log_file,) = (data / "epochs-0").glob("*.log")
    with log_file.open("r+b") as file:
        file.truncate(sum(len(batch.data) for batch in kept) + 100)
    reopened(kafka, data)
    # another leader had more of the epoch before
    end, epoch = kept[-1].header.next_offset, kept[-1].header.leader_epoch
    follows = build_batch([Record(end, kafka.now_ms, b"k", b"v")], base_offset=end, leader_epoch=epoch)

    async def append_and_ask() -> None:
        async with log_directory(data, ManualClock(kafka.now_ms)) as directory:
            log = await open_log(directory, kafka, "epochs")
            assert log.end_offset == end
            await log.append_as_follower(follows)
        async with log_directory(data, ManualClock(kafka.now_ms)) as directory:
            log = await open_log(directory, kafka, "epochs")
            assert end_offset_for_epoch(log, epoch) == (epoch, end + 1)
            assert end_offset_for_epoch(log, EPOCHS["killed"]) == (-1, -1)

    asyncio.run(append_and_ask())
