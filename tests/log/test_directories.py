"""Several log directories as one: where partitions go, where they are found, and what a failed disk takes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from barnabas.core.disk import DiskFailed
from barnabas.core.errors import StorageError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log import untouched
from barnabas.log.config import LogConfig
from barnabas.log.directories import LogDirectories, PartitionTwice, last_epoch
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import Home, PartitionLog
from barnabas.log.recovery import open_partition
from tests.support.logs import batch, open_directory, read_all

A, B, C = UUID(int=0xA), UUID(int=0xB), UUID(int=0xC)
TOPIC, OTHER = UUID(int=0x7), UUID(int=0x8)


async def opened(*ids: UUID) -> LogDirectories:
    return LogDirectories({each: await open_directory(MemoryDisk(name=f"/{each.int:x}")) for each in ids})


def held(logs: LogDirectories) -> list[int]:
    return [len(directory.partitions) for directory in logs.live.values()]


def test_a_new_partition_goes_where_there_are_fewest() -> None:
    async def scenario() -> None:
        logs = await opened(A, B, C)
        await logs.live[A].partition("here", 0)
        await logs.live[A].partition("__cluster_metadata", 0)  # which does not count
        for number in range(5):
            await logs.partition("t", number)
        assert [logs.where("t", number) for number in range(5)] == [B, C, A, B, C]
        assert logs.where("t", 5) is None
        assert logs.partitions == sorted(
            [("__cluster_metadata", 0), ("here", 0), *(("t", number) for number in range(5))]
        )

    asyncio.run(scenario())


@pytest.mark.parametrize("ids", [(A,), (A, B)])
def test_a_partition_deleted_while_it_is_made_leaves_nothing(
    ids: tuple[UUID, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        logs = await opened(*ids)
        is_making, may_go_on = asyncio.Event(), asyncio.Event()

        async def slowly(home: Home, path: str, config: LogConfig, **how: Any) -> PartitionLog:
            is_making.set()
            await may_go_on.wait()
            return await open_partition(home, path, config, **how)

        monkeypatch.setattr("barnabas.log.directory.open_partition", slowly)
        making = asyncio.ensure_future(logs.partition("t", 0, topic_id=TOPIC))
        await is_making.wait()
        deleting = asyncio.ensure_future(logs.delete_partition("t", 0))
        await asyncio.sleep(0)
        may_go_on.set()
        await asyncio.gather(making, deleting)
        assert logs.partitions == []

    asyncio.run(scenario())


def test_one_directory_keeps_no_places_and_holds_all() -> None:
    async def scenario() -> None:
        logs = await opened(A)
        assert logs.is_single
        assert logs.place("t", 0) == logs.place("t", 1, B) == A
        logs.missing["/b"] = StorageError("for a test")
        assert not logs.is_single
        several = await opened(A, B)
        assert not several.is_single
        several.drop(B, StorageError("for a test"))
        assert not several.is_single

    asyncio.run(scenario())


def test_a_place_is_kept_before_there_are_files() -> None:
    async def scenario() -> None:
        logs = await opened(A, B)
        assert [logs.place("t", number) for number in range(4)] == [A, B, A, B]
        assert [logs.place("t", number) for number in range(4)] == [A, B, A, B]
        assert held(logs) == [0, 0]
        await logs.partition("t", 3)
        assert held(logs) == [0, 1]
        assert logs.place("t", 3) == B
        logs.forget("t", 0)
        assert logs.place("u", 0) == A

    asyncio.run(scenario())


def test_a_place_that_was_told_counts_if_it_is_in_use() -> None:
    async def scenario() -> None:
        logs = await opened(A, B)
        assert logs.place("t", 0, B) == B
        assert logs.place("t", 1, C) == A
        assert logs.place("t", 0, A) == B  # where it is counts more

    asyncio.run(scenario())


def test_a_cordoned_directory_gets_nothing_new_unless_all_are() -> None:
    async def scenario() -> None:
        logs = await opened(A, B)
        logs.is_cordoned = lambda where: where == "/a/"
        assert [logs.place("t", number) for number in range(3)] == [B, B, B]
        logs.is_cordoned = lambda where: True
        assert logs.place("t", 3) == A

    asyncio.run(scenario())


def test_what_is_there_is_found_and_used_where_it_is() -> None:
    async def scenario() -> None:
        logs = await opened(A, B)
        log = await logs.live[B].partition("t", 0)
        await log.append_as_leader(batch(3), 0)
        await logs.live[B].partition("u", 0)
        assert logs.place("t", 0) == B
        assert await logs.partition("t", 0) is log
        assert logs.opened("t", 0) is log
        assert await logs.existing("t", 0) is log
        assert await logs.existing("nowhere", 0) is None
        assert logs.opened("nowhere", 0) is None
        await logs.delete_partition("t", 0)
        assert logs.where("t", 0) is None
        assert held(logs) == [0, 1]
        await logs.set_aside("u", 0)
        await logs.set_aside("nowhere", 0)
        assert held(logs) == [0, 0]

    asyncio.run(scenario())


def test_a_partition_in_two_directories_is_for_somebody_to_judge() -> None:
    async def scenario() -> None:
        logs = await opened(A, B)
        for directory in logs.live.values():
            await directory.partition("t", 0, topic_id=TOPIC)
        with pytest.raises(PartitionTwice, match=r"t-0 is in two log directories, /a/ and /b/: .* remove it"):
            await logs.settle(lambda topic: TOPIC)

    asyncio.run(scenario())


def test_one_of_two_is_set_aside_if_its_topic_is_gone() -> None:
    async def scenario() -> None:
        logs = await opened(A, B)
        await logs.live[A].partition("t", 0, topic_id=OTHER)
        await logs.live[B].partition("t", 0, topic_id=TOPIC)
        await logs.settle(lambda topic: TOPIC)
        assert logs.where("t", 0) == B
        assert held(logs) == [0, 1]
        (stray,) = [name for name in await logs.live[A].disk.listdir("") if name.startswith("t-0")]
        assert stray.endswith("-stray")

    asyncio.run(scenario())


def test_a_directory_that_is_dropped_refuses_and_lets_go() -> None:
    async def scenario() -> None:
        logs = await opened(A, B)
        failed = logs.live[A]
        log = await logs.partition("t", 0)
        await log.append_as_leader(batch(1), 0)
        assert [logs.place("t", 1), logs.place("t", 2)] == [B, A]
        reason = DiskFailed("it is broken")
        assert logs.drop(A, reason) == [("t", 0), ("t", 2)]
        assert logs.missing == {"/a/": reason}
        assert list(logs.live) == [B]
        with pytest.raises(DiskFailed, match="broken"):
            await log.append_as_leader(batch(1), 0)
        with pytest.raises(DiskFailed, match="broken"):
            await failed.partition("new", 0)
        assert [record.offset for record in await read_all(log)] == [0]  # who reads may end
        await failed.give_up(reason)
        with pytest.raises(DiskFailed, match="broken"):
            await read_all(log)
        assert logs.opened("t", 0) is None
        assert logs.place("new", 0) == B
        await open_directory(failed.disk)  # its lock is free

    asyncio.run(scenario())


async def in_trouble(operation: str, error: int, work: str) -> list[StorageError]:
    disk = MemoryDisk()
    directory = await open_directory(disk)
    log = await directory.partition("t", 0)
    await log.append_as_leader(batch(2), 0)
    heard: list[StorageError] = []
    directory.on_trouble = heard.append
    disk.fail(operation, error)
    log.read_ends.clear()
    works: dict[str, Callable[[], Awaitable[object]]] = {
        "append": lambda: log.append_as_leader(batch(1), 0),
        "read": lambda: read_all(log),
        "open": lambda: directory.partition("u", 0),
        "checkpoint": directory.checkpoint,
    }
    with pytest.raises(StorageError):
        await works[work]()
    return heard


@pytest.mark.parametrize(
    ("operation", "work"), [("append", "append"), ("read", "read"), ("mkdir", "open"), ("create", "open")]
)
def test_whoever_runs_a_directory_hears_that_its_disk_fails(operation: str, work: str) -> None:
    (heard,) = asyncio.run(in_trouble(operation, errno.EIO, work))
    assert isinstance(heard, DiskFailed)


def test_the_last_epoch_is_one_that_all_agree_on() -> None:
    async def stopped(epoch: int | None) -> LogDirectory:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        if epoch is None:
            disk.crash_process()
        else:
            await directory.close(epoch)
        return await open_directory(disk)

    async def scenario() -> None:
        seven, also_seven, eight, none = [await stopped(each) for each in (7, 7, 8, None)]
        assert last_epoch([seven, also_seven]) == 7
        assert last_epoch([seven, eight]) is None
        assert last_epoch([seven, none]) is None

    asyncio.run(scenario())


def test_sizes_are_those_of_the_batches_opened_or_not() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        size = len(batch(3))
        await (await directory.partition("t", 0)).append_as_leader(batch(3), 0)
        await (await directory.partition("t", 1)).append_as_leader(batch(3), 0)
        await directory.partition("u", 0)
        await directory.close()
        directory = await open_directory(disk)
        await (await directory.partition("t", 1)).append_as_leader(batch(3), 0)
        assert await untouched.sizes(directory) == {("t", 0): size, ("t", 1): 2 * size, ("u", 0): 0}

    asyncio.run(scenario())
