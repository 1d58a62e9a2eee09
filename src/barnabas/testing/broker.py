"""A broker in this process, on a loop and a thread of its own, at any free port.

It is the node that `barnabas serve` runs, with its data in memory unless a directory is given. Clients of any
kind connect to `bootstrap`. `kill` ends it as a dead process would (nothing more is written, what the page
cache held stays), `restart` starts it again on the same data and port.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from barnabas.broker.node import Node
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.disk import Disk
from barnabas.core.errors import BarnabasError
from barnabas.core.event_loop import new_event_loop
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.os_disk import OsDisk
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.settings.listeners import listen_flags
from barnabas.core.settings.sources import resolve
from barnabas.core.workers import InlineWorkers, ThreadWorkers, Workers

T = TypeVar("T")

START_TIMEOUT_SECONDS = 30.0
# what is otherwise as with `barnabas serve`: a group's first generation does not wait for more members
FOR_TESTS = {"group.initial.rebalance.delay.ms": "0"}


class BrokerFailed(BarnabasError):
    """The broker under test could not go on, or is not running."""


class Broker:
    """A broker for tests. Started by `start` or a `with` block; everything else needs it to run."""

    def __init__(
        self,
        directory: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """In `directory`, or in memory; `settings` by Kafka's names; any free port unless one is given."""
        self._directory = None if directory is None else Path(directory)
        self._settings = {**FOR_TESTS, **(settings or {})}
        self._host = host
        self._port = port
        self._clock: Clock = SystemClock()
        self._disks: dict[str, MemoryDisk] = {}  # by the names of log.dirs, where the data is in memory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._workers: Workers | None = None
        self._node: Node | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port`, for a client's bootstrap.servers."""
        return f"{self._host}:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def node(self) -> Node:
        """The node itself, which belongs to the broker's own thread: see `run`."""
        if self._node is None:
            raise BrokerFailed("the broker is not running; call start() first, or use it in a with block")
        return self._node

    def start(self) -> Broker:
        """Start; returns when clients are answered."""
        if self._node is not None:
            raise BrokerFailed("the broker is already running")
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="barnabas-broker", daemon=True)
        self._thread.start()
        try:
            self._node = self.run(self._start())
        except BaseException:
            self._end_thread()
            raise
        return self

    async def _start(self) -> Node:
        self._workers = ThreadWorkers() if self._directory is not None else InlineWorkers()
        where = "memory" if self._directory is None else str(self._directory)
        flags = {"log.dirs": where, **listen_flags(f"{self._host}:0")}
        if self._port:
            flags["listeners"] = f"PLAINTEXT://{self._host}:{self._port},CONTROLLER://{self._host}:0"
        node = await Node.start(
            resolve(flags={**flags, **self._settings}),
            disk=self._disk,
            network=OsNetwork(self._workers),
            clock=self._clock,
            random=SystemRandom(),
            workers=self._workers,
        )
        self._port = node.port_of("PLAINTEXT")
        return node

    def _disk(self, path: str) -> Disk:
        if self._directory is not None:
            assert self._workers is not None
            return OsDisk(path, self._workers, self._clock)
        if path not in self._disks:
            name = f"memory:{path}" if self._disks else "memory:"
            self._disks[path] = MemoryDisk(SystemRandom(), clock=self._clock, name=name)
        return self._disks[path]

    @property
    def _memory(self) -> MemoryDisk | None:
        """The first disk, with the metadata, of a broker that has its data in memory."""
        return next(iter(self._disks.values()), None)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the broker's loop, and wait for its result."""
        if self._loop is None:
            work.close()
            raise BrokerFailed("the broker is not running")
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(START_TIMEOUT_SECONDS)

    def stop(self) -> None:
        """Stop cleanly; harmless when repeated."""
        if self._node is not None:
            node, self._node = self._node, None
            try:
                self.run(node.stop())
            finally:
                self._end_thread()

    def kill(self) -> None:
        """End it as a process that dies: what was acknowledged is there for the next start, and no more."""
        if self._node is not None:
            node, self._node = self._node, None
            self.run(node.abandon())
            self._end_thread()
            for disk in self._disks.values():
                disk.crash_process()

    def restart(self) -> None:
        """Stop cleanly if it runs, and start again with the same data at the same port."""
        self.stop()
        self.start()

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self.run(_give_up())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


async def _give_up() -> None:
    """End what is still under way on the loop: answers to clients that do not take them."""
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
