"""A partition moves between directories: whole, whatever comes in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import UUID

import pytest

from barnabas.core.clock import ManualClock
from barnabas.core.disk import DiskFailed
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log import reading, trimming
from barnabas.log.config import LogConfig
from barnabas.log.directories import LogDirectories
from barnabas.log.moving import Move, PartitionMoved, unhurried
from barnabas.log.partition import Bound, PartitionLog
from tests.support.log_fixtures import from_producer
from tests.support.logs import START_MS, batch, open_directory, read_all, values

A, B = UUID(int=0xA), UUID(int=0xB)
TOPIC = UUID(int=0x7)
KEY = ("t", 0)


class Crash(BaseException):
    """The machine is down."""


class Machine:
    """Two disks, what the metadata says, and a partition on the first."""

    def __init__(self) -> None:
        self.disks = {A: MemoryDisk(name="/a"), B: MemoryDisk(name="/b")}
        self.told = A
        self.countdown: int | None = None
        for disk in self.disks.values():
            disk.before = self._before

    def _before(self, operation: str, path: str) -> None:
        if self.countdown is not None:
            self.countdown -= 1
            if self.countdown < 0:
                raise Crash

    async def start(self) -> LogDirectories:
        opened = {
            own: await open_directory(disk, random=SeededRandom(own.int)) for own, disk in self.disks.items()
        }
        logs = LogDirectories(opened)
        await logs.settle(lambda topic: TOPIC, lambda key: self.told)
        return logs

    async def tell(self) -> None:
        await asyncio.sleep(0)
        self.told = B

    def crash(self, seed: int | None) -> None:
        self.countdown = None
        for disk in self.disks.values():
            if seed is None:
                disk.crash_process()
            else:
                disk.crash_power(SeededRandom(seed))


def a_move(logs: LogDirectories, *, bytes_per_second: float = float("inf")) -> Move:
    return Move(KEY, logs.live[A], logs.live[B], ManualClock(START_MS), lambda: bytes_per_second)


async def moved(machine: Machine, logs: LogDirectories) -> PartitionLog:
    move = a_move(logs)
    await move.copy_most()
    return await move.switch(machine.tell, lambda log: None)


async def filled(logs: LogDirectories, config: LogConfig | None = None) -> PartitionLog:
    log = await logs.live[A].partition(*KEY, topic_id=TOPIC, config=config)
    for number in range(6):
        await log.append_as_leader(batch([b"%d" % number * 200, b"x"]), number // 2)
    log.advance_high_watermark(log.end_offset)
    return log


def run(scenario: Callable[[Machine], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Machine())

    asyncio.run(main())


def test_everything_is_there_and_only_there() -> None:
    async def scenario(machine: Machine) -> None:
        logs = await machine.start()
        log = await filled(logs, LogConfig(segment_bytes=1500))
        await trimming.delete_records(log, 3)
        expected = await read_all(log)
        new = await moved(machine, logs)
        assert logs.where(*KEY) == B
        assert logs.opened(*KEY) is new
        assert await read_all(new) == expected
        assert (new.start_offset, new.end_offset, new.high_watermark) == (3, 12, 12)
        assert new.epochs.entries == log.epochs.entries
        assert new.recovery_point == 12
        assert (new.topic_id, new.config) == (TOPIC, log.config)
        with pytest.raises(PartitionMoved, match=r"moved to /b/"):
            await log.append_as_leader(batch(1), 7)
        with pytest.raises(PartitionMoved):
            await read_all(log)
        await new.append_as_leader(batch(1), 7)
        assert not [name for name in await machine.disks[B].listdir("") if "future" in name]
        (left,) = [name for name in await machine.disks[A].listdir("") if name.startswith("t-0")]
        assert left.endswith("-delete")
        await logs.live[B].close()
        await logs.live[A].close()
        again = await (await machine.start()).existing(*KEY)
        assert again is not None
        assert (again.start_offset, again.end_offset) == (3, 13)

    run(scenario)


def test_producers_and_open_transactions_go_along() -> None:
    async def scenario(machine: Machine) -> None:
        logs = await machine.start()
        log = await logs.live[A].partition(*KEY, topic_id=TOPIC)
        for sequence in range(0, 14, 2):
            await log.append_as_leader(from_producer(sequence, 2), 0)
        log.advance_high_watermark(log.end_offset)
        new = await moved(machine, logs)
        again = await new.append_as_leader(from_producer(12, 2), 0)
        assert (again.is_duplicate, again.first_offset) == (True, 12)
        assert (await new.append_as_leader(from_producer(14, 2), 0)).first_offset == 14

    run(scenario)


def test_an_empty_log_moves_with_its_offsets() -> None:
    async def scenario(machine: Machine) -> None:
        logs = await machine.start()
        log = await filled(logs)
        await trimming.truncate_fully_and_start_at(log, 50)
        new = await moved(machine, logs)
        assert (new.start_offset, new.end_offset) == (50, 50)
        assert (await new.append_as_leader(batch(1), 9)).first_offset == 50

    run(scenario)


def test_the_end_is_kept_where_nothing_stands_before_it() -> None:
    """As after a compaction that has left nothing of the last sealed segment."""

    async def scenario(machine: Machine) -> None:
        logs = await machine.start()
        log = await filled(logs)
        log.end_offset = 40
        await log.roll()
        log.advance_high_watermark(40)
        new = await moved(machine, logs)
        assert (new.end_offset, len(await read_all(new))) == (40, 12)
        assert (await new.append_as_leader(batch(1), 9)).first_offset == 40

    run(scenario)


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("gap", [0, 5])
def test_producers_go_along_where_nothing_of_theirs_is_left(gap: int, others: bool) -> None:
    """Retention or a compaction has taken the records; who sends the last ones again is still known, and
    after a crash, too."""

    async def scenario(machine: Machine) -> None:
        logs = await machine.start()
        log = await logs.live[A].partition(*KEY, topic_id=TOPIC)
        await log.append_as_leader(batch(3), 0)
        await log.append_as_leader(from_producer(0, 2), 0)
        log.end_offset += gap
        await log.roll()
        log.advance_high_watermark(log.end_offset)
        if gap:  # as a compaction leaves it
            await log.segments[0].truncate(0, 0)
        else:
            await trimming.delete_records(log, log.end_offset)
        if others:
            await log.append_as_leader(batch(2), 0)
        new = await moved(machine, logs)
        again = await new.append_as_leader(from_producer(0, 2), 0)
        assert (again.is_duplicate, again.first_offset) == (True, 3)
        await new.append_as_leader(batch(1), 0)
        machine.crash(None)
        recovered = await (await machine.start()).partition(*KEY, topic_id=TOPIC)
        again = await recovered.append_as_leader(from_producer(0, 2), 0)
        assert (again.is_duplicate, again.first_offset) == (True, 3)

    run(scenario)


def test_all_of_a_long_log_is_copied_while_it_is_written() -> None:
    async def scenario(machine: Machine) -> None:
        logs = await machine.start()
        log = await logs.live[A].partition(*KEY, topic_id=TOPIC, config=LogConfig(segment_bytes=1 << 20))
        for number in range(40):
            await log.append_as_leader(batch([b"%d" % number * 100_000]), 0)
        assert len(log.segments) > 3
        move = a_move(logs)
        await move.copy_most()
        assert move.lag == 0

    run(scenario)


def test_what_is_appended_meanwhile_comes_along() -> None:
    async def scenario(machine: Machine) -> None:
        logs = await machine.start()
        log = await filled(logs)
        move = a_move(logs)
        await move.copy_most()
        assert move.lag == 0
        await log.append_as_leader(batch(5), 3)
        assert move.lag == 5
        new = await move.switch(machine.tell, lambda log: None)
        assert new.end_offset == 17
        assert values(await read_all(new))[12:] == [b"v0", b"v1", b"v2", b"v3", b"v4"]

    run(scenario)


def test_a_reader_in_the_middle_of_it_reads_on() -> None:
    async def scenario(machine: Machine) -> None:
        logs = await machine.start()
        log = await filled(logs)
        fetched = await reading.read(log, 0, 1 << 20, Bound.LOG_END)
        assert fetched.range is not None
        file, position, size = fetched.range
        file.pin()
        expected = await file.read(position, size)
        await moved(machine, logs)
        assert await file.read(position, size) == expected
        file.unpin()

    run(scenario)


def test_where_the_metadata_cannot_be_told_it_stays() -> None:
    async def scenario(machine: Machine) -> None:
        async def cannot() -> None:
            raise OSError("no room")

        logs = await machine.start()
        log = await filled(logs)
        move = a_move(logs)
        await move.copy_most()
        with pytest.raises(OSError, match="no room"):
            await move.switch(cannot, lambda log: None)
        await move.give_up()
        assert logs.where(*KEY) == A
        assert (await log.append_as_leader(batch(1), 3)).first_offset == 12
        assert not logs.live[A].held_back
        machine.crash(None)
        again = await (await machine.start()).existing(*KEY)
        assert again is not None
        assert again.end_offset == 13

    run(scenario)


def test_nothing_more_is_put_into_a_target_that_has_failed() -> None:
    async def scenario(machine: Machine) -> None:
        logs = await machine.start()
        log = await filled(logs)
        move = a_move(logs)
        await move.copy_most()
        failed, reason = logs.live[B], DiskFailed("/b is broken")
        logs.drop(B, reason)
        await failed.give_up(reason)
        written: list[str] = []
        machine.disks[B].before = lambda operation, path: written.append(operation)
        await log.append_as_leader(batch(1), 3)
        with pytest.raises(DiskFailed, match="broken"):
            await move.switch(machine.tell, lambda log: None)
        assert not written
        await log.append_as_leader(batch(1), 3)
        assert logs.where(*KEY) == A

    run(scenario)


def test_who_cancels_a_switch_waits_for_it() -> None:
    async def scenario(machine: Machine) -> None:
        logs = await machine.start()
        await filled(logs)
        move = a_move(logs)
        await move.copy_most()
        task = asyncio.ensure_future(unhurried(move.switch(machine.tell, lambda log: None)))
        for _ in range(2):
            await asyncio.sleep(0)
            task.cancel()
        assert (await task).end_offset == 12
        assert logs.where(*KEY) == B

    run(scenario)


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
def test_a_crash_anywhere_leaves_one_whole_log(power: bool) -> None:
    async def crashed_at(operation: int) -> bool:
        machine = Machine()
        logs = await machine.start()
        log = await filled(logs, LogConfig(segment_bytes=1500))
        await log.flush()
        await logs.live[A].checkpoint()
        machine.countdown = operation
        with suppress(Crash):
            await moved(machine, logs)
        is_over = machine.countdown >= 0
        machine.crash(operation if power else None)
        logs = await machine.start()
        again = await logs.partition(*KEY, topic_id=TOPIC)
        assert again.end_offset == 12, operation
        assert len(await read_all(again)) == 12, operation
        assert sum(KEY in directory for directory in logs.live.values()) == 1
        await logs.live[A].removals.sweep()
        await logs.live[B].removals.sweep()
        for disk in machine.disks.values():
            assert not [name for name in await disk.listdir("") if name.endswith(("-future", "-delete"))]
        return is_over

    async def scenario() -> None:
        operation = 0
        while not await crashed_at(operation):
            operation += 1
        assert operation > 30

    asyncio.run(scenario())
