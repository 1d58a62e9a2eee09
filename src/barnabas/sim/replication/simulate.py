"""Runs a seed of the kind "replication": the workload of the kind "log" under faults, transactions of single
partitions besides in some seeds, and then the drill."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from barnabas.sim.coordination.watch import CoordinationWatch
from barnabas.sim.machine import Machine
from barnabas.sim.replication.checkers import check_replication
from barnabas.sim.replication.drill import run_drill
from barnabas.sim.replication.nemesis import ReplicationNemesis
from barnabas.sim.replication.watch import ReplicationWatch
from barnabas.sim.replication.writers import draw_replication
from barnabas.sim.workload import run_workload
from barnabas.sim.workload.client import Client, Seen, World
from barnabas.sim.world import Outcome, simulate_scenario

SAMPLE_S = 1.0
LAST_S = 5.0  # until all replicas know what is committed
WRITTEN_S = 30.0  # until the last transactions are over, so that nothing is written any more


class SampledWorld(World, Protocol):
    """What the workload is given: besides what all are given, the watch's eyes, and the machines."""

    @property
    def machines(self) -> Sequence[Machine]: ...

    def sample(self) -> None: ...


def simulate_replication(
    seed: int, *, seconds: float | None = None, on_line: Callable[[str], None] | None = None
) -> Outcome:
    scenario = draw_replication(seed, seconds)
    watch = CoordinationWatch if scenario.coordination.writers else ReplicationWatch
    return simulate_scenario(
        scenario,
        run_and_drill,
        check_replication,
        on_line=on_line,
        nemesis=ReplicationNemesis,
        watch=lambda history: watch(history, scenario),
    )


async def run_replication(world: SampledWorld, last_s: float = LAST_S) -> None:
    """The workload of the scenario, while the logs of all nodes are looked at, and some seconds longer."""
    sampling = asyncio.get_running_loop().create_task(_sample(world))
    try:
        await run_workload(world)
        await asyncio.sleep(last_s)
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
    world.sample()


async def run_and_drill(world: SampledWorld) -> None:
    """The workload, and the drill."""
    await run_replication(world, WRITTEN_S if world.scenario.coordination.writers else LAST_S)
    process = world.process("driller")
    client = Client(world, process, Seen(), asyncio.Event())
    await process.spawn(run_drill(client, world.machines))
    await process.kill()


async def _sample(world: SampledWorld) -> None:
    while True:
        await asyncio.sleep(SAMPLE_S)
        world.sample()
