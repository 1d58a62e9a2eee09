"""An event loop with virtual time, which never asks the operating system for anything.

Where a real loop would sleep until its next timer, this one moves its clock there: nothing else can happen
meanwhile, since all that production code waits for comes from seams in memory. So hours take seconds, and
everything always happens in the same order.

- A turn of the loop takes a little time, too: whoever waits for the clock sees it move.
- Tasks hash by their number, not by their address: a set of tasks has the same order in every process.
- What runs in a context whose owner is paused waits, as in a process that was stopped (SIGSTOP).
- Where every task waits and no timer is set, or the turns go on and on without any time passing, the loop
  raises `Stalled` out of `run_until_complete`.
"""

from __future__ import annotations

import asyncio
from asyncio import base_events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop
from typing import Any, TypeVar

T = TypeVar("T")

TURN_S = 1e-7
MAX_BUSY_TURNS = 2_000_000


class Stalled(RuntimeError):
    """Nothing will ever happen again, or no end of it."""


class NumberedTask(asyncio.Task[T]):
    """A task whose place in a set is always the same. `owner` is set by `VirtualLoop.on_task`, if at all."""

    number = 0
    owner: object = None

    def __hash__(self) -> int:
        return self.number


class _Timers:
    """Stands where a loop has its selector: moves time on instead of waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        self._busy_turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stalled("nothing will ever happen again: every task waits, and no timer is set")
        if timeout > TURN_S:
            self.now += timeout
            self._busy_turns = 0
        else:
            self.now += TURN_S
            self._busy_turns += 1
            if self._busy_turns > MAX_BUSY_TURNS:
                self._busy_turns = 0
                raise Stalled(f"busy for {MAX_BUSY_TURNS} turns, in which nothing was waited for")
        return []


class VirtualLoop(base_events.BaseEventLoop):
    """An event loop with a clock of its own. `on_task` is called with every new task and its context.
    `owner_of` gives the owner of a context, which `pause` and `resume` are about."""

    # of the base class, which does not tell of them
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self._selector = self._timers = _Timers()
        self._clock_resolution = 1e-9  # timers are exact here
        self._task_count = 0
        self.on_task: Callable[[NumberedTask[Any], Context | None], None] | None = None
        self._task_factory = self._new_task
        self.owner_of: Callable[[Context], object] = lambda context: None
        self._paused: dict[object, list[asyncio.Handle]] = {}

    def time(self) -> float:
        return self._timers.now

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], context: Context | None = None
    ) -> asyncio.Task[T]:
        self._task_count += 1
        # the number is there before the first hash, which the constructor takes
        task: NumberedTask[T] = NumberedTask.__new__(NumberedTask)
        task.number = self._task_count
        NumberedTask.__init__(task, work, loop=loop, context=context)
        if self.on_task is not None:
            self.on_task(task, context)
        return task

    # Pauses

    def pause(self, owner: object) -> None:
        """Run nothing more of that owner, until it is resumed."""
        self._paused.setdefault(owner, [])

    def resume(self, owner: object) -> None:
        """Run what has become due meanwhile, in its order, and everything else."""
        self._ready.extend(self._paused.pop(owner, ()))

    def _run_once(self) -> None:
        """One turn: as that of the base class, but for those who are paused."""
        if not self._paused:
            super()._run_once()  # type: ignore[misc]
            return
        timers, ready = self._scheduled, self._ready
        while timers and timers[0].cancelled():
            self._take_timer()
        wait_s = None if not timers else max(0.0, timers[0].when() - self.time())
        self._timers.select(0 if ready or self._stopping else wait_s)
        while timers and timers[0].when() < self.time() + self._clock_resolution:
            ready.append(self._take_timer())
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            held = self._paused.get(self.owner_of(handle._context))  # type: ignore[attr-defined]
            if held is None:
                handle._run()
            else:
                held.append(handle)

    def _take_timer(self) -> asyncio.TimerHandle:
        timer = heappop(self._scheduled)
        timer._scheduled = False  # type: ignore[attr-defined]
        if timer.cancelled():
            self._timer_cancelled_count -= 1
        return timer

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody has to be woken: the loop never sleeps."""


class LoopClock:
    """The clock of the running loop."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms

    def wall_ms(self) -> int:
        return self._start_ms + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
