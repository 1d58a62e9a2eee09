"""A killed process: nothing of it goes on, and whatever refuses to end is found."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from barnabas.core.network import Connection
from barnabas.sim.process import Process, Undead
from tests.sim.stage import Stage, on_stage


def test_tasks_and_their_children_end_with_their_process() -> None:
    async def scene(stage: Stage) -> None:
        process, other = stage.process("p"), stage.process("q")
        ended: list[str] = []

        async def child(name: str) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append(name)

        async def parent() -> None:
            asyncio.get_running_loop().call_later(1, lambda: asyncio.ensure_future(child("of a timer")))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(child("one"))
                tasks.create_task(child("two"))

        process.spawn(parent())
        survivor = other.spawn(child("other"))
        await asyncio.sleep(2)
        await process.kill()
        assert sorted(ended) == ["of a timer", "one", "two"]
        assert not survivor.done()
        await other.kill()

    on_stage(scene)


def test_a_dead_process_cannot_reach_anything() -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process("p")
        reached: list[str] = []

        async def stubborn() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                try:
                    await process.network.connect("broker", 9092)
                    reached.append("network")
                except asyncio.CancelledError:
                    pass
                await process.under_way.call(0.1, lambda: reached.append("workers"))

        task = process.spawn(stubborn())
        await asyncio.sleep(1)
        await process.kill()
        assert task.cancelled()
        assert not reached

    on_stage(scene)


def test_a_paused_process_stands_still_and_goes_on_where_it_was() -> None:
    async def scene(stage: Stage) -> None:
        process, other = stage.process("p"), stage.process("q")
        ticks: dict[str, list[float]] = {"p": [], "q": []}

        async def tick(name: str) -> None:
            while True:
                await asyncio.sleep(1)
                ticks[name].append(round(stage.loop.time()))

        async def say(connection: Connection) -> None:
            await connection.write([b"sent before"])
            connection.flush()

        accepted: asyncio.Future[Connection] = stage.loop.create_future()
        await other.network.listen("", 9092, accepted.set_result)
        connection = await process.network.connect("q", 9092)
        process.spawn(tick("p"))
        other.spawn(tick("q"))
        await asyncio.sleep(2.5)
        await process.spawn(say(connection))
        process.pause()
        assert await (await accepted).read(100) == b"sent before"  # its kernel goes on
        await asyncio.sleep(5)
        assert ticks == {"p": [1, 2], "q": [1, 2, 3, 4, 5, 6, 7]}
        process.resume()
        await asyncio.sleep(2)
        assert ticks["p"] == [1, 2, 8, 9]
        process.pause()
        await process.kill()
        assert len(ticks["p"]) == 4
        await other.kill()

    on_stage(scene)


def test_what_begins_after_death_never_runs() -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process("p")
        ran: list[int] = []

        async def work() -> None:
            ran.append(1)

        async def setter() -> None:
            asyncio.get_running_loop().call_later(5, lambda: asyncio.ensure_future(work()))

        await process.spawn(setter())
        await process.kill()
        await asyncio.sleep(10)
        assert not ran

    on_stage(scene)


def test_a_task_that_refuses_to_end_is_found() -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process("p")
        stop = asyncio.Event()

        async def immortal() -> None:
            while not stop.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(1000)

        task = process.spawn(immortal())
        await asyncio.sleep(1)
        with pytest.raises(Undead, match=r"p was killed, and goes on: .*immortal"):
            await process.kill()
        stop.set()
        task.cancel()
        await task

    on_stage(scene)


def test_a_cancelled_call_is_carried_through_unless_the_process_dies() -> None:
    async def scene(stage: Stage) -> None:
        happened: list[str] = []

        async def calls(process: Process, name: str) -> None:
            await process.under_way.call(5, lambda: happened.append(name))

        living, dying = stage.process("living"), stage.process("dying")
        task = living.spawn(calls(living, "living"))
        dying.spawn(calls(dying, "dying"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(1)
        assert not task.done()
        left = dying.cut()
        await dying.bury()
        await asyncio.sleep(10)
        assert task.cancelled()
        assert happened == ["living"]
        assert len(left) == 1

    on_stage(scene)
