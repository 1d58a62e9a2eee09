"""What directed simulations have in common: a script strikes and asks in a set order, where seeds would
hardly ever do so.

Whole nodes with replicated partitions; no fault but those of the script. The logs of all nodes are looked at
every `sample_s` of virtual time. What a script may do besides stands in the stage of its kind
(replication/directed.py, coordination/directed.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from barnabas.client.admin import Admin
from barnabas.core.random import SeededRandom
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.cluster.nemesis import both
from barnabas.sim.cluster.plan import ClusterPlan, machine_plan, metadata_settings
from barnabas.sim.history import History
from barnabas.sim.machine import Machine
from barnabas.sim.nemesis import Nemesis
from barnabas.sim.network import SimNetwork
from barnabas.sim.replication.plan import ReplicationPlan
from barnabas.sim.replication.simulate import SampledWorld
from barnabas.sim.replication.watch import ReplicationWatch
from barnabas.sim.scenario import Scenario, TopicPlan
from barnabas.sim.workload.client import CLIENT, Client, Seen
from barnabas.sim.world import Outcome, simulate_scenario

LOOK_S = 0.01
PATIENCE_S = 60.0


class Stage:
    """What any script may do, and what it sees."""

    sample_s = 0.2

    def __init__(self, client: Client, admin: Admin, world: SampledWorld, network: SimNetwork) -> None:
        self.client = client
        self.admin = admin
        self._world = world
        self._network = network
        self._machines = {machine.node: machine for machine in world.machines}

    async def open(self) -> None:
        """What comes before the script, when all nodes run."""

    async def close(self) -> None:
        """What comes after it, whatever came of it."""

    def machine(self, node: int) -> Machine:
        return self._machines[node]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait in virtual time."""
        for _ in range(int(PATIENCE_S / LOOK_S)):
            if holds():
                return
            await asyncio.sleep(LOOK_S)
        raise AssertionError("this never came")

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def cut(self, one: int, *others: int) -> None:
        """Deliver nothing between a node and others."""
        for link in self._links(one, others):
            self._network.hold(*link)

    def join(self, one: int, *others: int) -> None:
        for link in self._links(one, others):
            self._network.release(*link)

    def _links(self, one: int, others: Sequence[int]) -> list[tuple[str, str]]:
        return both([self.machine(one).host], [self.machine(each).host for each in others])


S = TypeVar("S", bound=Stage)


def scenario_of(
    kind: str,
    controllers: tuple[int, ...],
    brokers: tuple[int, ...],
    settings: Mapping[str, str],
    topics: tuple[TopicPlan, ...] = (),
    seed: int = 1,
) -> Scenario:
    """Nodes whose clocks do not drift, without faults, and with nobody who moves partitions unasked."""
    random = SeededRandom(1)
    plan = ClusterPlan(controllers, brokers, is_dynamic=True, admins=0)
    nodes = sorted({*controllers, *brokers})
    return Scenario(
        seed,
        PATIENCE_S,
        metadata_settings(random) | {"auto.leader.rebalance.enable": "false", **settings},
        tuple(machine_plan(random, plan, node)._replace(drift=0.0) for node in nodes),
        topics,
        (),
        readers=0,
        observers=0,
        client_kill_s=1e9,
        faults={},
        kind=kind,
        cluster=plan,
        replication=ReplicationPlan(is_within=True, movers=0),
    )


def run_script(
    scenario: Scenario,
    stage: type[S],
    script: Callable[[S], Awaitable[None]],
    watch: Callable[[History], ReplicationWatch],
    judge: Callable[[History], list[Violation]],
    on_line: Callable[[str], None] | None = None,
) -> Outcome:
    """A script on its stage, and what is said of it, or that the simulation itself broke."""
    networks: list[SimNetwork] = []

    class Idle(Nemesis):
        async def run(self) -> None:
            networks.append(self.network)

    async def work(world: SampledWorld) -> None:
        process = world.process("script")
        client = Client(world, process, Seen(), asyncio.Event())
        await process.spawn(play(client, world))
        await process.kill()

    async def play(client: Client, world: SampledWorld) -> None:
        async with Admin(*client.seams, CLIENT) as admin:
            scene = stage(client, admin, world, networks[0])
            await scene.until(lambda: all(machine.running is not None for machine in world.machines))
            sampling = asyncio.get_running_loop().create_task(_sample(world, scene))
            try:
                await scene.open()
                await script(scene)
            finally:
                await scene.close()
                sampling.cancel()
                await asyncio.gather(sampling, return_exceptions=True)

    return simulate_scenario(scenario, work, judge, on_line=on_line, nemesis=Idle, watch=watch)


async def _sample(world: SampledWorld, stage: Stage) -> None:
    while True:
        await asyncio.sleep(stage.sample_s)
        world.sample()
