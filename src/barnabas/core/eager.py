"""Coroutines that are started at once, and become a task only if they have to wait.

A task costs tens of microseconds and a turn of the loop. Most appends wait for nothing: `begin` runs them to
their end at once. The rest of a coroutine that waits goes on as a task, beside its caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run `work` until it first waits. Returns the task that continues it, or None if it has ended. An
    exception raised before the first wait is raised here."""
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None
    return asyncio.get_running_loop().create_task(_go_on(work, waits_for))


async def _go_on(work: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _Rest(work, waits_for)


class _Rest:
    """The rest of a coroutine that has begun to wait."""

    def __init__(self, work: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        work, waits_for = self._work, self._waits_for
        try:
            while True:
                if waits_for is not None:  # a future: this flag tells the task that it is awaited
                    waits_for._asyncio_future_blocking = True
                try:
                    yield waits_for
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - the task was cancelled: passed on to the work
                    waits_for = work.throw(error)
                else:
                    waits_for = work.send(None)
        except StopIteration:
            return
