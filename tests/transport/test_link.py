"""One address: at most one attempt to connect, and nothing left open by one that is closed."""

from __future__ import annotations

import asyncio

from barnabas.core.network import Address
from barnabas.core.random import SeededRandom
from barnabas.sim.loop import LoopClock, run
from barnabas.transport.connection import BrokerConnection
from barnabas.transport.link import Link
from barnabas.transport.waiting import Backoff
from tests.client.fake_broker import PORT, FakeCluster
from tests.transport.test_connection import opened


def test_a_connection_that_is_made_while_its_link_is_closed_is_closed() -> None:
    async def main() -> None:
        fake = FakeCluster(1)
        await fake.start()
        made: list[BrokerConnection] = []

        async def open_(address: Address) -> BrokerConnection:
            return made[0]

        made.append(await opened(fake))
        backoff = Backoff(1, 1, SeededRandom(1))
        link = Link(Address("b1", PORT), LoopClock(), backoff, open_, lambda is_lost: None)
        link.ready()
        asyncio.get_running_loop().call_soon(link.close)  # when the attempt has ended, before it is noticed
        await asyncio.sleep(0.1)
        assert link.made is None
        assert made[0].lost is not None

    run(main())
