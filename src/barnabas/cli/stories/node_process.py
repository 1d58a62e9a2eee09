"""A node of a story: `barnabas serve` in a process of its own, whose network can be cut.

    python -m barnabas.cli.stories.node_process 1=9092:10092,2=9093:10093 1 --config ...

The first argument says at which ports which nodes are, the second which one this is; the rest is for `serve`.
Standard input is a socket: a line `isolate 2 keep` or `heal 2` cuts node 2 off or connects it again, as every
process of the cluster is told, and is answered with a line when it is done.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence

from barnabas.cli.serve import main as serve
from barnabas.cli.stories.plan import HOST
from barnabas.core.os_network import OsNetwork
from barnabas.core.workers import Workers
from barnabas.testing.node_network import Cuts, HeldPorts, NodeNetwork

KEEP = "keep"  # clients still reach the node


def main(arguments: Sequence[str]) -> int:
    """Serve until stopped; the exit status."""
    ports, node_id, *rest = arguments
    cuts = Cuts()
    for entry in ports.split(","):
        node, _, listening = entry.partition("=")
        for port in listening.split(":"):
            cuts.belongs(int(port), int(node))

    def network_of(workers: Workers) -> OsNetwork:
        network = NodeNetwork(workers, int(node_id), cuts, HeldPorts(HOST, 0))
        _Commands(network).listen()
        return network

    return serve(rest, network_of)


class _Commands:
    """What comes by standard input."""

    def __init__(self, network: NodeNetwork) -> None:
        self._network = network
        self._socket = socket.socket(fileno=os.dup(0))
        self._socket.setblocking(False)
        self._half = b""

    def listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def _read(self) -> None:
        try:
            received = self._socket.recv(1 << 12)
        except BlockingIOError:
            return
        if not received:  # the story has ended, or was killed: no node outlives it
            os.kill(os.getpid(), signal.SIGKILL)
        *lines, self._half = (self._half + received).split(b"\n")
        for line in lines:
            self._do(line.decode().split())
            self._socket.send(line + b"\n")

    def _do(self, words: list[str]) -> None:
        command, node_id, *more = words
        if command == "isolate":
            self._network.cuts.isolate(int(node_id), keep_clients=more == [KEEP])
        else:
            self._network.cuts.heal(int(node_id))
            self._network.look_again()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
