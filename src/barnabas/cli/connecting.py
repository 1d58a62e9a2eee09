"""Commands that talk to a cluster: the client with the seams of this process, and a first connection.

    def main(arguments):
        return run_command(_parser(), arguments)      # its actions: run=connected(_list)

    async def _list(session, options): ...

Where nothing answers at all a command fails at once; what is asked after that may take `--timeout` seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.cli.failures import CommandFailed, nobody_answers, unknown_name
from barnabas.cli.options import bootstrap_of, timeout_s_of, wants_json
from barnabas.cli.output import Output
from barnabas.client.admin import Admin, TopicDescription
from barnabas.client.cluster import ClientConfig, parse_bootstrap
from barnabas.client.errors import UnknownTopic
from barnabas.core.clock import SystemClock
from barnabas.core.errors import BarnabasError
from barnabas.core.event_loop import new_event_loop
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.workers import ThreadWorkers

if TYPE_CHECKING:
    from barnabas.client.consumer import Consumer, ConsumerConfig
    from barnabas.client.producer import Producer, ProducerConfig

CLIENT_ID = "barnabas-cli"
_CONNECT_TIMEOUT_S = 5.0
_SETTLE_S = 5.0
_POLL_S = 0.01


class Session:
    """A command's way to the cluster; `connected` makes and ends it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.output = Output(as_json=wants_json(options))
        self.bootstrap = bootstrap_of(options)
        self.timeout_s = timeout_s_of(options)
        self.clock = SystemClock()
        self._workers = ThreadWorkers()
        self._seams = OsNetwork(self._workers), self.clock, SystemRandom()
        self.client_config = ClientConfig(
            client_id=CLIENT_ID,
            request_timeout_ms=int(self.timeout_s * 1000),
            connect_timeout_ms=int(min(_CONNECT_TIMEOUT_S, self.timeout_s) * 1000),
        )
        try:
            self._addresses = parse_bootstrap(self.bootstrap)
        except ValueError as error:
            raise CommandFailed(f"--bootstrap: {error}") from error
        self.admin = Admin(*self._seams, self._addresses, self.client_config)

    def producer(self, config: ProducerConfig) -> Producer:
        """A producer of this cluster, to be used as an async context manager."""
        from barnabas.client.producer import Producer

        return Producer(*self._seams, self._addresses, config)

    def consumer(self, config: ConsumerConfig) -> Consumer:
        """A consumer of this cluster, to be used as an async context manager."""
        from barnabas.client.consumer import Consumer

        return Consumer(*self._seams, self._addresses, config)

    async def topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Topics that must be there; one that is not fails with the nearest names."""
        wanted = list(dict.fromkeys(names))
        try:
            found = await self.admin.describe_topics(wanted)
        except UnknownTopic:
            known = await self.admin.list_topics(with_internal=True)
            for name in wanted:
                if name not in known:
                    raise unknown_name("topic", name, known, "barnabas topic list") from None
            raise
        return {name: found[name] for name in wanted}

    async def topic(self, name: str) -> TopicDescription:
        """A topic that must be there."""
        return (await self.topics([name]))[name]

    async def check_broker(self, node_id: int) -> None:
        """Fail unless that broker is there."""
        there = [broker.node_id for broker in (await self.admin.describe_cluster()).brokers]
        if node_id not in there:
            raise CommandFailed(
                f"there is no broker {node_id}", f"these are there: {', '.join(map(str, sorted(there)))}"
            )

    async def settled(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait a while until a change that was made is known to brokers, so that the next command sees it."""
        deadline = self.clock.monotonic() + min(_SETTLE_S, self.timeout_s)
        while not await holds() and self.clock.monotonic() < deadline:
            await self.clock.sleep(_POLL_S)

    async def has_topic(self, name: str, partitions: int = 1) -> bool:
        """Whether there is such a topic, with so many partitions at least, and all have leaders."""
        try:
            topic = (await self.admin.describe_topics([name]))[name]
        except UnknownTopic:
            return False
        return len(topic.partitions) >= partitions and all(each.leader >= 0 for each in topic.partitions)

    async def connect(self) -> None:
        """Make the first connection."""
        try:
            await self.admin.cluster.any_connection()
        except BarnabasError as error:
            raise nobody_answers(self.bootstrap, error) from error

    async def close(self) -> None:
        """Let go of everything."""
        await self.admin.close()
        self._workers.close()


Work = Callable[[Session, argparse.Namespace], Awaitable[int | None]]


def connected(work: Work) -> Callable[[argparse.Namespace], int | None]:
    """The same work as a plain function of the options, which connects first and lets go at the end."""

    async def whole(options: argparse.Namespace) -> int | None:
        session = Session(options)
        try:
            await session.connect()
            return await work(session, options)
        finally:
            await session.close()

    def run(options: argparse.Namespace) -> int | None:
        # what the client tries again by itself is no news here; what it gives up is raised
        logging.getLogger("barnabas").addHandler(logging.NullHandler())
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(whole(options))

    return run
