"""A simulated process: what it runs is known by a context variable, which tasks hand down to their children.

`cut` takes everything away that reaches beyond the process: its network, its disk, its workers. From that
moment on nothing it does can be seen by anybody. `kill` also ends its tasks: it cancels each until all have
ended. A task that cannot be ended so, and one that begins afterwards, is a fault of the program (`Undead`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from barnabas.core.random import SeededRandom
from barnabas.sim.clock import SimClock
from barnabas.sim.loop import NumberedTask, VirtualLoop
from barnabas.sim.network import SimHost, SimNetwork
from barnabas.sim.under_way import Call, UnderWay

T = TypeVar("T")

MAX_CANCELS = 50
TURNS_A_CANCEL = 5

_current: ContextVar[Process | None] = ContextVar("process", default=None)


class Undead(RuntimeError):
    """Something of a killed process goes on."""


class Process:
    """One process on the machine `host`, by which it is named; `node` is the node that runs in it, None in a
    client's."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: SimNetwork,
        host: str,
        clock: SimClock,
        random: SeededRandom,
        node: int | None = None,
    ) -> None:
        self.name = host
        self.node = node
        self.network = SimHost(network, host)
        self.clock = clock
        self.random = random
        self.under_way = UnderWay(loop)
        self.is_alive = True
        self._loop = loop
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._context = copy_context()
        self._context.run(_current.set, self)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something in this process."""
        return self._loop.create_task(work, context=self._context.copy())

    def cut(self, *, silently: bool = False) -> list[Call]:
        """Nothing gets out of the process any more. Gives the calls that were under way."""
        if not self.is_alive:
            return []
        self.is_alive = False
        self.resume()
        self.network.cut(silently=silently)
        return self.under_way.cut()

    def pause(self) -> None:
        """Stop it, as by SIGSTOP: its connections stay, and nothing in it goes on."""
        if self.is_alive and isinstance(self._loop, VirtualLoop):
            self._loop.pause(self)

    def resume(self) -> None:
        """Let it go on, as by SIGCONT."""
        if isinstance(self._loop, VirtualLoop):
            self._loop.resume(self)

    async def kill(self) -> None:
        """End it, as by SIGKILL: returns when nothing of it is left."""
        self.cut()
        await self.bury()

    async def bury(self) -> None:
        """End every task of a process that has been cut."""
        me = asyncio.current_task()
        for _ in range(MAX_CANCELS):
            left = [task for task in self._tasks if task is not me]
            if not left:
                return
            for task in left:
                task.cancel()
            for _ in range(TURNS_A_CANCEL):
                await asyncio.sleep(0)
        raise Undead(
            f"{self.name} was killed, and goes on: " + "; ".join(where(task) for task in self._tasks)
        )

    def own(self, task: NumberedTask[Any]) -> None:
        """A task has begun in this process."""
        task.owner = self
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        if not self.is_alive:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not self.is_alive and not task.cancelled():
            task.exception()  # nobody is left who could look at it


def current_process() -> Process | None:
    """The process whose code is running now; None: the simulator's own code."""
    return _current.get()


def owner_of(context: Context) -> object:
    """The process of a context, for the loop."""
    return context.get(_current)


def process_of(task: asyncio.Task[Any]) -> Process | None:
    """The process in which a task began, also when it has ended; None: the simulator's own code."""
    owner = task.owner if isinstance(task, NumberedTask) else None
    return owner if isinstance(owner, Process) else None


def own_task(task: NumberedTask[Any], context: Context | None) -> None:
    """Called with every new task: it belongs to the process in whose context it is."""
    process = _current.get() if context is None else context.get(_current)
    if process is not None:
        process.own(task)


def where(task: asyncio.Task[Any]) -> str:
    """What a task is and where it waits, the same in every run."""
    frames: list[str] = []
    waiting: Any = task.get_coro()
    while waiting is not None and len(frames) < 12:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:
            break
        code = frame.f_code
        name = (
            code.co_filename.replace("\\", "/").rpartition("/barnabas/")[2].rpartition("/site-packages/")[2]
        )
        frames.append(f"{code.co_qualname} ({name}:{frame.f_lineno})")
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return " > ".join(frames) or "a task that has not begun"
