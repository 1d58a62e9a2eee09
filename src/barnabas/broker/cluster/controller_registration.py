"""Registers this controller with the active controller: its addresses and supported features, as in Kafka.

It registers once in its life, and again if the published metadata does not have it: the record may have been
lost with a leader that had not committed it. A sole voter registers only once another controller exists.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from barnabas.broker.cluster.controller_channel import ControllerChannel
from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.controller.bootstrap import REGISTERED_FEATURES
from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.clock import Clock
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.settings.listeners import PROTOCOLS
from barnabas.core.settings.listeners import Listener as ControllerListener
from barnabas.metadata.versions import CONTROLLERS_SINCE
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

logger = logging.getLogger("barnabas.controller")

RETRY_S = 1.0


class ControllerRegistration:
    """One incarnation of a controller."""

    def __init__(
        self,
        quorum: MetadataQuorum,
        channel: ControllerChannel,
        clock: Clock,
        *,
        node_id: int,
        incarnation_id: UUID,
        listeners: Sequence[ControllerListener],
    ) -> None:
        self._quorum = quorum
        self._channel = channel
        self._clock = clock
        self._request = ControllerRegistrationRequest(
            controller_id=node_id,
            incarnation_id=incarnation_id.bytes,
            zk_migration_ready=False,
            listeners=[
                Listener(
                    name=one.name,
                    host=one.host,
                    port=one.port,
                    security_protocol=PROTOCOLS.index(one.protocol),
                )
                for one in listeners
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in REGISTERED_FEATURES.items()
            ],
        )

    async def run(self) -> None:
        """Register whenever the metadata does not have this controller; runs until cancelled."""
        while True:
            await self._quorum.until(lambda: self._is_missing)
            if not await self._register():
                await self._clock.sleep(RETRY_S)
                continue
            await self._quorum.refreshed()
            if self._is_missing:  # not here yet: check again, but not at once
                await self._clock.sleep(RETRY_S)

    @property
    def _is_missing(self) -> bool:
        image = self._quorum.metadata.image
        if image.metadata_version < CONTROLLERS_SINCE or not self._quorum.is_caught_up:
            return False
        known = image.controllers.get(self._request.controller_id)
        return known is None or known.incarnation_id != self._request.incarnation_id

    async def _register(self) -> bool:
        try:
            response = await self._channel.send(self._request, ControllerRegistrationResponse)
        except NOT_COMMITTED as error:
            logger.debug("this controller is not registered yet: %s", error)
            return False
        if response.error_code:
            name = WIRE_ERRORS[response.error_code].name
            logger.warning("this controller could not register: %s (%s)", name, response.error_message)
        return response.error_code == 0
