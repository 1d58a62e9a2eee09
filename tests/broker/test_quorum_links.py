"""Connections between the nodes of a quorum."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.quorum import links as module
from barnabas.broker.quorum.links import LinkSettings, QuorumLinks
from barnabas.broker.quorum.wire_fetches import fetch_response
from barnabas.broker.quorum.wire_parts import Asked
from barnabas.core.errors import BarnabasError
from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.network import Address, ConnectionLost
from barnabas.protocol.channel import Versions
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.raft import messages as raft
from barnabas.raft.election import VoterKey
from barnabas.raft.voters import Endpoint
from barnabas.sim.loop import LoopClock
from barnabas.sim.loop import run as in_virtual_time

SETTINGS = LinkSettings("cluster", "raft-client-1", "CONTROLLER", 2.0, 2.0)
THERE = Endpoint("CONTROLLER", "node-2", 9093)


class Connection:
    """One that loses its peer in the moment in which it has answered a request."""

    def __init__(self) -> None:
        self.peer = Address(THERE.host, THERE.port)
        self.versions = Versions({FetchRequest.__key__: FetchRequest.__versions__})
        self.lost: BarnabasError | None = None
        self.on_lost: Callable[[], None] | None = None

    async def ask(self, request: object, response: object) -> FetchResponse:
        answer: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(self._answer, answer)
        return await answer

    def _answer(self, answer: asyncio.Future[FetchResponse]) -> None:
        answer.set_result(
            fetch_response(raft.FetchResponse(raft.NONE, raft.Known(1, 2)), Asked(17, "CONTROLLER"))
        )
        self.lost = ConnectionLost("closed by the other side")
        assert self.on_lost is not None
        self.on_lost()


def test_an_answer_is_told_before_the_end_of_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opened(*args: object, **options: object) -> Connection:
        return Connection()

    async def scenario() -> None:
        monkeypatch.setattr(module, "open_connection", opened)
        told: list[raft.Event] = []
        links = QuorumLinks(MemoryNetwork().host("node-1"), LoopClock(), SETTINGS, told.append)
        links.send(raft.Send(1, 2, THERE, raft.Fetch(1, VoterKey(1), 0, 0, -1, 500, 1_000)))
        await asyncio.sleep(1.0)
        assert [type(each) for each in told] == [raft.DialSucceeded, raft.Answered, raft.ConnectionLost]
        links.close()

    in_virtual_time(scenario())


def test_a_connection_that_ends_before_its_first_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opened(*args: object, **options: object) -> Connection:
        raise ConnectionLost("closed by the other side")

    async def scenario() -> None:
        monkeypatch.setattr(module, "open_connection", opened)
        told: list[raft.Event] = []
        links = QuorumLinks(MemoryNetwork().host("node-1"), LoopClock(), SETTINGS, told.append)
        links.send(raft.Send(1, 2, THERE, raft.Fetch(1, VoterKey(1), 0, 0, -1, 500, 1_000)))
        links.send(raft.Send(2, 2, THERE, raft.EndQuorumEpoch(1, 1)))
        await asyncio.sleep(1.0)
        lost = [each for each in told if isinstance(each, raft.ConnectionLost)]
        assert lost == [raft.ConnectionLost(2)]  # of the one for fetches
        assert sum(isinstance(each, raft.Failed) for each in told) == 2
        links.close()

    in_virtual_time(scenario())


def test_a_dial_that_fails_when_nobody_waits_any_more_is_no_unexpected_error() -> None:
    async def scenario() -> None:
        loop, unexpected = asyncio.get_running_loop(), list[dict[str, Any]]()
        loop.set_exception_handler(lambda loop, context: unexpected.append(context))
        network, told = MemoryNetwork(), list[raft.Event]()
        links = QuorumLinks(network.host("node-1"), LoopClock(), SETTINGS, told.append)
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
