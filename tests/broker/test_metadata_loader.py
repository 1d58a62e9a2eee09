"""The metadata log read into the published image."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.quorum.loader import MetadataLoader
from barnabas.core.clock import ManualClock
from barnabas.core.errors import InvariantViolation
from barnabas.core.memory_disk import MemoryDisk
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.publisher import MetadataPublisher
from tests.support.logs import open_directory

BASE = ClusterImage(7, 1)


def test_a_pause_before_anything_is_published_leaves_the_snapshot_in_force() -> None:
    async def run() -> None:
        directory = await open_directory(MemoryDisk(), clock=ManualClock())
        log = await directory.partition("__cluster_metadata", 0)
        metadata, failures, moved = MetadataPublisher(), list[BaseException](), asyncio.Event()
        loader = MetadataLoader(log, metadata, failures.append, BASE)
        loader.on_moved = moved.set
        loader.advance(BASE.offset)
        await loader.pause()
        assert metadata.image == ClusterImage()
        moved.clear()
        loader.resume()
        assert loader.position == BASE.offset
        await asyncio.wait_for(moved.wait(), 60)
        assert metadata.image == BASE
        assert not failures
        await directory.close()

    asyncio.run(run())


@pytest.mark.parametrize("has_published", [False, True])
def test_a_log_without_what_is_committed_is_a_failure(has_published: bool) -> None:
    async def run() -> None:
        directory = await open_directory(MemoryDisk(), clock=ManualClock())
        log = await directory.partition("__cluster_metadata", 0)
        failures, moved = list[BaseException](), asyncio.Event()
        loader = MetadataLoader(log, MetadataPublisher(), failures.append, ClusterImage())
        loader.on_moved = moved.set
        if has_published:
            loader.advance(0)
            await asyncio.wait_for(moved.wait(), 60)
        loader.advance(7)
        await asyncio.sleep(0)
        await loader.pause()
        assert [type(each) for each in failures] == [InvariantViolation]
        await directory.close()

    asyncio.run(run())
