"""Compaction of one partition: beside readers and writers, with disks that fail, and in the corners."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from barnabas.core.disk import DiskFull
from barnabas.core.errors import StorageError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log import reading, trimming
from barnabas.log.compaction import replacement
from barnabas.log.compaction.cleaning import Cleaned, CleanerIo, clean
from barnabas.log.compaction.survey import survey
from barnabas.log.compaction.throttle import GivenUp
from barnabas.log.partition import Bound
from barnabas.log.segment import CorruptSegment
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader
from barnabas.records.kernel import OffsetMap
from tests.log.compaction.life import COMPACTED, RETENTION_MS, Entry, Life, Story, find_batches
from tests.support.log_fixtures import WatchedDisk, damage, path_of
from tests.support.logs import batch, read_bytes


async def _unhurried(size_bytes: int) -> None:
    pass


UNHURRIED = CleanerIo(4096, 0.9, _unhurried)


async def written(*batches: list[Entry], life: Life | None = None) -> Life:
    """A life with these batches, each in a segment of its own."""
    life = life or Life()
    await life.open()
    for entries in batches:
        await life.put(entries)
        await life.log.roll()
    return life


def one(key: bytes, value: bytes | None = b"v") -> list[Entry]:
    return [(key, value)]


async def offsets(life: Life) -> list[int]:
    return [record.offset for batch in await find_batches(life.log) for record in batch.records]


def run_clean(life: Life) -> asyncio.Task[Cleaned | None]:
    return asyncio.get_running_loop().create_task(life.clean())


class TestGroups:
    def test_small_segments_are_merged_and_the_active_one_is_left_alone(self) -> None:
        async def scenario() -> None:
            life = await written(one(b"a"), one(b"b"), one(b"a"), one(b"c"))
            await life.put(one(b"b"))
            cleaned = await life.clean()
            assert cleaned is not None
            assert (cleaned.end_offset, life.log.bases) == (4, [0, 4])
            assert await offsets(life) == [1, 2, 3, 4]
            assert cleaned.stats.segments_before == 4
            assert cleaned.stats.segments_after == 1
            assert (cleaned.stats.records_read, cleaned.stats.records_kept) == (4, 3)
            assert sum(life.throttled) == 2 * cleaned.stats.bytes_read + cleaned.stats.bytes_written
            await life.check(is_clean_below=4)

        asyncio.run(scenario())

    def test_segments_of_which_nothing_is_left(self) -> None:
        """They stay as empty files until they are merged; the log still begins and ends where it did."""

        async def scenario() -> None:
            life = Life(config=replace(COMPACTED, segment_bytes=90))
            await written(one(b"a"), one(b"b"), one(b"a"), one(b"b"), one(b"a"), life=life)
            await life.clean()
            assert life.log.bases == [0, 1, 2, 3, 4, 5]
            assert [segment.size_bytes for segment in life.log.segments[:3]] == [0, 0, 0]
            assert await offsets(life) == [3, 4]
            assert (await reading.offset_for_timestamp(life.log, reading.EARLIEST)).offset == 0
            for is_clean in (True, False):
                await life.reopen(is_clean=is_clean, without_snapshots=not is_clean)
                await life.check(is_clean_below=5)
            await life.put(one(b"a"))
            await life.log.roll()
            await life.clean()
            assert life.log.bases == [0, 4, 5, 6]  # the empty ones are merged with the next
            await life.check(is_clean_below=6)
            assert (life.log.start_offset, await offsets(life)) == (0, [3, 5])

        asyncio.run(scenario())

    def test_a_segment_keeps_the_age_of_what_it_is_made_from(self) -> None:
        async def scenario() -> None:
            life = await written(one(b"a"), one(b"b"))
            written_ms = await life.disk.modified_ms(path_of(1, ".log"))
            life.clock.advance(3600)
            await life.put(one(b"c"))
            await life.clean()
            assert await life.disk.modified_ms(path_of(0, ".log")) == written_ms

        asyncio.run(scenario())

    def test_retention_goes_by_the_age_of_an_empty_segment(self) -> None:
        async def scenario() -> None:
            both = frozenset({"compact", "delete"})
            life = Life(config=replace(COMPACTED, segment_bytes=90, cleanup_policy=both, retention_ms=60_000))
            await written(one(b"a"), one(b"a"), life=life)
            await life.clean()
            assert [segment.size_bytes > 0 for segment in life.log.segments] == [False, True, False]
            life.clock.advance(60)
            assert await trimming.apply_retention(life.log) == 0
            life.clock.advance(1)
            assert await trimming.apply_retention(life.log) == 2
            assert life.log.start_offset == 2

        asyncio.run(scenario())

    def test_snapshots_of_merged_segments_go(self) -> None:
        async def scenario() -> None:
            life = Life()
            await life.open()
            for number in range(4):
                await life.put(one(b"k%d" % number), producer_id=1)
                await life.log.roll()
            await life.clean()
            life.clock.advance(1)
            await trimming.sweep(life.log)
            snapshots = [name for name in await life.disk.listdir("t-0") if ".snapshot" in name]
            assert snapshots == [f"{4:020d}.snapshot"]
            await life.reopen(is_clean=False)

        asyncio.run(scenario())


class TestTombstones:
    def test_they_stay_for_their_time_and_then_go(self) -> None:
        async def scenario() -> None:
            life = await written(one(b"a"), one(b"a", None), one(b"b"))
            await life.clean()
            assert await offsets(life) == [1, 2]
            life.clock.advance((RETENTION_MS - 1) / 1000)
            await life.put(one(b"c"))
            await life.log.roll()
            await life.clean()
            assert await offsets(life) == [1, 2, 3]
            life.clock.advance(0.001)
            await life.put(one(b"d"))
            await life.log.roll()
            await life.clean()
            assert await offsets(life) == [2, 3, 4]

        asyncio.run(scenario())

    def test_the_time_does_not_begin_before_what_they_delete_has_gone(self) -> None:
        """A round that ends before a tombstone, because its map is full, leaves it as it was: otherwise it
        could be over when the next round removes both."""

        async def scenario() -> None:
            life = Life()
            await life.open()
            await life.put(one(b"a"))
            for key in (b"b", b"c", b"d"):
                await life.put(one(key))
            await life.put(one(b"a", None))
            await life.log.roll()
            cleaned = await life.clean(slots=4)
            assert cleaned is not None
            assert cleaned.end_offset == 3
            assert await offsets(life) == [0, 1, 2, 3, 4]
            life.clock.advance(10)
            await life.clean(slots=4)
            assert await offsets(life) == [1, 2, 3, 4]
            await life.check(is_clean_below=5)

        asyncio.run(scenario())

    def test_nor_where_the_map_is_full_in_the_middle_of_their_batch(self) -> None:
        async def scenario() -> None:
            life = Life()
            await life.open()
            await life.put([(b"a", b"1"), (b"b", b"2")])
            await life.put([(b"c", b"3"), (b"d", b"4"), (b"a", None)])
            await life.log.roll()
            cleaned = await life.clean(slots=4)
            assert cleaned is not None
            assert (cleaned.end_offset, await offsets(life)) == (2, [0, 1, 2, 3, 4])
            life.clock.advance(10)
            cleaned = await life.clean(slots=4)
            assert cleaned is not None
            assert (cleaned.end_offset, await offsets(life)) == (5, [1, 2, 3, 4])
            # a batch that alone has more keys than the map is taken in by halves
            await life.put([(b"k%d" % number, b"") for number in range(7)])
            await life.log.roll()
            cleaned = await life.clean(slots=4)
            assert cleaned is not None
            assert cleaned.end_offset == 8
            await life.check(is_clean_below=8)

        asyncio.run(scenario())


class TestTransactions:
    def test_aborted_records_go_at_once_and_markers_after_their_time(self) -> None:
        async def scenario() -> None:
            life = Life()
            await life.open()
            await life.put(one(b"a", b"1"), 10)
            await life.end(10, commit=True)
            await life.put(one(b"a", b"2"), 10)
            await life.end(10, commit=False)
            await life.put(one(b"b", b"3"), 10)
            await life.end(10, commit=True)
            found: list[list[int]] = []
            for number in range(4):
                await life.put(one(b"k%d" % number))
                await life.log.roll()
                await life.clean()
                await life.check(is_clean_below=life.log.active.base_offset)
                found.append([offset for offset in await offsets(life) if offset < 6])
                life.clock.advance(2 * RETENTION_MS / 1000)
            # the abort is met with its record, then its time begins, then it is over; the others have records
            assert found == [[0, 1, 3, 4, 5], [0, 1, 3, 4, 5], [0, 1, 4, 5], [0, 1, 4, 5]]

        asyncio.run(scenario())

    def test_a_producer_is_known_again_from_what_is_left(self) -> None:
        """The last batch of a producer stays, without its records if need be."""

        async def scenario() -> None:
            life = Life()
            await life.open()
            for _ in range(3):
                await life.put([(b"a", b"v"), (b"b", b"v")], 1)
            await life.put([(b"a", b"w"), (b"b", b"w")])
            await life.log.roll()
            await life.clean()
            headers = [batch.header for batch in await find_batches(life.log)]
            assert [(one.base_offset, one.record_count) for one in headers] == [(4, 0), (6, 2)]
            await life.reopen(is_clean=False, without_snapshots=True)
            await life.put(one(b"c"), 1)  # with the next sequence
            assert life.log.end_offset == 9
            await life.check()

        asyncio.run(scenario())

    def test_an_index_that_was_carried_over_is_believed(self) -> None:
        async def scenario() -> None:
            life = Life(config=replace(COMPACTED, segment_bytes=2000))
            await life.open()
            await life.put(one(b"a", b"kept"))
            await life.put(one(b"b", b"aborted"), 10)
            await life.put(one(b"c", b"x"))
            await life.end(10, commit=False)
            await life.put(one(b"d", b"y"))
            await life.put(one(b"e", b"aborted"), 10)
            await life.end(10, commit=False)
            await life.log.roll()
            # a map for two keys: the second transaction is copied, with what the index says of it
            cleaned = await life.clean(slots=3)
            assert cleaned is not None
            assert cleaned.end_offset == 4
            assert await offsets(life) == [0, 2, 3, 4, 5, 6]
            entries = await life.log.segments[0].aborted.all()
            assert [entry.last_offset for entry in entries] == [3, 6]
            await life.reopen(is_clean=True)
            await life.check()

        asyncio.run(scenario())


class TestBeside:
    def test_who_holds_a_range_of_a_replaced_segment_reads_the_same_bytes(self) -> None:
        async def scenario() -> None:
            life = await written(one(b"a", b"1"), one(b"a", b"2"), one(b"b", b"3"))
            fetched = await reading.read(life.log, 0, 1 << 20)
            assert fetched.range is not None
            file, position, size = fetched.range
            file.pin()
            before = await file.read(position, size)
            await life.clean()
            life.clock.advance(3600)
            assert await trimming.sweep(life.log) == 2  # all but the one that is held
            assert await file.read(position, size) == before
            file.unpin()
            assert await trimming.sweep(life.log) == 1
            assert not [name for name in await life.disk.listdir("t-0") if name.endswith(".deleted")]
            await life.check(is_clean_below=3)

        asyncio.run(scenario())

    @pytest.mark.parametrize("operation", ["sync", "rename", "sync_dir"])
    def test_writers_and_readers_go_on_meanwhile(self, operation: str) -> None:
        async def scenario() -> None:
            life = Life()
            disk = WatchedDisk(life.disk)
            life.disk = disk  # type: ignore[assignment]
            await written(one(b"a", b"1"), one(b"a", b"2"), one(b"b", b"3"), life=life)
            await life.log.flush()
            gate = disk.gate(operation, "t-0/*.cleaned" if operation == "sync" else "t-0*")
            cleaning = run_clean(life)
            await gate.reached.wait()
            append = asyncio.get_running_loop().create_task(life.put(one(b"c")))
            read = asyncio.get_running_loop().create_task(read_bytes(life.log, 0, 1 << 20))
            for _ in range(10):
                await asyncio.sleep(0)
            if operation == "sync":
                assert append.done()  # only the swap keeps writers waiting
                assert read.done()
            gate.open()
            await asyncio.gather(cleaning, append, read)
            assert await offsets(life) == [1, 2, 3]
            await life.check(is_clean_below=3)

        asyncio.run(scenario())

    @pytest.mark.parametrize("cut", ["head", "tail", "all"])
    def test_a_log_that_is_cut_meanwhile_is_left_alone(self, cut: str) -> None:
        async def scenario() -> None:
            life = Life()
            disk = WatchedDisk(life.disk)
            life.disk = disk  # type: ignore[assignment]
            await written(one(b"a", b"1"), one(b"a", b"2"), one(b"b", b"3"), life=life)
            await life.log.flush()
            gate = disk.gate("sync", "*.log.cleaned")
            cleaning = run_clean(life)
            await gate.reached.wait()
            if cut == "head":
                await trimming.delete_records(life.log, 1)
                await trimming.apply_retention(life.log)
            elif cut == "tail":
                await trimming.truncate_to(life.log, 2)
            else:
                await trimming.truncate_fully_and_start_at(life.log, 7)
            gate.open()
            with pytest.raises(GivenUp, match="t-0 was cut"):
                await cleaning
            await life.check_names()
            assert life.log.failure is None
            expected = {"head": [1, 2], "tail": [0, 1], "all": []}
            assert await offsets(life) == expected[cut]
            await life.log.append_as_leader(batch(1), 0)

        asyncio.run(scenario())

    def test_a_log_whose_dirty_part_went_before_the_round_began_is_left_alone(self) -> None:
        async def scenario() -> None:
            life = Life()
            disk = WatchedDisk(life.disk)
            life.disk = disk  # type: ignore[assignment]
            await written(one(b"a", b"1"), one(b"a", b"2"), life=life)
            gate = disk.gate("sync", "*.log")
            cleaning = run_clean(life)
            await gate.reached.wait()
            await trimming.delete_records(life.log, 2)
            retention = asyncio.get_running_loop().create_task(trimming.apply_retention(life.log))
            gate.open()
            with pytest.raises(GivenUp, match="t-0 was cut"):
                await cleaning
            await retention
            assert life.log.failure is None
            assert await offsets(life) == []

        asyncio.run(scenario())

    @pytest.mark.parametrize("cut", [1, 3])
    def test_a_log_that_was_cut_since_the_plan_is_left_alone(self, cut: int) -> None:
        """As much came again as had been there: what counted as compacted has not been, and the round would
        set the time of a tombstone whose value stays; or it would end in the middle of a segment."""

        async def scenario() -> None:
            life = Life(config=replace(COMPACTED, segment_bytes=2000))
            await written(one(b"a", b"old"), one(b"b"), one(b"c"), one(b"c"), life=life)
            life.log.cleaned_offset = 2
            cleanable = await survey(life.log)
            await trimming.truncate_to(life.log, cut)
            await life.put(one(b"a", None))
            for key in (b"x", b"y", b"z"):
                await life.put(one(key))
            await life.log.roll()
            count = life.log.end_offset
            with pytest.raises(GivenUp, match="since its compaction was planned"):
                await clean(life.log, cleanable, OffsetMap(1 << 10, bytes(16)), io=UNHURRIED)
            assert await offsets(life) == list(range(count))
            assert all(batch.header.delete_horizon_ms is None for batch in await find_batches(life.log))

        asyncio.run(scenario())

    def test_the_loop_has_its_turn_however_many_batches_are_written_at_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is counted of them on the loop is a few kilobytes at a time."""
        counted: list[int] = []

        def watched(call: Callable[..., object]) -> Callable[..., object]:
            def counting(data: bytes, position: int, end: int, *more: object) -> object:
                counted.append(end - position)
                return call(data, position, end, *more)

            return counting

        async def scenario() -> None:
            life = Life(config=replace(COMPACTED, segment_bytes=1 << 20, index_interval_bytes=4096))
            await life.open()
            for number in range(1000):
                await life.put(one(b"k%d" % number))
            await life.put(one(b"large", bytes(50_000)))
            await life.log.roll()
            size = life.log.segments[0].size_bytes
            calls = {name: watched(getattr(kernel, name)) for name in ("scan", "scan_headers")}
            monkeypatch.setattr(replacement, "kernel", SimpleNamespace(**calls))
            cleaned = await life.clean(buffer_bytes=1 << 20)
            assert cleaned is not None
            assert cleaned.stats.bytes_written == size > 120_000
            assert max(counted) <= 32 << 10
            assert len(await offsets(life)) == 1001

        asyncio.run(scenario())

    def test_writers_go_on_while_many_segments_go_of_which_nothing_is_left(self) -> None:
        """Each takes a sync, which is too much for one turn."""

        async def scenario() -> None:
            life = Life(config=replace(COMPACTED, segment_bytes=1000))
            disk = WatchedDisk(life.disk)
            life.disk = disk  # type: ignore[assignment]
            await written(*[one(b"a")] * 9, one(b"a", bytes(900)), life=life)
            await life.log.flush()
            third, fifth = (disk.gate("rename", path_of(number, ".log")) for number in (3, 5))
            cleaning = run_clean(life)
            await third.reached.wait()
            append = asyncio.get_running_loop().create_task(life.put(one(b"b")))
            await asyncio.sleep(0)
            third.open()
            await fifth.reached.wait()
            assert append.done()
            assert life.log.bases == [0, 5, 6, 7, 8, 9, 10]
            fifth.open()
            await cleaning
            assert life.log.bases == [0, 9, 10]
            await life.check(is_clean_below=10)

        asyncio.run(scenario())

    def test_a_round_that_is_given_up_leaves_nothing(self) -> None:
        async def scenario() -> None:
            life = Life()
            disk = WatchedDisk(life.disk)
            life.disk = disk  # type: ignore[assignment]
            await written(one(b"a", b"1"), one(b"a", b"2"), life=life)
            gate = disk.gate("append", "*.log.cleaned")
            cleaning = run_clean(life)
            await gate.reached.wait()
            cleaning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cleaning
            await life.check_names()
            assert life.log.failure is None
            assert await offsets(life) == [0, 1]

        asyncio.run(scenario())


class TestFailures:
    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
    def test_an_error_at_every_operation(self, number: int) -> None:
        """Either the log goes on as if nothing had happened, or it says that it must be opened anew; either
        way nothing is lost, and the next round completes."""

        async def scenario() -> None:
            at, is_over, went_on = 0, False, 0
            while not is_over:
                life = Life(_FailingDisk(at, number))
                story = Story(life, SeededRandom(5))
                await life.open()
                await story.write(6)
                await story.settle()
                await life.log.flush()
                disk = life.disk
                assert isinstance(disk, _FailingDisk)
                disk.is_armed = True
                with suppress(StorageError):
                    await life.clean()
                    is_over = not disk.has_failed
                disk.is_armed = False
                if life.log.failure is None:
                    went_on += 1
                    if disk.failed_operation != "remove":
                        await life.check_names()
                    await life.put(one(b"k1", b"after"))
                    await life.check()
                else:
                    await life.check()  # it can still be read
                    await life.reopen(is_clean=False)
                    await life.check_names()
                await life.clean()
                await life.check(is_clean_below=life.log.cleaned_offset or 0)
                at += 1
            assert at > 100
            assert went_on > at // 2

        asyncio.run(scenario())

    def test_a_full_disk(self) -> None:
        async def scenario() -> None:
            life = await written(one(b"a", bytes(200)), one(b"b", bytes(200)))
            await life.log.flush()
            await life.directory.checkpoint()  # type: ignore[union-attr]
            used = sum(
                [await life.disk.size_of(f"t-0/{name}") or 0 for name in await life.disk.listdir("t-0")]
            )
            life.disk.capacity_bytes = used + 250
            with pytest.raises(DiskFull, match=r"\.cleaned"):
                await life.clean()
            await life.check_names()
            await life.put(one(b"c"))
            life.disk.capacity_bytes = None
            await life.clean()
            await life.check(is_clean_below=2)

        asyncio.run(scenario())

    def test_what_is_corrupt_is_not_made_to_look_sound(self) -> None:
        async def scenario() -> None:
            life = await written(one(b"a"), one(b"a"), one(b"b"))
            await damage(life.disk, path_of(1, ".log"), -1)
            with pytest.raises(CorruptSegment, match=r"00000000000000000001\.log is corrupt at byte 0"):
                await life.clean()
            await life.check_names()
            assert life.log.failure is None
            assert life.log.bases == [0, 1, 2, 3]

        asyncio.run(scenario())


class _FailingDisk(MemoryDisk):
    """Once armed, fails one operation, reads included."""

    def __init__(self, at: int, number: int) -> None:
        super().__init__()
        self._left = at
        self._number = number
        self.is_armed = False
        self.has_failed = False
        self.failed_operation = ""

    def begin(self, operation: str, path: str) -> None:
        if self.is_armed:
            self._left -= 1
            if self._left == -1:
                self.has_failed, self.failed_operation = True, operation
                raise self.error(self._number, operation, path)
        super().begin(operation, path)


@pytest.mark.parametrize("buffer_bytes", [0, 1])
def test_a_buffer_of_nothing_loses_nothing(buffer_bytes: int) -> None:
    async def scenario() -> None:
        life = await written(one(b"a"), one(b"b"), one(b"a"))
        await life.clean(buffer_bytes=buffer_bytes)
        assert await offsets(life) == [1, 2]

    asyncio.run(scenario())


def test_batches_larger_than_the_buffer() -> None:
    async def scenario() -> None:
        life = Life(config=replace(COMPACTED, segment_bytes=2000))
        await life.open()
        await life.put([(b"a", bytes(300)), (b"b", bytes(300))], codec=0)
        await life.put([(b"a", bytes(300)), (b"c", bytes(300))], codec=1)
        await life.log.roll()
        await life.clean(buffer_bytes=10)
        assert await offsets(life) == [1, 2, 3]
        header = BatchHeader.parse(await read_bytes(life.log, 2, 1))
        assert header.codec == 1  # it lost nothing
        await life.put(one(b"c"))
        await life.log.roll()
        await life.clean()
        header = BatchHeader.parse(await read_bytes(life.log, 2, 1))
        assert (header.codec, header.record_count) == (1, 1)  # compressed again
        await life.check(is_clean_below=5)

    asyncio.run(scenario())


def test_the_newest_record_is_found_although_a_newer_batch_was_emptied() -> None:
    async def scenario() -> None:
        life = Life()
        await life.open()
        await life.put(one(b"a"))
        life.clock.advance(5)
        await life.put(one(b"b"), 1)
        life.clock.jump_ms(-3000)
        await life.put(one(b"b"))
        await life.log.roll()
        await life.clean()
        assert await offsets(life) == [0, 2]
        found = await reading.offset_for_timestamp(life.log, reading.MAX_TIMESTAMP)
        assert found.offset == 2
        fetched = await reading.read(life.log, 1, 1, Bound.LOG_END)
        assert fetched.range is not None
        await life.check()

    asyncio.run(scenario())
