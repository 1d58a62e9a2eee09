"""Pulls a blocking iterator in a thread: Spark's next rows arrive while the ones before them are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def pulled(source: Iterator[T]) -> AsyncGenerator[T, None]:
    """The items of an iterator, taken in a thread, one ahead of the caller."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, "pulling") as thread:
        coming = loop.run_in_executor(thread, next, source, None)
        while (each := await coming) is not None:
            coming = loop.run_in_executor(thread, next, source, None)
            yield each
