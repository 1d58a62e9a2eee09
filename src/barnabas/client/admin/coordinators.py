"""Requests to the coordinators of groups and of transactional ids.

The finder looks coordinators up, many at once, and caches them. After NOT_COORDINATOR, or if the broker
cannot be reached, the coordinator is looked up again. A coordinator that is still loading, or not available
yet, is asked again until the timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from barnabas.client.admin.engine import Engine, raise_first
from barnabas.client.cluster import ClientConfig
from barnabas.client.coordinator_finder import CoordinatorFinder, CoordinatorType
from barnabas.client.errors import BrokerError, BrokerNotReachable, TimedOut
from barnabas.core.clock import Clock
from barnabas.core.network import Address, ConnectionLost, Network
from barnabas.core.random import Random

T = TypeVar("T")

_MOVED = frozenset(("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"))
_AGAIN = _MOVED | {"COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT"}


class Coordinators(Engine):
    """The part of an admin that sends requests to coordinators."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        random: Random,
        bootstrap: str | Sequence[Address],
        config: ClientConfig | None = None,
    ) -> None:
        super().__init__(network, clock, random, bootstrap, config)
        self._finder = CoordinatorFinder(partial(self._ask, is_safe=True))

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
    ) -> dict[str, T | BrokerError]:
        """Ask the coordinator of each key, again if the coordinator has changed or has not answered: so only
        requests that may be repeated are sent this way."""
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
                        if not isinstance(result, (BrokerNotReachable, ConnectionLost, TimedOut)):
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
        """Ask one broker about all keys that it coordinates, and forget it if it does not."""
        try:
            answers = await ask(node_id, keys)
        except (BrokerNotReachable, ConnectionLost, TimedOut):
            self._finder.forget(kind, keys)
            raise
        for key, answer in answers.items():
            if isinstance(answer, BrokerError) and answer.error.name in _MOVED:
                self._finder.forget(kind, [key])
        return answers

    async def _by_coordinator(
        self, kind: CoordinatorType, keys: list[str], failures: dict[str, Any]
    ) -> dict[int, list[str]]:
        """The keys by their coordinators; keys without one are added to the failures."""
        by_node: dict[int, list[str]] = {}
        for key, found in (await self._finder.find_all(kind, keys)).items():
            if isinstance(found, BrokerError):
                failures[key] = found
            else:
                by_node.setdefault(found, []).append(key)
        return by_node


def _is_open(answer: object) -> bool:
    """Whether a key has no answer yet, or a retriable error."""
    return answer is None or (isinstance(answer, BrokerError) and answer.error.name in _AGAIN)


def answers_of(answers: Mapping[str, T | BrokerError]) -> dict[str, T]:
    """The answers if all are good; otherwise the first error is raised."""
    raise_first(answer for answer in answers.values() if isinstance(answer, BrokerError))
    return {key: answer for key, answer in answers.items() if not isinstance(answer, BrokerError)}
