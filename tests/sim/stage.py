"""What tests of the simulator's parts stand on: a loop in virtual time, with a trace and a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from barnabas.sim.chance import stream
from barnabas.sim.clock import SimClock
from barnabas.sim.history import History
from barnabas.sim.loop import VirtualLoop
from barnabas.sim.machine import Machine
from barnabas.sim.network import SimNetwork
from barnabas.sim.process import Process, own_task, owner_of
from barnabas.sim.scenario import MachinePlan
from barnabas.sim.trace import Trace

T = TypeVar("T")


class Stage:
    """One of each."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.seed = seed
        self.lines: list[str] = []
        self.trace = Trace(loop, self.lines.append)
        self.history = History()
        self.network = SimNetwork(stream(seed, "network"), self.trace)
        self.clock = SimClock(loop)
        self.broken: list[str] = []

    def process(self, name: str) -> Process:
        return Process(self.loop, self.network, name, self.clock, stream(self.seed, name))

    def machine(self, plan: MachinePlan | None = None, **settings: str) -> Machine:
        """A node's machine; underscores in the names of settings stand for dots."""
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        return Machine(
            self.loop,
            self.network,
            plan or MachinePlan(),
            seed=self.seed,
            settings=dotted,
            history=self.history,
            trace=self.trace,
            broken=self.broken.append,
        )


def on_stage(scene: Callable[[Stage], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    """Run a scene in virtual time."""

    def new_loop() -> VirtualLoop:
        loop = VirtualLoop()
        loop.on_task, loop.owner_of = own_task, owner_of
        return loop

    async def main() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return await scene(Stage(loop, seed))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main())
