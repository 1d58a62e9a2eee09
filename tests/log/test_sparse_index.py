"""The two sparse indexes: Kafka's bytes, preallocated while they grow, searched as a sorted list is."""

from __future__ import annotations

import asyncio
import errno
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.disk import DiskFull
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log.sparse_index import CorruptIndex, OffsetIndex, TimeIndex
from tests.support.log_fixtures import contents, entries, put

PATH = "index"
BASE = 1000
MAX_BYTES = 960  # 120 entries of offsets, 80 of times


def offset_index(disk: MemoryDisk, max_bytes: int = MAX_BYTES) -> OffsetIndex:
    return OffsetIndex(disk, PATH, BASE, max_bytes)


def time_index(disk: MemoryDisk, max_bytes: int = MAX_BYTES) -> TimeIndex:
    return TimeIndex(disk, PATH, BASE, max_bytes)


async def filled(disk: MemoryDisk, count: int, max_bytes: int = 1 << 20) -> OffsetIndex:
    """Entry i is offset BASE + 10 * i + 10 at position 100 * i + 100."""
    index = offset_index(disk, max_bytes)
    for number in range(1, count + 1):
        index.add(BASE + 10 * number, 100 * number)
    return index


def test_the_bytes_are_kafkas() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        offsets = offset_index(disk)
        offsets.add(BASE + 7, 4200)
        offsets.add(BASE + 9, 8400)
        await offsets.seal()
        assert await contents(disk, PATH) == bytes.fromhex("00000007 00001068 00000009 000020d0")
        times = TimeIndex(disk, "times", BASE, MAX_BYTES)
        times.add(1_700_000_000_000, BASE + 7)
        await times.seal()
        assert await contents(disk, "times") == bytes.fromhex("0000018bcfe56800 00000007")

    asyncio.run(scenario())


def test_entries_wait_in_memory_until_a_write_is_worth_it_then_the_file_is_preallocated() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = await filled(disk, 63, MAX_BYTES)
        assert not index.wants_write
        assert await disk.size_of(PATH) is None
        index.add(BASE + 640, 6400)
        assert index.wants_write
        await index.write()
        assert not index.wants_write
        assert await disk.size_of(PATH) == MAX_BYTES
        data = await contents(disk, PATH)
        assert data[63 * 8 : 64 * 8] == bytes.fromhex("00000280 00001900")
        assert not any(data[64 * 8 :])

    asyncio.run(scenario())


def test_the_preallocated_size_is_a_whole_number_of_entries() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = time_index(disk, max_bytes=1000)
        index.add(5, BASE + 1)
        await index.write()
        assert await disk.size_of(PATH) == 83 * 12

    asyncio.run(scenario())


def test_sealing_writes_the_rest_and_trims_the_file() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = await filled(disk, 64)
        await index.write()
        index.add(BASE + 700, 7000)
        await index.seal()
        data = await contents(disk, PATH)
        assert len(data) == 65 * 8
        assert entries(OffsetIndex, data)[-1] == (700, 7000)
        # it can go on growing: the segment was only closed, not rolled
        index.add(BASE + 710, 7100)
        await index.write()
        assert entries(OffsetIndex, await contents(disk, PATH))[64:67] == [(700, 7000), (710, 7100), (0, 0)]

    asyncio.run(scenario())


def test_an_empty_index_is_sealed_as_an_empty_file() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await offset_index(disk).seal()
        assert await disk.size_of(PATH) == 0
        index = offset_index(disk)
        await index.load()
        assert index.count == 0
        assert index.last is None
        assert await index.position_before(BASE + 5) == 0

    asyncio.run(scenario())


def test_room_goes_down_with_every_entry_and_is_known_after_loading() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = await filled(disk, 100, MAX_BYTES)
        assert (index.capacity, index.room, index.count) == (120, 20, 100)
        await index.seal()
        again = offset_index(disk)
        await again.load()
        assert (again.room, again.count, again.last) == (20, 100, (1000, 10000))
        await again.truncate_to(BASE + 500)
        assert (again.room, again.count, again.last) == (71, 49, (490, 4900))

    asyncio.run(scenario())


@given(
    st.sets(st.integers(1, 3000), max_size=700),
    st.integers(0, 700),
    st.lists(st.integers(-10, 3010), min_size=1, max_size=20),
    st.sampled_from([0, 1]),
)
def test_floor_and_ceiling_find_what_a_sorted_list_finds(
    offsets: set[int], stored: int, wanted: list[int], column: int
) -> None:
    """Whether the entries are in the file, in memory or in both."""

    async def scenario() -> None:
        index = offset_index(MemoryDisk(), 1 << 20)
        expected = [(offset, 2 * offset) for offset in sorted(offsets)]
        for number, (offset, position) in enumerate(expected):
            index.add(BASE + offset, position)
            if number == stored:
                await index.write()
        keys = [entry[column] for entry in expected]
        for value in wanted:
            at_most = bisect_right(keys, value)
            assert await index.floor(value, column) == (expected[at_most - 1] if at_most else None)
            at_least = bisect_left(keys, value)
            assert await index.ceiling(value, column) == (
                expected[at_least] if at_least < len(keys) else None
            )

    asyncio.run(scenario())


@given(st.integers(0, 130), st.integers(0, 130), st.integers(0, 1400))
def test_truncation_keeps_the_entries_before_the_offset(count: int, stored: int, offset: int) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = offset_index(disk, 1 << 20)
        for number in range(1, count + 1):
            index.add(BASE + 10 * number, 100 * number)
            if number == stored:
                await index.write()
        await index.truncate_to(BASE + offset)
        kept = [(10 * number, 100 * number) for number in range(1, count + 1) if 10 * number < offset]
        assert index.count == len(kept)
        assert index.last == (kept[-1] if kept else None)
        # what was cut is overwritten by what comes next, and gone from the file once it is sealed
        index.add(BASE + offset + 1, 99_999)
        await index.seal()
        assert entries(OffsetIndex, await contents(disk, PATH)) == [*kept, (offset + 1, 99_999)]

    asyncio.run(scenario())


def test_the_time_index_leaves_out_what_is_not_later() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = time_index(disk)
        for timestamp, offset in [(-1, 1), (50, 2), (50, 3), (40, 4), (60, 5)]:
            index.add(timestamp, BASE + offset)
        await index.seal()
        assert entries(TimeIndex, await contents(disk, PATH)) == [(50, 2), (60, 5)]

    asyncio.run(scenario())


def test_a_time_index_is_truncated_by_offset_and_searched_by_time() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = time_index(disk)
        for timestamp, offset in [(50, 2), (60, 5), (70, 5), (80, 9)]:
            index.add(timestamp, BASE + offset)
        assert await index.floor(69) == (60, 5)
        await index.truncate_to(BASE + 5)
        assert index.last == (50, 2)
        assert index.count == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (bytes(9), "9 bytes are not a multiple of 8"),
        (bytes(8 * 120), "last of 120 entries"),
        (OffsetIndex.ENTRY.pack(5, 10) + OffsetIndex.ENTRY.pack(-3, 20), "last of 2 entries"),
    ],
)
def test_an_offset_index_that_cannot_be_right_is_named(data: bytes, why: str) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await put(disk, PATH, data)
        with pytest.raises(CorruptIndex, match=f"memory:/{PATH} is corrupt: .*{why}"):
            await offset_index(disk).load()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (bytes(16), "16 bytes are not a multiple of 12"),
        (bytes(24), "last of 2 entries"),
        (TimeIndex.ENTRY.pack(9, 1) + TimeIndex.ENTRY.pack(8, 2), "last of 2 entries"),
        (TimeIndex.ENTRY.pack(9, -1), "last of 1 entries"),
    ],
)
def test_a_time_index_that_cannot_be_right_is_named(data: bytes, why: str) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await put(disk, PATH, data)
        with pytest.raises(CorruptIndex, match=why):
            await time_index(disk).load()

    asyncio.run(scenario())


def test_a_missing_index_is_named() -> None:
    with pytest.raises(CorruptIndex, match=f"memory:/{PATH} is missing"):
        asyncio.run(offset_index(MemoryDisk()).load())


def test_entries_that_could_not_be_written_are_still_found_and_written_later() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = await filled(disk, 64)
        disk.fail("write_at", errno.ENOSPC)
        with pytest.raises(DiskFull):
            await index.write()
        assert await index.floor(645) == (640, 6400)
        disk.heal()
        await index.seal()
        assert entries(OffsetIndex, await contents(disk, PATH)) == [
            (10 * number, 100 * number) for number in range(1, 65)
        ]

    asyncio.run(scenario())


def test_replacing_is_whole_or_not_at_all() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await put(disk, PATH, b"what was there before")
        index = await filled(disk, 3)
        disk.fail("append", errno.ENOSPC, times=1)
        with pytest.raises(DiskFull):
            await index.replace()
        assert await contents(disk, PATH) == b"what was there before"
        assert await index.floor(25) == (20, 200)
        await index.replace()
        assert entries(OffsetIndex, await contents(disk, PATH)) == [(10, 100), (20, 200), (30, 300)]
        assert await index.floor(25) == (20, 200)

    asyncio.run(scenario())


def test_a_reset_index_starts_over() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        index = await filled(disk, 64, MAX_BYTES)
        await index.write()
        await index.reset()
        assert (index.count, index.room, index.last) == (0, 120, None)
        assert await disk.size_of(PATH) == 0

    asyncio.run(scenario())
