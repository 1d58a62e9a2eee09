"""What the disk of the operating system does beyond the contract: descriptors, stalls, cold pages, locks."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import ParamSpec, TypeVar

import pytest

from barnabas.core import os_sync
from barnabas.core.clock import ManualClock, SystemClock
from barnabas.core.descriptors import raise_open_file_limit
from barnabas.core.disk import DirectoryLocked, DiskFailed, DiskFull, FileMissing, TooManyOpenFiles
from barnabas.core.os_disk import OsDisk
from barnabas.core.os_file import INLINE_FREE_BYTES, INLINE_READ_BYTES, QUIET_WRITES
from barnabas.core.workers import InlineWorkers, ThreadWorkers

P = ParamSpec("P")
T = TypeVar("T")


class CountingWorkers(InlineWorkers):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.calls += 1
        return await super().run(call, *args, **kwargs)


@pytest.fixture
def workers() -> CountingWorkers:
    return CountingWorkers()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk(tmp_path: Path, workers: CountingWorkers, clock: ManualClock) -> Iterator[OsDisk]:
    made = OsDisk(tmp_path, workers, clock, max_open_files=16)
    yield made
    made.close()


class TestDescriptors:
    def test_a_thousand_files_share_sixteen_descriptors(self, disk: OsDisk) -> None:
        async def scenario() -> None:
            files = [await disk.open(f"{number}.log", create=True) for number in range(1000)]
            for turn in range(3):
                for number, file in enumerate(files):
                    await file.append(f"{turn}:{number};".encode())
                    assert disk.descriptors <= 16
            for number, file in enumerate(files):
                assert await file.read(0, 99) == f"0:{number};1:{number};2:{number};".encode()
                await file.sync()
            assert disk.descriptors == 16
            for file in files:
                file.close()
            assert disk.descriptors == 0

        asyncio.run(scenario())

    def test_opening_costs_little_memory_and_no_descriptor(self, disk: OsDisk, tmp_path: Path) -> None:
        async def scenario() -> None:
            for number in range(2000):
                (tmp_path / f"{number:020}.log").touch()
            tracemalloc.start()
            files = [await disk.open(f"{number:020}.log") for number in range(2000)]
            used, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert disk.descriptors == 0
            assert used / len(files) < 600

        asyncio.run(scenario())

    def test_a_file_in_use_keeps_its_turn(self, disk: OsDisk) -> None:
        async def scenario() -> None:
            hot = await disk.open("hot", create=True)
            await hot.append(b"x")
            node, reopened = hot._node, 0
            for number in range(320):
                cold = await disk.open(f"cold-{number}", create=True)
                await cold.append(b"x")
                reopened += node.fd < 0
                await hot.append(b"x")
            assert reopened <= 320 // 16, "at most once each time that all others had their turn"
            assert hot.size == os.fstat(hot.descriptor()).st_size == 321

        asyncio.run(scenario())

    def test_pinned_files_keep_theirs_beyond_the_limit(self, disk: OsDisk) -> None:
        async def scenario() -> None:
            files = [await disk.open(str(number), create=True) for number in range(40)]
            for file in files[:20]:
                file.pin()
                await file.append(b"x")
            descriptors = [file.descriptor() for file in files[:20]]
            for file in files[20:]:
                await file.append(b"y")
            assert [file.descriptor() for file in files[:20]] == descriptors
            for file in files[:20]:
                file.unpin()
            await (await disk.open("one more", create=True)).append(b"z")
            assert disk.descriptors <= 16

        asyncio.run(scenario())

    def test_out_of_descriptors_half_of_the_idle_ones_go(
        self, disk: OsDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        open_file = os.open
        refusals = 1

        def refuse(path: str, flags: int, mode: int = 0o777) -> int:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise OSError(errno.EMFILE, "too many")
            return open_file(path, flags, mode)

        async def scenario() -> None:
            nonlocal refusals
            for number in range(10):
                await disk.open(str(number), create=True)
            assert disk.descriptors == 10
            monkeypatch.setattr(os, "open", refuse)
            await disk.open("a", create=True)
            assert disk.descriptors == 6
            refusals = 1000
            with pytest.raises(TooManyOpenFiles, match="ulimit -n"):
                await disk.open("b", create=True)
            assert refusals == 998, "one more try, and no spinning"
            refusals = 0
            await disk.open("b", create=True)

        asyncio.run(scenario())

    def test_the_limit_is_raised_to_what_is_allowed(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
            assert raise_open_file_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
            assert raise_open_file_limit() == hard
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_a_file_removed_by_hand_is_missing(self, disk: OsDisk, tmp_path: Path) -> None:
        async def scenario() -> None:
            (tmp_path / "a").write_bytes(b"x")
            file = await disk.open("a")
            (tmp_path / "a").unlink()
            with pytest.raises(FileMissing, match="removed by hand"):
                await file.read(0, 1)

        asyncio.run(scenario())


class TestFailedWrites:
    """The kernel may take less than it is given, and then say no."""

    @staticmethod
    def limit(monkeypatch: pytest.MonkeyPatch, a_call: int, in_all: int) -> None:
        pwrite, left = os.pwrite, in_all

        def short(fd: int, data: bytes | memoryview, position: int) -> int:
            nonlocal left
            if left <= 0:
                raise OSError(errno.ENOSPC, "full")
            written = pwrite(fd, memoryview(data)[: min(a_call, left)], position)
            left -= written
            return written

        monkeypatch.setattr(os, "pwrite", short)

    def test_short_writes_are_continued(self, disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
        async def scenario() -> None:
            file = await disk.open("a", create=True)
            self.limit(monkeypatch, a_call=3, in_all=100)
            await file.append(b"0123456789")
            await file.write_at(8, b"abcdefgh")
            assert (file.size, await file.read(0, 99)) == (16, b"01234567abcdefgh")

        asyncio.run(scenario())

    @pytest.mark.parametrize("room", [0, 2, 6])
    def test_an_append_that_fails_leaves_nothing(
        self, disk: OsDisk, monkeypatch: pytest.MonkeyPatch, room: int, tmp_path: Path
    ) -> None:
        async def scenario() -> None:
            file = await disk.open("a", create=True)
            await file.append(b"kept")
            with monkeypatch.context() as patch:
                self.limit(patch, a_call=3, in_all=room)
                with pytest.raises(DiskFull, match=r"cannot (append|write) to .*/a: .*; free some space"):
                    await file.append(b"0123456789")
            assert (file.size, (tmp_path / "a").read_bytes()) == (4, b"kept")
            await file.append(b"!")
            assert (tmp_path / "a").read_bytes() == b"kept!"

        asyncio.run(scenario())

    def test_remains_that_cannot_be_cut_are_cut_later(
        self, disk: OsDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def refuse(fd: int, size: int) -> None:
            raise OSError(errno.EIO, "broken")

        async def scenario() -> None:
            file = await disk.open("a", create=True)
            await file.append(b"kept")
            with monkeypatch.context() as patch:
                self.limit(patch, a_call=3, in_all=5)
                patch.setattr(os, "ftruncate", refuse)
                with pytest.raises(DiskFull, match="left behind byte 4 cannot be cut"):
                    await file.append(b"0123456789")
                assert await file.read(0, 99) == b"kept"
                with pytest.raises(DiskFailed, match="cut the remains"):
                    await file.append(b"!")
            assert (tmp_path / "a").read_bytes() == b"kept01234"
            await file.append(b"!")
            assert (tmp_path / "a").read_bytes() == b"kept!"

        asyncio.run(scenario())


class TestStalls:
    def test_slow_appends_move_to_a_worker_and_back(
        self, disk: OsDisk, workers: CountingWorkers, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pwrite, seconds = os.pwrite, 0.0

        def slow(fd: int, data: bytes, position: int) -> int:
            clock.advance(seconds)
            return pwrite(fd, data, position)

        async def scenario() -> None:
            nonlocal seconds
            monkeypatch.setattr(os, "pwrite", slow)
            file, other = await disk.open("a", create=True), await disk.open("b", create=True)
            seconds = 0.0019
            await file.append(b"1")
            assert not disk.stalled
            seconds = 0.0021
            await file.append(b"2")
            assert (disk.stalled, workers.calls) == (True, 0)
            seconds = 0.0001
            for _ in range(QUIET_WRITES - 1):
                await file.append(b"3")
            seconds = 0.001
            await other.append(b"4")
            assert (disk.stalled, workers.calls) == (True, QUIET_WRITES)
            seconds = 0.0001
            for _ in range(QUIET_WRITES):
                assert disk.stalled
                await other.write_at(other.size, b"5")
            assert (disk.stalled, workers.calls) == (False, 2 * QUIET_WRITES)
            await file.append(b"6")
            assert workers.calls == 2 * QUIET_WRITES
            assert await file.read(0, 99) == b"12" + b"3" * (QUIET_WRITES - 1) + b"6"
            assert await other.read(0, 99) == b"4" + b"5" * QUIET_WRITES

        asyncio.run(scenario())

    def test_a_cancelled_append_in_a_worker_is_finished_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pwrite, started, go_on = os.pwrite, threading.Event(), threading.Event()

        def blocked(fd: int, data: bytes, position: int) -> int:
            started.set()
            assert go_on.wait(20)
            return pwrite(fd, data, position)

        async def scenario() -> None:
            workers = ThreadWorkers(1)
            disk = OsDisk(tmp_path, workers, SystemClock())
            disk._io.stalled = True
            file = await disk.open("a", create=True)
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwrite", blocked)
                appending = asyncio.create_task(file.append(b"whole"))
                await asyncio.to_thread(started.wait, 20)
                appending.cancel()
                await asyncio.sleep(0)
                assert not appending.done()
                go_on.set()
                with pytest.raises(asyncio.CancelledError):
                    await appending
            assert file.size == 5
            await file.append(b"|next")
            assert await file.read(0, 99) == b"whole|next"
            disk.close()
            workers.close()

        asyncio.run(scenario())


class TestColdReads:
    @pytest.mark.parametrize("cached", [0, 3])
    def test_what_is_not_cached_is_read_by_a_worker(
        self, disk: OsDisk, workers: CountingWorkers, monkeypatch: pytest.MonkeyPatch, cached: int
    ) -> None:
        def partly(fd: int, buffers: tuple[bytearray], position: int, flags: int) -> int:
            assert flags == os.RWF_NOWAIT
            if not cached:
                raise BlockingIOError(errno.EAGAIN, "cold")
            buffers[0][:cached] = os.pread(fd, cached, position)
            return cached

        async def scenario() -> None:
            file = await disk.open("a", create=True)
            await file.append(b"0123456789")
            assert await file.read(1, 8) == b"12345678"
            before = workers.calls
            monkeypatch.setattr(os, "preadv", partly)
            assert await file.read(1, 8) == b"12345678"
            assert workers.calls == before + 1

        asyncio.run(scenario())

    def test_a_file_system_that_cannot_tell_is_remembered(
        self, disk: OsDisk, workers: CountingWorkers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = 0

        def unsupported(fd: int, buffers: tuple[bytearray], position: int, flags: int) -> int:
            nonlocal asked
            asked += 1
            raise OSError(errno.EOPNOTSUPP, "unsupported")

        async def scenario() -> None:
            file = await disk.open("a", create=True)
            data = bytes(INLINE_READ_BYTES + 1)
            await file.append(data)
            monkeypatch.setattr(os, "preadv", unsupported)
            assert await file.read(0, 10) == bytes(10)
            before = workers.calls
            assert await file.read(0, INLINE_READ_BYTES) == data[:-1]
            assert workers.calls == before
            assert await file.read(0, len(data)) == data
            assert workers.calls == before + 1
            assert asked == 1
            assert file.is_cached(0, 10), "the tail of a file is taken for cached"

        asyncio.run(scenario())

    def test_read_errors_are_named(self, disk: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*arguments: object) -> int:
            raise OSError(errno.EIO, "broken")

        async def scenario() -> None:
            file = await disk.open("a", create=True)
            await file.append(b"0123456789")
            for name in ("preadv", "fdatasync", "ftruncate"):
                monkeypatch.setattr(os, name, broken)
            for use in (file.read(0, 10), file.sync(), file.truncate(3)):
                with pytest.raises(
                    DiskFailed, match=r"cannot \w+ .*/a: Input/output error; check the device"
                ):
                    await use
            assert file.size == 10
            monkeypatch.undo()
            with pytest.raises(DiskFailed, match="an earlier sync failed, and may have lost data"):
                await file.sync()
            assert await file.read(0, 10) == b"0123456789"
            file.close()
            file = await disk.open("a")
            with pytest.raises(DiskFailed, match="an earlier sync failed"):
                await file.sync()
            await file.truncate(0)
            await file.sync()

        asyncio.run(scenario())


def test_a_cancelled_removal_leaves_no_handle_on_a_file_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink, started, go_on = os.unlink, threading.Event(), threading.Event()

    def blocked(path: str) -> None:
        started.set()
        assert go_on.wait(20)
        unlink(path)

    async def scenario() -> None:
        workers = ThreadWorkers(1)
        disk = OsDisk(tmp_path, workers, SystemClock())
        file = await disk.open("a", create=True)
        await file.append(bytes(INLINE_FREE_BYTES + 1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", blocked)
            removing = asyncio.create_task(disk.remove("a"))
            await asyncio.to_thread(started.wait, 20)
            removing.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await removing
        again = await disk.open("a", create=True)
        await again.append(b"new")
        assert (tmp_path / "a").read_bytes() == b"new"
        with pytest.raises(FileMissing):
            await file.append(b"lost")
        disk.close()
        workers.close()

    asyncio.run(scenario())


LOCK_IN_ANOTHER_PROCESS = """
import asyncio, sys
from barnabas.core.clock import SystemClock
from barnabas.core.disk import DirectoryLocked
from barnabas.core.os_disk import OsDisk
from barnabas.core.workers import InlineWorkers

async def main():
    try:
        await OsDisk(sys.argv[1], InlineWorkers(), SystemClock()).lock(".lock")
    except DirectoryLocked as error:
        print("refused:", error, flush=True)
    else:
        print("locked", flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""


class TestLocks:
    @staticmethod
    def start(root: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", LOCK_IN_ANOTHER_PROCESS, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def test_another_process_is_kept_out(self, disk: OsDisk, tmp_path: Path) -> None:
        release = asyncio.run(disk.lock(".lock"))
        answer, _ = self.start(tmp_path).communicate(timeout=60)
        assert answer.startswith(f"refused: cannot lock {tmp_path}/.lock: another node uses")
        release()
        answer, _ = self.start(tmp_path).communicate("\n", timeout=60)
        assert answer == "locked\n"

    def test_another_process_keeps_us_out(self, disk: OsDisk, tmp_path: Path) -> None:
        with self.start(tmp_path) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "locked\n"
            for _ in range(2):
                with pytest.raises(DirectoryLocked):
                    asyncio.run(disk.lock(".lock"))
            other.communicate("\n", timeout=60)
        asyncio.run(disk.lock(".lock"))()

    def test_two_nodes_in_one_process_and_a_link_to_the_directory(
        self, disk: OsDisk, tmp_path: Path, workers: CountingWorkers
    ) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "d")
        release = asyncio.run(disk.lock("d/.lock"))
        other = OsDisk(tmp_path / "link", workers, SystemClock())
        with pytest.raises(DirectoryLocked):
            asyncio.run(other.lock(".lock"))
        answer, _ = self.start(tmp_path / "d").communicate(timeout=60)
        assert answer.startswith("refused"), "our own refusal must not have given up the lock"
        release()
        asyncio.run(other.lock(".lock"))()


def test_sync_all_that_failed_is_not_believed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def fail(fd: int) -> None:
        calls.append(fd)
        raise OSError(errno.EIO, "said the device")

    async def scenario() -> None:
        disk = OsDisk(tmp_path, InlineWorkers(), SystemClock())
        assert not disk.can_sync_all  # it is not locked: writes may have failed unseen
        release = await disk.lock(".lock")
        monkeypatch.setattr(os_sync, "can_sync_file_system", lambda fd: True)
        monkeypatch.setattr(os_sync, "sync_file_system", fail)
        assert disk.can_sync_all
        with pytest.raises(DiskFailed, match="cannot sync all files in"):
            await disk.sync_all()
        assert not disk.can_sync_all
        with pytest.raises(DiskFailed, match="an earlier sync failed"):
            await disk.sync_all()
        assert len(calls) == 1
        release()
        disk.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("release", ["5.7.19", "4.19.0-generic", "nonsense"])
def test_old_kernels_do_not_tell_of_failed_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    assert not os_sync.can_sync_file_system(fd)
    os.close(fd)
