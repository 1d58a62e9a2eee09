"""Group commit: few runs for many callers, and each served by a run that began after it asked."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.log.shared_call import SharedCall


class Action:
    """Something slow; each run covers the requests made before it began."""

    def __init__(self) -> None:
        self.runs = 0
        self.requests = 0
        self.covered = 0
        self.fails_at: set[int] = set()

    async def __call__(self) -> None:
        self.runs += 1
        number, seen = self.runs, self.requests
        for _ in range(3):
            await asyncio.sleep(0)
        if number in self.fails_at:
            raise OSError(f"run {number} failed")
        self.covered = max(self.covered, seen)


async def request(action: Action, call: SharedCall) -> None:
    action.requests += 1
    mine = action.requests
    await call()
    assert action.covered >= mine


def test_everyone_who_asks_during_a_run_is_served_by_the_next_one() -> None:
    async def scenario() -> None:
        action = Action()
        call = SharedCall(action)
        first = asyncio.create_task(request(action, call))
        await asyncio.sleep(0)
        assert action.runs == 1
        await asyncio.gather(first, *(request(action, call) for _ in range(100)))
        assert action.runs == 2

    asyncio.run(scenario())


def test_calls_one_after_another_each_run() -> None:
    async def scenario() -> None:
        action = Action()
        call = SharedCall(action)
        for _ in range(3):
            await request(action, call)
        assert action.runs == 3

    asyncio.run(scenario())


def test_a_run_that_fails_fails_its_caller_only() -> None:
    async def scenario() -> None:
        action = Action()
        action.fails_at = {1, 2}
        call = SharedCall(action)
        results = await asyncio.gather(*(request(action, call) for _ in range(4)), return_exceptions=True)
        # the first ran for itself, one of the others for all of them, and the rest tried once more
        assert [str(result) for result in results if result is not None] == ["run 1 failed", "run 2 failed"]
        assert action.runs == 3

    asyncio.run(scenario())


def test_a_cancelled_runner_leaves_the_others_to_run_for_themselves() -> None:
    async def scenario() -> None:
        action = Action()
        call = SharedCall(action)
        runner = asyncio.create_task(request(action, call))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(request(action, call)) for _ in range(3)]
        await asyncio.sleep(0)
        runner.cancel()
        waiting[0].cancel()
        await asyncio.gather(*waiting[1:])
        assert action.runs == 2
        for cancelled in (runner, waiting[0]):
            with pytest.raises(asyncio.CancelledError):
                await cancelled

    asyncio.run(scenario())
