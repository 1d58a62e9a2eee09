"""What can be done to a local cluster from another terminal, but for adding and removing nodes: `barnabas up
status | logs | kill | restart | stop`."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from barnabas.cli.failures import OK, CommandFailed
from barnabas.cli.local_cluster.control import ask_supervisor
from barnabas.cli.local_cluster.plan import NodePlan
from barnabas.cli.local_cluster.state import (
    ClusterState,
    KnownProcess,
    NodeState,
    node_document,
    read_state,
)
from barnabas.cli.local_cluster.supervisor import STOP_S, stop_order
from barnabas.cli.options import wants_json
from barnabas.cli.output import Output, counted

_POLL_S = 0.05
_FOLLOW_S = 0.2


def cluster_of(options: argparse.Namespace) -> tuple[Path, ClusterState]:
    """The directory that is meant, and what its file says."""
    directory = Path(options.dir).absolute()
    state = read_state(directory)
    if state is None:
        raise CommandFailed(
            f"there is no cluster of `barnabas up` in {directory}", "start one, or name another with --dir"
        )
    return directory, state


def running_cluster(options: argparse.Namespace) -> tuple[Path, ClusterState]:
    """The same, where a supervisor runs it."""
    directory, state = cluster_of(options)
    if not state.is_supervised:
        raise CommandFailed(
            f"no cluster is running in {directory}", f"`barnabas up --dir {directory}` starts it"
        )
    return directory, state


def node_of(state: ClusterState, node_id: int) -> NodePlan:
    """A node that must be there."""
    node = state.plan.node(node_id)
    if node is None:
        known = ", ".join(str(each.node_id) for each in state.plan.nodes)
        raise CommandFailed(f"there is no node {node_id}", f"these are there: {known}")
    return node


def names_of(ids: Sequence[int]) -> str:
    """`node 1 is`, `nodes 1, 2 are`."""
    names = ", ".join(map(str, ids))
    return f"node {names} is" if len(ids) == 1 else f"nodes {names} are"


def event_teller(output: Output) -> Callable[[dict[str, Any]], None]:
    """Tells people what happens to nodes while a command waits; machines get its result."""

    def tell(event: dict[str, Any]) -> None:
        if not output.as_json:
            output.line(str(event["text"]))

    return tell


# --- status


def status(options: argparse.Namespace) -> None:
    """Show the nodes and their processes."""
    directory, state = cluster_of(options)
    output = Output(as_json=wants_json(options))
    nodes = [(node, state.nodes.get(node.node_id, NodeState())) for node in state.plan.nodes]
    if output.as_json:
        output.document(
            {
                "directory": str(directory),
                "cluster_id": state.plan.cluster_id,
                "bootstrap": state.plan.bootstrap,
                "replicas": state.plan.replicas,
                "running": state.is_supervised,
                "pid": state.supervisor.pid if state.supervisor and state.is_supervised else None,
                "nodes": [{**node_document(node, each), "state": each.told} for node, each in nodes],
            }
        )
        return
    output.say(f"cluster {state.plan.cluster_id} in {directory}: {_running(state)}")
    output.table(
        ("node", "roles", "state", "process", "address", "controller", "restarts"),
        [
            (
                node.node_id,
                ",".join(node.roles),
                each.told,
                each.process.pid if each.process is not None and each.is_alive else None,
                node.address,
                node.controller_address,
                each.restarts,
            )
            for node, each in nodes
        ],
    )


def _running(state: ClusterState) -> str:
    if state.supervisor is not None and state.is_supervised:
        return f"process {state.supervisor.pid}"
    if any(node.is_alive for node in state.nodes.values()):
        return "its supervisor is gone, and nodes go on; `barnabas up stop` stops them"
    return "not running"


# --- logs


def logs(options: argparse.Namespace) -> None:
    """Print the last lines that nodes have logged, and with `--follow` what comes then."""
    _, state = cluster_of(options)
    nodes = [node_of(state, each) for each in options.ids] or list(state.plan.nodes)
    output = Output(as_json=wants_json(options))
    tails = [_Tail(node) for node in nodes]
    for tail in tails:
        for line in tail.last(options.lines):
            _show_line(output, tail.node, line, is_one=len(nodes) == 1)
    sys.stdout.flush()
    while options.follow:
        lines = [(tail.node, line) for tail in tails for line in tail.more()]
        for node, line in lines:
            _show_line(output, node, line, is_one=len(nodes) == 1)
        if not lines:
            sys.stdout.flush()
            time.sleep(_FOLLOW_S)


def _show_line(output: Output, node: NodePlan, line: str, *, is_one: bool) -> None:
    if output.as_json:
        output.item({"node": node.node_id, "line": line})
    else:
        output.say(line if is_one else f"{node.node_id}: {line}")


class _Tail:
    """The log of one node, read on from where it was read up to; half a line waits for its end."""

    def __init__(self, node: NodePlan) -> None:
        self.node = node
        self._offset = 0
        self._half = b""

    def last(self, count: int) -> list[str]:
        """The last lines there are."""
        return list(deque(self.more(), count))

    def more(self) -> Iterator[str]:
        """The lines that have come since."""
        try:
            with self.node.log_file.open("rb") as file:
                file.seek(self._offset)
                for line in file:
                    self._offset += len(line)
                    whole = self._half + line
                    if not line.endswith(b"\n"):
                        self._half = whole
                        return
                    self._half = b""
                    yield whole.decode(errors="replace").rstrip("\n")
        except FileNotFoundError:  # it has not been started yet
            return


# --- kill, restart, stop


def kill(options: argparse.Namespace) -> None:
    """Kill a node; its supervisor starts it again."""
    _, state = cluster_of(options)
    node_of(state, options.id)
    node = state.nodes[options.id]
    process = node.process
    if process is None or not process.send(signal.SIGKILL):
        raise CommandFailed(
            f"node {options.id} is not running now ({node.told})", "`barnabas up status` shows all"
        )
    output = Output(as_json=wants_json(options))
    output.done({"id": options.id, "pid": process.pid}, f"node {options.id} (process {process.pid}) killed")


def restart(options: argparse.Namespace) -> None:
    """Restart one node, and wait until it serves."""
    directory, state = running_cluster(options)
    node_of(state, options.id)
    output = Output(as_json=wants_json(options))
    began = time.monotonic()
    done = ask_supervisor(directory, "restart", event_teller(output), id=options.id)
    took_s = time.monotonic() - began
    output.done({**done, "took_s": round(took_s, 3)}, f"node {options.id} restarted in {took_s:.1f} s")


def stop(options: argparse.Namespace) -> int:
    """Stop all nodes, and wait until they have."""
    directory, state = cluster_of(options)
    output = Output(as_json=wants_json(options))
    if state.supervisor is not None and state.supervisor.send(signal.SIGTERM):
        voters = sum(node.is_voter for node in state.plan.nodes)
        _wait_for([state.supervisor], STOP_S * (voters + 1))
    else:
        left = _stop_orphans(state)
        if not left:
            output.done({"directory": str(directory), "stopped": []}, f"nothing is running in {directory}")
            return OK
    after = read_state(directory) or state
    running = [node_id for node_id, node in after.nodes.items() if node.is_alive]
    if running:
        raise CommandFailed(f"{names_of(running)} still running", "`barnabas up kill ID` ends a node at once")
    ids = [node.node_id for node in after.plan.nodes]
    output.done({"directory": str(directory), "stopped": ids}, f"{counted(len(ids), 'node')} stopped")
    return OK


def _stop_orphans(state: ClusterState) -> list[int]:
    """Stop nodes whose supervisor was killed; which ones were there."""
    left = [node_id for node_id, node in state.nodes.items() if node.is_alive]
    for group in stop_order(state.plan.nodes):
        told = [state.nodes[node.node_id].process for node in group if node.node_id in left]
        processes = [process for process in told if process is not None and process.send(signal.SIGTERM)]
        _wait_for(processes, STOP_S)
    return left


def _wait_for(processes: Sequence[KnownProcess], seconds: float) -> None:
    """Wait until these have ended, for so long at most."""
    deadline = time.monotonic() + seconds
    while any(process.is_alive for process in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
