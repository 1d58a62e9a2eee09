"""The connections of a broker in this process, seen from inside, and a clock of their own to be idle by.

A test that has to know that the broker has taken up a request asks here, instead of waiting for a while.
"""

from __future__ import annotations

import asyncio

from barnabas.broker.connections.connections import Connections, Session
from barnabas.core.clock import ManualClock
from barnabas.testing import Broker
from tests.support.raw_client import RawClient, wait_until

IDLE_S = 600.0  # connections.max.idle.ms, by default
STEP_S = IDLE_S / 10  # how often the broker looks for idle connections


def connections_of(broker: Broker) -> Connections:
    return broker.node.broker.connections


def sessions_of(broker: Broker) -> list[Session]:
    async def look() -> list[Session]:
        return list(connections_of(broker)._sessions)

    return broker.run(look())


def session_of(broker: Broker, client: RawClient) -> Session:
    """The session of one client; the broker may take a moment to accept it."""

    def found() -> list[Session]:
        return [each for each in sessions_of(broker) if str(each.connection.peer) == client.address]

    wait_until(lambda: bool(found()), f"{client.address} is accepted")
    return found()[0]


def wait_until_asked(broker: Broker, client: RawClient) -> None:
    """Wait until the broker has read a client's request and is at work on its answer."""
    session = session_of(broker, client)
    wait_until(lambda: session.is_busy, f"a request of {client.address}")
    broker.run(asyncio.sleep(0))


class IdleTime:
    """The clock by which a broker's connections are idle. It stands still until a test moves it.

    Made before clients connect; only the connections run by it, and the rest of the node in real time.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clock = ManualClock()
        broker.run(self._install())

    async def _install(self) -> None:
        connections = connections_of(self._broker)
        connections._clock = self._clock
        self._task = asyncio.get_running_loop().create_task(connections.close_idle())

    def passes(self, seconds: float = STEP_S) -> None:
        """Let that much time pass, in the steps at which the broker looks."""

        async def pass_steps() -> None:
            for _ in range(round(seconds / STEP_S)):
                self._clock.advance(STEP_S)
                for _ in range(3):  # the look itself, and the next sleep
                    await asyncio.sleep(0)

        self._broker.run(pass_steps())
