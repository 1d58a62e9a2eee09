"""The processes of a local cluster, with small programs in the place of nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from barnabas.cli.failures import CommandFailed
from barnabas.cli.local_cluster import supervisor
from barnabas.cli.local_cluster.plan import ClusterPlan, NodePlan, new_plan
from barnabas.cli.local_cluster.state import (
    DEAD,
    GIVEN_UP,
    SERVING,
    STOPPED,
    WAITING,
    ClusterState,
    KnownProcess,
    NodeState,
    known_process,
    lock_cluster,
    read_state,
    write_state,
)
from barnabas.cli.local_cluster.supervisor import (
    FIRST_DELAY_S,
    LONGEST_DELAY_S,
    MOST_FAILURES,
    Event,
    NodeFailed,
    Supervisor,
    next_delay,
    stop_order,
)
from barnabas.core.disk import DirectoryLocked
from barnabas.core.processes import send_signal, start_of
from barnabas.core.random import SeededRandom

DEADLINE_S = 120.0

# does as its mode says: serves until it is told to stop, does not listen then, or cannot start
PROGRAM = """
import os, pathlib, signal, sys
folder, node = pathlib.Path(sys.argv[1]), sys.argv[2]
mode = folder / f"{node}.mode"
mode = mode.read_text() if mode.exists() else "serves"
def stop(*_):
    with (folder / "order").open("a") as file:
        file.write(f"{node}\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if mode == "deaf" else stop)
(folder / f"{node}.hears").touch()
if mode == "wrong":
    print("one line", flush=True)
    sys.exit("the port is taken")
if mode != "slow":
    (folder / f"{node}.tmp").write_text(str(os.getpid()))
    (folder / f"{node}.tmp").rename(folder / f"{node}.ready")
while True:
    signal.pause()
"""


class Stage:
    """A supervisor over such programs, and what it tells."""

    def __init__(self, directory: Path, nodes: int, *, stop_s: float = DEADLINE_S) -> None:
        self.directory = directory
        self.plan = new_plan(directory, nodes, 19092, SeededRandom(5))
        self.events: list[Event] = []
        self.stop, self.kill = asyncio.Event(), asyncio.Event()
        self._changed = asyncio.Event()
        self.supervisor = Supervisor(
            directory,
            self.plan,
            command=lambda _, node: (sys.executable, "-S", "-c", PROGRAM, str(directory), str(node.node_id)),
            is_ready=self._is_ready,
            tell=self._tell,
            stop_s=stop_s,
        )
        self.running = asyncio.create_task(self.supervisor.run(self.stop, self.kill))

    def _tell(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    async def _is_ready(self, node: NodePlan) -> bool:
        ready, process = self.directory / f"{node.node_id}.ready", self.state(node.node_id).process
        return ready.exists() and process is not None and ready.read_text() == str(process.pid)

    def state(self, node_id: int) -> NodeState:
        found = read_state(self.directory)
        assert found is not None
        return found.nodes[node_id]

    def heard(self, kind: str, node_id: int | None = None) -> int:
        return sum(
            event.kind == kind and (event.node.node_id if event.node else None) == node_id
            for event in self.events
        )

    async def until(self, kind: str, node_id: int | None = None, times: int = 1) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while self.heard(kind, node_id) < times:
                self._changed.clear()
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait((changed, self.running), return_when=asyncio.FIRST_COMPLETED)
                if self.running.done():
                    self.running.result()
                    assert self.heard(kind, node_id) >= times
                changed.cancel()

    async def until_it_hears(self, node_id: int) -> None:
        """A program that is told to stop before it listens to that is killed by it."""
        async with asyncio.timeout(DEADLINE_S):
            while not (self.directory / f"{node_id}.hears").exists():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)

    async def end(self) -> bool:
        self.stop.set()
        async with asyncio.timeout(DEADLINE_S):
            return await self.running


def act(work: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(work())


def test_nodes_run_until_they_are_stopped_voters_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path, 5)
        await stage.until("ready")
        processes = [stage.state(node).process for node in range(1, 6)]
        assert all(process is not None and process.is_alive for process in processes)
        assert [stage.state(node).told for node in range(1, 6)] == [SERVING] * 5
        assert await stage.end()
        order = (tmp_path / "order").read_text().split()
        assert (sorted(order[:2]), order[2], sorted(order[3:])) == (["4", "5"], "3", ["1", "2"])
        assert [stage.state(node).told for node in range(1, 6)] == [STOPPED] * 5
        assert not any(process is not None and process.is_alive for process in processes)
        found = read_state(tmp_path)
        assert found is not None
        assert not found.is_supervised
        assert found.plan == stage.plan

    act(scenario)


def test_node_that_dies_is_started_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path, 2)
        await stage.until("ready")
        first, other = stage.state(2).process, stage.state(1).process
        for times in (1, 2):
            process = stage.state(2).process
            assert process is not None
            assert process.send(signal.SIGKILL)
            await stage.until("died", 2, times)
            await stage.until("serves", 2, times + 1)
        assert stage.state(2).restarts == 2
        assert stage.state(2).process != first
        assert stage.state(1).process == other
        assert "was killed by SIGKILL; it starts again in 0.2 s" in stage.events[-2].text
        assert stage.heard("ready") == 1
        assert await stage.end()

    act(scenario)


def test_node_that_waits_to_start_again_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path, 1)
        await stage.until("ready")
        process = stage.state(1).process
        assert process is not None
        process.send(signal.SIGKILL)
        await stage.until("died", 1)
        assert stage.state(1).told == WAITING
        assert not await stage.end()  # it has died, and nobody has looked at what is left
        assert stage.state(1).told == STOPPED

    act(scenario)


def test_node_that_exits_before_it_ever_served_ends_the_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "2.mode").write_text("wrong")
        stage = Stage(tmp_path, 2)
        with pytest.raises(
            NodeFailed, match="node 2 ended with status 1 before it served: the port is taken"
        ):
            await asyncio.wait_for(stage.running, DEADLINE_S)
        assert (tmp_path / "2.log").read_text() == "one line\nthe port is taken\n"
        assert not stage.state(1).is_alive

    act(scenario)


def test_node_that_fails_later_is_tried_again_and_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path, 1)
        await stage.until("ready")
        (tmp_path / "1.mode").write_text("wrong")
        process = stage.state(1).process
        assert process is not None
        process.send(signal.SIGKILL)
        await stage.until("died", 1, 3)
        told = [event.text.rpartition("in ")[2] for event in stage.events if event.kind == "died"]
        assert told[:3] == ["0.2 s", "0.4 s", "0.8 s"]
        (tmp_path / "1.mode").unlink()
        await stage.until("serves", 1, 2)
        assert await stage.end()

    act(scenario)


def test_node_that_never_serves_again_is_given_up_until_it_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY_S", 0.01)

    async def scenario() -> None:
        stage = Stage(tmp_path, 2)
        await stage.until("ready")
        (tmp_path / "1.mode").write_text("wrong")
        process = stage.state(1).process
        assert process is not None
        process.send(signal.SIGKILL)
        await stage.until("given up", 1)
        assert stage.heard("died", 1) == MOST_FAILURES  # the one that served among them
        assert "has not served in 8 starts" in stage.events[-1].text
        assert (stage.state(1).told, stage.state(2).told) == (GIVEN_UP, SERVING)
        (tmp_path / "1.mode").unlink()
        assert (await stage.supervisor.restart(1)).state == SERVING
        assert await stage.end()

    act(scenario)


def test_node_that_is_restarted_serves_in_another_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path, 2)
        await stage.until("ready")
        before, other = stage.state(1).process, stage.state(2).process
        state = await stage.supervisor.restart(1)
        assert (state.state, state.restarts, state.ended) == (SERVING, 1, "ended with status 0")
        assert stage.state(1).process not in (None, before)
        assert stage.state(2).process == other
        with pytest.raises(CommandFailed, match="there is no node 9"):
            await stage.supervisor.restart(9)
        assert await stage.end()

    act(scenario)


def test_nodes_are_added_and_removed_while_others_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path, 1)
        await stage.until("ready")
        for number in (2, 3, 4):
            node = stage.supervisor.plan.next_node(tmp_path)
            assert (node.node_id, node.port, node.is_voter) == (number, 19091 + number, number < 4)
            assert (await stage.supervisor.add(node)).state == SERVING
        await stage.supervisor.remove(2)
        found = read_state(tmp_path)
        assert found is not None
        assert found.plan == stage.supervisor.plan
        assert [node.node_id for node in found.plan.nodes] == [1, 3, 4]
        node = stage.supervisor.plan.next_node(tmp_path)
        assert (node.node_id, node.is_voter) == (5, True)  # ids are given out once
        assert (tmp_path / "order").read_text().split() == ["2"]
        assert await stage.end()

    act(scenario)


def test_added_node_that_cannot_start_is_taken_out_and_the_others_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path, 1)
        await stage.until("ready")
        (tmp_path / "2.mode").write_text("wrong")
        with pytest.raises(
            NodeFailed, match="node 2 cannot start: it ended with status 1: the port is taken"
        ):
            await stage.supervisor.add(stage.supervisor.plan.next_node(tmp_path))
        assert [node.node_id for node in stage.supervisor.plan.nodes] == [1]
        with pytest.raises(CommandFailed, match="is the only one"):
            await stage.supervisor.remove(1)
        assert await stage.end()

    act(scenario)


@pytest.mark.parametrize("by", ["time", "a second signal"])
def test_node_that_does_not_stop_is_killed(tmp_path: Path, by: str) -> None:
    async def scenario() -> None:
        (tmp_path / "1.mode").write_text("deaf")
        stage = Stage(tmp_path, 1, stop_s=0.05 if by == "time" else DEADLINE_S)
        await stage.until("ready")
        stage.stop.set()
        if by != "time":
            await stage.until("stopping", 1)
            stage.kill.set()
        assert not await stage.end()
        assert stage.heard("killed", 1) == 1
        assert stage.state(1).ended == "was killed by SIGKILL"

    act(scenario)


def test_stop_while_nodes_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "1.mode").write_text("slow")
        stage = Stage(tmp_path, 2)
        await stage.until("serves", 2)
        await stage.until_it_hears(1)
        assert await stage.end()
        assert stage.heard("ready") == 0

    act(scenario)


def test_supervisor_that_cannot_go_on_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path, 2)
        await stage.until("ready")
        process, other = stage.state(1).process, stage.state(2).process
        assert process is not None
        monkeypatch.setattr(asyncio, "create_subprocess_exec", _cannot)
        process.send(signal.SIGKILL)
        with pytest.raises(OSError, match="no memory"):
            await asyncio.wait_for(stage.running, DEADLINE_S)
        assert other is not None
        assert not other.is_alive

    act(scenario)


async def _cannot(*_: object, **__: object) -> None:
    raise OSError("no memory")


# --- parts


def test_delay_grows_unless_it_served() -> None:
    delays = [0.0]
    for _ in range(8):
        delays.append(next_delay(delays[-1], served=False))
    assert delays[1:4] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert delays[-1] == LONGEST_DELAY_S
    assert next_delay(delays[-1], served=True) == FIRST_DELAY_S


@pytest.mark.parametrize(
    ("nodes", "groups"),
    [(1, [[1]]), (2, [[2, 1]]), (3, [[3], [2, 1]]), (5, [[4, 5], [3], [2, 1]])],
)
def test_order_of_a_stop(nodes: int, groups: list[list[int]]) -> None:
    plan = new_plan(Path("/d"), nodes, 9092, SeededRandom(1))
    assert [[node.node_id for node in group] for group in stop_order(plan.nodes)] == groups


def plan_of(directory: Path, nodes: int = 4) -> ClusterPlan:
    return new_plan(directory, nodes, 9092, SeededRandom(1))


def test_plan_has_up_to_three_voters(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert [node.address for node in plan.nodes] == [f"127.0.0.1:{9092 + number}" for number in range(4)]
    assert [node.controller_address for node in plan.nodes] == [
        *(f"127.0.0.1:{10092 + number}" for number in range(3)),
        None,
    ]
    assert [(voter.node_id, voter.port) for voter in plan.voters] == [(1, 10092), (2, 10093), (3, 10094)]
    assert len({voter.directory_id for voter in plan.voters}) == 3
    assert [node.directory for node in plan.nodes] == [tmp_path / str(number) for number in range(1, 5)]
    assert [node.roles for node in plan.nodes][2:] == [("broker", "controller"), ("broker",)]


def test_state_is_read_back(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    me = known_process(os.getpid())
    nodes = {
        1: NodeState(me, SERVING, 2, "was killed by SIGKILL"),
        2: NodeState(KnownProcess(me.pid, "another start"), SERVING),
        3: NodeState(None, WAITING, 1, "ended with status 1"),
        4: NodeState(),
    }
    state = ClusterState(plan_of(tmp_path), me, nodes)
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert state.is_supervised
    assert [node.told for node in nodes.values()] == [SERVING, DEAD, WAITING, STOPPED]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 9}', '{"version": 1, "voters": "x"}'])
def test_state_that_cannot_be_read_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "up.json").write_text(text)
    with pytest.raises(CommandFailed, match=r"up\.json"):
        read_state(tmp_path)


def test_one_supervisor_a_directory(tmp_path: Path) -> None:
    release = lock_cluster(tmp_path)
    with pytest.raises(DirectoryLocked):
        lock_cluster(tmp_path)
    release()
    lock_cluster(tmp_path)()


def test_signal_goes_to_the_process_that_is_meant_or_to_none() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"]) as process:
        start = start_of(process.pid)
        assert start is not None
        assert not send_signal(process.pid, "another start", signal.SIGKILL)
        assert process.poll() is None
        assert send_signal(process.pid, start, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert start_of(process.pid) is None  # it has ended, though nobody has asked how
        process.wait()
        assert not send_signal(process.pid, start, signal.SIGKILL)


def test_start_is_told_without_proc_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.core import processes

    told = processes._told_by_ps(os.getpid())
    assert told
    assert processes._told_by_ps(os.getpid()) == told
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as process:
        process.wait()
    assert processes._told_by_ps(process.pid) is None
