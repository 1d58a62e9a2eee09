"""The whole workload: clients that come, are killed and replaced, and go; then the last sends and reads.

Every client has a process of its own. When the faults have ended the clients go on for a while, so that they
show how they recover, come to an end by themselves, and what they sent is settled. Only then, long after,
come the last sends and a read of everything, by which the checkers judge all that went before.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from barnabas.sim.chance import between
from barnabas.sim.history import ClientKilled, Finished, Settled
from barnabas.sim.workload.asking import run_asker
from barnabas.sim.workload.client import Client, Process, Seen, World
from barnabas.sim.workload.coordination import (
    Work,
    judge_outputs,
    last_roles,
    watch_settling,
    working_roles,
)
from barnabas.sim.workload.ending import follow_last, read_everything, send_last
from barnabas.sim.workload.moving import moving_roles
from barnabas.sim.workload.reading import run_reader
from barnabas.sim.workload.sending import run_sender
from barnabas.sim.workload.topics import make_outputs, make_topics, run_churn

GO_ON_S = 10.0  # how long clients go on after the faults
SETTLE_S = 90.0  # how long they may take to come to an end
CALM_S = 35.0  # from the end of the faults to the last sends
ROUNDS_APART_S = 8.0
ASK_PAUSE_S = 0.4
REPLACED_S = (0.0, 3.0)


class _Running(NamedTuple):
    role: str
    work: Work
    process: Process
    task: asyncio.Task[None]


async def run_workload(world: World) -> None:
    """Return when all is done."""
    await _Workload(world).run()


class _Workload:
    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = Seen()
        self._stopping = asyncio.Event()
        self._started = 0
        self._running: dict[str, _Running] = {}

    async def run(self) -> None:
        world, topics = self._world, self._world.scenario.topics
        await self._alone("maker", partial(make_topics, topics=topics))
        if outputs := world.scenario.coordination.outputs:
            await self._alone("maker", partial(make_outputs, outputs=outputs))
        for role, work in self._roles().items():
            self._start(role, work)
        killing = asyncio.get_running_loop().create_task(self._kill_now_and_then())
        await self._until_faults_end()
        ended_at = self._now
        await asyncio.sleep(GO_ON_S)
        killing.cancel()
        await self._settle()
        await asyncio.sleep(max(0.0, ended_at + CALM_S - self._now))
        self._stopping.clear()
        self._start("follower", partial(follow_last, topics=topics))
        await self._alone("last", partial(send_last, topics=topics, rounds_apart_s=ROUNDS_APART_S))
        self._stopping.set()
        await self._end("follower")
        await self._settle_coordinated()
        await self._alone("judge", read_everything)
        world.history.add(Finished(self._now))

    async def _settle_coordinated(self) -> None:
        """Groups become stable, and what is to be worked off is."""
        scenario = self._world.scenario
        roles = last_roles(scenario)
        if not (roles or scenario.coordination.outputs):
            return
        self._stopping.clear()
        for role, work in roles.items():
            self._start(role, work)
        await self._alone("watcher", partial(watch_settling, scenario=scenario))
        self._stopping.set()
        for role in roles:
            await self._end(role)
        await self._alone("judge", partial(judge_outputs, scenario=scenario))

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _roles(self) -> dict[str, Work]:
        scenario = self._world.scenario
        by_name = {topic.name: topic for topic in scenario.topics}
        roles = working_roles(scenario)
        if not roles or scenario.coordination.writers:
            roles["churn"] = run_churn
        roles |= moving_roles(scenario)
        for plan in scenario.producers:
            roles[plan.name] = partial(run_sender, plan=plan, topic=by_name[plan.topic])
        for topic in scenario.topics:
            roles[f"again-{topic.name}"] = partial(run_reader, topic=topic, is_tailing=False)
        for number in range(scenario.readers):
            topic = scenario.topics[number % len(scenario.topics)]
            roles[f"tail-{number}"] = partial(run_reader, topic=topic, is_tailing=True)
        for number in range(scenario.observers):
            roles[f"asker-{number}"] = partial(run_asker, topics=scenario.topics, pause_s=ASK_PAUSE_S)
        return roles

    # ---- processes ---------------------------------------------------------------------------------------

    def _start(self, role: str, work: Work) -> None:
        """A process for this role; those that come after it have other names."""
        self._started += 1
        process = self._world.process(f"{role}.{self._started}")
        client = Client(self._world, process, self._seen, self._stopping)
        self._running[role] = _Running(role, work, process, process.spawn(work(client)))

    async def _alone(self, role: str, work: Work) -> None:
        self._start(role, work)
        await self._end(role)

    async def _end(self, role: str) -> None:
        running = self._running.pop(role)
        await running.task
        await running.process.kill()

    async def _kill_now_and_then(self) -> None:
        random, mean_s = self._world.random, self._world.scenario.client_kill_s
        while True:
            await asyncio.sleep(mean_s * 2 * random.uniform())
            roles = list(self._running)
            running = self._running.pop(roles[random.below(len(roles))])
            self._world.history.add(ClientKilled(self._now, running.process.name))
            await running.process.kill()
            await asyncio.sleep(between(random, *REPLACED_S))
            self._start(running.role, running.work)

    async def _until_faults_end(self) -> None:
        """Wait; a client that ends before it is asked to has failed, and says why."""
        ended = asyncio.get_running_loop().create_task(self._world.faults_ended.wait())
        while not ended.done():
            tasks = [running.task for running in self._running.values()]
            await asyncio.wait((ended, *tasks), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failures()

    def _raise_failures(self) -> None:
        for running in self._running.values():
            if running.task.done() and not running.task.cancelled():
                running.task.result()

    async def _settle(self) -> None:
        """Let every client come to its end."""
        self._stopping.set()
        tasks = [running.task for running in self._running.values()]
        _, late = await asyncio.wait(tasks, timeout=SETTLE_S)
        self._raise_failures()
        if not late:
            self._world.history.add(Settled(self._now))
        for running in self._running.values():
            await running.process.kill()
        self._running.clear()
