"""The pace of a compaction, under a clock that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.clock import ManualClock
from barnabas.log.compaction.throttle import GivenUp, Throttle


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_rate_holds_on_the_average() -> None:
    async def scenario() -> None:
        clock, read = ManualClock(), 0
        throttle = Throttle(clock, lambda: 1000.0)

        async def compact() -> None:
            nonlocal read
            while True:
                await throttle(100)
                read += 100

        task = asyncio.create_task(compact())
        for _ in range(600):
            await settle()
            clock.advance(0.1)
        assert 59_000 <= read <= 60_000
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_without_a_limit_nothing_is_waited_for() -> None:
    async def scenario() -> None:
        throttle = Throttle(ManualClock(), lambda: 1.7976931348623157e308)
        for _ in range(1000):
            await throttle(1 << 30)

    asyncio.run(scenario())


def test_small_portions_add_up_also_from_one_compaction_to_the_next() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        throttle = Throttle(clock, lambda: 1000.0)
        for _ in range(4):
            throttle.begin()
            await throttle(10)  # a hundredth of a second
        throttle.begin()
        waiting = asyncio.create_task(throttle(10))
        await settle()
        assert not waiting.done()
        clock.advance(0.05)
        await waiting

    asyncio.run(scenario())


def test_the_rate_may_change_under_way() -> None:
    async def scenario() -> None:
        clock, rate = ManualClock(), 1.0
        throttle = Throttle(clock, lambda: rate)
        slow = asyncio.create_task(throttle(10))
        await settle()
        clock.advance(9.9)
        await settle()
        assert not slow.done()
        clock.advance(0.1)
        await slow
        rate = 1e9
        await throttle(1000)

    asyncio.run(scenario())


def test_giving_up_ends_a_pause_at_once_and_counts_until_the_next_compaction() -> None:
    async def scenario() -> None:
        throttle = Throttle(ManualClock(), lambda: 1.0)
        waiting = asyncio.create_task(throttle(1000))
        await settle()
        throttle.give_up("enough")
        with pytest.raises(GivenUp, match="enough"):
            await waiting
        with pytest.raises(GivenUp, match="enough"):
            await throttle(0)
        throttle = Throttle(ManualClock(), lambda: 1e9)
        throttle.give_up("enough")
        throttle.begin()
        await throttle(1)

    asyncio.run(scenario())


def test_a_pause_that_is_cancelled_from_outside_is_cancelled() -> None:
    async def scenario() -> None:
        waiting = asyncio.create_task(Throttle(ManualClock(), lambda: 1.0)(1000))
        await settle()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scenario())
