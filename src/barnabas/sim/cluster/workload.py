"""The clients of a simulated cluster: admins that change and read the metadata, and the last look at it all.

An admin asks a broker for one thing at a time, each time another broker as chance has it, and tells the
history what it asked and what it was answered. An error that leaves open whether the change was made (a lost
connection, a timeout, NOT_CONTROLLER) is left open: nothing is asked again. When the faults have ended, a
judge asks every broker for a change until it is made, and looks until every broker shows the whole cluster.
Then there is a drill (drill.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol

from barnabas.client.admin import Admin, ConfigChange, ConfigSource, NewPartitions, NewTopic, ResourceType
from barnabas.client.errors import BrokerError
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.sim.chance import between, happens, pick
from barnabas.sim.cluster.events import (
    DONE,
    OPEN,
    Answered,
    Asked,
    Calm,
    ConfigRead,
    MetadataRead,
    ProducerIdGiven,
    TopicRead,
)
from barnabas.sim.cluster.plan import PORT, host_of
from barnabas.sim.history import ClientKilled, Finished
from barnabas.sim.machine import Machine
from barnabas.sim.workload.client import CLIENT, Client, Seen, World

SETTING = "retention.ms"
PAUSE_S = 0.3
GO_ON_S = 5.0  # how long admins go on after the faults
SETTLE_S = 60.0  # how long the judge tries at most
REPLACED_S = (0.0, 2.0)
SHARED_TOPICS = 4
BURST = 3
# with these the change may have been made, or may still be
LEFT_OPEN = ("NOT_CONTROLLER", "REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR")
# of these a topic of so many partitions needs a metadata transaction
MANY = 24

Work = Callable[[Client], Coroutine[Any, Any, None]]


def addresses(world: World) -> list[str]:
    """Where the brokers are."""
    assert world.scenario.cluster is not None
    return [f"{host_of(node)}:{PORT}" for node in world.scenario.cluster.brokers]


class Numbers:
    """What all admins of a simulation count together."""

    def __init__(self) -> None:
        self.changes = count(1)
        self.values = count(1_000_000)


class Brokers:
    """One client's ways to the brokers: to each one of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._admins: dict[str, Admin] = {}

    async def at(self, address: str) -> Admin:
        """An admin that asks this broker, and knows no other."""
        admin = self._admins.get(address)
        if admin is not None and admin.cluster.metadata.brokers:
            await admin.close()
            admin = None
        if admin is None:
            network, clock, random, _ = self._client.seams
            admin = self._admins[address] = Admin(network, clock, random, address, CLIENT)
        return admin

    async def __aenter__(self) -> Brokers:
        return self

    async def __aexit__(self, *_: object) -> None:
        for admin in self._admins.values():
            await admin.close()


class Admins:
    """What admins do; one for each client."""

    def __init__(self, client: Client, numbers: Numbers, brokers: Brokers) -> None:
        self._client = client
        self._numbers = numbers
        self._brokers = brokers
        self._addresses = addresses(client.world)
        self._names = [f"shared-{number}" for number in range(SHARED_TOPICS)]
        self._made = 0

    async def run(self) -> None:
        """Change and read the metadata, until asked to stop."""
        client, random = self._client, self._client.random
        kinds = [self._create] * 5 + [self._delete, self._alter, self._alter, self._grow]
        kinds += [self._look, self._look_at_config, self._take_producer_id, self._race, self._burst]
        while not client.stopping.is_set():
            address = pick(random, self._addresses)
            await client.go_on("administering", partial(pick(random, kinds), address))
            await client.pause(PAUSE_S)

    async def change(
        self, address: str, what: str, topic: str, value: str, step: Callable[[Admin], Awaitable[str]]
    ) -> bool:
        """Ask for a change, and whether it was made, as far as is known."""
        client, number = self._client, next(self._numbers.changes)
        client.history.add(Asked(client.now, number, client.name, address, what, topic, value))
        error, topic_id, may_be_of_another = OPEN, "", False
        try:
            admin = await self._brokers.at(address)
            topic_id = await step(admin)
            error, may_be_of_another = DONE, bool(admin.cluster.metadata.brokers)
        except BrokerError as failure:
            error = OPEN if failure.error.name in LEFT_OPEN else failure.error.name
        except BarnabasError:
            pass  # no answer
        client.history.add(Answered(client.now, number, error, topic_id, may_be_of_another))
        return error == DONE

    async def create(self, address: str, name: str, partitions: int) -> bool:
        async def step(admin: Admin) -> str:
            (made,) = await admin.create_topics([NewTopic(name, partitions, 1)])
            return made.topic_id.hex()

        return await self.change(address, "create", name, str(partitions), step)

    async def _create(self, address: str) -> None:
        random = self._client.random
        name = pick(random, self._names)
        if happens(random, 0.5):
            self._made += 1
            name = f"{self._client.name}-{self._made}"
            self._names.append(name)
        await self.create(address, name, pick(random, (1, 1, 2, 3, MANY)))

    async def _race(self, address: str) -> None:
        """Create a topic twice at once, at one broker or at two: one of them is told that it exists."""
        name = f"{self._client.name}-race-{next(self._numbers.values)}"
        self._names.append(name)
        other = pick(self._client.random, (address, *self._addresses))
        await asyncio.gather(self.create(address, name, 1), self.create(other, name, 1))

    async def _burst(self, address: str) -> None:
        """Ask for several changes at once, so that some are decided while others are not committed."""
        name = pick(self._client.random, self._names)
        fresh = [f"{self._client.name}-burst-{next(self._numbers.values)}" for _ in range(BURST)]
        creating = [self.create(address, each, 1) for each in fresh]
        await asyncio.gather(self._alter(address), *creating, self.create(address, name, 1))
        self._names += fresh

    async def _delete(self, address: str) -> None:
        name = pick(self._client.random, self._names)

        async def step(admin: Admin) -> str:
            await admin.delete_topics([name])
            return ""

        await self.change(address, "delete", name, "", step)

    async def _grow(self, address: str) -> None:
        name, total = pick(self._client.random, self._names), 2 + self._client.random.below(6)

        async def step(admin: Admin) -> str:
            await admin.create_partitions({name: NewPartitions(total)})
            return ""

        await self.change(address, "partitions", name, str(total), step)

    async def _alter(self, address: str) -> None:
        name, value = pick(self._client.random, self._names), str(next(self._numbers.values))

        async def step(admin: Admin) -> str:
            await admin.alter_configs(ResourceType.TOPIC, name, [ConfigChange(SETTING, value)])
            return ""

        await self.change(address, "config", name, value, step)

    async def _look(self, address: str) -> None:
        await look(self._client, await self._brokers.at(address), address)

    async def _look_at_config(self, address: str) -> None:
        client, name = self._client, pick(self._client.random, self._names)
        asked_at = client.now
        found = await (await self._brokers.at(address)).describe_configs(ResourceType.TOPIC, name, [SETTING])
        told = found[SETTING]
        value = told.value or "" if told.source is ConfigSource.TOPIC else ""
        client.history.add(ConfigRead(client.now, asked_at, client.name, address, name, value))

    async def _take_producer_id(self, address: str) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = await (await self._brokers.at(address)).cluster.ask(request, InitProducerIdResponse)
        if not answer.error_code:
            given = ProducerIdGiven(self._client.now, address, answer.producer_id, answer.producer_epoch)
            self._client.history.add(given)


async def look(client: Client, admin: Admin, address: str) -> MetadataRead:
    """What a broker tells of the cluster and of all topics."""
    asked_at = client.now
    request = MetadataRequest(
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    answer = await admin.cluster.ask(request, MetadataResponse)
    topics = tuple(
        TopicRead(each.name or "", each.topic_id.hex(), len(each.partitions))
        for each in answer.topics
        if each.error_code != wire_error("UNKNOWN_TOPIC_OR_PARTITION").code
    )
    brokers = tuple(sorted(each.node_id for each in answer.brokers))
    read = MetadataRead(client.now, asked_at, client.name, address, brokers, topics)
    client.history.add(read)
    return read


async def administer(client: Client, numbers: Numbers) -> None:
    async with Brokers(client) as brokers:
        await Admins(client, numbers, brokers).run()


async def judge(client: Client, numbers: Numbers) -> None:
    """See everything come back, at every broker at once; gives up after a while."""
    async with Brokers(client) as brokers:
        admins = Admins(client, numbers, brokers)
        waiting = [
            asyncio.ensure_future(_see_back(client, brokers, admins, each))
            for each in addresses(client.world)
        ]
        await asyncio.wait(waiting, timeout=SETTLE_S)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for each in waiting:
            if not each.cancelled():
                each.result()


async def _see_back(client: Client, brokers: Brokers, admins: Admins, address: str) -> None:
    assert client.world.scenario.cluster is not None
    wanted = client.world.scenario.cluster.brokers
    client.history.add(Calm(client.now, "began", address))
    for attempt in count(1):
        if await admins.create(address, f"last-{address.partition(':')[0]}-{attempt}", 1):
            break
        await client.pause(PAUSE_S)
    client.history.add(Calm(client.now, "answered", address))
    shown: list[tuple[int, ...]] = []

    async def step() -> None:
        shown.append((await look(client, await brokers.at(address), address)).brokers)

    while not shown or shown[-1] != wanted:
        await client.go_on("looking", step)
        await client.pause(PAUSE_S)
    client.history.add(Calm(client.now, "whole", address))


class _Running(NamedTuple):
    client: Client
    work: Work
    task: asyncio.Task[None]


class ClusterWorld(World, Protocol):
    """What the workload is given: besides what all are given, the machines, for the drill."""

    @property
    def machines(self) -> Sequence[Machine]: ...


async def run_cluster(world: ClusterWorld) -> None:
    """The whole workload: return when all is done."""
    await _Workload(world).run()


class _Workload:
    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._machines = world.machines
        self._stopping = asyncio.Event()
        self._numbers = Numbers()
        self._started = 0
        self._running: dict[str, _Running] = {}

    async def run(self) -> None:
        world, plan = self._world, self._world.scenario.cluster
        assert plan is not None
        for number in range(plan.admins):
            self._start(f"admin-{number}", partial(administer, numbers=self._numbers))
        if plan.has_operator:
            from barnabas.sim.cluster.operator import operate

            self._start("operator", operate)
        killing = asyncio.get_running_loop().create_task(self._kill_now_and_then())
        await self._until_faults_end()
        self._start("judge", partial(judge, numbers=self._numbers))
        await asyncio.sleep(GO_ON_S)
        killing.cancel()
        self._stopping.set()
        await self._end()
        from barnabas.sim.cluster.drill import drill

        self._start("driller", partial(drill, machines=self._machines))
        await self._end()
        await asyncio.sleep(GO_ON_S)
        for running in self._running.values():
            await running.client.process.kill()
        world.history.add(Finished(asyncio.get_running_loop().time()))

    async def _end(self) -> None:
        """Wait until all clients have done what they were asked to."""
        await asyncio.wait([each.task for each in self._running.values()])
        self._raise_failures()

    def _start(self, role: str, work: Work) -> None:
        self._started += 1
        process = self._world.process(f"{role}.{self._started}")
        client = Client(self._world, process, Seen(), self._stopping)
        self._running[role] = _Running(client, work, process.spawn(work(client)))

    async def _kill_now_and_then(self) -> None:
        random, mean_s = self._world.random, self._world.scenario.client_kill_s
        while True:
            await asyncio.sleep(mean_s * 2 * random.uniform())
            role = pick(random, [each for each in self._running if each != "judge"])
            running = self._running.pop(role)
            self._world.history.add(ClientKilled(asyncio.get_running_loop().time(), running.client.name))
            await running.client.process.kill()
            await asyncio.sleep(between(random, *REPLACED_S))
            self._start(role, running.work)

    async def _until_faults_end(self) -> None:
        """Wait; a client that ends before it is asked to has failed, and says why."""
        ended = asyncio.get_running_loop().create_task(_wait(self._world.faults_ended))
        while not ended.done():
            tasks = [running.task for running in self._running.values()]
            await asyncio.wait((ended, *tasks), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failures()

    def _raise_failures(self) -> None:
        for running in self._running.values():
            if running.task.done() and not running.task.cancelled():
                running.task.result()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
