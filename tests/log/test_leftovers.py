"""What an interrupted deletion or compaction leaves behind is finished or undone at the next start."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log.config import LogConfig
from barnabas.log.leftovers import tidy
from tests.support.log_fixtures import contents, put, said
from tests.support.logs import batch, open_directory, read_all, values

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


async def directory_of(*names: str) -> MemoryDisk:
    """A disk with a partition of these files; each holds its own name, so that it is known again."""
    disk = MemoryDisk()
    await disk.mkdir("t-0")
    for one in names:
        await put(disk, f"t-0/{one}", one.encode())
    return disk


def segment(base: int, ending: str = "") -> list[str]:
    return [name(base, suffix + ending) for suffix in SUFFIXES]


async def tidied(*names: str, start_offset: int = 0) -> tuple[list[int], list[str]]:
    disk = await directory_of(*names)
    bases = await tidy(disk, "t-0", start_offset)
    return bases, await disk.listdir("t-0")


def test_segments_are_found_in_the_order_of_their_offsets() -> None:
    async def scenario() -> None:
        others = ["leader-epoch-checkpoint", "partition.metadata", name(7, ".snapshot"), "notes.txt", "7.log"]
        bases, left = await tidied(*segment(70), *segment(7), *segment(0), *others)
        assert bases == [0, 7, 70]
        assert left == sorted([*segment(0), *segment(7), *segment(70), *others])

    asyncio.run(scenario())


def test_a_directory_that_is_not_there_has_no_segments() -> None:
    assert asyncio.run(tidy(MemoryDisk(), "t-0")) == []


@pytest.mark.parametrize("ending", [".deleted", ".cleaned", ".tmp"])
def test_what_was_on_its_way_out_or_not_finished_is_removed(ending: str) -> None:
    async def scenario() -> None:
        files = [*segment(0, ending), name(7, f".snapshot{ending}"), f"leader-epoch-checkpoint{ending}"]
        assert await tidied(*files, *segment(7)) == ([7], sorted(segment(7)))

    asyncio.run(scenario())


def test_what_was_removed_stays_removed_when_the_power_fails() -> None:
    async def scenario() -> None:
        disk = await directory_of(*segment(0, ".deleted"), *segment(7))
        await disk.sync_dir("")
        await disk.sync_dir("t-0")
        await tidy(disk, "t-0")
        disk.crash_power()
        assert await disk.listdir("t-0") == sorted(segment(7))

    asyncio.run(scenario())


def test_an_index_without_a_segment_is_removed_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        orphans = [name(3, suffix) for suffix in SUFFIXES[1:]]
        assert await tidied(*orphans, *segment(7)) == ([7], sorted(segment(7)))

    asyncio.run(scenario())
    assert f"removing memory:/t-0/{name(3, '.index')}, which has no segment" in said(caplog)


def test_segments_that_end_before_the_start_of_the_log_are_removed() -> None:
    """They were renamed once, and a power failure took the new names back."""

    async def scenario() -> None:
        files = [*segment(0), *segment(10), *segment(20)]
        for start_offset, kept in [(9, [0, 10, 20]), (10, [10, 20]), (19, [10, 20]), (500, [20])]:
            bases, left = await tidied(*files, start_offset=start_offset)
            assert bases == kept
            assert left == sorted(one for base in kept for one in segment(base))

    asyncio.run(scenario())


# --- compactions


async def compacted(endings: dict[int, str], also: tuple[str, ...] = ()) -> MemoryDisk:
    """Originals of ten offsets each, from 0, 10, 20 and 30 on; what replaces two of them, by its ending."""
    disk = MemoryDisk()
    await disk.mkdir("t-0")
    for base in (0, 10, 20, 30):
        await put(disk, f"t-0/{name(base, '.log')}", batch([b"old"] * 10, base_offset=base))
        for suffix in SUFFIXES[1:]:
            await put(disk, f"t-0/{name(base, suffix)}", b"old")
    for base, ending in endings.items():
        data = batch([b"new"], base_offset=base) + batch([b"new"], base_offset=base + 19)
        await put(disk, f"t-0/{name(base, '.log' + ending)}", data)
        for suffix in SUFFIXES[1:]:
            await put(disk, f"t-0/{name(base, suffix + ending)}", b"new")
    for one in also:
        await put(disk, f"t-0/{one}", b"")
    return disk


def test_a_swap_takes_the_place_of_what_it_replaces() -> None:
    async def scenario() -> None:
        disk = await compacted({0: ".swap"})
        assert await tidy(disk, "t-0") == [0, 20, 30]
        assert await disk.listdir("t-0") == sorted([*segment(0), *segment(20), *segment(30)])
        assert b"new" in await contents(disk, f"t-0/{name(0, '.log')}")
        for suffix in SUFFIXES[1:]:
            assert await contents(disk, f"t-0/{name(0, suffix)}") == b"new"
            assert await contents(disk, f"t-0/{name(20, suffix)}") == b"old"

    asyncio.run(scenario())


def test_several_swaps_are_completed_together() -> None:
    async def scenario() -> None:
        disk = await compacted({0: ".swap", 20: ".swap"})
        assert await tidy(disk, "t-0") == [0, 20]
        for base in (0, 20):
            assert b"new" in await contents(disk, f"t-0/{name(base, '.log')}")

    asyncio.run(scenario())


def test_a_swap_that_had_begun_is_carried_through() -> None:
    """Its batches have their name already, an index has not: Kafka renames them in that order."""

    async def scenario() -> None:
        disk = await compacted({0: ".swap"})
        for base in (0, 10):
            for suffix in SUFFIXES:
                await disk.rename(f"t-0/{name(base, suffix)}", f"t-0/{name(base, suffix)}.deleted")
        await disk.rename(f"t-0/{name(0, '.log.swap')}", f"t-0/{name(0, '.log')}")
        assert await tidy(disk, "t-0") == [0, 20, 30]
        assert await disk.listdir("t-0") == sorted([*segment(0), *segment(20), *segment(30)])
        assert await contents(disk, f"t-0/{name(0, '.index')}") == b"new"

    asyncio.run(scenario())


@pytest.mark.parametrize("cleaned", [0, 20])
def test_a_swap_at_or_after_an_unfinished_segment_is_undone(cleaned: int) -> None:
    """The set was not complete: the originals are all there and stay."""

    async def scenario() -> None:
        disk = await compacted({20: ".swap"}, (name(cleaned, ".log.cleaned"),))
        assert await tidy(disk, "t-0") == [0, 10, 20, 30]
        assert await disk.listdir("t-0") == sorted(one for base in (0, 10, 20, 30) for one in segment(base))
        assert b"old" in await contents(disk, f"t-0/{name(20, '.log')}")

    asyncio.run(scenario())


def test_a_swap_before_an_unfinished_segment_is_completed() -> None:
    async def scenario() -> None:
        disk = await compacted({0: ".swap"}, (name(20, ".log.cleaned"),))
        assert await tidy(disk, "t-0") == [0, 20, 30]
        assert b"new" in await contents(disk, f"t-0/{name(0, '.log')}")

    asyncio.run(scenario())


def test_a_swap_of_which_nothing_is_left_takes_the_place_of_the_first_original() -> None:
    """With all its files: aborted transactions of which no marker is left would make others look aborted."""

    async def scenario() -> None:
        disk = await compacted({}, tuple(name(0, f"{suffix}.swap") for suffix in SUFFIXES[:3]))
        assert await tidy(disk, "t-0") == [0, 10, 20, 30]
        assert name(0, ".txnindex") not in await disk.listdir("t-0")
        for suffix in SUFFIXES[:3]:
            assert await contents(disk, f"t-0/{name(0, suffix)}") == b""
            assert await contents(disk, f"t-0/{name(10, suffix)}") != b""

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("bases", "cleaned"), [((0,), ()), ((0, 20), ()), ((0,), (".txnindex",)), ((20,), (".log", ".index"))]
)
def test_a_swap_interrupted_anywhere_ends_with_the_same_files(
    bases: tuple[int, ...], cleaned: tuple[str, ...]
) -> None:
    """By a crash of the process or of the power, before any operation. Some of its files may not have been
    renamed yet: then it is undone."""

    class Died(BaseException):
        pass

    async def scenario() -> None:
        random = SeededRandom(1)
        whole = await compacted(dict.fromkeys(bases, ".swap"))
        for suffix in cleaned:
            path = f"t-0/{name(bases[0], suffix)}"
            await whole.rename(path + ".swap", path + ".cleaned")
        if not cleaned:
            await whole.remove(f"t-0/{name(bases[-1], '.txnindex.swap')}")  # it has no aborted ones left
        await whole.sync_dir("")
        await whole.sync_dir("t-0")
        for path in await whole.listdir("t-0"):
            await (await whole.open(f"t-0/{path}")).sync()
        expected = whole.fork()
        count = expected.operations
        await tidy(expected, "t-0")
        count = expected.operations - count
        after = {one: await contents(expected, f"t-0/{one}") for one in await expected.listdir("t-0")}
        assert bool(cleaned) == (name(10, ".log") in after and name(30, ".log") in after)
        for stop in range(count):
            for power in (False, *[True] * 8):
                disk, left = whole.fork(), stop

                def die(operation: str, path: str) -> None:
                    nonlocal left
                    if left == 0:
                        raise Died
                    left -= 1

                disk.before = die
                with pytest.raises(Died):
                    await tidy(disk, "t-0")
                disk.before = None
                if power:
                    disk.crash_power(random)
                else:
                    disk.crash_process()
                await tidy(disk, "t-0")
                assert {one: await contents(disk, f"t-0/{one}") for one in await disk.listdir("t-0")} == after
        assert count >= (6 if cleaned else 10)

    asyncio.run(scenario())


def test_a_partition_opens_with_what_a_compaction_left() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        config = LogConfig(cleanup_policy=frozenset({"compact"}))
        directory = await open_directory(disk, config)
        log = await directory.partition("t", 0)
        for _ in range(3):
            await log.append_as_leader(batch([b"old"] * 10), 0)
            await log.roll()
        await directory.close()
        await put(disk, f"t-0/{name(0, '.log.swap')}", batch([b"new"], base_offset=19, leader_epoch=0))
        log = await (await open_directory(disk, config)).partition("t", 0)
        assert log.bases == [0, 20, 30]
        assert [record.offset for record in await read_all(log)] == list(range(19, 30))
        assert values(await read_all(log))[0] == b"new"

    asyncio.run(scenario())
