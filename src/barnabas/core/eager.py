"""Work that is begun at once, and becomes a task only if it has to wait.

A task costs tens of microseconds and a turn of the loop. Most appends wait for nothing: `begin` runs them to
their end then and there. Of those that wait, the rest goes on as a task, beside whoever has begun them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run `work` until it first waits; the task that goes on with it, or None where it has ended. What it
    raises before it waits is raised here."""
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None
    return asyncio.get_running_loop().create_task(_go_on(work, waits_for))


async def _go_on(work: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _Rest(work, waits_for)


class _Rest:
    """What is left of a coroutine that has begun to wait."""

    def __init__(self, work: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        work, waits_for = self._work, self._waits_for
        try:
            while True:
                if waits_for is not None:  # a future, which shows a task by this that it is awaited
                    waits_for._asyncio_future_blocking = True
                try:
                    yield waits_for
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - the task is cancelled: that is for the work
                    waits_for = work.throw(error)
                else:
                    waits_for = work.send(None)
        except StopIteration:
            return
