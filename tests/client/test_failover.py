"""The node that the client uses is killed, paused or cut off, and the client goes on with another one.

Nothing of it is an error that a user would see; what was acknowledged is there once and in order.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas.client.admin import (
    Admin,
    ConfigChange,
    CoordinatorType,
    ElectionType,
    NewTopic,
    ResourceType,
)
from barnabas.client.cluster import ClientConfig
from barnabas.client.consumer import ConsumerConfig, Reset
from barnabas.client.errors import BrokerError
from barnabas.client.offsets import LATEST
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.core.errors import BarnabasError
from barnabas.testing import Cluster
from tests.client.real import Clients, real
from tests.client.waiting import PATIENCE_S, until

BETWEEN = 100  # records acknowledged from one fault to the next
TOPIC, GROUP, PARTITIONS = "orders", "clerks", 6
# one that is paused or cut off answers nothing, and is left after that
QUICK = ClientConfig(request_timeout_ms=2_000, connect_timeout_ms=2_000)
READER = ConsumerConfig(reset=Reset.EARLIEST, client=QUICK)
COMMITTED = READER._replace(read_committed=True)

Fault = tuple[Callable[[Cluster, int], None], Callable[[Cluster, int], None]]
FAULTS: dict[str, Fault] = {
    "kill": (Cluster.kill, Cluster.restart),
    "pause": (Cluster.pause, Cluster.resume),
    "isolate": (Cluster.isolate, Cluster.heal),
    "stop": (Cluster.stop_node, Cluster.restart),
}


class Stream:
    """Numbers from 0 on that are written to a topic, and read, all the time."""

    def __init__(self, clients: Clients, topic: str) -> None:
        self._clients = clients
        self._topic = topic
        self.acknowledged = 0
        self.values: list[int] = []
        self._is_ending = False
        self._writing = asyncio.create_task(self._write())
        self._tasks = [self._writing, asyncio.create_task(self._read())]

    async def _write(self) -> None:
        config = ProducerConfig(client=QUICK)
        async with self._clients.producer(config) as producer:
            number = 0
            while not self._is_ending:
                sent = [await self._send(producer, number + each) for each in range(10)]
                await asyncio.gather(*sent)
                number += len(sent)
                self.acknowledged = number

    async def _send(self, producer: Producer, number: int) -> asyncio.Future[Any]:
        return await producer.send(self._topic, str(number).encode(), partition=0)

    async def _read(self) -> None:
        async with self._clients.consumer(READER) as consumer:
            consumer.assign([(self._topic, 0)])
            while not self._writing.done() or len(self.values) < self.acknowledged:
                self.values += [int(each.value or b"") for each in await consumer.poll(100)]

    async def goes_on(self) -> None:
        """Return when more has been acknowledged and read."""
        wanted = self.acknowledged + BETWEEN
        await self._until(lambda: self.acknowledged >= wanted and len(self.values) >= wanted)

    async def end(self) -> int:
        """How many were acknowledged."""
        self._is_ending = True
        await self._until(lambda: all(each.done() for each in self._tasks))
        return self.acknowledged

    async def _until(self, is_true: Callable[[], bool]) -> None:
        told = "{} acknowledged, {} read".format
        await until(is_true, self._tasks, lambda: told(self.acknowledged, len(self.values)))


async def beside(call: Callable[..., Any], *arguments: Any) -> Any:
    """Something of the cluster, which waits, while the clients go on."""
    return await asyncio.to_thread(call, *arguments)


@pytest.mark.parametrize("fault", FAULTS)
def test_producer_and_consumer_follow_the_leader(cluster: Cluster, fault: str) -> None:
    strike, recover = FAULTS[fault]

    async def scenario(clients: Clients) -> None:
        topic = await clients.topic("numbers", replicas=3)
        stream = Stream(clients, topic)
        for _ in range(2):
            await stream.goes_on()
            await beside(cluster.wait_until_in_sync)
            leader = await beside(cluster.leader_of, topic)
            await beside(strike, cluster, leader)
            await stream.goes_on()
            await beside(recover, cluster, leader)
        await stream.goes_on()
        count = await stream.end()
        assert stream.values == list(range(count))
        found = await clients.read(topic, count)
        assert [int(each.value or b"") for each in found] == list(range(count))

    real(cluster.bootstrap, scenario)


@contextmanager
def unless_done_before(name: str) -> Iterator[None]:
    """An error where a first attempt, which was not answered, has done it."""
    try:
        yield
    except BrokerError as error:
        if error.error.name != name or "the first attempt may have done it" not in str(error):
            raise


def admin_calls(admin: Admin) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Everything an admin does with leaders, coordinators, all brokers and the controller."""
    numbers = itertools.count()

    async def topics_come_and_go() -> None:
        name = f"new-{next(numbers)}"
        with unless_done_before("TOPIC_ALREADY_EXISTS"):
            await admin.create_topics([NewTopic(name, 1, 3)])
        with unless_done_before("INVALID_PARTITIONS"):
            await admin.create_partitions({name: 2})
        with unless_done_before("UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.delete_topics([name])

    async def groups_come_and_go() -> None:
        name = f"group-{next(numbers)}"
        await admin.alter_group_offsets(name, {(TOPIC, 0): 0})
        await admin.delete_groups([name])

    retention = [ConfigChange("retention.ms", "1000000")]
    return {
        "cluster": admin.describe_cluster,
        "topics": lambda: admin.describe_partitions([TOPIC]),
        "offsets": lambda: admin.list_offsets({(TOPIC, each): LATEST for each in range(PARTITIONS)}),
        "delete records": lambda: admin.delete_records({(TOPIC, 0): 0}),
        "producers": lambda: admin.describe_producers([(TOPIC, each) for each in range(PARTITIONS)]),
        "log directories": admin.describe_log_dirs,
        "quorum": admin.describe_quorum,
        "features": admin.describe_features,
        "groups": admin.list_groups,
        "group": lambda: admin.describe_groups([GROUP]),
        "group's offsets": lambda: admin.list_group_offsets(GROUP),
        "set offsets": lambda: admin.alter_group_offsets(GROUP, {(TOPIC, 0): 0}),
        "groups come and go": groups_come_and_go,
        "transactions": admin.list_transactions,
        "fence": lambda: admin.fence_producers(["one", "two"]),
        "coordinators": lambda: admin.find_coordinators(CoordinatorType.GROUP, map(str, range(10))),
        "topics come and go": topics_come_and_go,
        "change settings": lambda: admin.alter_configs(ResourceType.TOPIC, TOPIC, retention),
        "settings": lambda: admin.describe_configs(ResourceType.TOPIC, TOPIC),
        "reassignments": admin.list_reassignments,
        "elections": lambda: admin.elect_leaders(ElectionType.PREFERRED),
    }


def test_admin_goes_on_when_any_node_is_killed(cluster: Cluster) -> None:
    async def scenario(clients: Clients) -> None:
        await clients.topic(TOPIC, PARTITIONS, replicas=3)
        async with clients.admin() as admin:
            calls = admin_calls(admin)
            await admin.alter_group_offsets(GROUP, {(TOPIC, 0): 0})
            done = dict.fromkeys(calls, 0)
            is_ending = asyncio.Event()

            async def again_and_again(name: str) -> None:
                while not is_ending.is_set():
                    try:
                        await calls[name]()
                    except BarnabasError as error:
                        raise AssertionError(f"{name}: {error!r}") from error
                    done[name] += 1

            async def until_all_went_on(times: int) -> None:
                wanted = {name: count + times for name, count in done.items()}
                await until(
                    lambda: all(done[name] >= count for name, count in wanted.items()),
                    tasks,
                    lambda: {name: done[name] for name in wanted if done[name] < wanted[name]},
                )

            tasks = [asyncio.create_task(again_and_again(name)) for name in calls]
            for find in (cluster.controller, lambda: cluster.coordinator_of(GROUP)):
                await until_all_went_on(1)
                await beside(cluster.wait_until_in_sync)
                node = await beside(find)
                await beside(cluster.kill, node)
                await until_all_went_on(2)
                await beside(cluster.restart, node)
            is_ending.set()
            await until(lambda: all(each.done() for each in tasks), tasks, lambda: "not all calls end")

    real(cluster.bootstrap, scenario)


async def transact(clients: Clients, name: str, counts: dict[str, int], is_ending: asyncio.Event) -> None:
    """One transaction after another: a record to each partition, and an offset; no error may come."""
    async with clients.producer(ProducerConfig(transactional_id=name)) as producer:
        await producer.init_transactions()
        while not is_ending.is_set():
            number = counts[name]
            async with producer.transaction():
                for partition in range(PARTITIONS):
                    await producer.send(TOPIC, f"{name}:{number}".encode(), partition=partition)
                await producer.send_offsets({("in", 0): number + 1}, f"group of {name}")
            counts[name] += 1


async def read_committed(clients: Clients, partition: int, count: int) -> list[bytes | None]:
    """So many committed records of a partition, and whatever is there besides."""
    async with clients.consumer(COMMITTED) as consumer:
        consumer.assign([(TOPIC, partition)])
        values: list[bytes | None] = []
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while (some := await consumer.poll(100)) or len(values) < count:
            values += [each.value for each in some]
            assert asyncio.get_running_loop().time() < deadline, f"{len(values)} of {count} in {partition}"
        return values


def test_transactions_go_on_when_coordinators_and_leaders_are_killed(cluster: Cluster) -> None:
    names = ["one", "two", "three"]
    finders: list[Callable[[], int]] = [
        lambda: cluster.transaction_coordinator_of(names[0]),
        lambda: cluster.coordinator_of(f"group of {names[0]}"),
        lambda: cluster.leader_of(TOPIC),
    ]

    async def scenario(clients: Clients) -> None:
        await clients.topic(TOPIC, PARTITIONS, replicas=3)
        await clients.topic("in", replicas=3)
        counts = dict.fromkeys(names, 0)
        is_ending = asyncio.Event()
        tasks = [asyncio.create_task(transact(clients, name, counts, is_ending)) for name in names]

        async def until_all_went_on() -> None:
            wanted = {name: count + 2 for name, count in counts.items()}
            await until(
                lambda: all(counts[name] >= count for name, count in wanted.items()),
                tasks,
                lambda: f"{counts}, of {wanted}",
            )

        for find in finders:
            await until_all_went_on()
            await beside(cluster.wait_until_in_sync)
            node = await beside(find)
            await beside(cluster.kill, node)
            await until_all_went_on()
            await beside(cluster.restart, node)
        is_ending.set()
        await until(lambda: all(each.done() for each in tasks), tasks, lambda: "not all transactions end")

        expected = sorted(f"{name}:{each}".encode() for name in names for each in range(counts[name]))
        for partition in range(PARTITIONS):
            found = await read_committed(clients, partition, len(expected))
            assert sorted(each or b"" for each in found) == expected
        async with clients.admin() as admin:
            for name in names:
                offsets = await admin.list_group_offsets(f"group of {name}")
                assert [each.offset for each in offsets.values()] == [counts[name]]

    real(cluster.bootstrap, scenario)
