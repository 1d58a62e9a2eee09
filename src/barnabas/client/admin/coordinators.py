"""Asking coordinators: brokers that look after groups, or after transactional ids, by their names.

Who coordinates what is asked of any broker, for many at once, and remembered until somebody says otherwise:
a broker that is not the coordinator (any more) or that cannot be reached is asked for no longer. One that is
still loading, or that is not there yet, is asked again until time is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from barnabas.client.admin.engine import Engine, error_of, raise_first
from barnabas.client.cluster import ClientConfig
from barnabas.client.coordinator import CoordinatorType
from barnabas.client.errors import BrokerError, BrokerNotReachable, TimedOut
from barnabas.core.clock import Clock
from barnabas.core.network import Address, ConnectionLost, Network
from barnabas.core.random import Random
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.schema import Message

M = TypeVar("M", bound=Message)
T = TypeVar("T")

_LAST_OF_ONE = 3  # the last version of FindCoordinator that is for one key
_MOVED = frozenset(("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"))
_AGAIN = _MOVED | {"COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT"}


class Coordinators(Engine):
    """The part of an admin that knows coordinators."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        random: Random,
        bootstrap: str | Sequence[Address],
        config: ClientConfig | None = None,
    ) -> None:
        super().__init__(network, clock, random, bootstrap, config)
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}

    async def find_coordinators(self, kind: CoordinatorType, keys: Iterable[str]) -> dict[str, int]:
        """The brokers that coordinate these groups, or transactional ids."""

        async def found(node_id: int, asked: list[str]) -> dict[str, int]:
            return dict.fromkeys(asked, node_id)

        return answers_of(await self._ask_coordinators(kind, keys, found))

    async def _ask_coordinators(
        self,
        kind: CoordinatorType,
        keys: Iterable[str],
        ask: Callable[[int, list[str]], Coroutine[Any, Any, Mapping[str, T | BrokerError]]],
        *,
        is_safe: bool = True,
    ) -> dict[str, T | BrokerError]:
        """Ask the coordinator of each key, again where another is the coordinator by now."""
        deadline = self._clock.monotonic() + self._timeout_ms / 1000
        wanted = still_open = list(dict.fromkeys(keys))
        settled: dict[str, T | BrokerError] = {}
        attempts = 0
        while True:
            failure: BaseException | None = None
            try:
                by_node = await self._by_coordinator(kind, still_open, settled)
                rounds = [self._round(kind, node, of_node, ask) for node, of_node in by_node.items()]
                for result in await asyncio.gather(*rounds, return_exceptions=True):
                    if isinstance(result, BaseException):
                        if not _may_be_asked_again(result, is_safe=is_safe):
                            raise result
                        failure = failure or result
                    else:
                        settled.update(result)
            except BrokerNotReachable as error:
                failure = error
            still_open = [key for key in wanted if _is_open(settled.get(key))]
            if not still_open:
                return {key: settled[key] for key in wanted}
            if self._clock.monotonic() >= deadline:
                unanswered = [key for key in wanted if key not in settled]
                if failure is not None or unanswered:
                    raise failure or TimedOut(f"no answer about {', '.join(unanswered)}")
                return {key: settled[key] for key in wanted}
            attempts += 1
            await self._clock.sleep(self.cluster.backoff.seconds(attempts))

    async def _round(
        self,
        kind: CoordinatorType,
        node_id: int,
        keys: list[str],
        ask: Callable[[int, list[str]], Coroutine[Any, Any, Mapping[str, T | BrokerError]]],
    ) -> Mapping[str, T | BrokerError]:
        """Ask one broker about all keys that it coordinates, and forget it where it does not."""
        try:
            answers = await ask(node_id, keys)
        except (BrokerNotReachable, ConnectionLost, TimedOut):
            self._forget(kind, keys)
            raise
        for key, answer in answers.items():
            if isinstance(answer, BrokerError) and answer.error.name in _MOVED:
                self._forget(kind, [key])
        return answers

    def _forget(self, kind: CoordinatorType, keys: Iterable[str]) -> None:
        for key in keys:
            self._coordinators.pop((kind, key), None)

    async def _by_coordinator(
        self, kind: CoordinatorType, keys: list[str], failures: dict[str, Any]
    ) -> dict[int, list[str]]:
        """The keys by their coordinators; those that have none go to the failures."""
        unknown = [key for key in keys if (kind, key) not in self._coordinators]
        if unknown:
            for found in await self._find(kind, unknown):
                error = error_of(
                    found.error_code, f"no coordinator of {found.key!r} is known", found.error_message
                )
                if error is None:
                    self._coordinators[kind, found.key] = found.node_id
                else:
                    failures[found.key] = error
        by_node: dict[int, list[str]] = {}
        for key in keys:
            if (kind, key) in self._coordinators:
                by_node.setdefault(self._coordinators[kind, key], []).append(key)
        return by_node

    async def _find(self, kind: CoordinatorType, keys: list[str]) -> list[Coordinator]:
        request = FindCoordinatorRequest(key=keys[0], key_type=kind, coordinator_keys=keys)
        response = await self._ask(request, FindCoordinatorResponse, is_safe=True)
        if response.coordinators:
            return list(response.coordinators)
        # brokers before 3.0 answer for one at a time
        found = [_single(keys[0], response)]
        for key in keys[1:]:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            response = await self._ask(request, FindCoordinatorResponse, is_safe=True, at_most=_LAST_OF_ONE)
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


def _may_be_asked_again(error: BaseException, *, is_safe: bool) -> bool:
    if isinstance(error, (ConnectionLost, TimedOut)):  # it may have been done
        return is_safe
    return isinstance(error, BrokerNotReachable)


def _is_open(answer: object) -> bool:
    """Whether a key has no answer yet, or one that may be another in a moment."""
    return answer is None or (isinstance(answer, BrokerError) and answer.error.name in _AGAIN)


def answers_of(answers: Mapping[str, T | BrokerError]) -> dict[str, T]:
    """The answers, where all are good; else the first error is raised."""
    raise_first(answer for answer in answers.values() if isinstance(answer, BrokerError))
    return {key: answer for key, answer in answers.items() if not isinstance(answer, BrokerError)}
