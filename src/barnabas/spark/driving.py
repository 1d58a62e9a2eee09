"""Runs the asyncio client in synchronous code: on a loop that runs during calls, or all the time."""

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
    """Network, clock and randomness of the operating system."""
    return OsNetwork(InlineWorkers()), SystemClock(), SystemRandom()


def in_steps(start: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
    """The items of an asynchronous generator, one at a time; closing this iterator closes the generator."""
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
    """A loop in a thread of its own, so that connections are served between calls, too.

    The thread is a daemon: Spark ends the process of a stream's reader without notice.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the thread; tasks that still run on the loop are cancelled."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
