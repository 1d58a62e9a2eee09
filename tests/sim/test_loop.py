"""Virtual time: it jumps, it never waits, it says so when nothing will ever happen; sets have an order."""

from __future__ import annotations

import asyncio
import time

import pytest

from barnabas.sim import loop as loops
from barnabas.sim.loop import LoopClock, Stalled, run


def test_hours_take_no_time_and_wake_everybody_in_order() -> None:
    async def scenario() -> list[str]:
        woken = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append(f"{name} at {asyncio.get_running_loop().time():.3f}")

        await asyncio.gather(sleeper("late", 7200), sleeper("early", 0.5), sleeper("middle", 3600.25))
        return woken

    began = time.perf_counter()
    assert run(scenario()) == ["early at 0.500", "middle at 3600.250", "late at 7200.000"]
    assert time.perf_counter() - began < 60


def test_whoever_watches_the_clock_sees_it_move() -> None:
    async def scenario() -> None:
        clock = LoopClock()
        until = clock.monotonic() + 1e-5
        while clock.monotonic() < until:
            await clock.sleep(0)

    run(scenario())


def test_a_deadlock_is_an_error() -> None:
    async def scenario() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stalled, match="nothing will ever happen again"):
        run(scenario())


def test_turning_round_and_round_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MAX_BUSY_TURNS", 1000)

    async def scenario() -> None:
        while True:
            await LoopClock().sleep(0)

    with pytest.raises(Stalled, match="busy for 1000 turns"):
        run(scenario())


def test_a_set_of_tasks_is_in_the_order_of_their_making() -> None:
    async def scenario() -> list[int]:
        garbage = [object() for _ in range(1000)]
        tasks = []
        for number in range(30):
            tasks.append(asyncio.create_task(asyncio.sleep(0, number)))
            del garbage[number::7]
        return [(await task) for task in set(tasks)]

    numbers = run(scenario())
    assert sorted(numbers) == list(range(30))
    assert run(scenario()) == numbers


def test_timeouts_work() -> None:
    async def scenario() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run(scenario()) == pytest.approx(30, abs=1e-3)
