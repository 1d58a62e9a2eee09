"""Workers in virtual time: a call takes a little while, during which others have their turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from barnabas.core.random import Random
from barnabas.core.workers import WorkersClosed
from barnabas.sim.chance import log_between
from barnabas.sim.under_way import UnderWay

P = ParamSpec("P")
T = TypeVar("T")

MIN_S, MAX_S = 20e-6, 5e-3


class SimWorkers:
    """The workers of one process."""

    def __init__(self, under_way: UnderWay, random: Random) -> None:
        self._under_way = under_way
        self._random = random
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise WorkersClosed
        seconds = log_between(self._random, MIN_S, MAX_S)
        return await self._under_way.call(seconds, lambda: call(*args, **kwargs))

    compute = run

    def close(self) -> None:
        self._closed = True
