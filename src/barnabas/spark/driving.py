"""The asyncio client in code that is not: a loop that runs while something is waited for, or all the time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from barnabas.core.clock import Clock, SystemClock
from barnabas.core.network import Network
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import Random, SystemRandom
from barnabas.core.workers import InlineWorkers

T = TypeVar("T")


def seams() -> tuple[Network, Clock, Random]:
    """Network, clock and randomness of the machine."""
    return OsNetwork(InlineWorkers()), SystemClock(), SystemRandom()


def in_steps(start: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
    """What an asynchronous generator gives, one at a time; it is closed when nobody wants more."""
    with asyncio.Runner() as runner:
        source = start()

        async def step() -> T | None:
            return await anext(source, None)

        try:
            while (each := runner.run(step())) is not None:
                yield each
        finally:
            runner.run(source.aclose())


class Background:
    """A loop in a thread of its own: connections are looked after between calls, too.

    The thread is a daemon: Spark ends the process that a stream's reader lives in without a word.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the thread; what still runs on the loop is cancelled."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
