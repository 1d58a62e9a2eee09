"""The processes of a local cluster: started, started again when they die, stopped in good order.

Each node has a task that keeps it running. One that served is started again after a moment; one that dies
before it serves waits longer every time, and after the eighth time in a row it is left alone until `restart`.
One that exits by itself before it has ever served ends the whole run (`NodeFailed`): something is wrong with
its settings, and its log says what. One that was added while the others run is taken out of the plan again.

A stop ends brokers alone first, then the voters that the quorum can do without, and the last majority of them
together: one alone could not tell anybody that it leaves. Nodes have sessions of their own: what the terminal
sends goes to the supervisor alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas.cli.failures import CommandFailed
from barnabas.cli.local_cluster.plan import ClusterPlan, NodePlan
from barnabas.cli.local_cluster.state import (
    GIVEN_UP,
    SERVING,
    STARTING,
    STOPPED,
    WAITING,
    ClusterState,
    KnownProcess,
    NodeState,
    known_process,
    write_state,
)
from barnabas.raft.election import majority

FIRST_DELAY_S, LONGEST_DELAY_S = 0.2, 10.0
MOST_FAILURES = 8
POLL_S = 0.05
STOP_S = 60.0
_TAIL_BYTES = 2000
_SETTINGS_PREFIX = "KAFKA_"

Command = Callable[[ClusterPlan, NodePlan], Sequence[str]]


class NodeFailed(CommandFailed):
    """A node cannot be started."""


class Event(NamedTuple):
    """Something that happened to a node, or to all of them where there is none."""

    kind: str
    node: NodePlan | None
    text: str


def next_delay(delay_s: float, *, served: bool) -> float:
    """How long to wait before the next start, given how long it was before the last one (0: the first)."""
    return FIRST_DELAY_S if served or not delay_s else min(delay_s * 2, LONGEST_DELAY_S)


def stop_order(nodes: Sequence[NodePlan]) -> list[list[NodePlan]]:
    """The groups in which nodes are stopped, each when the one before it has ended."""
    brokers = [node for node in nodes if not node.is_voter]
    voters = [node for node in reversed(nodes) if node.is_voter]
    spare = len(voters) - majority(len(voters))
    groups = [brokers, *([node] for node in voters[:spare]), voters[spare:]]
    return [group for group in groups if group]


def ending(status: int) -> str:
    """How a process ended, for people."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


class Supervisor:
    """Runs the nodes of a plan in `directory`; `command` starts one, `is_ready` asks whether it serves."""

    def __init__(
        self,
        directory: Path,
        plan: ClusterPlan,
        *,
        command: Command,
        is_ready: Callable[[NodePlan], Awaitable[bool]],
        tell: Callable[[Event], None],
        stop_s: float = STOP_S,
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._command = command
        self._is_ready = is_ready
        self._tell = tell
        self._stop_s = stop_s
        self._states = {node.node_id: NodeState() for node in plan.nodes}
        self._me = known_process(os.getpid())
        self._keeping: dict[int, asyncio.Task[None]] = {}
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._wakes: dict[int, asyncio.Event] = {}  # for nodes that wait to be started again
        self._changed = asyncio.Event()
        self._served: set[int] = set()  # at least once, in this run
        self._restarting: set[int] = set()
        self._joining: set[int] = set()
        self._leaving: set[int] = set()
        self._all_served = False
        self._stopping = False
        self._killed = False
        self._failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    @property
    def plan(self) -> ClusterPlan:
        """The nodes there are now."""
        return self._plan

    @property
    def states(self) -> Mapping[int, NodeState]:
        """What is known of each."""
        return self._states

    async def run(self, stop: asyncio.Event, kill: asyncio.Event) -> bool:
        """Keep the nodes running until `stop` is set, and stop them; `kill` is for those who cannot wait.
        Returns whether all have stopped cleanly."""
        for node in self._plan.nodes:
            self._begin(node)
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((stopped, self._failure), return_when=asyncio.FIRST_COMPLETED)
            self._stopping = True
            is_clean = await self._stop(kill)
        finally:
            self._stopping = True
            stopped.cancel()
            for process in self._processes.values():
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await asyncio.gather(stopped, *self._keeping.values(), return_exceptions=True)
            self._write(is_over=True)
        if self._failure.done():
            raise self._failure.result()
        return is_clean

    # --- what can be asked for while it runs

    async def restart(self, node_id: int) -> NodeState:
        """Stop a node cleanly and start it again, or start one that waits or was given up; returns when it
        serves."""
        node = self._node(node_id)
        before = self._states[node_id].process
        if (process := self._processes.get(node_id)) is not None:
            self._restarting.add(node_id)
            await self._end(node, process)
        else:
            self._note(node, self._states[node_id]._replace(state=WAITING))
            self._wakes[node_id].set()
        await self._until(lambda: self._is_settled(node_id, before))
        state = self._states[node_id]
        if state.state != SERVING:
            raise NodeFailed(f"node {node_id} does not start: it {state.ended}", f"see {node.log_file}")
        return state

    async def add(self, node: NodePlan) -> NodeState:
        """Start a node that the plan does not have yet; returns when it serves. One that cannot start is
        taken out again."""
        self._plan = self._plan.with_node(node)
        self._states[node.node_id] = NodeState(state=WAITING)
        self._joining.add(node.node_id)
        self._begin(node)
        try:
            await self._until(lambda: self._is_settled(node.node_id, None))
        finally:
            self._joining.discard(node.node_id)
        state = self._states[node.node_id]
        if state.state != SERVING:
            self._forget(node.node_id)
            raise NodeFailed(f"node {node.node_id} cannot start: it {state.ended}", f"see {node.log_file}")
        return state

    async def remove(self, node_id: int) -> None:
        """Stop a node cleanly, and take it out of the plan."""
        node = self._node(node_id)
        if len(self._plan.nodes) == 1:
            raise CommandFailed(f"node {node_id} is the only one", "`barnabas up stop` stops the cluster")
        self._leaving.add(node_id)
        if (process := self._processes.get(node_id)) is not None:
            await self._end(node, process)
        else:
            self._wakes[node_id].set()
        await asyncio.gather(self._keeping[node_id], return_exceptions=True)
        self._forget(node_id)
        self._say("removed", node, "is removed")

    def _node(self, node_id: int) -> NodePlan:
        node = self._plan.node(node_id)
        if node is None:
            known = ", ".join(str(each.node_id) for each in self._plan.nodes)
            raise CommandFailed(f"there is no node {node_id}", f"these are there: {known}")
        if self._stopping:
            raise CommandFailed("the cluster is being stopped")
        return node

    def _is_settled(self, node_id: int, before: KnownProcess | None) -> bool:
        """Whether a node has come to serve in another process, or will not by itself."""
        state = self._states[node_id]
        if self._stopping or state.state in (GIVEN_UP, STOPPED) or self._keeping[node_id].done():
            return node_id not in self._restarting or self._stopping
        return state.state == SERVING and state.process != before

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    def _forget(self, node_id: int) -> None:
        self._plan = self._plan.without(node_id)
        self._keeping.pop(node_id).cancel()
        del self._states[node_id], self._wakes[node_id]
        self._served.discard(node_id)
        self._leaving.discard(node_id)
        self._write()

    # --- one node

    def _begin(self, node: NodePlan) -> None:
        self._wakes[node.node_id] = asyncio.Event()
        task = self._keeping[node.node_id] = asyncio.create_task(self._keep(node))
        task.add_done_callback(self._kept)

    def _is_ending(self, node: NodePlan) -> bool:
        return self._stopping or node.node_id in self._leaving

    async def _keep(self, node: NodePlan) -> None:
        delay_s, failures = 0.0, 0
        while not self._is_ending(node):
            served, status = await self._live(node)
            if self._is_ending(node):
                break
            if node.node_id in self._restarting:
                self._restarting.discard(node.node_id)
                self._note_end(node, WAITING, status)
                delay_s, failures = 0.0, 0
                continue
            if status > 0 and node.node_id not in self._served:
                self._give_up(node, status)
                return
            failures = 0 if served else failures + 1
            if failures == MOST_FAILURES:
                delay_s, failures = 0.0, 0
                self._note_end(node, GIVEN_UP, status)
                self._say("given up", node, f"{ending(status)}{self._hopeless(node)}")
                await self._wakes[node.node_id].wait()
            else:
                delay_s = next_delay(delay_s, served=served)
                self._note_end(node, WAITING, status)
                self._say("died", node, f"{ending(status)}; it starts again in {delay_s:g} s")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wakes[node.node_id].wait(), delay_s)
            self._wakes[node.node_id].clear()
        self._note(node, self._states[node.node_id]._replace(state=STOPPED, process=None))

    async def _live(self, node: NodePlan) -> tuple[bool, int]:
        """One process of a node, to its end: whether it served, and how it ended."""
        process = await self._spawn(node)
        watching = asyncio.create_task(self._watch(node, process))
        status = await process.wait()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        served = self._states[node.node_id].state == SERVING
        del self._processes[node.node_id]
        if self._is_ending(node):
            self._note_end(node, STOPPED, status)
        return served, status

    def _hopeless(self, node: NodePlan) -> str:
        return (
            f"; it has not served in {MOST_FAILURES} starts and is left alone: see {node.log_file}, then "
            f"`barnabas up restart {node.node_id}`"
        )

    async def _spawn(self, node: NodePlan) -> asyncio.subprocess.Process:
        environment = {
            name: text for name, text in os.environ.items() if not name.startswith(_SETTINGS_PREFIX)
        }
        with node.log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command(self._plan, node),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,  # its settings stand in its own file
            )
        self._processes[node.node_id] = process
        last = self._states[node.node_id]
        restarts = last.restarts if last.ended is None else last.restarts + 1
        self._note(node, NodeState(known_process(process.pid), STARTING, restarts, last.ended))
        return process

    async def _watch(self, node: NodePlan, process: asyncio.subprocess.Process) -> None:
        """Wait until the node serves, and say so."""
        while not await self._is_ready(node):  # noqa: ASYNC110 - another process is asked
            await asyncio.sleep(POLL_S)
        self._served.add(node.node_id)
        self._note(node, self._states[node.node_id]._replace(state=SERVING))
        self._say("serves", node, f"serves at {node.address} (process {process.pid})")
        if not self._all_served and len(self._served) == len(self._plan.nodes):
            self._all_served = True
            self._tell(Event("ready", None, f"all nodes serve: {self._plan.bootstrap}"))

    def _give_up(self, node: NodePlan, status: int) -> None:
        self._note_end(node, STOPPED, status)
        lines = _tail(node.log_file).strip().splitlines()
        told = f": {lines[-1]}" if lines else ""
        if node.node_id in self._joining:
            self._states[node.node_id] = self._states[node.node_id]._replace(ended=f"{ending(status)}{told}")
            return
        failure = f"node {node.node_id} {ending(status)} before it served{told}"
        self._fail(NodeFailed(failure, f"see {node.log_file}"))

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_result(error)

    def _kept(self, task: asyncio.Task[None]) -> None:
        """No node is left alone: what ends its task unexpectedly ends the run."""
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def _end(self, node: NodePlan, process: asyncio.subprocess.Process) -> None:
        """Stop one process cleanly; kill it where that takes too long."""
        self._say("stopping", node, "is told to stop")
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._stop_s)
        except TimeoutError:
            self._kill(node, process)
            await process.wait()

    def _kill(self, node: NodePlan, process: asyncio.subprocess.Process) -> None:
        self._say("killed", node, "did not stop in time, and is killed")
        with contextlib.suppress(ProcessLookupError):
            process.kill()

    # --- all nodes

    async def _stop(self, kill: asyncio.Event) -> bool:
        for node in self._plan.nodes:
            if node.node_id not in self._processes:
                self._keeping[node.node_id].cancel()  # it waits to start again
                self._note(node, self._states[node.node_id]._replace(state=STOPPED))
        killing = asyncio.create_task(kill.wait())
        try:
            for group in stop_order(self._plan.nodes):
                await self._stop_group([self._keeping[node.node_id] for node in group], group, killing)
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
        return all(state.ended in (None, ending(0)) for state in self._states.values()) and not self._killed

    async def _stop_group(
        self, tasks: list[asyncio.Task[None]], group: list[NodePlan], killing: asyncio.Task[bool]
    ) -> None:
        for node in group:
            if (process := self._processes.get(node.node_id)) is not None:
                self._say("stopping", node, "is told to stop")
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
        ended = asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait((ended, killing), timeout=self._stop_s, return_when=asyncio.FIRST_COMPLETED)
        for node in group:
            if (process := self._processes.get(node.node_id)) is not None:
                self._killed = True
                self._kill(node, process)
        await ended

    # --- what is known

    def _note(self, node: NodePlan, state: NodeState) -> None:
        self._states[node.node_id] = state
        self._write()
        self._changed.set()

    def _note_end(self, node: NodePlan, state: str, status: int) -> None:
        restarts = self._states[node.node_id].restarts
        self._note(node, NodeState(None, state, restarts, ending(status)))

    def _write(self, *, is_over: bool = False) -> None:
        state = ClusterState(self._plan, None if is_over else self._me, self._states)
        write_state(self._directory, state)

    def _say(self, kind: str, node: NodePlan, text: str) -> None:
        self._tell(Event(kind, node, f"node {node.node_id} {text}"))


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace")
