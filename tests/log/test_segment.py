"""One segment: Kafka's rule for sparse entries, look-ups, indexes rebuilt when they cannot be believed."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.disk import Disk
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log.segment import SCAN_BYTES, CorruptSegment, Segment
from barnabas.log.sparse_index import TimeIndex
from barnabas.records.batch import BatchHeader
from tests.support.log_fixtures import (
    WatchedDisk,
    contents,
    damage,
    offset_entries,
    path_of,
    put,
    said,
    sized_batch,
    time_entries,
)
from tests.support.logs import START_MS

INTERVAL = 1000
LOG, INDEX, TIME_INDEX = (path_of(100, suffix) for suffix in (".log", ".index", ".timeindex"))


def segment_on(disk: Disk, *, interval: int = INTERVAL, index_bytes: int = 10 << 20) -> Segment:
    return Segment(
        disk, "t-0", 100, index_interval_bytes=interval, index_bytes=index_bytes, created_ms=START_MS
    )


async def new_segment(disk: Disk, *, interval: int = INTERVAL, index_bytes: int = 10 << 20) -> Segment:
    await disk.mkdir("t-0")
    segment = segment_on(disk, interval=interval, index_bytes=index_bytes)
    await segment.create()
    return segment


async def append(segment: Segment, offset: int, *batches: bytearray) -> int:
    """Write batches, as one append, from `offset` on; returns the next offset."""
    headers, data = [], bytearray()
    for batch in batches:
        batch[:8] = offset.to_bytes(8, "big")
        headers.append(BatchHeader.parse(batch))
        offset = headers[-1].next_offset
        data += batch
    await (segment.appendable() or await segment.make_appendable()).append(data)
    segment.count(headers)
    return offset


async def filled(disk: Disk, sizes: list[int], *, interval: int = INTERVAL) -> Segment:
    """A sealed segment, opened again; batch i has one record, offset 100 + i and timestamp START_MS + i."""
    segment = await new_segment(disk, interval=interval)
    for number, size in enumerate(sizes):
        await append(segment, 100 + number, sized_batch(size, timestamp=START_MS + number))
    await segment.seal()
    segment.close()
    return segment_on(disk, interval=interval)


def kafkas_entries(sizes: list[int], interval: int) -> list[tuple[int, int]]:
    """A batch gets an entry once more than the interval was written since the last one's start."""
    found, since, position = [], 0, 0
    for number, size in enumerate(sizes):
        if since > interval:
            found.append((number, position))
            since = 0
        position += size
        since += size
    return found


@given(st.lists(st.integers(270, 2000), min_size=1, max_size=30), st.sampled_from([0, 269, 270, 1000, 4096]))
def test_an_entry_comes_after_more_than_the_interval(sizes: list[int], interval: int) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await filled(disk, sizes, interval=interval)
        expected = kafkas_entries(sizes, interval)
        assert await offset_entries(disk, INDEX) == expected
        times = [(START_MS + number, number) for number, _ in expected]
        if not times or times[-1][1] != len(sizes) - 1:
            times.append((START_MS + len(sizes) - 1, len(sizes) - 1))  # sealing notes the latest
        assert await time_entries(disk, TIME_INDEX) == times

    asyncio.run(scenario())


def test_exactly_the_interval_is_not_enough() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await filled(disk, [500, 500, 500, 500])
        # at byte 1000, 1000 bytes had been written: not more than the interval
        assert await offset_entries(disk, INDEX) == [(3, 1500)]

    asyncio.run(scenario())


def test_batches_of_one_append_are_indexed_one_by_one() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        segment = await new_segment(disk)
        batches = [sized_batch(600, timestamp=START_MS + number) for number in range(5)]
        await append(segment, 100, *batches)
        await segment.seal()
        assert await offset_entries(disk, INDEX) == [(2, 1200), (4, 2400)]

    asyncio.run(scenario())


def test_the_time_index_holds_the_largest_timestamp_so_far() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        segment = await new_segment(disk, interval=0)
        for number, timestamp in enumerate([50, 90, 20, 70, 95, 95]):
            await append(segment, 100 + number, sized_batch(300, timestamp=timestamp))
        await segment.seal()
        assert await time_entries(disk, TIME_INDEX) == [(90, 1), (95, 4)]
        assert (segment.max_timestamp, segment.max_timestamp_offset) == (95, 104)
        again = segment_on(disk)
        await again.ready()
        assert (again.max_timestamp, again.max_timestamp_offset) == (95, 104)

    asyncio.run(scenario())


def test_it_is_full_when_an_index_is_and_knows_it_after_a_start() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        # eight offsets fit, and five times, of which one is kept for sealing
        segment = await new_segment(disk, interval=0, index_bytes=64)
        number = 0
        while not segment.is_full:
            await append(segment, 100 + number, sized_batch(300, timestamp=START_MS + number))
            number += 1
        assert segment.times.count == 4
        await segment.seal()
        again = segment_on(disk, interval=0, index_bytes=64)
        await again.ready()
        assert again.is_full
        # with one timestamp for all, the offsets are what fills up
        segment = await new_segment(disk, interval=0, index_bytes=64)
        while not segment.is_full:
            await append(segment, 100 + number, sized_batch(300, timestamp=START_MS))
            number += 1
        assert segment.offsets.count == 8

    asyncio.run(scenario())


@given(st.lists(st.integers(270, 8000), min_size=1, max_size=25), st.integers(95, 130))
def test_locate_finds_the_batch_that_holds_an_offset_or_the_next_one(sizes: list[int], offset: int) -> None:
    async def scenario() -> None:
        segment = await filled(MemoryDisk(), sizes)
        number = max(0, offset - 100)
        located = await segment.locate(offset)
        if number >= len(sizes):
            assert located is None
        else:
            assert located is not None
            assert (located.position, located.header.base_offset) == (sum(sizes[:number]), 100 + number)

    asyncio.run(scenario())


@given(st.lists(st.integers(270, 8000), min_size=1, max_size=25), st.integers(0, 24), st.integers(0, 60_000))
def test_a_boundary_is_at_least_one_batch_and_otherwise_within_the_limit(
    sizes: list[int], first: int, size: int
) -> None:
    async def scenario() -> None:
        segment = await filled(MemoryDisk(), sizes)
        start = sum(sizes[: min(first, len(sizes) - 1)])
        ends = [sum(sizes[:number]) for number in range(1, len(sizes) + 1) if sum(sizes[:number]) > start]
        fitting = [end for end in ends if end <= start + size]
        assert await segment.boundary_before(start, start + size) == (fitting[-1] if fitting else ends[0])

    asyncio.run(scenario())


def test_a_scan_takes_batches_larger_than_its_reads_and_stops_at_a_torn_one() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        segment = await filled(disk, [300, SCAN_BYTES + 1, 3 * SCAN_BYTES, 300])
        scan = await segment.scan(verify=True)
        offsets = []
        while headers := await scan.run():
            offsets += [header.base_offset for header in headers]
        assert offsets == [100, 101, 102, 103]
        assert scan.problem is None
        file = await disk.open(LOG)
        await file.truncate(file.size - 1)
        torn = segment_on(disk)
        scan = await torn.scan()
        while await scan.run():
            pass
        assert scan.position == 600 + 4 * SCAN_BYTES + 1 - 300
        assert scan.problem == "the file ends 299 bytes into a batch"
        with pytest.raises(CorruptSegment, match=f"corrupt at byte {scan.position}: the file ends 299 bytes"):
            scan.require_end()

    asyncio.run(scenario())


# --- indexes that cannot be believed


async def _remove(disk: MemoryDisk, path: str) -> None:
    await disk.remove(path)


async def _cut_in_an_entry(disk: MemoryDisk, path: str) -> None:
    file = await disk.open(path)
    await file.truncate(file.size - 1)


async def _cut_half(disk: MemoryDisk, path: str) -> None:
    await (await disk.open(path)).truncate(3 * TimeIndex.ENTRY.size)


async def _empty(disk: MemoryDisk, path: str) -> None:
    await (await disk.open(path)).truncate(0)


async def _overwrite_the_end(disk: MemoryDisk, path: str) -> None:
    await damage(disk, path, -8, b"\x00\x00\x00\x02\x00\x00\x00\x02")


async def _preallocate(disk: MemoryDisk, path: str) -> None:
    await (await disk.open(path)).truncate(9600)


@pytest.mark.parametrize(
    ("suffix", "harm", "why"),
    [
        (".index", _remove, "00100.index is missing"),
        (".index", _cut_in_an_entry, "not a multiple of 8"),
        (".index", _overwrite_the_end, "no batch at byte 2 ends with offset 102"),
        (".index", _preallocate, "the last of 1200 entries is (0, 0)"),
        (".timeindex", _remove, "00100.timeindex is missing"),
        (".timeindex", _cut_in_an_entry, "not a multiple of 12"),
        (".timeindex", _cut_half, "it ends with timestamp"),
        (".timeindex", _empty, "it ends with timestamp -1"),
        (".timeindex", _preallocate, "the last of 800 entries is (0, 0)"),
    ],
)
def test_an_index_that_cannot_be_believed_is_rebuilt_with_a_line_saying_why(
    suffix: str, harm: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        sizes = [700] * 40
        await filled(disk, sizes)
        sound = [await contents(disk, path) for path in (INDEX, TIME_INDEX)]
        await harm(disk, path_of(100, suffix))  # type: ignore[operator]
        segment = segment_on(disk)
        located = await segment.locate(133)
        assert located is not None
        assert located.position == 33 * 700
        assert segment.max_timestamp == START_MS + 39
        assert [await contents(disk, path) for path in (INDEX, TIME_INDEX)] == sound

    with caplog.at_level(logging.WARNING, "barnabas.log"):
        asyncio.run(scenario())
    (message,) = said(caplog)
    assert why in message
    assert message.endswith("rebuilding the indexes of memory:/t-0/00000000000000000100.log")


def test_sound_indexes_are_believed_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        for sizes in ([], [300], [700] * 40):
            disk = MemoryDisk()
            segment = await filled(disk, sizes)
            await segment.ready()
            assert segment.size_bytes == sum(sizes)

    asyncio.run(scenario())
    assert said(caplog) == []


def test_readers_that_come_together_rebuild_once_and_wait_for_it() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        await filled(disk, [700] * 40)
        sound = await contents(disk, INDEX)
        await disk.remove(INDEX)
        segment = segment_on(disk)
        gate = disk.gate("read", LOG)
        readers = [asyncio.create_task(segment.locate(100 + number)) for number in range(40)]
        await gate.reached.wait()
        late = asyncio.create_task(segment.locate(139))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not late.done()
        gate.open()
        found = await asyncio.gather(*readers, late)
        assert [one.position for one in found if one] == [*range(0, 28_000, 700), 27_300]
        assert await contents(disk, INDEX) == sound

    asyncio.run(scenario())


def test_indexes_that_cannot_be_rebuilt_on_a_full_disk_serve_from_memory() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await filled(disk, [700] * 40)
        await disk.remove(INDEX)
        disk.fail("append", errno.ENOSPC)
        disk.fail("write_at", errno.ENOSPC)
        segment = segment_on(disk)
        for number in (3, 33, 39):
            located = await segment.locate(100 + number)
            assert located is not None
            assert located.position == 700 * number
        assert segment.max_timestamp == START_MS + 39

    asyncio.run(scenario())


@pytest.mark.parametrize("batches", [10, 200])
def test_a_segment_sealed_on_a_full_disk_keeps_its_indexes_in_memory_until_there_is_room(
    batches: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With 10 batches nothing was written before; with 200 a part of the entries was."""

    async def scenario() -> None:
        disk = MemoryDisk()
        segment = await new_segment(disk, interval=0)
        for number in range(batches):
            await append(segment, 100 + number, sized_batch(300, timestamp=START_MS + number))
            if segment.offsets.wants_write:
                await segment.write_entries()
        disk.fail("write_at", errno.ENOSPC)
        await segment.seal()
        located = await segment.locate(100 + batches - 1)
        assert located is not None
        assert located.position == 300 * (batches - 1)
        # a part of an index would be believed at the next start, so there is none
        assert await disk.size_of(INDEX) is None
        assert await disk.size_of(TIME_INDEX) is None
        disk.heal()
        await segment.sync(sealed=True)
        assert await offset_entries(disk, INDEX) == [(number, 300 * number) for number in range(1, batches)]
        assert (await time_entries(disk, TIME_INDEX))[-1] == (START_MS + batches - 1, batches - 1)

    asyncio.run(scenario())
    assert "the indexes of memory:/t-0/00000000000000000100.log stay in memory" in caplog.text


# --- truncation


def test_truncating_cuts_batches_entries_and_timestamps() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        segment = await filled(disk, [700] * 40)
        located = await segment.locate(120)
        assert located is not None
        await segment.truncate(located.position, 120)
        assert segment.size_bytes == await disk.size_of(LOG) == 14_000
        assert await segment.locate(120) is None
        assert (segment.max_timestamp, segment.max_timestamp_offset) == (START_MS + 19, 119)
        await append(segment, 120, sized_batch(700, timestamp=5))
        await segment.seal()
        expected = kafkas_entries([700] * 20, INTERVAL)
        assert await offset_entries(disk, INDEX) == expected
        assert (await time_entries(disk, TIME_INDEX))[-1] == (START_MS + 19, 19)

    asyncio.run(scenario())


def test_truncating_to_nothing_forgets_all_timestamps() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        segment = await filled(disk, [700] * 5)
        await segment.truncate(0, 100)
        assert (segment.size_bytes, segment.max_timestamp, segment.first_timestamp) == (0, -1, None)
        await append(segment, 100, sized_batch(700, timestamp=7))
        assert (segment.max_timestamp, segment.first_timestamp) == (7, 7)

    asyncio.run(scenario())


def test_the_tail_is_what_stands_behind_the_last_entry() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        await filled(disk, [700] * 40)
        # what Kafka leaves when it dies: the latest timestamp is only in the batches
        await put(disk, TIME_INDEX, TimeIndex.ENTRY.pack(START_MS + 38, 38))
        segment = segment_on(disk)
        disk.bytes_read.clear()
        tail = await segment.tail()
        assert [header.base_offset for header in tail] == [138, 139]
        assert segment.max_timestamp == START_MS + 39
        assert disk.read_from("*.log") <= 2 * 700 + 61

    asyncio.run(scenario())


def test_a_cancelled_write_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        memory = MemoryDisk()
        segment = await filled(memory, [300, 300])
        await segment.ready()
        file = await segment.file()
        await file.append(b"bytes that nobody was told of")
        await append(segment, 102, sized_batch(300))
        assert await memory.size_of(LOG) == 900
        located = await segment.locate(102)
        assert located is not None
        assert located.position == 600

    asyncio.run(scenario())


def test_a_doomed_segment_is_renamed_and_goes_on_serving_its_readers() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        segment = await filled(disk, [300, 300])
        file = await segment.file()
        file.pin()
        renamed = await segment.doom()
        assert renamed == [f"{path}.deleted" for path in (LOG, INDEX, TIME_INDEX)]
        assert await disk.listdir("t-0") == sorted(path.removeprefix("t-0/") for path in renamed)
        assert segment.is_pinned
        assert len(await file.read(0, 1000)) == 600
        file.unpin()
        assert not segment.is_pinned

    asyncio.run(scenario())
