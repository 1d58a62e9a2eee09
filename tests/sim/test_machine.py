"""The broker's machine: crashes at any time and in any write, restarts, failing disks; acks are kept."""

from __future__ import annotations

import asyncio
import errno

import pytest

from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.producer import Producer
from barnabas.sim.history import Crash, Started
from barnabas.sim.machine import Kind, Machine
from barnabas.sim.process import Process
from barnabas.sim.scenario import MachinePlan
from tests.sim.stage import Stage, on_stage

BOOTSTRAP = MachinePlan().address
ONE, OTHER = MachinePlan(1, "broker-1"), MachinePlan(2, "broker-2", drift=0.02)


async def send(process: Process, count: int, bootstrap: str = BOOTSTRAP) -> list[int]:
    """The offsets of so many records, each acknowledged before the next."""
    offsets = []
    async with Producer(process.network, process.clock, process.random, bootstrap) as producer:
        for number in range(count):
            written = await producer.send("t", b"%d" % number, partition=0)
            offsets.append((await written).offset)
            await process.clock.sleep(0.1)
    return offsets


async def read(process: Process, count: int) -> list[int]:
    config = ConsumerConfig(reset=Reset.EARLIEST)
    async with Consumer(process.network, process.clock, process.random, BOOTSTRAP, config) as consumer:
        consumer.assign([("t", 0)])
        numbers: list[int] = []
        while len(numbers) < count:
            numbers += [int(record.value or b"") for record in await consumer.poll(10_000)]
        return numbers


async def with_broker(
    stage: Stage, machine: Machine, work: list[asyncio.Task[None]], *others: Machine
) -> None:
    """Run a machine, or several, until the work is done."""
    machines = (machine, *others)
    running = [stage.loop.create_task(each.run()) for each in machines]
    await asyncio.gather(*work)
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    for each in machines:
        for process in each.processes():
            await process.kill()


def test_it_serves_crashes_and_comes_back_with_everything() -> None:
    async def scene(stage: Stage) -> None:
        machine, process = stage.machine(), stage.process("client")

        async def story() -> None:
            sending = process.spawn(send(process, 120))
            for number in range(6):
                await asyncio.sleep(2)
                stage.trace("test", "crash")
                if number % 2:
                    machine.crash("process", 0.5)
                else:
                    machine.drive.crash_at(1 + number, lambda: machine.crash("process", 0.5))
            assert await sending == list(range(120))
            assert await process.spawn(read(process, 120)) == list(range(120))

        await with_broker(stage, machine, [stage.loop.create_task(story())])
        await process.kill()
        assert len(list(stage.history.of(Crash))) == 6
        assert len(list(stage.history.of(Started))) == 7
        assert not stage.broken

    on_stage(scene)


def test_with_every_message_flushed_a_power_loss_takes_nothing() -> None:
    async def scene(stage: Stage) -> None:
        machine = stage.machine(log_flush_interval_messages="1")
        process = stage.process("client")

        async def story() -> None:
            sending = process.spawn(send(process, 100))
            for number in range(4):
                await asyncio.sleep(3)
                machine.drive.crash_at(1 + 2 * number, lambda: machine.crash("power", 1))
            assert await sending == list(range(100))
            assert await process.spawn(read(process, 100)) == list(range(100))

        await with_broker(stage, machine, [stage.loop.create_task(story())])
        await process.kill()
        assert [crash.kind for crash in stage.history.of(Crash)] == ["power"] * 4
        assert not stage.broken

    on_stage(scene)


def test_a_clean_stop_is_started_again_and_needs_no_recovery() -> None:
    async def scene(stage: Stage) -> None:
        machine, process = stage.machine(), stage.process("client")

        async def story() -> None:
            sending = process.spawn(send(process, 50))
            await asyncio.sleep(3)
            machine.restart(0.5)
            assert await sending == list(range(50))

        await with_broker(stage, machine, [stage.loop.create_task(story())])
        await process.kill()
        assert any(".kafka_cleanshutdown" in line for line in stage.lines)
        assert len(list(stage.history.of(Started))) == 2
        assert not stage.broken

    on_stage(scene)


@pytest.mark.parametrize("operation", ["sync", "append", "create"])
def test_a_failing_disk_ends_the_node_and_a_new_one_goes_on(operation: str) -> None:
    async def scene(stage: Stage) -> None:
        machine = stage.machine(log_flush_interval_messages="1")
        process = stage.process("client")

        async def story() -> None:
            sending = process.spawn(send(process, 60))
            await asyncio.sleep(3)
            machine.drive.fail(operation, errno.EIO, "*", 0, 1)
            if operation == "create":
                machine.crash("process", 0.1)
            assert await sending == list(range(60))
            assert await process.spawn(read(process, 60)) == list(range(60))

        await with_broker(stage, machine, [stage.loop.create_task(story())])
        await process.kill()
        assert not stage.broken

    on_stage(scene)


def test_an_error_of_a_good_disk_is_not_believed() -> None:
    async def scene(stage: Stage) -> None:
        machine = stage.machine()

        async def story() -> None:
            await asyncio.sleep(3)
            machine.drive.files.fail("create", errno.EIO)
            machine.crash("process", 0.1)
            await asyncio.sleep(3)

        await with_broker(stage, machine, [stage.loop.create_task(story())])
        assert stage.broken[0].startswith("an error of a disk that has none: cannot create")

    on_stage(scene)


def test_the_power_may_fail_while_the_process_is_down() -> None:
    async def scene(stage: Stage) -> None:
        machine = stage.machine()

        async def story() -> None:
            await asyncio.sleep(3)
            machine.crash("process", 2.0)
            for after_s in (0.5, 1.5, 0.0, 0.0):  # in between, and at the moment of the next start
                await asyncio.sleep(after_s)
                machine.crash("power", 2.0)
            await asyncio.sleep(10)
            assert machine.is_up

        await with_broker(stage, machine, [stage.loop.create_task(story())])
        assert not stage.broken
        assert stage.history.events[-1].at < 12
        assert isinstance(stage.history.events[-1], Started)

    on_stage(scene)


@pytest.mark.parametrize("kind", ["process", "power"])
def test_one_machine_crashes_and_another_goes_on_serving(kind: Kind) -> None:
    async def scene(stage: Stage) -> None:
        one, other = (stage.machine(plan, log_flush_interval_messages="1") for plan in (ONE, OTHER))
        first, second = stage.process("client-1"), stage.process("client-2")

        async def story() -> None:
            sending = first.spawn(send(first, 100, one.address))
            await asyncio.sleep(3)
            one.crash(kind, 60.0)
            began = stage.loop.time()
            assert await second.spawn(send(second, 100, other.address)) == list(range(100))
            assert stage.loop.time() - began < 20
            assert not sending.done()
            assert (one.is_up, other.is_up) == (False, True)
            assert await sending == list(range(100))
            assert (one.is_up, other.is_up) == (True, True)

        await with_broker(stage, one, [stage.loop.create_task(story())], other)
        await first.kill()
        await second.kill()
        assert [(crash.kind, crash.node) for crash in stage.history.of(Crash)] == [(kind, 1)]
        assert sorted(started.node for started in stage.history.of(Started)) == [1, 1, 2]
        assert not stage.broken

    on_stage(scene)


def test_the_disk_of_one_machine_is_no_excuse_for_another() -> None:
    async def scene(stage: Stage) -> None:
        one, other = stage.machine(ONE), stage.machine(OTHER)

        async def story() -> None:
            await asyncio.sleep(3)
            one.drive.fail("create", errno.EIO, "*", 0, 1)
            one.crash("process", 0.1)
            await asyncio.sleep(3)
            assert not stage.broken
            other.drive.files.fail("create", errno.EIO, times=1)
            other.crash("process", 0.1)
            await asyncio.sleep(3)

        await with_broker(stage, one, [stage.loop.create_task(story())], other)
        assert [text.partition(":")[0] for text in stage.broken] == ["an error of a disk that has none"]

    on_stage(scene)


def test_each_machine_has_its_own_clock_and_randomness() -> None:
    async def scene(stage: Stage) -> None:
        one, other = stage.machine(ONE), stage.machine(OTHER)
        began_ms = stage.clock.wall_ms()
        await asyncio.sleep(1000)
        one.clock.jump_ms(-5_000)
        other.clock.jump_ms(1_000)
        other.clock.jump_ms(1_000)
        assert one.clock.wall_ms() - began_ms == 995_000
        assert other.clock.wall_ms() - began_ms == 1_022_000
        assert (one.clock.away_ms, other.clock.away_ms) == (-5_000, 2_000)
        assert one.clock.monotonic() == other.clock.monotonic() == stage.loop.time()
        assert one.drive.seconds(0, 1) == stage.machine(ONE).drive.seconds(0, 1) != other.drive.seconds(0, 1)

    on_stage(scene)
