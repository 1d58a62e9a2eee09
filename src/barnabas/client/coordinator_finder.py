"""Finds the broker that coordinates a group or a transactional id.

FindCoordinator is sent to any broker, for many keys at once if the broker can (from version 4). The result is
cached until `forget`, when a broker is not the coordinator any more, or cannot be reached.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Protocol

from barnabas.client.errors import BrokerError, broker_error, wire_error_of
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.schema import EVERY_VERSION

_LAST_OF_ONE = 3  # the last version of FindCoordinator with a single key


class CoordinatorType(IntEnum):
    """The two kinds of coordinator, as FindCoordinator numbers them."""

    GROUP = 0
    TRANSACTION = 1


class Ask(Protocol):
    """Sends a request to any broker; `Cluster.ask`, or a variant that retries."""

    async def __call__(
        self,
        request: FindCoordinatorRequest,
        response: type[FindCoordinatorResponse],
        *,
        at_most: int = EVERY_VERSION,
    ) -> FindCoordinatorResponse: ...


class CoordinatorFinder:
    """The coordinators that one client knows."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._nodes: dict[tuple[CoordinatorType, str], int] = {}

    async def find(self, kind: CoordinatorType, key: str) -> int:
        """The node id of a key's coordinator; BrokerError if there is none now."""
        found = (await self.find_all(kind, [key]))[key]
        if isinstance(found, BrokerError):
            raise found
        return found

    async def find_all(self, kind: CoordinatorType, keys: Iterable[str]) -> dict[str, int | BrokerError]:
        """The node id of each key's coordinator, or the error."""
        wanted = list(keys)
        refused: dict[str, BrokerError] = {}
        unknown = [key for key in wanted if (kind, key) not in self._nodes]
        for found in await self._look_up(kind, unknown) if unknown else ():
            if found.error_code:
                what = f"no coordinator of {found.key!r} is known"
                refused[found.key] = broker_error(wire_error_of(found.error_code), what, found.error_message)
            else:
                self._nodes[kind, found.key] = found.node_id
        known = {key: self._nodes[kind, key] for key in wanted if (kind, key) in self._nodes}
        return {**known, **refused}

    def forget(self, kind: CoordinatorType, keys: Iterable[str]) -> None:
        """Look these up again at their next use."""
        for key in keys:
            self._nodes.pop((kind, key), None)

    async def _look_up(self, kind: CoordinatorType, keys: list[str]) -> list[Coordinator]:
        request = FindCoordinatorRequest(key=keys[0], key_type=kind, coordinator_keys=keys)
        response = await self._ask(request, FindCoordinatorResponse)
        if response.coordinators:
            return list(response.coordinators)
        # brokers before 3.0 answer for a single key
        found = [_single(keys[0], response)]
        for key in keys[1:]:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            response = await self._ask(request, FindCoordinatorResponse, at_most=_LAST_OF_ONE)
            found.append(_single(key, response))
        return found


def _single(key: str, response: FindCoordinatorResponse) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )
