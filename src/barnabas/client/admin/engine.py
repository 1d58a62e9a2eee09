"""How an admin sends requests: to any broker, a certain one, the controller, or the leaders of partitions.

A request that only reads (`is_safe`) is repeated if its connection is lost. So is a change that does no harm
when it is carried out twice (`_change`), as in Kafka's own client. Any other change is not repeated, since it
may have been carried out: the caller gets the error. An error of the second attempt may be caused by the
first one; if another client may have caused it as well, it is raised with that remark (`unclear`).

Leaders and brokers are looked up anew for each attempt: one that has died is not in the next metadata. If a
broker answers that it is not the controller, it has done nothing, and the controller is asked; only clusters
with ZooKeeper ever answer that.

If a request for many resources fails for some of them, it is carried out for the others; then the first error
is raised, with the others in its `others`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from barnabas.client.cluster import ClientConfig, Cluster
from barnabas.client.errors import (
    BrokerError,
    BrokerNotReachable,
    NoSuchPartition,
    TimedOut,
    broker_error,
    wire_error_of,
)
from barnabas.client.metadata import NO_NODE, TopicPartition
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.core.network import Address, CannotConnect, ConnectionLost, Network
from barnabas.core.random import Random
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema import EVERY_VERSION, NO_UUID, Message

logger = logging.getLogger("barnabas.client")

M = TypeVar("M", bound=Message)
T = TypeVar("T")

_NOT_CONTROLLER = "NOT_CONTROLLER"


class Engine:
    """The base of the parts of an admin."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        random: Random,
        bootstrap: str | Sequence[Address],
        config: ClientConfig | None = None,
    ) -> None:
        config = (config or ClientConfig())._replace(allow_auto_topic_creation=False)
        self.cluster = Cluster(network, clock, random, bootstrap, config)
        self._clock = clock
        self._timeout_ms = config.request_timeout_ms

    async def close(self) -> None:
        """Close all connections. It may be called repeatedly."""
        await self.cluster.close()

    async def _ask(
        self,
        request: Message,
        response: type[M],
        *,
        is_safe: bool,
        node_id: int | None = None,
        at_most: int = EVERY_VERSION,
    ) -> M:
        """Send a request to a broker, or to any, until it can be reached."""
        deadline = self._clock.monotonic() + self._timeout_ms / 1000
        failures = 0
        while True:
            try:
                return await self.cluster.ask(request, response, node_id=node_id, at_most=at_most)
            except (BrokerNotReachable, ConnectionLost, TimedOut) as error:
                was_sent = not isinstance(error, (BrokerNotReachable, CannotConnect))
                if (was_sent and not is_safe) or self._clock.monotonic() >= deadline:
                    raise
                failures += 1
                await self._clock.sleep(self.cluster.backoff.seconds(failures))

    async def _change(
        self, request: Message, response: type[M], errors: Callable[[M], Iterable[int]]
    ) -> tuple[M, bool]:
        """The response to a change that may be repeated, and whether it was: then an error in the response
        may be caused by an earlier attempt that succeeded."""
        deadline = self._clock.monotonic() + self._timeout_ms / 1000
        failures = 0
        while True:
            try:
                answer = await self._ask_controller(request, response, errors, is_safe=False)
            except (ConnectionLost, TimedOut) as error:
                if isinstance(error, BrokerNotReachable) or self._clock.monotonic() >= deadline:
                    raise
                failures += 1
                logger.info("%s is asked for again: %s", type(request).__name__, error)
                await self._clock.sleep(self.cluster.backoff.seconds(failures))
            else:
                return answer, failures > 0

    async def _ask_controller(
        self, request: Message, response: type[M], errors: Callable[[M], Iterable[int]], *, is_safe: bool
    ) -> M:
        """Send a request to any broker, which forwards it to the controller; a broker that does not names the
        controller."""
        answer = await self._ask(request, response, is_safe=is_safe)
        codes = [wire_error_of(code).name for code in errors(answer)]
        if _NOT_CONTROLLER not in codes:
            return answer
        await self.cluster.refresh()
        controller = self.cluster.metadata.controller_id
        return await self._ask(
            request, response, is_safe=is_safe, node_id=None if controller == NO_NODE else controller
        )

    async def _ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[
            [int, list[TopicPartition]], Coroutine[Any, Any, Mapping[TopicPartition, T | BrokerError]]
        ],
    ) -> dict[TopicPartition, T]:
        """Send a request to each partition's leader, again if leaders have moved or died meanwhile. `ask`
        sends it once, and raises errors that a retry does not cure."""
        deadline = self._clock.monotonic() + self._timeout_ms / 1000
        wanted = list(dict.fromkeys(partitions))
        found: dict[TopicPartition, T] = {}
        attempts = 0
        while True:
            missing = [each for each in wanted if each not in found]
            failures: dict[TopicPartition, BrokerError] = {}
            unreached: BarnabasError | None = None
            try:
                by_leader = await self._by_leader(missing)
            except BrokerNotReachable as error:
                by_leader, unreached = {}, error
            rounds = [ask(node, asked) for node, asked in by_leader.items()]
            for answer in await asyncio.gather(*rounds, return_exceptions=True):
                if isinstance(answer, (BrokerNotReachable, CannotConnect)):
                    unreached = answer
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    failures.update({at: one for at, one in answer.items() if isinstance(one, BrokerError)})
                    found.update({at: one for at, one in answer.items() if not isinstance(one, BrokerError)})
            if all(each in found for each in wanted):
                return {each: found[each] for each in wanted}
            may_help = all(failure.error.retriable for failure in failures.values())
            if not may_help or self._clock.monotonic() >= deadline:
                raise_first([failures[each] for each in missing if each in failures])
                raise unreached or TimedOut(f"no answer about {', '.join(map(str, missing))}")
            attempts += 1
            await self._clock.sleep(self.cluster.backoff.seconds(attempts))

    async def _ask_leader(
        self, node_id: int, request: Message, response: type[M], *, is_safe: bool = True
    ) -> M:
        """Send a request to a leader once. BrokerNotReachable if another leader may be asked: nothing was
        done, or repeating it does no harm."""
        try:
            return await self.cluster.ask(request, response, node_id=node_id)
        except (ConnectionLost, TimedOut) as error:
            if is_safe:
                raise BrokerNotReachable(f"broker {node_id} does not answer: {error}") from error
            raise

    async def _by_leader(self, partitions: Sequence[TopicPartition]) -> dict[int, list[TopicPartition]]:
        topics = await self._metadata(dict.fromkeys(partition.topic for partition in partitions))
        leaders: dict[TopicPartition, int] = {}
        for topic in topics.topics:
            check(topic.error_code, f"topic {topic.name!r}")
            for each in topic.partitions:
                leaders[TopicPartition(topic.name or "", each.partition_index)] = each.leader_id
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            if partition not in leaders:
                raise NoSuchPartition(f"{partition.topic} has no partition {partition.partition}")
            if leaders[partition] == NO_NODE:
                raise BrokerNotReachable(f"{partition} has no leader now; are its brokers down?")
            by_leader.setdefault(leaders[partition], []).append(partition)
        return by_leader

    async def _all_brokers(self) -> list[int]:
        return sorted(each.node_id for each in (await self._metadata([])).brokers)

    async def _ask_brokers(
        self,
        request: Message,
        response: type[M],
        error: Callable[[M], BrokerError | None],
        *,
        from_version: int = 0,
    ) -> dict[int, M]:
        """Send a request to every broker, again after a retriable error, and to all of them again if one has
        gone, since another broker may have its data by now. NotSpoken if a broker only supports versions
        older than `from_version`, which would silently leave things out."""
        deadline = self._clock.monotonic() + self._timeout_ms / 1000

        async def ask(node_id: int) -> M:
            attempts = 0
            while True:
                await self._check_version(node_id, type(request), from_version)
                answer = await self._ask_leader(node_id, request, response)
                failure = error(answer)
                if failure is None:
                    return answer
                if not failure.error.retriable or self._clock.monotonic() >= deadline:
                    raise failure
                attempts += 1
                await self._clock.sleep(self.cluster.backoff.seconds(attempts))

        return await self._of_all_brokers(ask, deadline)

    async def _of_all_brokers(
        self, ask: Callable[[int], Coroutine[Any, Any, T]], deadline: float
    ) -> dict[int, T]:
        """The answer of each broker; all are asked again if one cannot be reached."""
        attempts = 0
        while True:
            nodes = await self._all_brokers()
            answers = await asyncio.gather(*map(ask, nodes), return_exceptions=True)
            failures = [each for each in answers if isinstance(each, BaseException)]
            if not failures:
                return dict(zip(nodes, answers, strict=True))  # type: ignore[arg-type]
            lasting = [each for each in failures if not isinstance(each, (BrokerNotReachable, CannotConnect))]
            if lasting or self._clock.monotonic() >= deadline:
                raise (lasting or failures)[0]
            attempts += 1
            await self._clock.sleep(self.cluster.backoff.seconds(attempts))

    async def _check_version(self, node_id: int, request: type[Message], first: int) -> None:
        """NotSpoken if the broker's newest version of a request is older than that."""
        if first:
            connection = await self.cluster.connect(node_id)
            if connection.versions.choose(request) < first:
                name = request.__name__.removesuffix("Request")
                raise NotSpoken(f"broker {node_id} is too old for this: it needs {name} {first}")

    async def _metadata(
        self, names: Iterable[str] | None, topic_ids: Iterable[bytes] = ()
    ) -> MetadataResponse:
        """Metadata of these topics; of all topics if `names` is None and no ids are given."""
        wanted = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in topic_ids]
        if names is not None:
            wanted += [MetadataRequestTopic(name=name, topic_id=NO_UUID) for name in names]
        request = MetadataRequest(
            topics=None if names is None and not wanted else wanted,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return await self._ask(request, MetadataResponse, is_safe=True)


def error_of(error_code: int, what: str, said: str | None = None, done: str = "") -> BrokerError | None:
    """The exception for a code; None for 0, and for the error named `done`."""
    if not error_code or wire_error_of(error_code).name == done:
        return None
    return broker_error(wire_error_of(error_code), what, said)


def unclear(said: str | None, *, is_repeated: bool) -> str | None:
    """The broker's message, with the remark that an earlier attempt may have caused the error."""
    if not is_repeated:
        return said
    note = "the request was sent again, as its first answer was lost; the first attempt may have done it"
    return f"{said}; {note}" if said else note


def check(error_code: int, what: str, said: str | None = None) -> None:
    """Raise the exception for a code, if it is an error."""
    error = error_of(error_code, what, said)
    if error is not None:
        raise error


def raise_first(errors: Iterable[BrokerError | None]) -> None:
    """Raise the first error, if there is any; it carries the others."""
    found = [error for error in errors if error is not None]
    if found:
        found[0].others += tuple(found[1:])
        raise found[0]
