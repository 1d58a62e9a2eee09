"""The rules of core/disk.py, held against the disk in memory and the disk of the operating system."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from barnabas.core.clock import SystemClock
from barnabas.core.disk import DirectoryLocked, Disk, DiskFailed, FileMissing, HandleClosed
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.os_disk import OsDisk
from barnabas.core.workers import InlineWorkers, ThreadWorkers

Run = Callable[[Callable[[Disk], Awaitable[None]]], None]


@pytest.fixture(params=["memory", "os", "os-threads", "os-one-descriptor"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    workers = ThreadWorkers(2) if request.param == "os-threads" else InlineWorkers()
    made: Disk
    if request.param == "memory":
        made = MemoryDisk(clock=SystemClock())
    else:
        made = OsDisk(tmp_path, workers, SystemClock(), 1 if request.param == "os-one-descriptor" else None)
    yield made
    made.close()
    workers.close()


@pytest.fixture
def run(disk: Disk) -> Run:
    def run_on_disk(scenario: Callable[[Disk], Awaitable[None]]) -> None:
        async def main() -> None:
            await scenario(disk)

        asyncio.run(main())

    return run_on_disk


async def contents(disk: Disk, path: str) -> bytes:
    file = await disk.open(path)
    try:
        return await file.read(0, file.size + 10)
    finally:
        file.close()


async def put(disk: Disk, path: str, data: bytes) -> None:
    file = await disk.open(path, create=True)
    await file.append(data)
    file.close()


class TestFiles:
    def test_appends_follow_each_other(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            file = await disk.open("a.log", create=True)
            assert (file.size, file.path, file.pins) == (0, "a.log", 0)
            await file.append(b"one")
            await file.append(memoryview(b"-two-")[1:4])
            await file.append(bytearray(b"three"))
            await file.append(b"")
            assert file.size == 11
            assert await file.read(0, 100) == b"onetwothree"
            assert await disk.size_of("a.log") == 11

        run(scenario)

    def test_reads_are_short_only_at_the_end(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await put(disk, "a", bytes(range(100)))
            file = await disk.open("a")
            assert await file.read(10, 5) == bytes(range(10, 15))
            assert await file.read(95, 20) == bytes(range(95, 100))
            assert await file.read(100, 20) == b""
            assert await file.read(500, 20) == b""
            assert await file.read(0, 0) == b""
            assert type(await file.read(0, 4)) is bytes

        run(scenario)

    def test_large_reads_and_writes_come_back(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            data = bytes(range(256)) * 4096 * 2
            await put(disk, "big", data)
            assert await contents(disk, "big") == data
            file = await disk.open("big")
            await file.truncate(3)
            assert await contents(disk, "big") == data[:3]

        run(scenario)

    def test_write_at_overwrites_and_extends(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            file = await disk.open("a", create=True)
            await file.append(b"0123456789")
            await file.write_at(2, b"ab")
            assert (file.size, await file.read(0, 99)) == (10, b"01ab456789")
            await file.write_at(9, b"xyz")
            assert (file.size, await file.read(0, 99)) == (12, b"01ab45678xyz")
            await file.write_at(14, b"!")
            assert (file.size, await file.read(10, 99)) == (15, b"yz\0\0!")

        run(scenario)

    def test_truncate_cuts_and_extends_with_zeros(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            file = await disk.open("a", create=True)
            await file.append(b"0123456789")
            await file.truncate(4)
            assert (file.size, await file.read(0, 99)) == (4, b"0123")
            await file.truncate(6)
            assert (file.size, await file.read(0, 99)) == (6, b"0123\0\0")
            await file.append(b"+")
            assert await file.read(0, 99) == b"0123\0\0+"
            await file.truncate(10 * 1024 * 1024)
            assert await file.read(file.size - 2, 99) == b"\0\0"
            await file.truncate(1)
            assert (file.size, await file.read(0, 99)) == (1, b"0")

        run(scenario)

    def test_files_know_when_they_were_written(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            started_ms = SystemClock().wall_ms()
            await put(disk, "a", b"x")
            # The kernel stamps files by a coarser clock.
            assert started_ms - 1000 <= await disk.modified_ms("a") <= SystemClock().wall_ms()
            with pytest.raises(FileMissing):
                await disk.modified_ms("nowhere")

        run(scenario)

    def test_a_file_can_count_as_written_at_another_time(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await put(disk, "a", b"x")
            await disk.set_modified_ms("a", 1_600_000_000_123)
            assert await disk.modified_ms("a") == 1_600_000_000_123
            await disk.rename("a", "b")
            assert await disk.modified_ms("b") == 1_600_000_000_123
            assert await contents(disk, "b") == b"x"
            with pytest.raises(FileMissing, match=r"cannot set the time of .*nowhere"):
                await disk.set_modified_ms("nowhere", 0)
            await put(disk, "b", b"y")  # which is writing it again
            assert await disk.modified_ms("b") > 1_600_000_000_123

        run(scenario)

    def test_handles_on_one_file_agree(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            first = await disk.open("a", create=True)
            second = await disk.open("a", create=True)
            await first.append(b"one")
            assert second.size == 3
            await second.append(b"two")
            assert await first.read(0, 99) == b"onetwo"
            first.close()
            first.close()
            assert await second.read(0, 99) == b"onetwo"

        run(scenario)

    def test_syncs_return(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await disk.mkdir("d")
            file = await disk.open("d/a", create=True)
            await file.append(b"x")
            await file.sync()
            await disk.sync_dir("d")
            await disk.sync_dir("")
            with pytest.raises(FileMissing, match=r"cannot sync the directory .*nothing-here"):
                await disk.sync_dir("nothing-here")

        run(scenario)

    def test_a_closed_handle_is_of_no_use(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            file = await disk.open("a", create=True)
            await file.append(b"x")
            file.close()
            for use in (file.append(b"y"), file.read(0, 1), file.sync(), file.truncate(0), file.rename("b")):
                with pytest.raises(HandleClosed):
                    await use
            with pytest.raises(HandleClosed):
                file.pin()
            assert await contents(disk, "a") == b"x"

        run(scenario)

    def test_a_closed_disk_is_of_no_use(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            file = await disk.open("a", create=True)
            await file.append(b"x")
            disk.close()
            disk.close()
            for use in (
                file.append(b"y"),
                file.read(0, 1),
                disk.open("a"),
                disk.listdir(""),
                disk.mkdir("d"),
            ):
                with pytest.raises(HandleClosed):
                    await use
            file.close()

        run(scenario)


class TestNames:
    def test_missing_files_are_named(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            with pytest.raises(FileMissing, match=r"cannot open .*nowhere.*; "):
                await disk.open("nowhere")
            with pytest.raises(FileMissing, match=r"cannot .* .*no/where"):
                await disk.open("no/where", create=True)
            with pytest.raises(FileMissing, match=r"cannot rename .*nowhere"):
                await disk.rename("nowhere", "somewhere")
            assert await disk.size_of("nowhere") is None
            assert await disk.size_of("no/where") is None
            await disk.remove("nowhere")
            await disk.remove_tree("nowhere")
            assert await disk.listdir("nowhere") == []

        run(scenario)

    def test_directories_nest_and_list_sorted(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await disk.mkdir("t-0/sub")
            await disk.mkdir("t-0")
            for name in ("b", "c", "a"):
                await put(disk, f"t-0/{name}", b"x")
            assert await disk.listdir("") == ["t-0"]
            assert await disk.listdir("t-0") == ["a", "b", "c", "sub"]
            assert await disk.size_of("t-0") is None
            assert disk.describe("t-0/a").endswith("/t-0/a")

        run(scenario)

    def test_files_and_directories_are_not_confused(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await disk.mkdir("d")
            await put(disk, "f", b"x")
            await put(disk, "d/f", b"x")
            for wrong in (
                disk.open("d", create=True),
                disk.remove("d"),
                disk.remove_tree("f"),
                disk.listdir("f"),
                disk.mkdir("f/d"),
                disk.rename("f", "d"),
                disk.rename("d", "d/e"),
            ):
                with pytest.raises(DiskFailed):
                    await wrong
            await disk.mkdir("e")
            with pytest.raises(DiskFailed):
                await disk.rename("e", "d")
            assert await disk.listdir("") == ["d", "e", "f"]

        run(scenario)

    def test_rename_replaces_and_handles_follow(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await disk.mkdir("d")
            new = await disk.open("a.tmp", create=True)
            await new.append(b"new")
            await put(disk, "d/a", b"old")
            old = await disk.open("d/a")
            await new.rename("d/a")
            assert new.path == "d/a"
            await new.append(b"er")
            assert await contents(disk, "d/a") == b"newer"
            assert await disk.listdir("") == ["d"]
            with pytest.raises(FileMissing):
                await old.read(0, 9)
            await new.rename("d/a")
            assert await new.read(0, 9) == b"newer"

        run(scenario)

    def test_handles_follow_a_renamed_directory(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await disk.mkdir("t-0/deep")
            await disk.mkdir("t-00")
            file = await disk.open("t-0/a", create=True)
            deep = await disk.open("t-0/deep/b", create=True)
            beside = await disk.open("t-00/a", create=True)
            await disk.rename("t-0", "t-0.x-delete")
            assert (file.path, deep.path) == ("t-0.x-delete/a", "t-0.x-delete/deep/b")
            assert beside.path == "t-00/a"
            await file.append(b"still")
            await deep.append(b"here")
            assert await contents(disk, "t-0.x-delete/a") == b"still"
            assert await contents(disk, "t-0.x-delete/deep/b") == b"here"

        run(scenario)

    def test_removed_files_are_gone(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            file = await disk.open("a", create=True)
            await file.append(b"x")
            await disk.remove("a")
            for use in (file.read(0, 1), file.append(b"y"), file.sync(), file.rename("b")):
                with pytest.raises(FileMissing):
                    await use
            again = await disk.open("a", create=True)
            assert again.size == 0
            file.close()
            await again.append(b"new")
            assert await contents(disk, "a") == b"new"

        run(scenario)

    def test_a_removed_file_that_is_pinned_does_not_move_another_of_its_name(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await put(disk, "a", b"old")
            file = await disk.open("a")
            file.pin()
            await disk.remove("a")
            await put(disk, "a", b"new")
            with pytest.raises(FileMissing):
                await file.rename("b")
            assert await disk.listdir("") == ["a"]
            file.unpin()

        run(scenario)

    def test_remove_tree_takes_everything(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await disk.mkdir("d/e/f")
            await put(disk, "d/e/f/a", b"x")
            await put(disk, "d/b", b"x")
            file = await disk.open("d/b")
            await disk.remove_tree("d")
            assert await disk.listdir("") == []
            with pytest.raises(FileMissing):
                await file.read(0, 1)

        run(scenario)

    @pytest.mark.parametrize("how", ["remove", "replace", "remove_tree"])
    def test_pinned_readers_read_to_the_end(self, run: Run, how: str) -> None:
        async def scenario(disk: Disk) -> None:
            await disk.mkdir("d")
            await put(disk, "d/a", b"precious")
            await put(disk, "other", b"other")
            file = await disk.open("d/a")
            file.pin()
            file.pin()
            assert file.pins == 2
            await contents(disk, "other")
            if how == "remove":
                await disk.remove("d/a")
            elif how == "replace":
                await disk.rename("other", "d/a")
            else:
                await disk.remove_tree("d")
            file.close()
            file.unpin()
            await disk.open("more", create=True)
            assert await file.read(0, 99) == b"precious"
            file.unpin()
            assert file.pins == 0
            with pytest.raises(HandleClosed):
                await file.read(0, 99)

        run(scenario)


class TestLocks:
    def test_a_lock_is_held_by_one(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            release = await disk.lock(".lock")
            with pytest.raises(DirectoryLocked, match=r"/\.lock: another node uses"):
                await disk.lock(".lock")
            await disk.lock(".lock2")
            release()
            release()
            again = await disk.lock(".lock")
            release()
            with pytest.raises(DirectoryLocked):
                await disk.lock(".lock")
            again()
            assert ".lock" in await disk.listdir("")

        run(scenario)

    def test_closing_the_disk_releases(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await disk.lock(".lock")
            disk.close()
            if isinstance(disk, OsDisk):
                other = OsDisk(disk.describe(""), InlineWorkers(), SystemClock())
                (await other.lock(".lock"))()

        run(scenario)


class TestSpace:
    def test_what_is_left_is_no_more_than_there_is(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await disk.mkdir("")
            space = await disk.space()
            assert 0 < space.usable_bytes <= space.total_bytes < 2**63

        run(scenario)

    def test_a_disk_in_memory_counts_its_bytes(self) -> None:
        async def scenario() -> None:
            disk = MemoryDisk(capacity_bytes=1000)
            await put(disk, "a", b"x" * 300)
            assert await disk.space() == (1000, 700)

        asyncio.run(scenario())

    def test_a_disk_that_is_not_there_says_so(self, tmp_path: Path) -> None:
        async def scenario() -> None:
            with pytest.raises(FileMissing, match=r"cannot look at .*gone"):
                await OsDisk(tmp_path / "gone", InlineWorkers(), SystemClock()).space()

        asyncio.run(scenario())


class TestSyncAll:
    def test_everything_at_once(self, run: Run) -> None:
        async def scenario(disk: Disk) -> None:
            await disk.mkdir("d")
            release = await disk.lock(".lock")
            await put(disk, "d/a", b"one")
            if disk.can_sync_all:  # some systems cannot
                await disk.sync_all()
            await put(disk, "d/a", b"two")
            assert await contents(disk, "d/a") == b"onetwo"
            release()

        run(scenario)
