"""The driver of the raft core, beside what the core decides: what it reads for others."""

from __future__ import annotations

import asyncio

from barnabas.log import trimming
from barnabas.raft import messages as raft
from barnabas.raft.snapshot import SnapshotId
from tests.broker.test_quorum import FIRST, create, new_disk, running


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
