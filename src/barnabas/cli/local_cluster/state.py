"""`up.json`: the plan of a local cluster, and the processes that run it.

The supervisor alone writes it, whole and durably, while it holds the lock beside it; the other actions of
`barnabas up` read it. Processes are named by their ids and starts, so that nothing else gets a signal.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.broker.storage.initial_voters import format_voters, parse_voters
from barnabas.cli.failures import CommandFailed
from barnabas.cli.local_cluster.plan import ClusterPlan, NodePlan
from barnabas.core.errors import BarnabasError
from barnabas.core.os_lock import lock_file
from barnabas.core.processes import send_signal, start_of

STATE, LOCK = "up.json", ".up.lock"
_VERSION = 1
STARTING, SERVING, WAITING, STOPPED = "starting", "serving", "waiting", "stopped"
GIVEN_UP = "given up"  # it was started again and again, and never came to serve
DEAD = "dead"  # it has ended, and nobody has noticed yet, or nobody will


class KnownProcess(NamedTuple):
    """A process by its id and start."""

    pid: int
    start: str

    @property
    def is_alive(self) -> bool:
        return start_of(self.pid) == self.start

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False where it is gone."""
        return send_signal(self.pid, self.start, number)


def known_process(pid: int) -> KnownProcess:
    """A process that is there, as this one or a child of it."""
    return KnownProcess(pid, start_of(pid) or "")


class NodeState(NamedTuple):
    """What the supervisor knows of a node; `ended` says how its last process did."""

    process: KnownProcess | None = None
    state: str = STOPPED
    restarts: int = 0
    ended: str | None = None

    @property
    def told(self) -> str:
        """Its state as it is now."""
        is_running = self.state in (STARTING, SERVING)
        return DEAD if is_running and not self.is_alive else self.state

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.is_alive


class ClusterState(NamedTuple):
    """What is in the file."""

    plan: ClusterPlan
    supervisor: KnownProcess | None
    nodes: dict[int, NodeState]

    @property
    def is_supervised(self) -> bool:
        return self.supervisor is not None and self.supervisor.is_alive


def read_state(directory: Path) -> ClusterState | None:
    """What the file in that directory says; None where there is none."""
    path = directory / STATE
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CommandFailed(f"{path} cannot be read: {error}", "restore the file from a copy") from error
    try:
        return _parse(directory, content)
    except (BarnabasError, LookupError, TypeError, ValueError) as error:
        raise CommandFailed(f"{path} is not what `barnabas up` writes: {error!r}") from error


def write_state(directory: Path, state: ClusterState) -> None:
    """Replace the file, durably."""
    path = directory / STATE
    beside = path.with_name(f"{STATE}.tmp")
    with beside.open("w") as file:
        file.write(json.dumps(_document(state), indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_cluster(directory: Path) -> Callable[[], None]:
    """Be the only supervisor there; gives the release. DirectoryLocked where there is one."""
    return lock_file(str(directory / LOCK))


def node_document(node: NodePlan, state: NodeState) -> dict[str, Any]:
    """A node for machines, in the file and in what commands print."""
    return {
        "id": node.node_id,
        "roles": list(node.roles),
        "address": node.address,
        "controller": node.controller_address,
        "directory": str(node.directory),
        "log": str(node.log_file),
        "state": state.state,
        "pid": None if state.process is None else state.process.pid,
        "started": None if state.process is None else state.process.start,
        "restarts": state.restarts,
        "ended": state.ended,
    }


def _document(state: ClusterState) -> dict[str, Any]:
    supervisor = state.supervisor
    return {
        "version": _VERSION,
        "cluster_id": state.plan.cluster_id,
        "bootstrap": state.plan.bootstrap,
        "port": state.plan.port,
        "next_id": state.plan.next_id,
        "replication": state.plan.replication,
        "voters": format_voters(state.plan.voters),
        "supervisor": None if supervisor is None else {"pid": supervisor.pid, "started": supervisor.start},
        "nodes": [
            node_document(node, state.nodes.get(node.node_id, NodeState())) for node in state.plan.nodes
        ],
    }


def _parse(directory: Path, content: dict[str, Any]) -> ClusterState:
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']} is not known")
    voters = parse_voters(content["voters"])
    told = content["nodes"]
    port = int(content["port"])
    nodes = tuple(_node(directory, port, int(each["id"]), each["roles"]) for each in told)
    next_id = int(content.get("next_id", nodes[-1].node_id + 1))
    replication = content.get("replication")
    plan = ClusterPlan(
        str(content["cluster_id"]), nodes, voters, next_id, None if replication is None else int(replication)
    )
    states = {
        int(each["id"]): NodeState(_process(each), each["state"], int(each["restarts"]), each["ended"])
        for each in told
    }
    supervisor = None if content["supervisor"] is None else _process(content["supervisor"])
    return ClusterState(plan, supervisor, states)


def _node(directory: Path, port: int, node_id: int, roles: list[str]) -> NodePlan:
    return NodePlan(node_id, port + node_id - 1, directory / str(node_id), "controller" in roles)


def _process(told: dict[str, Any]) -> KnownProcess | None:
    return None if told["pid"] is None else KnownProcess(int(told["pid"]), str(told["started"]))
