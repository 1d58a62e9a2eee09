"""The driver of the raft core, beside what the core decides: what it reads for others."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.quorum.raft_disk import RaftDisk
from barnabas.core.clock import ManualClock
from barnabas.core.errors import InvariantViolation
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log import trimming
from barnabas.metadata.records import PartitionRecord, encode_record
from barnabas.raft import messages as raft
from barnabas.raft.ready import SnapshotChunk
from barnabas.raft.snapshot import Snapshot, SnapshotId
from tests.broker.test_quorum import FIRST, create, new_disk, running
from tests.support.logs import open_directory


def test_records_that_a_snapshot_has_replaced_are_not_sent() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, directory, _, _):
            driver = quorum.driver
            for name in ("one", "two", "three"):
                await create(quorum, name)
            log = await directory.partition("__cluster_metadata", 0)
            asked = raft.Read(FIRST, driver.end_offset, 1_000_000)
            answer = raft.FetchResponse(raft.NONE, driver.core.known(), read=asked)
            assert await driver.fetched(answer)
            await trimming.delete_records(log, FIRST + 1)
            assert await driver.fetched(answer) == bytearray()

    disk = new_disk()
    asyncio.run(run())


def test_snapshot_that_is_gone_is_not_found() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            known = quorum.driver.core.known()
            answer = raft.FetchSnapshotResponse(raft.NONE, known, SnapshotId(7, 1), max_bytes=1_000)
            assert await quorum.driver.fetched_snapshot(answer) is None

    disk = new_disk()
    asyncio.run(run())


def test_a_snapshot_that_is_given_up_for_another_leaves_no_file() -> None:
    async def run() -> None:
        directory = await open_directory(disk)
        log = await directory.partition("__cluster_metadata", 0)
        files = RaftDisk(log, disk, ManualClock())
        for end_offset in (10, 20):
            chunk = SnapshotChunk(SnapshotId(end_offset, 1), 0, 100, b"piece", is_last=False)
            await files.write_chunk(chunk)
        files.close()
        left = [name for name in await disk.listdir("__cluster_metadata-0") if name.endswith(".part")]
        assert left == [SnapshotId(20, 1).name + ".part"]
        await directory.close()

    disk = MemoryDisk()
    asyncio.run(run())


def test_a_fetched_snapshot_that_cannot_be_followed_stops_the_node() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, failures):
            nameless = PartitionRecord(partition_id=0, topic_id=b"no topic".ljust(16))

            async def written() -> Snapshot:
                return Snapshot([], [encode_record(nameless)])

            with pytest.raises(InvariantViolation, match="which does not exist"):
                await quorum._install(SnapshotId(100, 9), written)
            assert failures == [quorum.driver.failure]

    disk = new_disk()
    asyncio.run(run())
