"""Ports in a row for the nodes of a local cluster, with those of their controllers above, all free now."""

from __future__ import annotations

import contextlib
import secrets
import socket

from barnabas.core.settings.listeners import CONTROLLER_PORT_DISTANCE


def free_port_range(nodes: int) -> int:
    """The first of so many ports in a row of which neither these nor the controllers' are in use.

    They are below those that systems give to outgoing connections: one of these could take it in between.
    """
    while True:
        first = 10_000 + secrets.randbelow(20_000)
        ports = [first + number + above for number in range(nodes) for above in (0, CONTROLLER_PORT_DISTANCE)]
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in ports:
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
