"""`cleaner-offset-checkpoint`: up to where logs were compacted, in Kafka's format, never beyond the truth."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log import names, trimming, untouched
from barnabas.log.config import LogConfig
from barnabas.log.partition import PartitionLog
from tests.log.compaction.life import COMPACTED as COMPACTED_LIFE
from tests.log.compaction.life import Life
from tests.support.log_fixtures import contents
from tests.support.logs import batch, open_directory

COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))
CHECKPOINT = names.CLEANER_CHECKPOINT


async def filled(log: PartitionLog, batches: int) -> None:
    for _ in range(batches):
        await log.append_as_leader(batch(10), 0)
        await log.roll()


def test_it_is_written_read_and_kept_for_those_that_are_not_touched() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk, COMPACTED)
        for partition in range(3):
            log = await directory.partition("t", partition)
            await filled(log, 2)
            log.cleaned_offset = 10 + partition if partition else None
        await directory.offsets.write_cleaned()
        assert await contents(disk, CHECKPOINT) == b"0\n2\nt 1 11\nt 2 12\n"
        await directory.close()
        directory = await open_directory(disk, COMPACTED)
        log = await directory.partition("t", 1)
        assert log.cleaned_offset == 11
        log.cleaned_offset = 20
        await directory.close()
        assert await contents(disk, CHECKPOINT) == b"0\n2\nt 1 20\nt 2 12\n"

    asyncio.run(scenario())


def test_there_is_none_as_long_as_nothing_was_compacted() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        await filled(await directory.partition("t", 0), 2)
        await directory.close()
        assert await disk.size_of(CHECKPOINT) is None

    asyncio.run(scenario())


@pytest.mark.parametrize("cut", [0, 5, 10, 15, 30])
def test_it_is_lowered_durably_before_the_cut(cut: int) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk, COMPACTED)
        log = await directory.partition("t", 0)
        await filled(log, 4)
        log.cleaned_offset = 30
        await directory.offsets.write_cleaned()
        if cut:
            await trimming.truncate_to(log, cut)
        else:
            await trimming.truncate_fully_and_start_at(log, 0)
        expected = max(0, cut - 1) // 10 * 10  # where the segment begins that is the last then
        assert log.cleaned_offset == expected
        await filled(log, 5)  # so that nobody could tell any more
        await log.flush()
        disk.crash_power(SeededRandom(1))
        directory = await open_directory(disk, COMPACTED)
        assert (await directory.partition("t", 0)).cleaned_offset == expected

    asyncio.run(scenario())


def test_it_is_no_higher_than_the_end_of_a_log_that_is_cut_where_compaction_left_nothing() -> None:
    async def scenario() -> None:
        life = Life(config=replace(COMPACTED_LIFE, segment_bytes=90))
        await life.open()
        for key in (b"a", b"b", b"b", b"b", b"c"):
            await life.put([(key, b"v")])
            await life.log.roll()
        await life.clean()
        assert [segment.size_bytes > 0 for segment in life.log.segments[:4]] == [True, False, False, True]
        await trimming.truncate_to(life.log, 3)
        assert (life.log.end_offset, life.log.cleaned_offset) == (2, 2)

    asyncio.run(scenario())


def test_it_goes_down_with_a_log_that_ends_before_it() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk, COMPACTED)
        log = await directory.partition("t", 0)
        await filled(log, 2)
        log.cleaned_offset = 99
        await directory.offsets.write_cleaned()
        disk.crash_process()
        directory = await open_directory(disk, COMPACTED)
        assert (await directory.partition("t", 0)).cleaned_offset == 20
        assert await contents(disk, CHECKPOINT) == b"0\n1\nt 0 20\n"

    asyncio.run(scenario())


def test_a_deleted_partition_leaves_nothing_to_the_next_of_its_name() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk, COMPACTED)
        for partition in range(2):
            log = await directory.partition("t", partition)
            await filled(log, 2)
            log.cleaned_offset = 10
        await directory.offsets.write_cleaned()
        await directory.delete_partition("t", 0)
        assert await contents(disk, CHECKPOINT) == b"0\n1\nt 1 10\n"
        assert (await directory.partition("t", 0)).cleaned_offset is None
        await directory.set_aside("t", 1)
        assert await contents(disk, CHECKPOINT) == b"0\n0\n"

    asyncio.run(scenario())


def test_one_that_cannot_be_believed_costs_a_pass_not_data(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk, COMPACTED)
        await filled(await directory.partition("t", 0), 2)
        await directory.close()
        file = await disk.open(CHECKPOINT, create=True)
        await file.append(b"0\n7\nhalf a")
        directory = await open_directory(disk, COMPACTED)
        assert (await directory.partition("t", 0)).cleaned_offset is None

    asyncio.run(scenario())
    assert CHECKPOINT in caplog.text
    assert "going on without it" in caplog.text


@pytest.mark.parametrize(
    ("config", "cleaned_offset", "expected"),
    [
        (COMPACTED, None, True),
        (COMPACTED, 0, True),
        (COMPACTED, 10, True),  # two of three segments are dirty
        (COMPACTED, 20, False),
        (COMPACTED, 30, False),
        (LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.9), 10, False),
        (LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=1), 20, True),
        (LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=1), 30, False),
        (LogConfig(), None, False),
    ],
)
def test_files_alone_tell_whether_opening_is_worth_it(
    config: LogConfig, cleaned_offset: int | None, expected: bool
) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk, config)
        log = await directory.partition("t", 0)
        await filled(log, 3)
        await log.append_as_leader(batch(100), 0)  # the active segment does not count
        log.cleaned_offset = cleaned_offset
        await directory.close()
        directory = await open_directory(disk, config)
        assert await untouched.may_be_dirty(directory, ("t", 0)) is expected
        assert await untouched.compacted(directory) == ([("t", 0)] if config.is_compacted else [])
        assert directory.opened("t", 0) is None

    asyncio.run(scenario())
