"""The same batches in Barnabas's hands: its files are Kafka's to the byte, and Kafka's tool reads them all.

Every batch that Apache Kafka stored in its clean directory is appended again, through as many starts and in
the same leader epochs, by a Barnabas that leads (with batches as clients sent them) or follows. Of the topic
that Kafka has compacted, the segments as they were before are still there, waiting to be removed.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import struct
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.core.clock import ManualClock
from barnabas.log.partition import PartitionLog
from barnabas.log.producers import Origin
from barnabas.log.trimming import delete_records
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    LOG_APPEND_TIME_FLAG,
    MAX_TIMESTAMP_AT,
)
from barnabas.records.kernel import crc32c
from tests.interop.barnabas_log import COORDINATOR_TOPICS, Batch, batches_in, log_directory, open_log
from tests.interop.dump import Dumped, dump, files
from tests.interop.same_files import different_epochs, different_files
from tests.interop.workload import KafkaDirectories, KafkaDirectory

# the leader epochs of the two lives that the clean directory has seen; this topic was not there in the first
LIVES = (0, 2)
BORN_LATER = "__consumer_offsets"


@pytest.fixture(params=["leader", "follower"])
def as_leader(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "leader")


@pytest.fixture
def kafkas(kafka_directories: KafkaDirectories, tmp_path: Path) -> KafkaDirectory:
    """Kafka's clean directory, with its compaction undone."""
    kafka = KafkaDirectory(Path(shutil.copytree(kafka_directories.clean.path, tmp_path / "kafka")))
    for file in kafka.data.glob("compacted-0/*.deleted"):
        file.rename(file.with_suffix(""))
    return kafka


@pytest.fixture
def written(kafkas: KafkaDirectory, as_leader: bool, tmp_path: Path) -> Path:
    """What Barnabas makes of the batches in it."""
    data = tmp_path / "barnabas"
    asyncio.run(write_again(kafkas, data, as_leader))
    return data


async def write_again(kafka: KafkaDirectory, data: Path, as_leader: bool) -> None:
    clock = ManualClock(kafka.now_ms)
    for life in LIVES:
        async with log_directory(data, clock) as directory:
            for topic in (*kafka.topics, *COORDINATOR_TOPICS):
                if topic == BORN_LATER and life == LIVES[0]:
                    continue
                epoch = 0 if topic == BORN_LATER else life
                log = await open_log(directory, kafka, topic, topic_id(kafka.data / f"{topic}-0"))
                log.begin_epoch(epoch, log.end_offset)
                for batch in batches_in(kafka.data / f"{topic}-0"):
                    if batch.header.leader_epoch == epoch:
                        await append(log, batch, clock, as_leader)
            if life == LIVES[-1]:
                deleted = directory.opened("deleted", 0)
                assert deleted is not None
                await delete_records(deleted, kafka.topics["deleted"]["start"])


def topic_id(folder: Path) -> UUID:
    """The topic id that Kafka noted, read here by other means than Barnabas's own."""
    text = (folder / "partition.metadata").read_text().split("topic_id: ")[1].strip()
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


async def append(log: PartitionLog, batch: Batch, clock: ManualClock, as_leader: bool) -> None:
    header = batch.header
    clock.jump_ms(max(header.max_timestamp, clock.wall_ms()) - clock.wall_ms())
    if not as_leader:
        appended = await log.append_as_follower(batch.data)
        assert appended is not None
    elif header.is_control or log.path.startswith("__"):
        appended = await log.append_as_leader(unnumbered(batch), header.leader_epoch, Origin.COORDINATOR)
    else:
        if header.is_log_append_time:
            clock.jump_ms(header.max_timestamp - clock.wall_ms())
        appended = await log.append_as_leader(as_sent(batch), header.leader_epoch)
    assert (appended.first_offset, appended.last_offset) == (header.base_offset, header.last_offset)
    log.advance_high_watermark(log.end_offset)


def unnumbered(batch: Batch) -> bytearray:
    """The batch without what a leader writes into it: offset and epoch."""
    data = bytearray(batch.data)
    struct.pack_into(">q", data, 0, 0)
    struct.pack_into(">i", data, 12, -1)
    return data


def as_sent(batch: Batch) -> bytearray:
    """The batch as the client sent it: without the append time, where the leader stamped that."""
    data = unnumbered(batch)
    header = batch.header
    if header.is_log_append_time:
        struct.pack_into(">h", data, ATTRIBUTES_AT, header.attributes & ~LOG_APPEND_TIME_FLAG)
        struct.pack_into(">I", data, CRC_AT, crc32c(data, ATTRIBUTES_AT, len(data)))
        latest = max(record.timestamp for record in Batch(header, bytes(data)).records())
        struct.pack_into(">q", data, MAX_TIMESTAMP_AT, latest)
        struct.pack_into(">I", data, CRC_AT, crc32c(data, ATTRIBUTES_AT, len(data)))
    return data


def test_files_are_the_same_to_the_byte(kafkas: KafkaDirectory, written: Path) -> None:
    assert different_files(kafkas.data, written) == []
    assert different_epochs(kafkas.data, written, last_epochs=True) == []


@pytest.mark.java
@pytest.mark.parametrize("as_leader", [True], ids=["leader"])
@pytest.mark.parametrize(
    "options",
    [
        ["--deep-iteration", "--print-data-log"],
        ["--deep-iteration"],
        ["--index-sanity-check"],
        ["--verify-index-only"],
    ],
    ids=" ".join,
)
def test_kafkas_tool_says_of_both_the_same(kafkas: KafkaDirectory, written: Path, options: list[str]) -> None:
    topics = [f"{topic}-0" for topic in (*kafkas.topics, *COORDINATOR_TOPICS)]
    theirs = dump(kafkas.data, files(kafkas.data, topics), *options)
    ours = dump(written, files(written, topics), *options)
    assert unordered(ours) == unordered(theirs)


@pytest.mark.java
@pytest.mark.parametrize("as_leader", [True], ids=["leader"])
@pytest.mark.parametrize(
    ("topic", "option"),
    [("__consumer_offsets", "--offsets-decoder"), ("__transaction_state", "--transaction-log-decoder")],
)
def test_kafkas_tool_decodes_the_coordinators_records(
    kafkas: KafkaDirectory, written: Path, topic: str, option: str
) -> None:
    theirs, ours = (
        dump(data, files(data, [f"{topic}-0"], [".log"]), option) for data in (kafkas.data, written)
    )
    assert ours == theirs
    lines = [line for printed in ours.values() for line in printed]
    assert sum("payload: {" in line for line in lines) > 5


def unordered(dumped: Dumped) -> Dumped:
    """Producers stand in a snapshot in the order of a hash table."""
    return {file: sorted(lines) if file.endswith(".snapshot") else lines for file, lines in dumped.items()}
