"""The listeners of a node, bound before anything is served: then the number of a port given as 0 is known,
and a second node on the same ports fails at once. Connections that arrive early wait until their listener is
served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from barnabas.core.network import Connection, Network
from barnabas.core.network import Listener as OpenListener
from barnabas.core.settings.listeners import Listener

Accept = Callable[[Connection, str], None]


class BoundListeners:
    """The listeners by name. `bind` opens them, `serve` hands their connections to a server."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._open: dict[str, OpenListener] = {}
        self._servers: dict[str, Accept] = {}
        self._waiting: list[tuple[str, Connection]] = []

    async def bind(self, listeners: Iterable[Listener]) -> None:
        for each in listeners:
            accept = partial(self._accept, each.name)
            self._open[each.name] = await self._network.listen(each.host, each.port, accept)

    @property
    def ports(self) -> dict[str, int]:
        """The port at which each listener is bound."""
        return {name: opened.address.port for name, opened in self._open.items()}

    def _accept(self, name: str, connection: Connection) -> None:
        accept = self._servers.get(name)
        if accept is None:
            self._waiting.append((name, connection))
        else:
            accept(connection, name)

    def serve(self, listeners: Iterable[Listener], accept: Accept) -> None:
        """Hand over the connections of these listeners, waiting ones first."""
        names = {each.name for each in listeners}
        self._servers.update(dict.fromkeys(names, accept))
        waiting, self._waiting = self._waiting, []
        for name, connection in waiting:
            self._accept(name, connection)

    def close(self, listeners: Iterable[Listener] | None = None) -> None:
        """Stop accepting at these listeners, or at all; connections that wait are aborted."""
        names = set(self._open) if listeners is None else {each.name for each in listeners}
        for name in names & set(self._open):
            self._open[name].close()
        for name, connection in self._waiting:
            if name in names:
                connection.abort()
        self._waiting = [each for each in self._waiting if each[0] not in names]
