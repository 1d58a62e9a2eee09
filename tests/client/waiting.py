"""A wait with a deadline beside tasks of clients: it ends with the error of a task that failed, and where the
deadline passes it tells what every task of the loop waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

PATIENCE_S = 120.0
_POLL_S = 0.005


async def until(
    holds: Callable[[], bool], tasks: Iterable[asyncio.Task[Any]], told: Callable[[], object]
) -> None:
    """Return when `holds` is true. `told` is what is known of the progress, for the failure."""
    working = list(tasks)
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        for each in working:
            if each.done():
                each.result()
        if holds():
            return
        late = asyncio.get_running_loop().time() > deadline
        assert not late, f"{told()} after {PATIENCE_S:.0f} s\n{all_awaited()}"
        await asyncio.sleep(_POLL_S)


def all_awaited() -> str:
    """What each task of the running loop waits for, from its coroutine inwards."""
    return "\n".join(f"{each.get_name()}: {_awaited(each)}" for each in asyncio.all_tasks())


def _awaited(task: asyncio.Task[Any]) -> str:
    found: list[str] = []
    inner: Any = task.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "ag_frame", None)
        if frame is None:
            found.append(repr(inner))
            break
        found.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        inner = getattr(inner, "cr_await", None) or getattr(inner, "ag_await", None)
    return " > ".join(found)
