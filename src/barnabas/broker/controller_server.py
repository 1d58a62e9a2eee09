"""The controller of a node: its listeners, and its work while it is the active controller.

It answers as soon as the metadata is read from the disk, before there is a leader: other voters have to reach
it, and so has the broker of the same process. The active controller watches the brokers and elects leaders
from time to time, once there is a broker outside of its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from barnabas.broker.connections.connections import Connections, limits_of
from barnabas.broker.connections.requests import CONTROLLER_ROUTER
from barnabas.broker.shared_server import SharedServer
from barnabas.core.errors import BarnabasError
from barnabas.core.settings.listeners import Listener
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage

Run = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class ControllerServer:
    """The controller beside the `SharedServer` of its process. `run` starts background tasks."""

    def __init__(self, shared: SharedServer, run: Run) -> None:
        settings = shared.settings
        self.services = shared.local
        self._shared = shared
        self._run = run
        self._watching: list[asyncio.Task[None]] = []
        self.connections = Connections(shared.local, CONTROLLER_ROUTER, limits_of(settings.broker))
        settings.subscribe(lambda altered: self.connections.limit(limits_of(altered)))
        shared.quorum.on_active = self._active
        shared.quorum.metadata.subscribe(self._published)

    async def register(self, listeners: Sequence[Listener]) -> None:
        """Register this controller with the active one, once there are other controllers; runs until
        cancelled."""
        try:
            await self._register(listeners)
        except BarnabasError:
            if self._shared.quorum.driver.failure is None:
                raise
            # otherwise the same error ends the node, and is logged there

    async def _register(self, listeners: Sequence[Listener]) -> None:
        quorum = self._shared.quorum
        await quorum.until(self._has_others)
        from barnabas.broker.cluster.controller_registration import ControllerRegistration

        registration = ControllerRegistration(
            quorum,
            self._shared.routed,
            self.services.clock,
            node_id=self.services.node_id,
            incarnation_id=self.services.random.uuid(),
            listeners=listeners,
        )
        await registration.run()

    def _has_others(self) -> bool:
        quorum, own_id = self._shared.quorum, self.services.node_id
        registered = quorum.metadata.image.controllers
        return not quorum.driver.is_sole_voter or any(each != own_id for each in registered)

    def _active(self, is_active: bool) -> None:
        for each in self._watching:
            each.cancel()
        self._watching = []
        if is_active:
            self._watch(self._shared.quorum.metadata.image)

    def _published(self, image: ClusterImage, delta: Delta) -> None:
        if delta.changed_brokers and self._shared.quorum.controller.is_active:
            self._watch(image)

    def _watch(self, image: ClusterImage) -> None:
        """Watch brokers and leaders, if there is a broker outside of this process."""
        if not self._watching and any(each != self.services.node_id for each in image.brokers):
            shared = self._shared
            self._watching = [self._run(shared.watch().run()), self._run(shared.leader_upkeep().run())]
