"""Connections between the nodes of a quorum."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from barnabas.broker.quorum.links import LinkSettings, QuorumLinks
from barnabas.core.memory_network import MemoryNetwork
from barnabas.raft import messages as raft
from barnabas.raft.voters import Endpoint
from barnabas.sim.loop import LoopClock
from barnabas.sim.loop import run as in_virtual_time

THERE = Endpoint("CONTROLLER", "node-2", 9093)


def test_a_dial_that_fails_when_nobody_waits_any_more_is_no_unexpected_error() -> None:
    async def scenario() -> None:
        loop, unexpected = asyncio.get_running_loop(), list[dict[str, Any]]()
        loop.set_exception_handler(lambda loop, context: unexpected.append(context))
        network, told = MemoryNetwork(), list[raft.Event]()
        settings = LinkSettings("cluster", "raft-client-1", "CONTROLLER", 2.0, 2.0)
        links = QuorumLinks(network.host("node-1"), LoopClock(), settings, told.append)
        network.hold("node-1", "node-2")
        asking = asyncio.ensure_future(links.ask(2, THERE, raft.EndQuorumEpoch(1, 1)))
        await asyncio.sleep(0.1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        network.heal()  # the dial is refused now
        await asyncio.sleep(5.0)
        links.close()
        gc.collect()
        assert not unexpected
        assert not told

    in_virtual_time(scenario())
