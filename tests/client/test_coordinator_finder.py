"""The coordinator finder: its requests, its memory, and brokers that answer for one key at a time."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.coordinator_finder import CoordinatorFinder, CoordinatorType
from barnabas.client.errors import BrokerError
from barnabas.core.errors import wire_error
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.schema import EVERY_VERSION

GROUP = CoordinatorType.GROUP
NOT_AVAILABLE = wire_error("COORDINATOR_NOT_AVAILABLE").code


class Brokers:
    """Answers FindCoordinator: the coordinator of a key is its length, and the empty key has none."""

    def __init__(self, *, last_version: int) -> None:
        self.last_version = last_version
        self.asked: list[list[str]] = []

    async def ask(
        self,
        request: FindCoordinatorRequest,
        response: type[FindCoordinatorResponse],
        *,
        at_most: int = EVERY_VERSION,
    ) -> FindCoordinatorResponse:
        if min(at_most, self.last_version) < 4:
            self.asked.append([request.key])
            node_id, error_code = len(request.key) or -1, 0 if request.key else NOT_AVAILABLE
            return FindCoordinatorResponse(node_id=node_id, error_code=error_code, coordinators=[])
        self.asked.append(list(request.coordinator_keys))
        found = [
            Coordinator(
                key=key,
                node_id=len(key) or -1,
                host="",
                port=0,
                error_code=0 if key else NOT_AVAILABLE,
                error_message=None,
            )
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)


@pytest.mark.parametrize(("last_version", "asked"), [(4, [["a", "bb"]]), (3, [["a"], ["bb"]])])
def test_coordinators_are_remembered_until_forgotten(last_version: int, asked: list[list[str]]) -> None:
    async def work() -> None:
        brokers = Brokers(last_version=last_version)
        finder = CoordinatorFinder(brokers.ask)
        assert await finder.find_all(GROUP, ["a", "bb"]) == {"a": 1, "bb": 2}
        assert await finder.find(GROUP, "bb") == 2
        assert brokers.asked == asked
        finder.forget(GROUP, ["bb"])
        assert await finder.find_all(GROUP, ["a", "bb"]) == {"a": 1, "bb": 2}
        assert brokers.asked == [*asked, ["bb"]]
        assert await finder.find(CoordinatorType.TRANSACTION, "a") == 1  # not that of the group
        assert brokers.asked == [*asked, ["bb"], ["a"]]

    asyncio.run(work())


@pytest.mark.parametrize("last_version", [4, 3])
def test_missing_coordinator_is_an_error_of_its_key(last_version: int) -> None:
    async def work() -> None:
        brokers = Brokers(last_version=last_version)
        finder = CoordinatorFinder(brokers.ask)
        found = await finder.find_all(GROUP, ["a", ""])
        assert found["a"] == 1
        assert isinstance(found[""], BrokerError)
        with pytest.raises(BrokerError, match="no coordinator of '' is known: COORDINATOR_NOT_AVAILABLE"):
            await finder.find(GROUP, "")
        assert brokers.asked[-1] == [""]  # an error is not remembered

    asyncio.run(work())
