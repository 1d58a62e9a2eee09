"""The workers seam: where calls run that would hold up the event loop.

Only calls that release the GIL belong here (fsync, reads, writes, kernel passes): a Python thread that
computes costs the loop milliseconds. Those that take the processor have threads of their own, so that no
read or sync waits behind a batch that is being compressed, which may take seconds. A call that was handed
over is always waited for: when the waiting task is cancelled, the cancellation comes through once the call
is done, so that no thread goes on writing to a file whose owner believes it has stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

from barnabas.core.errors import InvariantViolation

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Protocol):
    """A small pool that runs blocking calls beside the loop."""

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `call`, or the exception it raised."""

    async def compute(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same, for a call that takes the processor rather than the disk."""

    def close(self) -> None:
        """Wait for what is running, take no more."""


class WorkersClosed(InvariantViolation):
    """A call was handed to workers that have been closed."""

    def __init__(self) -> None:
        super().__init__("these workers are closed; something still runs after its node was stopped")


class ThreadWorkers:
    """Threads: they start when they are first needed, and are joined by `close`."""

    def __init__(self, count: int = 4, computing: int = 2) -> None:
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="barnabas-worker")
        self._computing = ThreadPoolExecutor(max_workers=computing, thread_name_prefix="barnabas-computing")
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(self._pool, call, *args, **kwargs)

    async def compute(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(self._computing, call, *args, **kwargs)

    async def _run(
        self, pool: ThreadPoolExecutor, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._closed:
            raise WorkersClosed
        future = asyncio.wrap_future(pool.submit(call, *args, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                try:
                    await asyncio.wait((future,))
                except asyncio.CancelledError:
                    continue
            raise

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=True)
        self._computing.shutdown(wait=True)


class InlineWorkers:
    """Runs every call at once, where it is asked for: no threads, the same order every time."""

    def __init__(self) -> None:
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise WorkersClosed
        return call(*args, **kwargs)

    compute = run

    def close(self) -> None:
        self._closed = True
