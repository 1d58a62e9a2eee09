"""The simulated disk: calls take time, are carried through, and at a crash are done, undone or torn."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter

import pytest

from barnabas.core.disk import DiskFailed, DiskFull, HandleClosed
from barnabas.sim.chance import stream
from barnabas.sim.disk import Drive, SimDisk
from barnabas.sim.process import Process
from tests.sim.stage import Stage, on_stage


def drive_of(stage: Stage, seed: int = 1) -> Drive:
    return Drive(stage.clock, stream(seed, "drive"), stage.trace)


def test_calls_take_time_and_take_effect_at_their_end() -> None:
    async def scene(stage: Stage) -> None:
        disk = SimDisk(drive_of(stage), stage.process("p").under_way)
        file = await disk.open("a", create=True)
        began = stage.loop.time()
        appending = asyncio.create_task(file.append(b"abc"))
        await asyncio.sleep(0)
        assert file.size == 0
        await appending
        assert file.size == 3
        assert 20e-6 <= stage.loop.time() - began <= 220e-6
        began = stage.loop.time()
        await file.sync()
        assert 0.5e-3 <= stage.loop.time() - began <= 10.1e-3

    on_stage(scene)


def test_a_read_beside_an_append_sees_it_or_does_not() -> None:
    async def scene(stage: Stage) -> None:
        disk = SimDisk(drive_of(stage), stage.process("p").under_way)
        file = await disk.open("a", create=True)
        await file.append(b"begin ")
        seen = Counter([await _read_beside(file_number, disk) for file_number in range(200)])
        assert set(seen) == {b"old", b"oldnew"}

    on_stage(scene)


async def _read_beside(number: int, disk: SimDisk) -> bytes:
    file = await disk.open(str(number), create=True)
    await file.append(b"old")
    reading = asyncio.create_task(file.read(0, 99))
    await asyncio.gather(reading, file.append(b"new"))
    return reading.result()


def test_a_slow_disk_is_slow() -> None:
    async def scene(stage: Stage) -> None:
        drive = drive_of(stage)
        disk = SimDisk(drive, stage.process("p").under_way)
        file = await disk.open("a", create=True)
        drive.slow = 1.0
        began = stage.loop.time()
        await file.append(b"abc")
        assert stage.loop.time() - began >= 0.1
        drive.heal()
        began = stage.loop.time()
        await file.append(b"abc")
        assert stage.loop.time() - began < 0.1

    on_stage(scene)


def test_a_full_disk_and_a_failing_one_heal() -> None:
    async def scene(stage: Stage) -> None:
        drive = drive_of(stage)
        disk = SimDisk(drive, stage.process("p").under_way)
        file = await disk.open("a", create=True)
        assert not drive.has_failed
        drive.leave_free(2)
        with pytest.raises(DiskFull):
            await file.append(b"abc")
        assert file.size == 0
        drive.leave_free(None)
        await file.append(b"abc")
        drive.fail("append", errno.EIO, "*", 0, 5)
        with pytest.raises(DiskFailed):
            await file.append(b"abc")
        drive.heal()
        await file.append(b"def")
        assert await file.read(0, 9) == b"abcdef"
        assert drive.has_failed

    on_stage(scene)


def test_what_is_under_way_outlives_its_handle() -> None:
    async def scene(stage: Stage) -> None:
        disk = SimDisk(drive_of(stage), stage.process("p").under_way)
        file = await disk.open("a", create=True)
        syncing = asyncio.create_task(file.sync())
        await asyncio.sleep(0)
        file.close()
        await disk.remove("a")
        await syncing
        with pytest.raises(HandleClosed):
            await file.sync()

    on_stage(scene)


def crashed(seed: int, *, power: bool, in_write: bool) -> bytes:
    """What a crash in the middle of an append leaves of a file that was synced before it."""

    async def scene(stage: Stage) -> bytes:
        drive, process = drive_of(stage, seed), stage.process("p")
        disk = SimDisk(drive, process.under_way)
        file = await disk.open("a", create=True)
        await file.append(b"synced ")
        await file.sync()
        await disk.sync_dir("")

        def crash() -> None:
            calls = process.cut(silently=power)
            stage.loop.call_soon(lambda: drive.crash(calls, power=power))

        if in_write:
            drive.crash_at(1, crash)
        process.spawn(file.append(b"a few more bytes"))
        await asyncio.sleep(0)
        if not in_write:
            crash()
        await asyncio.sleep(1)
        await process.bury()
        again = await SimDisk(drive, stage.process("p").under_way).open("a")
        return await again.read(0, 99)

    return on_stage(scene)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("in_write", [False, True])
def test_a_write_that_a_crash_interrupts_is_there_or_not_or_in_part(power: bool, in_write: bool) -> None:
    left = [crashed(seed, power=power, in_write=in_write) for seed in range(60)]
    whole = b"synced a few more bytes"
    assert whole in left
    assert b"synced " in left
    assert any(b"synced " < each < whole for each in left)
    assert all(each.startswith(b"synced ") for each in left)
    if not power:
        assert all(whole.startswith(each) for each in left)


def test_the_dead_do_not_write() -> None:
    async def scene(stage: Stage) -> None:
        drive, process = drive_of(stage), stage.process("p")
        file = await SimDisk(drive, process.under_way).open("a", create=True)

        async def writes_to_the_last(process: Process) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                await file.append(b"last words")

        process.spawn(writes_to_the_last(process))
        await asyncio.sleep(1)
        drive.crash(process.cut(), power=False)
        await process.bury()
        again = await SimDisk(drive, stage.process("p").under_way).open("a")
        assert again.size == 0

    on_stage(scene)
