"""The asyncio client in code that is not: a loop that runs only while something is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TypeVar

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
