"""The workers interface: runs calls that would block the event loop.

Only calls that release the GIL belong here (fsync, reads, writes, kernel passes): a Python thread that
computes costs the loop milliseconds. Calls that use the processor have threads of their own, so that no read
or sync waits behind a batch that is being compressed, which may take seconds. A call that has started is
always awaited: if the waiting task is cancelled, the cancellation is raised once the call is done, so that no
thread goes on writing to a file whose owner believes that it has stopped.
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
        """As `run`, for a call that uses the processor rather than the disk."""

    def close(self) -> None:
        """Wait for running calls, accept no more."""


class WorkersClosed(InvariantViolation):
    """A call was submitted to workers that have been closed."""

    def __init__(self) -> None:
        super().__init__("these workers are closed; something still runs after its node was stopped")


class ThreadWorkers:
    """Threads that start when they are first needed, and are joined by `close`."""

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
    """Runs every call at once, in the caller's thread: no threads, the same order every time."""

    def __init__(self) -> None:
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise WorkersClosed
        return call(*args, **kwargs)

    compute = run

    def close(self) -> None:
        self._closed = True
