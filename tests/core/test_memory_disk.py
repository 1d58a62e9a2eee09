"""What the disk in memory can do beyond the contract: crash in two ways, and fail on demand.

Power losses are checked against outcomes worked out apart from the implementation: over many seeds every
possible one must turn up, and no other.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from itertools import product

import pytest

from barnabas.core.clock import ManualClock
from barnabas.core.disk import DiskFailed, DiskFull, TooManyOpenFiles
from barnabas.core.errors import StorageError
from barnabas.core.faults import TornWrite
from barnabas.core.memory_disk import DeadHandle, MemoryDisk
from barnabas.core.random import SeededRandom

Scenario = Callable[[MemoryDisk], Awaitable[None]]
Files = tuple[tuple[str, bytes], ...]


class Crash(BaseException):
    """The node goes down."""


async def snapshot(disk: MemoryDisk, path: str = "") -> Files:
    """Every file with its contents; an empty directory shows as a name that ends with a slash."""
    names = await disk.listdir(path)
    found: list[tuple[str, bytes]] = []
    for name in names:
        below = f"{path}/{name}".lstrip("/")
        if await disk.size_of(below) is None:
            found += await snapshot(disk, below) or ((f"{below}/", b""),)
        else:
            file = await disk.open(below)
            found.append((below, await file.read(0, file.size)))
            file.close()
    return tuple(found)


def after_power_loss(scenario: Scenario, seeds: int = 600) -> set[Files]:
    """Every outcome of losing the power at the end of `scenario`."""

    async def main() -> set[Files]:
        disk = MemoryDisk()
        await scenario(disk)
        outcomes = set()
        for seed in range(seeds):
            fork = disk.fork()
            fork.crash_power(SeededRandom(seed))
            outcomes.add(await snapshot(fork))
        return outcomes

    return asyncio.run(main())


async def put(disk: MemoryDisk, path: str, data: bytes, *, sync: bool = True) -> None:
    file = await disk.open(path, create=True)
    await file.append(data)
    if sync:
        await file.sync()
    file.close()


def names(outcomes: set[Files]) -> set[tuple[str, ...]]:
    return {tuple(name for name, _ in files) for files in outcomes}


class TestPowerLossInAFile:
    def test_an_append_is_kept_lost_or_torn_at_either_end(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await put(disk, "a", b"xy")
            await disk.sync_dir("")
            await put(disk, "a", b"abcd", sync=False)

        assert {files[0][1] for files in after_power_loss(scenario)} == {
            b"xy",
            b"xya",
            b"xyab",
            b"xyabc",
            b"xyabcd",
            b"xy\0bcd",
            b"xy\0\0cd",
            b"xy\0\0\0d",
            # the file grew, and the rest never came
            b"xy\0\0\0\0",
            b"xya\0\0\0",
            b"xyab\0\0",
            b"xyabc\0",
        }

    def test_truncations_and_writes_survive_on_their_own(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await put(disk, "a", b"012345")
            await disk.sync_dir("")
            file = await disk.open("a")
            await file.truncate(2)
            await file.append(b"A")
            await file.write_at(4, b"B")

        possible = set()
        for cut, first, second in product([False, True], [None, b"", b"A"], [None, b"", b"B"]):
            data = bytearray(b"01" if cut else b"012345")
            for survivor, position in ((first, 2), (second, 4)):
                if survivor is not None:  # at least the file has grown for it
                    data += bytes(max(0, position + 1 - len(data)))
                    data[position : position + len(survivor)] = survivor
            possible.add(bytes(data))
        assert {files[0][1] for files in after_power_loss(scenario, seeds=2000)} == possible
        assert {b"01A345", b"01\0\0B", b"012345", b"01\0"} <= possible

    def test_what_was_synced_stays(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            file = await disk.open("a", create=True)
            await disk.sync_dir("")
            await file.append(b"0123456789")
            await file.truncate(8)
            await file.truncate(1000)
            await file.truncate(9)
            await file.write_at(1, b"A")
            await file.sync()

        assert after_power_loss(scenario, seeds=50) == {(("a", b"0A234567\0"),)}

    def test_the_same_seed_leaves_the_same(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            for name in "abcdef":
                await put(disk, name, b"some bytes that may be torn", sync=False)

        async def one(seed: int) -> Files:
            disk = MemoryDisk(SeededRandom(seed))
            await scenario(disk)
            disk.crash_power()
            return await snapshot(disk)

        assert asyncio.run(one(7)) == asyncio.run(one(7))
        assert len({asyncio.run(one(seed)) for seed in range(20)}) > 10


class TestPowerLossOfNames:
    def test_a_name_that_was_not_synced_may_vanish_with_all_its_contents(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await put(disk, "a", b"synced")

        assert after_power_loss(scenario) == {(), (("a", b"synced"),)}

    def test_replacing_a_file_is_all_or_nothing(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await put(disk, "checkpoint", b"old")
            await disk.sync_dir("")
            await put(disk, "checkpoint.tmp", b"new")
            await disk.rename("checkpoint.tmp", "checkpoint")

        assert after_power_loss(scenario) == {
            (("checkpoint", b"old"),),
            (("checkpoint", b"old"), ("checkpoint.tmp", b"new")),
            (("checkpoint", b"new"),),
        }

    def test_replacing_without_a_sync_of_the_contents_may_lose_both(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await put(disk, "checkpoint", b"old")
            await disk.sync_dir("")
            await put(disk, "checkpoint.tmp", b"N", sync=False)
            await disk.rename("checkpoint.tmp", "checkpoint")

        assert (("checkpoint", b""),) in after_power_loss(scenario)

    def test_a_file_renamed_twice_is_at_one_of_its_names(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await put(disk, "a", b"x")
            await disk.sync_dir("")
            await disk.rename("a", "b")
            await disk.rename("b", "c")

        assert names(after_power_loss(scenario)) == {("a",), ("b",), ("c",)}

    def test_removals_are_kept_or_lost_each(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            for name in "ab":
                await put(disk, name, b"x")
            await disk.sync_dir("")
            for name in "ab":
                await disk.remove(name)

        assert names(after_power_loss(scenario)) == {(), ("a",), ("b",), ("a", "b")}

    def test_a_move_between_directories_needs_both_synced(self) -> None:
        async def moved(disk: MemoryDisk) -> None:
            await disk.mkdir("d")
            await disk.mkdir("e")
            await put(disk, "d/a", b"x")
            for directory in ("d", "e", ""):
                await disk.sync_dir(directory)
            await disk.rename("d/a", "e/b")

        async def half_synced(disk: MemoryDisk) -> None:
            await moved(disk)
            await disk.sync_dir("e")

        async def synced(disk: MemoryDisk) -> None:
            await half_synced(disk)
            await disk.sync_dir("d")

        here, there = ("d/a", "e/"), ("d/", "e/b")
        assert names(after_power_loss(moved)) == {here, there}
        assert names(after_power_loss(half_synced)) == {here, there}
        assert names(after_power_loss(synced)) == {there}

    def test_what_a_synced_change_builds_on_is_synced_with_it(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await disk.mkdir("d")
            await disk.mkdir("e")
            await put(disk, "d/a", b"x")
            for directory in ("d", "e", ""):
                await disk.sync_dir(directory)
            await disk.rename("d/a", "e/b")
            await disk.rename("e/b", "e/c")
            await disk.sync_dir("e")

        assert names(after_power_loss(scenario)) == {("d/", "e/c")}

    def test_a_directory_that_was_not_synced_takes_its_files_along(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await disk.mkdir("d/e")
            await put(disk, "d/e/a", b"x")
            await disk.sync_dir("d/e")
            await disk.sync_dir("d")

        assert names(after_power_loss(scenario)) == {(), ("d/e/a",)}

    def test_a_name_taken_anew_does_not_bury_the_old_file(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await disk.mkdir("t-0")
            await put(disk, "t-0/a", b"old")
            await disk.sync_dir("t-0")
            await disk.sync_dir("")
            await disk.rename("t-0", "t-0-delete")
            await disk.mkdir("t-0")

        assert names(after_power_loss(scenario)) == {("t-0/a",), ("t-0-delete/a",), ("t-0/", "t-0-delete/a")}

    def test_a_full_directory_is_not_removed(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await disk.mkdir("d")
            await disk.mkdir("e")
            await put(disk, "d/a", b"x")
            for directory in ("d", "e", ""):
                await disk.sync_dir(directory)
            await disk.rename("d/a", "e/a")
            await disk.remove_tree("d")

        outcomes = names(after_power_loss(scenario))
        assert outcomes == {("d/a", "e/"), ("d/", "e/a"), ("e/a",)}

    def test_everything_synced_survives_whatever_was_done(self) -> None:
        async def one(seed: int) -> None:
            random = SeededRandom(seed)
            disk = MemoryDisk()
            for _ in range(60):
                await random_step(disk, random)
            for directory in ["", *await directories(disk)]:
                await disk.sync_dir(directory)
            for name, _ in await snapshot(disk):
                if not name.endswith("/"):
                    await (await disk.open(name)).sync()
            before = await snapshot(disk)
            disk.crash_power(random)
            assert await snapshot(disk) == before

        for seed in range(60):
            asyncio.run(one(seed))

    def test_a_second_loss_takes_nothing_more(self) -> None:
        async def one(seed: int) -> None:
            random = SeededRandom(seed)
            disk = MemoryDisk()
            for _ in range(60):
                await random_step(disk, random)
            disk.crash_power(random)
            before = await snapshot(disk)
            disk.crash_power(random)
            assert await snapshot(disk) == before

        for seed in range(60):
            asyncio.run(one(seed))


async def directories(disk: MemoryDisk, path: str = "") -> list[str]:
    found = []
    for name in await disk.listdir(path):
        below = f"{path}/{name}".lstrip("/")
        if await disk.size_of(below) is None:
            found += [below, *await directories(disk, below)]
    return found


async def random_step(disk: MemoryDisk, random: SeededRandom) -> None:
    """Something to files and directories of few names, so that they get in each other's way."""

    def some_path() -> str:
        return "/".join("abc"[random.below(3)] for _ in range(1 + random.below(3)))

    path, other = some_path(), some_path()
    try:
        match random.below(8):
            case 0:
                await disk.mkdir(path)
            case 1 | 2:
                await put(disk, path, random.bytes(5), sync=bool(random.below(2)))
            case 3 | 4:
                await disk.rename(path, other)
            case 5:
                await disk.remove(path)
            case 6:
                await disk.sync_dir(path)
            case 7:
                await disk.remove_tree(path)
    except StorageError:
        return


def test_a_look_is_no_operation() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        await disk.mkdir("place/inside")
        file = await disk.open("place/letters", create=True)
        await file.append(b"written")
        disk.fail("read", errno.EIO)
        disk.fail("open", errno.EIO)
        disk.before = lambda operation, path: pytest.fail(f"{operation} {path}")
        assert disk.peek("place") == {"letters": b"written"}
        assert disk.peek("nowhere") == {}

    asyncio.run(run())


def test_time_stands_still_unless_there_is_a_clock() -> None:
    async def scenario() -> None:
        clock = ManualClock(1000)
        for disk, times in ((MemoryDisk(), (0, 0)), (MemoryDisk(clock=clock), (1000, 1500))):
            file = await disk.open("a", create=True)
            assert await disk.modified_ms("a") == times[0]
            clock.advance(0.5)
            await file.append(b"x")
            assert await disk.fork().modified_ms("a") == times[1]
            clock.jump_ms(-500)

    asyncio.run(scenario())


class TestProcessCrash:
    def test_everything_written_stays_and_nothing_else(self) -> None:
        async def scenario() -> None:
            disk = MemoryDisk()
            await disk.mkdir("d")
            file = await disk.open("d/a.tmp", create=True)
            await file.append(b"written")
            await file.rename("d/a")
            file.pin()
            release = await disk.lock(".lock")
            disk.crash_process()
            for use in (file.append(b"x"), file.read(0, 1), file.sync(), file.truncate(0), file.rename("b")):
                with pytest.raises(DeadHandle):
                    await use
            file.unpin()
            file.close()
            again = await disk.open("d/a")
            assert (await again.read(0, 99), again.pins) == (b"written", 0)
            held = await disk.lock(".lock")
            release()
            assert disk.fork() is not disk
            held()

        asyncio.run(scenario())

    def test_unsynced_bytes_are_still_in_danger_of_the_next_power_loss(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await put(disk, "a", b"x", sync=False)
            disk.crash_process()

        assert after_power_loss(scenario) == {(), (("a", b""),), (("a", b"\0"),), (("a", b"x"),)}

    def test_handles_die_with_the_power_too(self) -> None:
        async def scenario() -> None:
            disk = MemoryDisk()
            file = await disk.open("a", create=True)
            disk.crash_power(SeededRandom(1))
            with pytest.raises(DeadHandle):
                await file.append(b"x")

        asyncio.run(scenario())


class TestFaults:
    def test_rules_match_operation_path_and_turn(self) -> None:
        async def scenario() -> None:
            disk = MemoryDisk()
            disk.fail("append", errno.EIO, path_glob="*.log", after=1, times=2)
            log, index = await disk.open("a.log", create=True), await disk.open("a.index", create=True)
            await log.append(b"1")
            for _ in range(2):
                with pytest.raises(
                    DiskFailed, match=r"cannot append to memory:/a\.log: .*; check the device"
                ):
                    await log.append(b"2")
                await index.append(b"x")
            await log.append(b"3")
            assert await log.read(0, 9) == b"13"

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        "operation", ["append", "write_at", "read", "truncate", "sync", "rename", "remove", "open", "list"]
    )
    def test_every_operation_fails_for_good_until_healed(self, operation: str) -> None:
        async def scenario() -> None:
            disk = MemoryDisk()
            file = await disk.open("a", create=True)
            await file.append(b"x")
            uses = {
                "append": lambda: file.append(b"y"),
                "write_at": lambda: file.write_at(0, b"y"),
                "read": lambda: file.read(0, 1),
                "truncate": lambda: file.truncate(0),
                "sync": file.sync,
                "rename": lambda: file.rename("b"),
                "remove": lambda: disk.remove("a"),
                "open": lambda: disk.open("a"),
                "list": lambda: disk.listdir(""),
            }
            disk.fail(operation, errno.EIO)
            for _ in range(3):
                with pytest.raises(DiskFailed):
                    await uses[operation]()
            disk.heal()
            assert await snapshot(disk) == (("a", b"x"),)
            if operation != "sync":
                await uses[operation]()

        asyncio.run(scenario())

    def test_a_failed_sync_is_final_until_the_node_starts_again(self) -> None:
        async def scenario() -> None:
            disk = MemoryDisk()
            file, other = await disk.open("a", create=True), await disk.open("b", create=True)
            await disk.sync_dir("")
            await file.append(b"x")
            disk.fail("sync", errno.EIO, times=1)
            with pytest.raises(DiskFailed, match="cannot sync memory:/a: Input/output error"):
                await file.sync()
            await other.sync()
            with pytest.raises(DiskFailed, match="cannot sync memory:/a: an earlier sync failed"):
                await file.sync()
            emptied = disk.fork()
            disk.crash_process()
            file = await disk.open("a")
            await file.sync()
            disk.crash_power(SeededRandom(1))
            assert await snapshot(disk) == (("a", b"x"), ("b", b""))

            emptied.fail("sync", errno.EIO, times=1)
            file = await emptied.open("a")
            with pytest.raises(DiskFailed):
                await file.sync()
            await file.truncate(0)
            await file.append(b"anew")
            await file.sync()
            emptied.crash_power(SeededRandom(1))
            assert await snapshot(emptied) == (("a", b"anew"), ("b", b""))

        asyncio.run(scenario())

    def test_named_errors_and_directories(self) -> None:
        async def scenario() -> None:
            disk = MemoryDisk()
            disk.fail("open", errno.EMFILE, times=1)
            with pytest.raises(TooManyOpenFiles, match="ulimit -n"):
                await disk.open("a", create=True)
            disk.fail("create", errno.ENOSPC, times=1)
            with pytest.raises(DiskFull):
                await disk.open("a", create=True)
            disk.fail("mkdir", errno.EACCES, times=1)
            with pytest.raises(DiskFailed, match="writable"):
                await disk.mkdir("d")
            disk.fail("sync_dir", errno.EIO, times=1)
            with pytest.raises(DiskFailed):
                await disk.sync_dir("")
            with pytest.raises(ValueError, match="no such operation: apend"):
                disk.fail("apend", errno.EIO)
            assert await snapshot(disk) == ()

        asyncio.run(scenario())

    def test_a_full_disk_cuts_back_and_goes_on_when_there_is_room(self) -> None:
        async def scenario() -> None:
            disk = MemoryDisk(capacity_bytes=10)
            await put(disk, "other", b"1234")
            file = await disk.open("a", create=True)
            await file.truncate(1000)  # holes take no room
            await file.truncate(0)
            await file.append(b"abc")
            with pytest.raises(DiskFull, match="free some space"):
                await file.append(b"defghi")
            assert (file.size, await file.read(0, 99)) == (3, b"abc")
            await file.write_at(0, b"ABC")
            await file.append(b"def")
            with pytest.raises(DiskFull):
                await file.append(b"g")
            await disk.remove("other")
            await file.append(b"ghij")
            assert await file.read(0, 99) == b"ABCdefghij"

        asyncio.run(scenario())

    def test_the_remains_of_a_failed_append_may_outlive_a_power_loss(self) -> None:
        async def scenario(disk: MemoryDisk) -> None:
            await put(disk, "a", b"123")
            await disk.sync_dir("")
            disk.capacity_bytes = 4
            with pytest.raises(DiskFull):
                await put(disk, "a", b"45", sync=False)

        assert after_power_loss(scenario) == {(("a", b"123"),), (("a", b"123\0"),), (("a", b"1234"),)}


class TestHook:
    def test_it_sees_every_mutation_before_it_happens(self) -> None:
        async def scenario() -> None:
            disk = MemoryDisk()
            seen: list[tuple[str, str]] = []
            disk.before = lambda operation, path: seen.append((operation, path))
            await disk.mkdir("d/e")
            await put(disk, "d/a", b"x")
            file = await disk.open("d/a")
            await file.write_at(0, b"y")
            await file.read(0, 1)
            await file.truncate(0)
            await file.rename("d/b")
            await disk.listdir("d")
            await disk.sync_dir("d")
            await disk.remove_tree("d")
            assert seen == [
                ("mkdir", "d"),
                ("mkdir", "d/e"),
                ("create", "d/a"),
                ("append", "d/a"),
                ("sync", "d/a"),
                ("write_at", "d/a"),
                ("truncate", "d/a"),
                ("rename", "d/a"),
                ("sync_dir", "d"),
                ("remove", "d/b"),
                ("remove", "d/e"),
                ("remove", "d"),
            ]
            assert disk.operations == len(seen)

        asyncio.run(scenario())

    def test_after_a_crash_nothing_happens_until_the_restart(self) -> None:
        async def scenario() -> None:
            disk = MemoryDisk()
            file = await disk.open("a", create=True)
            await file.append(b"before")

            def crash(operation: str, path: str) -> None:
                raise Crash

            disk.before = crash
            with pytest.raises(Crash):
                await file.append(b"after")
            disk.before = None
            # What a dying node would still like to do in its `finally` clauses never reaches the disk.
            for use in (file.truncate(0), file.read(0, 1), disk.remove("a"), disk.mkdir("d"), disk.open("b")):
                with pytest.raises(Crash):
                    await use
            disk.crash_process()
            assert await snapshot(disk) == (("a", b"before"),)

        asyncio.run(scenario())

    @pytest.mark.parametrize("operation", ["append", "write_at"])
    @pytest.mark.parametrize("count", [0, 2, 9])
    def test_a_write_torn_by_a_crash(self, operation: str, count: int) -> None:
        async def scenario() -> None:
            disk = MemoryDisk()
            file = await disk.open("a", create=True)
            await file.append(b"1234")

            def crash(operation: str, path: str) -> None:
                raise TornWrite(count, then=Crash())

            disk.before = crash
            with pytest.raises(Crash):
                await (file.append(b"abcd") if operation == "append" else file.write_at(1, b"abcd"))
            disk.before = None
            disk.crash_process()
            torn = b"abcd"[:count]
            expected = b"1234" + torn if operation == "append" else b"1" + torn + b"1234"[1 + len(torn) :]
            assert await snapshot(disk) == (("a", expected),)

        asyncio.run(scenario())

    def test_an_ordinary_error_is_no_crash(self) -> None:
        async def scenario() -> None:
            disk = MemoryDisk()
            file = await disk.open("a", create=True)

            def fail(operation: str, path: str) -> None:
                raise DiskFailed("as the test wishes")

            disk.before = fail
            with pytest.raises(DiskFailed, match="as the test wishes"):
                await file.append(b"x")
            disk.before = None
            await file.append(b"y")
            assert await file.read(0, 9) == b"y"

        asyncio.run(scenario())


def test_sync_all_leaves_nothing_to_a_power_loss() -> None:
    async def scenario(seed: int) -> None:
        disk = MemoryDisk()
        await disk.mkdir("d/e")
        file = await disk.open("d/e/a", create=True)
        await file.append(b"kept")
        await file.rename("d/b")
        await disk.sync_all()
        await file.append(b"perhaps")
        disk.crash_power(SeededRandom(seed))
        assert (await (await disk.open("d/b")).read(0, 4), await disk.listdir("d")) == (b"kept", ["b", "e"])

    for seed in range(20):
        asyncio.run(scenario(seed))


def test_sync_all_that_failed_is_a_failed_sync_of_all() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        file, other = await disk.open("a", create=True), await disk.open("b", create=True)
        await other.append(b"y")
        await other.sync()
        await file.append(b"x")
        disk.fail("sync_all", errno.EIO, times=1)
        assert disk.can_sync_all
        with pytest.raises(DiskFailed, match="cannot sync all files in memory:"):
            await disk.sync_all()
        assert not disk.can_sync_all
        for sync in (disk.sync_all, file.sync):
            with pytest.raises(DiskFailed, match="an earlier sync failed"):
                await sync()
        await other.sync()

    asyncio.run(scenario())
