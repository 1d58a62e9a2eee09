"""How an admin asks: any broker, a certain one, the controller, or the leaders of partitions.

What only looks (`is_safe`) is asked again when a connection is lost on the way; what changes something is
not, since it may have been done: that error is the caller's to judge. A broker that says that it is not the
controller has done nothing, so then the controller is asked; only clusters with ZooKeeper ever say so.

Of a request for many things, those that can be done are done; then the first error is raised, with the
others in its `others`.
"""

from __future__ import annotations

import asyncio
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
from barnabas.core.network import Address, ConnectionLost, Network
from barnabas.core.random import Random
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema import EVERY_VERSION, NO_UUID, Message

M = TypeVar("M", bound=Message)
T = TypeVar("T")

_NOT_CONTROLLER = "NOT_CONTROLLER"


class Engine:
    """What the parts of an admin stand on."""

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
        """Let go of everything. Harmless when repeated."""
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
        """Ask that broker, or any."""
        deadline = self._clock.monotonic() + self._timeout_ms / 1000
        failures = 0
        while True:
            try:
                return await self.cluster.ask(request, response, node_id=node_id, at_most=at_most)
            except (BrokerNotReachable, ConnectionLost, TimedOut) as error:
                was_sent = not isinstance(error, BrokerNotReachable)
                if (was_sent and not is_safe) or self._clock.monotonic() >= deadline:
                    raise
                failures += 1
                await self._clock.sleep(self.cluster.backoff.seconds(failures))

    async def _ask_controller(
        self, request: Message, response: type[M], errors: Callable[[M], Iterable[int]], *, is_safe: bool
    ) -> M:
        """Ask any broker, which passes it on; one that does not names the controller."""
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
        """Ask each partition's leader; where leaders have moved meanwhile, ask again."""
        deadline = self._clock.monotonic() + self._timeout_ms / 1000
        wanted = still_open = list(dict.fromkeys(partitions))
        found: dict[TopicPartition, T] = {}
        attempts = 0
        while True:
            by_leader = await self._by_leader(still_open)
            answers = await asyncio.gather(*(ask(node, asked) for node, asked in by_leader.items()))
            failures: dict[TopicPartition, BrokerError] = {}
            for answer in answers:
                for partition, result in answer.items():
                    if isinstance(result, BrokerError):
                        failures[partition] = result
                    else:
                        found[partition] = result
            still_open = [each for each in still_open if each in failures]
            if not still_open:
                return {each: found[each] for each in wanted}
            may_help = all(failure.error.retriable for failure in failures.values())
            if not may_help or self._clock.monotonic() >= deadline:
                raise_first([failures[each] for each in still_open])
            attempts += 1
            await self._clock.sleep(self.cluster.backoff.seconds(attempts))

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
        """Ask every broker, again while one says that trying again helps; what older versions of the request
        would leave out without a word is a NotSpoken."""

        async def ask(node_id: int) -> M:
            deadline = self._clock.monotonic() + self._timeout_ms / 1000
            attempts = 0
            while True:
                await self._check_version(node_id, type(request), from_version)
                answer = await self._ask(request, response, is_safe=True, node_id=node_id)
                failure = error(answer)
                if failure is None:
                    return answer
                if not failure.error.retriable or self._clock.monotonic() >= deadline:
                    raise failure
                attempts += 1
                await self._clock.sleep(self.cluster.backoff.seconds(attempts))

        nodes = await self._all_brokers()
        return dict(zip(nodes, await asyncio.gather(*map(ask, nodes)), strict=True))

    async def _check_version(self, node_id: int, request: type[Message], first: int) -> None:
        """NotSpoken where the broker's newest version of a request is older than that."""
        if first:
            connection = await self.cluster.connect(node_id)
            if connection.versions.choose(request) < first:
                name = request.__name__.removesuffix("Request")
                raise NotSpoken(f"broker {node_id} is too old for this: it needs {name} {first}")

    async def _metadata(
        self, names: Iterable[str] | None, topic_ids: Iterable[bytes] = ()
    ) -> MetadataResponse:
        """Metadata of these topics; of all where `names` is None and no ids are given."""
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


def error_of(error_code: int, what: str, said: str | None = None) -> BrokerError | None:
    """The exception for a code; None for 0."""
    return broker_error(wire_error_of(error_code), what, said) if error_code else None


def check(error_code: int, what: str, said: str | None = None) -> None:
    """Raise what a code stands for, if it is an error."""
    error = error_of(error_code, what, said)
    if error is not None:
        raise error


def raise_first(errors: Iterable[BrokerError | None]) -> None:
    """Raise the first error there is; it carries the others."""
    found = [error for error in errors if error is not None]
    if found:
        found[0].others += tuple(found[1:])
        raise found[0]
