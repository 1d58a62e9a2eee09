"""Requests to the coordinator of a group or of a transactional id.

The coordinator is looked up at first use, and again when a broker answers that it is not the coordinator, or
does not answer. Requests are repeated after retriable errors until the timeout; so only requests that may be
repeated are sent this way.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from barnabas import __version__
from barnabas.client.cluster import Cluster
from barnabas.client.coordinator_finder import CoordinatorFinder, CoordinatorType
from barnabas.client.errors import BrokerError, BrokerNotReachable, TimedOut, broker_error, wire_error_of
from barnabas.core.errors import BarnabasError
from barnabas.core.network import ConnectionLost
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.schema import EVERY_VERSION, Message
from barnabas.transport.connection import BrokerConnection
from barnabas.transport.waiting import Backoff, within

M = TypeVar("M", bound=Message)
T = TypeVar("T")

Codes = Iterable[tuple[str, int]]  # the text of an error, and Kafka's code; 0 is no error

_MOVED = frozenset(("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"))
_NOT_ATTEMPTED = "OPERATION_NOT_ATTEMPTED"  # because another part of the same request failed
_CONCURRENT = "CONCURRENT_TRANSACTIONS"
_CONCURRENT_MS = (20, 200)  # markers are written within milliseconds


class Coordinator:
    """The coordinator of one key, and requests to it."""

    def __init__(self, cluster: Cluster, kind: CoordinatorType, key: str) -> None:
        self._cluster, self._kind, self._key = cluster, kind, key
        self.last_features: dict[str, int] = {}  # the finalised levels at the last request
        self.unanswered = 0  # requests that may still be carried out, although they were repeated
        self._finder = CoordinatorFinder(cluster.ask)
        self._concurrent = Backoff(*_CONCURRENT_MS, cluster.random)

    async def ask(
        self,
        request: Message,
        response: type[M],
        codes: Callable[[M], Codes],
        timeout_s: float,
        *,
        at_most: int = EVERY_VERSION,
        needs: int = 0,
    ) -> M:
        """A response without error; BrokerError for a final error, TimedOut if there is none within that
        time.

        `needs` is the oldest version of the request that can be used.
        """
        name = type(request).__name__.removesuffix("Request")

        async def once() -> M:
            connection = await self._connection()
            if connection.versions.choose(type(request), at_most) < needs:
                raise NotSpoken(f"{connection.peer} is too old for {name} {needs}")
            answer = await connection.ask(request, response, at_most=at_most)
            self.last_features = connection.features
            _raise_worst(codes(answer))
            return answer

        return await self._until(once, timeout_s, f"{name} for {self._key!r}")

    async def features(self, timeout_s: float) -> dict[str, int]:
        """The finalised levels now; a connection only knows those of the time when it was opened."""

        async def once() -> dict[str, int]:
            connection = await self._connection()
            await connection.learn_versions(__version__)
            return connection.features

        return await self._until(once, timeout_s, f"ApiVersions for {self._key!r}")

    async def _connection(self) -> BrokerConnection:
        return await self._cluster.connect(await self._finder.find(self._kind, self._key))

    def _forget(self) -> None:
        self._finder.forget(self._kind, [self._key])

    async def _until(self, once: Callable[[], Coroutine[Any, Any, T]], timeout_s: float, what: str) -> T:
        clock = self._cluster.clock
        deadline = clock.monotonic() + timeout_s
        failures = 0
        failure: BarnabasError | None = None
        while True:
            backoff = self._cluster.backoff
            try:
                return await within(clock, deadline - clock.monotonic(), once(), what)
            except (BrokerNotReachable, ConnectionLost, TimedOut) as error:
                if failure is None or clock.monotonic() < deadline:  # the timeout itself explains nothing
                    failure = error
                self._forget()
                self.unanswered += not isinstance(error, BrokerNotReachable)
            except BrokerError as error:
                if not error.error.retriable:
                    raise
                failure = error
                if error.error.name in _MOVED:
                    self._forget()
                elif error.error.name == _CONCURRENT:
                    backoff = self._concurrent
            failures += 1
            wait_s = backoff.seconds(failures)
            if clock.monotonic() + wait_s >= deadline:
                refusal = failure.error if isinstance(failure, BrokerError) else None
                asked = f"{what} was not answered well within {timeout_s:g} s by {self._cluster.where}"
                raise TimedOut(f"{asked} ({failure})", refusal) from failure
            await clock.sleep(wait_s)


def _raise_worst(codes: Codes) -> None:
    """Raise the first final error, or else the first; it carries the others."""
    errors = [broker_error(wire_error_of(code), what) for what, code in codes if code]
    if errors:
        causes = [each for each in errors if each.error.name != _NOT_ATTEMPTED] or errors
        worst = next((each for each in causes if not each.error.retriable), causes[0])
        worst.others = tuple(each for each in errors if each is not worst)
        raise worst
