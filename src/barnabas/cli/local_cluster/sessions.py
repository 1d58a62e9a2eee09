"""A client's session with the nodes of a local cluster, for actions that need one."""

from __future__ import annotations

import argparse
import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from barnabas.cli.connecting import Session
from barnabas.cli.failures import CommandFailed
from barnabas.cli.local_cluster.plan import NodePlan
from barnabas.core.event_loop import new_event_loop

T = TypeVar("T")

_POLL_S = 0.05


def session_with(options: argparse.Namespace, nodes: Sequence[NodePlan]) -> Session:
    """A session with these nodes; to be closed."""
    # what the client tries again by itself is no news here; what it gives up is raised
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    chosen = copy.copy(options)
    chosen.bootstrap = ",".join(node.address for node in nodes)
    return Session(chosen)


def in_session(
    options: argparse.Namespace, nodes: Sequence[NodePlan], work: Callable[[Session], Awaitable[T]]
) -> T:
    """Do some work with these nodes."""

    async def whole() -> T:
        session = session_with(options, nodes)
        try:
            await session.connect()
            return await work(session)
        finally:
            await session.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(whole())


async def wait_for(
    session: Session, holds: Callable[[], Awaitable[bool]], wait_s: float, what: str, next_step: str
) -> None:
    """Wait until something holds; CommandFailed after so long."""
    deadline = session.clock.monotonic() + wait_s
    while not await holds():
        if session.clock.monotonic() >= deadline:
            raise CommandFailed(f"{what} within {wait_s:g} s", next_step)
        await session.clock.sleep(_POLL_S)
