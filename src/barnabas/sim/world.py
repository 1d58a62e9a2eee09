"""A simulation from beginning to end: everything is built from the seed, run, ended, and judged.

Besides what the checkers find in the history, these are violations: an unexpected error (in a task, in the
log, out of a node), a process that cannot be killed, and time that runs out, or stands still, before the
workload is done. An error belongs to the process that made it. One that a node logs is excused only by the
disk of the node's own machine, and not where it is about a peer; one that a client logs is never excused.

The garbage collector is off meanwhile: it would run finalisers at times that differ between two runs of a
seed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from barnabas.core.errors import BarnabasError
from barnabas.core.random import SeededRandom
from barnabas.sim.chance import stream
from barnabas.sim.checkers import check_all
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.clock import SimClock
from barnabas.sim.cluster.events import DONE, DRILLS, Answered, Drill, Published, Reached, VoterChanged
from barnabas.sim.history import Acked, Event, Fault, History, NodeEvent, Read, without_node
from barnabas.sim.loop import Stalled, VirtualLoop
from barnabas.sim.machine import Machine, TwinWatch
from barnabas.sim.nemesis import Nemesis
from barnabas.sim.network import SimNetwork
from barnabas.sim.process import Process, current_process, own_task, owner_of, process_of, where
from barnabas.sim.replication.reached import reached
from barnabas.sim.scenario import CLUSTER, REPLICATED, REPLICATION, MachinePlan, Scenario, draw_scenario
from barnabas.sim.trace import Trace
from barnabas.sim.transaction_events import OutputRead, TxnWritten
from barnabas.sim.workload import run_workload

# how long the workload may take after the faults have ended, before it counts as hanging
PATIENCE_S = 600.0
MAX_HANGING = 20
# what these log as an error concerns a peer, and is a violation whatever the disk of the process did
_OF_PEERS = ("barnabas.client", "barnabas.transport")
# what these log as an error is no fault of the node where its controllers are on other machines
_OF_CONTROLLERS = ("barnabas.cluster",)

Workload = Callable[["World"], Awaitable[None]]
Check = Callable[[History], list[Violation]]
WatchFor = Callable[[History], TwinWatch]


class Stats(NamedTuple):
    """Some numbers about a simulation."""

    simulated_seconds: float
    faults: Counter[str]
    records_acknowledged: int  # of a cluster: changes of the metadata that were answered
    records_read: int  # of a cluster: images that nodes have published
    reached: Counter[str]


class Outcome(NamedTuple):
    """What a simulation came to."""

    seed: int
    trace_hash: str
    violations: list[Violation]
    stats: Stats
    history: History


class World:
    """What the clients of a simulation may know, and what it is made of.

    `bootstrap` lists the nodes of all machines. Where there are several machines, lines of the trace and
    violations name theirs by its host.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        scenario: Scenario,
        on_line: Callable[[str], None] | None = None,
        nemesis: type[Nemesis] = Nemesis,
        watch: WatchFor = lambda history: TwinWatch(),
    ) -> None:
        seed = scenario.seed
        self.scenario = scenario
        self.bootstrap = scenario.bootstrap
        self.clock = SimClock(loop)
        self.random: SeededRandom = stream(seed, "workload")
        self.faults_ended = asyncio.Event()
        self.trace = Trace(loop, on_line)
        self.history = History(self._observe)
        self._nemesis = nemesis
        self._watch = watch(self.history)
        self.violations: list[Violation] = []
        self._is_broken = asyncio.Event()
        self._loop = loop
        self._network = SimNetwork(stream(seed, "network"), self.trace)
        self._processes: list[Process] = []
        self.machines = tuple(map(self._machine, scenario.machines))
        self._by_node = {machine.node: machine for machine in self.machines}
        self._watch.watch(self.machines)

    def _machine(self, plan: MachinePlan) -> Machine:
        is_named = len(self.scenario.machines) > 1
        return Machine(
            self._loop,
            self._network,
            plan,
            seed=self.scenario.seed,
            settings=self.scenario.broker,
            history=self.history,
            trace=self.trace.at(plan.host) if is_named else self.trace,
            broken=(lambda what: self.broken(f"{plan.host}: {what}")) if is_named else self.broken,
            watch=self._watch,
        )

    def machine_of(self, process: Process | None) -> Machine | None:
        """The machine of the node that runs in a process; None: no node does."""
        return None if process is None or process.node is None else self._by_node[process.node]

    def process(self, name: str) -> Process:
        """A new process of a client, on a machine of its own."""
        random = stream(self.scenario.seed, f"client {name} {len(self._processes)}")
        process = Process(self._loop, self._network, name, self.clock, random)
        self._processes.append(process)
        return process

    def sample(self) -> None:
        """Look at what the watch does not hear of by itself."""
        self._watch.sample()

    def broken(self, what: str) -> None:
        """Something has happened that never should, whatever the faults: the run is over."""
        self.trace("world", what)
        self.violations.append(Violation("world", self._loop.time(), what))
        self._is_broken.set()

    async def run(self, workload: Workload) -> None:
        """Everything, until the workload is done or cannot be."""
        nodes = [self._loop.create_task(machine.run()) for machine in self.machines]
        nemesis = self._loop.create_task(self._strike())
        working = self._loop.create_task(_as_coroutine(workload(self)))
        ended = asyncio.gather(nemesis, working)
        limit_s = self.scenario.seconds + PATIENCE_S
        breaking = self._loop.create_task(_as_coroutine(self._is_broken.wait()))
        ends: list[asyncio.Future[Any]] = [*nodes, ended, breaking]
        await asyncio.wait(ends, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        for task, machine in (*zip(nodes, self.machines, strict=True), (nemesis, None), (working, None)):
            if task.done() and (error := task.exception()) is not None:
                self.failed(error, machine)
        if not self.violations and not working.done():
            self.broken(f"not done after {limit_s:.0f} s; what waits: {hanging(self._loop)}")
        for machine in self.machines:
            self._watch.ended(machine)
        for task in (working, nemesis, *nodes, breaking):
            task.cancel()
        await asyncio.gather(working, nemesis, *nodes, breaking, ended, return_exceptions=True)
        of_nodes = [process for machine in self.machines for process in machine.processes()]
        for process in (*self._processes, *of_nodes):
            await process.kill()

    async def _strike(self) -> None:
        await self._nemesis(self.scenario, self.machines, self._network, self.history).run()
        self.faults_ended.set()

    def failed(self, error: BaseException, machine: Machine | None = None) -> None:
        """An error has ended the supervisor of a machine, or something else of the simulation."""
        (machine or self).broken(f"{type(error).__name__}: {error} ({_origin(error)})")

    def _observe(self, event: Event) -> None:
        if isinstance(event, NodeEvent):
            self._by_node[event.node].trace("event", without_node(event))
        else:
            self.trace("event", repr(event))

    def stats(self) -> Stats:
        history = self.history
        return Stats(
            self._loop.time(),
            Counter(fault.kind for fault in history.of(Fault)),
            sum(1 for _ in history.of(Acked))
            + sum(len(each.marks) for each in history.of(TxnWritten))
            + sum(1 for each in history.of(Answered) if each.error == DONE),
            sum(1 for _ in history.of(Read))
            + sum(len(each.marks) for each in history.of(OutputRead))
            + sum(1 for _ in history.of(Published)),
            Counter(each.what for each in history.of(Reached))
            + Counter("voter changes" for each in history.of(VoterChanged) if not each.error)
            + Counter(f"{each.what} drills" for each in history.of(Drill) if each.what in DRILLS)
            + (reached(history) if self.scenario.replication is not None else Counter()),
        )

    # What nobody caught

    def on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler."""
        error = context.get("exception")
        said = f"{type(error).__name__}: {error} ({_origin(error)})" if error else ""
        of = context.get("future") or context.get("task")
        machine = None
        if isinstance(of, asyncio.Task):
            said += f" of {getattr(of.get_coro(), '__qualname__', '?')}"
            machine = self.machine_of(process_of(of))
        (machine or self).broken(f"{context.get('message')} {said}")


class _LogToTrace(logging.Handler):
    """What production code logs is part of the trace. These are violations: an exception that it did not
    expect, every error outside of a node's process, every error about a peer, and every error of a node whose
    disk has always been good."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = current_process()
        if process is not None and not process.is_alive:
            return  # the dead do not log
        said, machine = record.getMessage(), self._world.machine_of(process)
        scene = machine or self._world
        scene.trace("log", f"{record.name} {record.levelname} {said}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, BarnabasError):
            scene.broken(f"{said}: {type(error).__name__}: {error} ({_origin(error)})")
        elif record.levelno < logging.ERROR:
            return
        elif machine is None or record.name in _OF_PEERS:
            is_client = process is not None and machine is None
            scene.broken(f"{'a client' if is_client else record.name} says: {said}")
        elif record.name in _OF_CONTROLLERS and len(self._world.machines) > 1:
            return
        elif not machine.drive.has_failed:
            scene.broken(f"{record.name} says, with a good disk: {said}")


def simulate(
    seed: int,
    *,
    seconds: float | None = None,
    kind: str | None = None,
    on_line: Callable[[str], None] | None = None,
    workload: Workload | None = None,
    check: Check | None = None,
) -> Outcome:
    """Run a seed. Tests may give a scenario's clients and the judgement of what they saw themselves."""
    if kind == CLUSTER:
        from barnabas.sim.cluster.simulate import simulate_cluster

        return simulate_cluster(seed, seconds=seconds, on_line=on_line)
    if kind == REPLICATION:
        from barnabas.sim.replication.simulate import simulate_replication

        return simulate_replication(seed, seconds=seconds, on_line=on_line)
    if kind in REPLICATED:
        from barnabas.sim.coordination.simulate import simulate_coordination

        return simulate_coordination(seed, kind, seconds=seconds, on_line=on_line)
    scenario = draw_scenario(seed, seconds, kind)
    return simulate_scenario(scenario, workload or run_workload, check or check_all, on_line=on_line)


def simulate_scenario(
    scenario: Scenario,
    workload: Workload,
    check: Check,
    *,
    on_line: Callable[[str], None] | None = None,
    nemesis: type[Nemesis] = Nemesis,
    watch: WatchFor = lambda history: TwinWatch(),
) -> Outcome:
    """Run a scenario, however it was drawn."""
    with _no_collector():
        loop = VirtualLoop()
        loop.on_task, loop.owner_of = own_task, owner_of
        try:
            asyncio.set_event_loop(loop)
            world = World(loop, scenario, on_line, nemesis, watch)
            loop.set_exception_handler(world.on_unhandled)
            with _logging_to(world):
                _run(loop, world, workload)
        finally:
            asyncio.set_event_loop(None)
            loop.close()
    violations = world.violations or check(world.history)
    return Outcome(scenario.seed, world.trace.hash, violations, world.stats(), world.history)


def _run(loop: VirtualLoop, world: World, workload: Workload) -> None:
    running = loop.create_task(world.run(workload))
    try:
        loop.run_until_complete(running)
    except Stalled as stalled:
        world.broken(f"{stalled}; what waits: {hanging(loop)}")
    except Exception as error:  # noqa: BLE001 - a violation, whatever it is
        world.failed(error)
    left = [task for task in asyncio.all_tasks(loop) if not task.done()]
    for task in sorted(left, key=hash):
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    gc.collect()  # now, whatever was forgotten with an error in it says so


def hanging(loop: asyncio.AbstractEventLoop) -> str:
    """Where the tasks of a loop wait, oldest first."""
    tasks = sorted(asyncio.all_tasks(loop), key=hash)
    said = "; ".join(where(task) for task in tasks[:MAX_HANGING])
    return said + (f"; and {len(tasks) - MAX_HANGING} more" if len(tasks) > MAX_HANGING else "")


def _origin(error: BaseException | None) -> str:
    """Where an error was raised."""
    trace = error.__traceback__ if error is not None else None
    at = "nowhere"
    while trace is not None:
        code = trace.tb_frame.f_code
        at = f"{code.co_name}, {code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return at


async def _as_coroutine(work: Awaitable[object]) -> None:
    await work


@contextmanager
def _no_collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _logging_to(world: World) -> Iterator[None]:
    logger, handler = logging.getLogger("barnabas"), _LogToTrace(world)
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[0]
        logger.setLevel(before[1])
