"""The network of a simulated quorum: connections between processes, delays, and links that fail one way.

A request goes out on a connection, which is dialled first where there is none. A dial is refused where the
machine runs and nothing listens; it hangs where the machine is off or unreachable. A process that dies closes
its connections, and its peers notice; a machine that loses power says nothing. Messages overtake each other,
are lost and come twice: more than TCP allows, and the core must not mind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.core.random import Random
from barnabas.raft.messages import (
    Answered,
    ConnectionLost,
    DialRefused,
    DialSucceeded,
    Failed,
    Received,
    Response,
    Send,
)
from barnabas.raft.voters import Endpoint
from barnabas.sim.quorum.engine import Engine

if TYPE_CHECKING:
    from barnabas.sim.quorum.node import Node

FIRST_PORT = 9000
PORTS_A_NODE = 100
NOBODY = PORTS_A_NODE - 1  # a port at which nothing listens
CONTROLLER, BOOTSTRAP = "CONTROLLER", "BOOTSTRAP"


class Token(NamedTuple):
    """Whom a request came from."""

    node: int
    life: int
    correlation: int


def endpoint_of(node_id: int, move: int = 0) -> Endpoint:
    """The controller listener of a node, at the n-th address that it has had."""
    return Endpoint(CONTROLLER, f"node-{node_id}", FIRST_PORT + node_id * PORTS_A_NODE + move)


def other_endpoint_of(node_id: int) -> Endpoint:
    """Another listener of a node, at which nobody of the quorum is answered."""
    return Endpoint("OTHER", f"node-{node_id}", FIRST_PORT + node_id * PORTS_A_NODE + NOBODY)


def bootstrap_server(node_id: int) -> Endpoint:
    """A name that leads to a node wherever it has moved."""
    return Endpoint(BOOTSTRAP, f"any-{node_id}", FIRST_PORT + node_id * PORTS_A_NODE)


class Network:
    """`blocked` are directed pairs of nodes between which nothing passes."""

    def __init__(self, engine: Engine, random: Random) -> None:
        self.engine = engine
        self.random = random
        self.nodes: dict[int, Node] = {}
        self.blocked: set[tuple[int, int]] = set()
        self.drops = 0.0
        self.doubles = 0.0
        self.slow_us = 0  # at most so much on top of every delay
        self.messages = 0

    def delay_us(self) -> int:
        uniform = self.random.uniform
        delay = 150 + int(uniform() * 700)
        return delay + int(uniform() * self.slow_us) if self.slow_us else delay

    def is_open(self, one: int, other: int) -> bool:
        """Whether a connection can live between them: both ways."""
        return (one, other) not in self.blocked and (other, one) not in self.blocked

    # --- requests

    def request(self, source: Node, send: Send) -> None:
        """Send it on the connection to where it goes, or dial."""
        node_id, move = divmod(send.endpoint.port - FIRST_PORT, PORTS_A_NODE)
        target = self.nodes[node_id]
        source.in_flight[send.correlation] = node_id
        is_there = target.is_up and (target.move == move or send.endpoint.listener == BOOTSTRAP)
        connected = source.connections.get(node_id)
        if connected is not None and not (is_there and connected == target.life):
            if not self.is_open(source.id, node_id) or not target.has_power:
                return  # sent into nothing
            del source.connections[node_id]
            self._to(source, ConnectionLost(send.node_id))
            connected = None
        if connected is None and not self._dial(source, target, send, is_there):
            return
        self._deliver(source, target, Received(Token(source.id, source.life, send.correlation), send.request))

    def _dial(self, source: Node, target: Node, send: Send, is_there: bool) -> bool:
        if not target.has_power or not self.is_open(source.id, target.id) or target.hangs:
            return False
        if not is_there or target.refuses:
            self._to(source, DialRefused(send.node_id))
            self._to(source, Failed(send.correlation))
            source.in_flight.pop(send.correlation, None)
            return False
        source.connections[target.id] = target.life
        self._to(source, DialSucceeded(send.node_id))
        return True

    def _to(self, node: Node, event: Any) -> None:
        self.engine.after(self.delay_us(), node.receive, node.life, event)

    def _deliver(self, source: Node, target: Node, event: Any) -> None:
        self.messages += 1
        if (source.id, target.id) in self.blocked:
            return
        if self.drops and self.random.uniform() < self.drops:
            return
        self.engine.after(self.delay_us(), target.receive, target.life, event)
        if self.doubles and self.random.uniform() < self.doubles:
            self.engine.after(self.delay_us(), target.receive, target.life, event)

    def reply(self, source: Node, token: Token, response: Response) -> None:
        """Back on the connection that the request came on."""
        target = self.nodes[token.node]
        if target.life == token.life:
            self._deliver(source, target, Answered(token.correlation, response))

    # --- connections that end

    def process_died(self, node: Node) -> None:
        """The kernel closes what it had open."""
        for peer in self.nodes.values():
            if peer is not node and self.is_open(peer.id, node.id):
                self.reset(peer, node)

    def reset(self, peer: Node, node: Node) -> None:
        """The connection from `peer` to `node` is closed, and `peer` notices."""
        if peer.connections.pop(node.id, None) is None:
            return
        self._to(peer, ConnectionLost(node.id))
        for correlation in [each for each, to in peer.in_flight.items() if to == node.id]:
            del peer.in_flight[correlation]
            self._to(peer, Failed(correlation))
