"""Connections to the other nodes of the quorum, and the connection events for the raft core.

There are two connections to each node: one for fetches, which wait at the leader, and one for all other
requests, so that no vote waits behind a fetch. A connection is opened when there is a request to send; its
address is resolved anew each time. The core decides when to retry.

The core is told of a dial that was refused and of a fetch connection that the other side has closed: together
they prove that a leader's process has ended. Responses that arrived before the end of their connection are
passed on first, or they would seem to contradict it. A connection without an answer in time is closed by this
side, which proves nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from barnabas import __version__
from barnabas.broker.quorum import wire
from barnabas.broker.quorum.wire_parts import UnsupportedVersion
from barnabas.core.clock import Clock
from barnabas.core.errors import WIRE_ERRORS, BarnabasError
from barnabas.core.network import Address, ConnectionLost, ConnectionRefused, Network
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.frames import SCRATCH_BYTES
from barnabas.raft import messages as raft
from barnabas.raft.voters import Endpoint
from barnabas.transport.connection import BrokerConnection, open_connection

logger = logging.getLogger("barnabas.quorum")

_FETCHES = (raft.Fetch, raft.FetchSnapshot)
_OTHER_CLUSTER = "INCONSISTENT_CLUSTER_ID"


class LinkSettings(NamedTuple):
    """`listener` is the name of the controller listener at which this node reaches others."""

    cluster_id: str
    client_id: str
    listener: str
    request_timeout_s: float
    connect_timeout_s: float


class _Link:
    """The connection to one address, or the attempt to open one."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connection: BrokerConnection | None = None
        self.dialing: asyncio.Task[BrokerConnection] | None = None

    def close(self) -> None:
        if self.dialing is not None:
            self.dialing.cancel()
        if self.connection is not None:
            self.connection.on_lost = None
            self.connection.close()
        self.connection = self.dialing = None


class QuorumLinks:
    """Sends requests; `step` passes responses and connection events to the core."""

    def __init__(
        self, network: Network, clock: Clock, settings: LinkSettings, step: Callable[[raft.Event], None]
    ) -> None:
        self._network = network
        self._clock = clock
        self._settings = settings
        self._step = step
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.problems: dict[str, str] = {}  # by address: why the last request there failed
        self._links: dict[tuple[int, bool], _Link] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def send(self, send: raft.Send) -> None:
        """Send a request; its response, or its failure, goes to `step`."""
        if self._is_closed:
            return
        task = asyncio.get_running_loop().create_task(self._request(send))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def ask(self, node_id: int, endpoint: Endpoint, request: raft.Request) -> raft.Response:
        """The response to a request that is not the core's, on the connection without fetches."""
        if self._is_closed:
            raise ConnectionLost("this node takes part in the quorum no more")
        send = raft.Send(-1, node_id, endpoint, request)
        answer = await self._ask(await self._connected(send, is_fetching=False), send)
        if isinstance(answer, raft.Failed):
            raise ConnectionLost(f"node {node_id} at {endpoint} does not answer")
        return answer.response

    def close(self) -> None:
        """Close all connections, and send no more events to the core."""
        self._is_closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()
        for task in self._requests:
            task.cancel()

    def _tell(self, event: raft.Event) -> None:
        if not self._is_closed:
            self._step(event)

    async def _request(self, send: raft.Send) -> None:
        try:
            connection = await self._connected(send, is_fetching=isinstance(send.request, _FETCHES))
            answer = await self._ask(connection, send)
        except ConnectionRefused:
            self._note(send.endpoint, "refuses connections")
            self._tell(raft.DialRefused(send.node_id))
            answer = raft.Failed(send.correlation)
        except (NotSpoken, UnsupportedVersion) as error:
            self._note(send.endpoint, f"does not answer: {error}")
            answer = raft.Failed(send.correlation, unsupported=True)
        except BarnabasError as error:
            logger.debug("no answer from node %d at %s: %s", send.node_id, send.endpoint, error)
            self._note(send.endpoint, f"does not answer: {error}")
            answer = raft.Failed(send.correlation)
        self._tell(answer)

    def _note(self, endpoint: Endpoint, problem: str) -> None:
        self.problems[f"{endpoint.host}:{endpoint.port}"] = problem

    async def _ask(self, connection: BrokerConnection, send: raft.Send) -> raft.Answered | raft.Failed:
        asking = wire.ASKING[type(send.request)]
        version = connection.versions.choose(asking.request)
        if version < asking.first:
            raise UnsupportedVersion(f"the node at {connection.peer} speaks version {version} at most")
        message = wire.request_to_wire(send.request, self._settings.cluster_id, version)
        response = await connection.ask(message, asking.response)
        answer = wire.answer_from_wire(send.correlation, send.request, response, self._settings.listener)
        if isinstance(answer, raft.Answered):
            error_code = answer.response.error
        else:
            error_code = getattr(response, "error_code", 0)
        self._note(send.endpoint, self._problem(error_code))
        return answer

    def _problem(self, error_code: int) -> str:
        if not error_code:
            return ""
        known = WIRE_ERRORS.get(error_code)
        if known is not None and known.name == _OTHER_CLUSTER:
            return f"belongs to another cluster than this node, which is of {self._settings.cluster_id}"
        return f"answers {'an error' if known is None else known.name}"

    # --- connections

    async def _connected(self, send: raft.Send, *, is_fetching: bool) -> BrokerConnection:
        link = self._link(send, is_fetching)
        if link.connection is not None:
            return link.connection
        if link.dialing is None:
            dialing = self._dial(link, send.node_id, is_fetching)
            link.dialing = asyncio.get_running_loop().create_task(dialing)
            link.dialing.add_done_callback(_look_at)
        attempt = link.dialing
        await asyncio.wait((attempt,))
        if attempt.cancelled():
            raise ConnectionLost(f"the attempt to connect to {link.address} was given up")
        return attempt.result()

    def _link(self, send: raft.Send, is_fetching: bool) -> _Link:
        key = send.node_id, is_fetching
        address = Address(send.endpoint.host, send.endpoint.port)
        link = self._links.get(key)
        if link is None or link.address != address:
            if link is not None:
                link.close()
            link = self._links[key] = _Link(address)
        return link

    async def _dial(self, link: _Link, node_id: int, is_fetching: bool) -> BrokerConnection:
        settings = self._settings
        try:
            connection = await open_connection(
                self._network,
                self._clock,
                link.address,
                client_id=settings.client_id,
                software_version=__version__,
                connect_timeout_s=settings.connect_timeout_s,
                request_timeout_s=settings.request_timeout_s,
                scratch=self._scratch,
            )
        except ConnectionRefused:
            raise
        except ConnectionLost:  # before the versions were negotiated
            if is_fetching:
                self._tell(raft.ConnectionLost(node_id))
            raise
        finally:
            link.dialing = None
        if connection.lost is not None:
            raise ConnectionLost(str(connection.lost))
        link.connection = connection
        connection.on_lost = lambda: self._lost(link, node_id, is_fetching)
        self._tell(raft.DialSucceeded(node_id))
        return connection

    def _lost(self, link: _Link, node_id: int, is_fetching: bool) -> None:
        connection, link.connection = link.connection, None
        if is_fetching and connection is not None and isinstance(connection.lost, ConnectionLost):
            # tasks that wait for earlier responses are woken first, and pass them on before this event
            asyncio.get_running_loop().call_soon(self._tell, raft.ConnectionLost(node_id))


def _look_at(attempt: asyncio.Task[BrokerConnection]) -> None:
    """All tasks that wait for an attempt may have been cancelled before it fails."""
    if not attempt.cancelled():
        attempt.exception()
