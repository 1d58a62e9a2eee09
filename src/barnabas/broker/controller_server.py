"""The controller of a node: the listeners at which it answers, and what it does while it is active.

It answers as soon as the metadata is read from the disk, before there is a leader: other voters have to reach
it, and so has the broker of the same process.
"""

from __future__ import annotations

from barnabas.broker.connections.connections import Connections, limits_of
from barnabas.broker.connections.requests import CONTROLLER_ROUTER
from barnabas.broker.shared_server import SharedServer


class ControllerServer:
    """Beside the `SharedServer` of its process."""

    def __init__(self, shared: SharedServer) -> None:
        settings = shared.settings
        self.services = shared.local
        self.connections = Connections(shared.local, CONTROLLER_ROUTER, limits_of(settings.broker))
        settings.subscribe(lambda altered: self.connections.limit(limits_of(altered)))
