"""What all simulated clients have in common: a process of their own, a history to tell, and patience.

A client goes on after every error that the library raises, having noted it: faults are what it is here for.
Whatever else is raised is a fault of the program, and ends the simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from barnabas.client.cluster import ClientConfig
from barnabas.client.fetched import ConsumerRecord
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.core.network import Network
from barnabas.core.random import Random
from barnabas.records.record import Headers
from barnabas.sim.history import ClientError, History, Kept, digest
from barnabas.sim.scenario import Scenario

MARK_END = b"|"
MARK_HEADER = "mark"
AFTER_ERROR_S = 0.5

CLIENT = ClientConfig(
    request_timeout_ms=4_000,
    connect_timeout_ms=2_000,
    metadata_max_age_ms=20_000,
    allow_auto_topic_creation=False,
)


class Process(Protocol):
    """A simulated process."""

    @property
    def name(self) -> str: ...

    @property
    def network(self) -> Network: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def random(self) -> Random: ...

    def spawn(self, work: Coroutine[Any, Any, None], /) -> asyncio.Task[None]: ...

    async def kill(self) -> None: ...


class World(Protocol):
    """What a workload is given of a simulation."""

    @property
    def history(self) -> History: ...

    @property
    def random(self) -> Random: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def scenario(self) -> Scenario: ...

    @property
    def faults_ended(self) -> asyncio.Event: ...

    def process(self, name: str) -> Process: ...


class Seen:
    """What the clients of a simulation know together, so that they ask for what is there."""

    def __init__(self) -> None:
        self.timestamps: dict[str, list[int]] = {}
        self.leader_epoch = 0

    def note(self, topic: str, timestamp_ms: int, leader_epoch: int) -> None:
        self.timestamps.setdefault(topic, []).append(timestamp_ms)
        self.leader_epoch = max(self.leader_epoch, leader_epoch)


class Client:
    """One client in one process. `stopping` asks it to come to an end by itself."""

    def __init__(self, world: World, process: Process, seen: Seen, stopping: asyncio.Event) -> None:
        self.world, self.process, self.seen, self.stopping = world, process, seen, stopping
        self.name = process.name
        self.clock, self.random = process.clock, process.random
        self.history = world.history

    @property
    def seams(self) -> tuple[Network, Clock, Random, str]:
        return self.process.network, self.clock, self.random, self.world.bootstrap

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    async def pause(self, seconds: float) -> None:
        """About as long as that."""
        await self.clock.sleep(seconds * (0.5 + self.random.uniform()))

    async def go_on(self, doing: str, step: Callable[[], Awaitable[None]]) -> bool:
        """Do something, and whether it went well; an error of the library is noted."""
        try:
            await step()
        except BarnabasError as error:
            self.history.add(ClientError(self.now, self.name, doing, f"{type(error).__name__}: {error}"))
            await self.pause(AFTER_ERROR_S)
            return False
        return True


def kept(record: ConsumerRecord) -> Kept:
    """What the history keeps of a record that was read."""
    mark = mark_of(record.value, record.headers)
    return Kept(
        record.offset, record.timestamp_ms, record.key, digest(record.value), mark, record.leader_epoch
    )


def mark_of(value: bytes | None, headers: Headers) -> str:
    found = dict(headers).get(MARK_HEADER) if value is None else value.partition(MARK_END)[0]
    return (found or b"").decode(errors="replace")
