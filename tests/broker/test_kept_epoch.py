"""The broker epoch outlives a crash of the process, but no power loss, failed disk or strange directory."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.broker.storage.formatting import format_further
from barnabas.broker.storage.kept_epoch import BROKER_EPOCH, EpochKeeper
from barnabas.broker.storage.storage import Layout, Storage, open_storage
from barnabas.core.clock import ManualClock
from barnabas.core.disk import Disk
from barnabas.core.errors import StorageError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import SeededRandom
from barnabas.core.workers import InlineWorkers
from barnabas.log.checkpoints import MetaProperties, read_whole
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.testing import Broker

META = MetaProperties("AAAAAAAAAAAAAAAAAAAAAQ", 1, UUID(int=1000))
A, B = UUID(int=1001), UUID(int=1002)


class Machine:
    """The disks of a node, and the storage over them, opened by one process after another."""

    def __init__(self, *names: str) -> None:
        self.disks = {name: MemoryDisk(name=f"{name}:") for name in names}
        self.failed: list[StorageError] = []

    async def open(self, *log_dirs: str, metadata_dir: str | None = None) -> Storage:
        names = log_dirs or tuple(self.disks)
        return await open_storage(
            Layout(names, metadata_dir or names[0]),
            lambda path: self.disks[path],
            node_id=1,
            found_cluster=_found,
            on_failure=lambda _, error: self.failed.append(error),
            clock=ManualClock(),
            random=SeededRandom(7),
            workers=InlineWorkers(),
        )

    async def crash(self, storage: Storage, *, power: bool = False) -> None:
        await storage.abandon()
        for disk in self.disks.values():
            if power:
                disk.crash_power(SeededRandom(1))
            else:
                disk.crash_process()


async def _found(disk: Disk, _: dict[str, str]) -> MetaProperties:
    await format_further(disk, META)
    return META


def run(work: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(work())


async def registered(machine: Machine, epoch: int, *names: str) -> Storage:
    storage = await machine.open(*names)
    await storage.keep_epoch(epoch)
    return storage


@pytest.mark.parametrize("power", [False, True])
def test_epoch_outlives_crash_of_process_only(power: bool) -> None:
    async def scenario() -> None:
        machine = Machine("a", "b")
        storage = await registered(machine, 41)
        assert storage.previous_epoch is None  # it was new
        await machine.crash(storage, power=power)
        assert (await machine.open()).previous_epoch == (None if power else 41)

    run(scenario)


def test_power_loss_of_one_disk_is_unclean() -> None:
    async def scenario() -> None:
        machine = Machine("a", "b")
        await machine.crash(await registered(machine, 41))
        machine.disks["b"].crash_power()
        assert (await machine.open()).previous_epoch is None

    run(scenario)


def test_no_boot_id_is_unclean() -> None:
    async def scenario() -> None:
        machine = Machine("a")
        machine.disks["a"].boot_id = None
        await machine.crash(await registered(machine, 41))
        assert (await machine.open()).previous_epoch is None

    run(scenario)


def test_crash_before_registration_keeps_the_epoch_of_the_last_one() -> None:
    async def scenario() -> None:
        machine = Machine("a")
        await machine.crash(await registered(machine, 41))
        await machine.crash(await machine.open())
        storage = await machine.open()
        assert storage.previous_epoch == 41
        await storage.keep_epoch(52)
        await machine.crash(storage)
        assert (await machine.open()).previous_epoch == 52

    run(scenario)


def test_clean_stop_counts_in_every_boot_and_before_what_was_kept() -> None:
    async def scenario() -> None:
        machine = Machine("a", "b")
        storage = await registered(machine, 41)
        assert await storage.close(43)  # as Apache Kafka would, which registered later
        for disk in machine.disks.values():
            disk.crash_power()
        assert (await machine.open()).previous_epoch == 43

    run(scenario)


def test_directory_that_was_away_or_left_out_is_unclean() -> None:
    async def scenario() -> None:
        machine = Machine("a", "b")
        await machine.crash(await registered(machine, 41))
        await machine.crash(await registered(machine, 52, "a"))
        assert (await machine.open("a", "b")).previous_epoch is None

    run(scenario)


@pytest.mark.parametrize("is_clean", [False, True])
def test_directory_that_was_replaced_or_is_used_no_more_is_unclean(is_clean: bool) -> None:
    """What it held is lost, however well the others have ended."""

    async def scenario(replaced: bool) -> None:
        machine = Machine("a", "b")
        storage = await registered(machine, 41)
        if is_clean:
            await storage.close(41)
        else:
            await machine.crash(storage)
        if replaced:
            machine.disks["b"] = MemoryDisk(name="b:")
        found = await machine.open(*("a", "b") if replaced else ("a",))
        assert found.previous_epoch is None

    run(partial(scenario, replaced=True))
    run(partial(scenario, replaced=False))


def test_directories_that_are_all_new_have_no_epoch() -> None:
    async def scenario() -> None:
        machine = Machine("a", "m")
        storage = await machine.open("a", metadata_dir="m")
        await storage.keep_epoch(41)
        await machine.crash(storage)
        machine.disks["a"] = MemoryDisk(name="a:")
        assert (await machine.open("a", metadata_dir="m")).previous_epoch is None

    run(scenario)


def test_failed_disk_forgets_the_epoch() -> None:
    """After a failed sync the page cache is not whole, whatever the boot."""

    async def scenario() -> None:
        machine = Machine("a", "b")
        storage = await registered(machine, 41)
        partition = await storage.directories[next(iter(storage.directories))].partition("t", 0)
        await partition.append_as_leader(build_batch([Record(0, 0, None, b"x")]), 0)
        machine.disks["a"].fail("sync", errno.EIO, path_glob="t-0/*.log")
        with pytest.raises(StorageError):
            await partition.flush()
        assert machine.failed
        await storage.keep_epoch(52)  # neither does it come back
        machine.disks["a"].heal()
        await machine.crash(storage)
        assert await read_whole(machine.disks["a"], BROKER_EPOCH) is None
        assert (await machine.open()).previous_epoch is None

    run(scenario)


def test_full_disk_does_not_keep_a_broker_from_starting() -> None:
    async def scenario() -> None:
        machine = Machine("a")
        storage = await registered(machine, 41)
        machine.disks["a"].capacity_bytes = machine.disks["a"].used_bytes
        await storage.keep_epoch(52)
        machine.disks["a"].capacity_bytes = None
        await machine.crash(storage)
        # the controller knows 52, so that this is an unclean shutdown
        assert (await machine.open()).previous_epoch == 41

    run(scenario)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 1, "brokerEpoch": 41, "bootIds": {}}',
        b'{"version": 0, "brokerEpoch": "41", "bootIds": {}}',
        b'{"version": 0, "brokerEpoch": 41}',
    ],
)
def test_file_that_says_nothing_is_unclean(data: bytes) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        file = await disk.open(BROKER_EPOCH, create=True)
        await file.append(data)
        file.close()
        assert await EpochKeeper(disk).read({A: disk.boot_id}) is None

    run(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_crash_at_any_operation_leaves_the_old_epoch_or_the_new_one(seed: int) -> None:
    async def scenario() -> None:
        disk, forks = MemoryDisk(), list[MemoryDisk]()
        boots = {A: disk.boot_id, B: disk.boot_id}
        await EpochKeeper(disk).keep(41, boots)
        disk.before = lambda operation, path: forks.append(disk.fork())
        await EpochKeeper(disk).keep(52, boots)
        disk.before = None
        found = set()
        for number, fork in enumerate([*forks, disk]):
            fork.crash_power(SeededRandom(seed * 100 + number))
            fork.boot_id = boots[A]  # to see what is in the file
            found.add(await EpochKeeper(fork).read(boots))
        assert found == {41, 52}

    run(scenario)


def test_boot_id_is_that_of_the_system(tmp_path: Path) -> None:
    workers = InlineWorkers()
    one, other = (OsDisk(tmp_path / name, workers, ManualClock()) for name in "ab")
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    assert one.boot_id == other.boot_id
    assert one.boot_id == (boot_id.read_text().strip() if boot_id.exists() else None)


@pytest.mark.parametrize("power", [False, True])
def test_broker_registers_with_the_epoch_that_it_had(power: bool) -> None:
    with Broker() as broker:
        node_id = broker.node.node_id
        epoch = broker.node.services.image.brokers[node_id].epoch
        broker.kill()
        if power:
            for disk in broker._disks.values():
                disk.crash_power()
        broker.start()
        assert broker.node.storage.previous_epoch == (None if power else epoch)
        assert broker.node.services.image.brokers[node_id].epoch > epoch
