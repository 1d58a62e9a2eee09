"""`barnabas up`: a cluster on this machine, its nodes processes that are started again when they die.

It stays in the foreground; SIGTERM, SIGINT (Ctrl-C) and SIGHUP stop all nodes cleanly, a second one kills
them. `status`, `kill` and `stop` are for another terminal. Everything is in one directory: the data of node N
and its settings in `N/`, what it logs in `N.log`, the processes in `up.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from barnabas import __version__
from barnabas.cli.failures import FAILED, OK, CommandFailed
from barnabas.cli.local_cluster.plan import (
    HIGHEST_PORT,
    HOST,
    MOST_NODES,
    ClusterPlan,
    NodePlan,
    format_nodes,
    new_plan,
)
from barnabas.cli.local_cluster.state import (
    ClusterState,
    KnownProcess,
    NodeState,
    known_process,
    lock_cluster,
    node_document,
    read_state,
    write_state,
)
from barnabas.cli.local_cluster.supervisor import STOP_S, Event, Supervisor, stop_order
from barnabas.cli.options import Actions, command_parser, positive, setting, wants_json
from barnabas.cli.output import Output, counted
from barnabas.cli.running import run_command
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.disk import DirectoryLocked
from barnabas.core.errors import BarnabasError
from barnabas.core.event_loop import new_event_loop
from barnabas.core.network import Address, Network
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.workers import ThreadWorkers
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.transport.connection import open_connection

DEFAULT_DIRECTORY = "barnabas-cluster"
DEFAULT_NODES, DEFAULT_PORT = 3, 9092
_ASK_S = 1.0
_POLL_S = 0.05
_SCRATCH_BYTES = 1 << 16
_EXAMPLES = """
barnabas up                                    three nodes at 127.0.0.1:9092 to 9094, in ./barnabas-cluster
barnabas up --nodes 5 --dir /tmp/five --port 19092
barnabas up --set log.retention.hours=24
barnabas up status
barnabas up kill 2
barnabas up stop
"""


def main(arguments: Sequence[str]) -> int:
    """Run a local cluster, or look after one; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "barnabas up",
        "Run a cluster on this machine: up to three voters, the other nodes brokers alone.",
        _EXAMPLES,
        is_connected=False,
        json_help="print JSON: an object for everything that happens to a node",
    )
    parser.set_defaults(run=_up, prog=parser.prog, dir=DEFAULT_DIRECTORY)
    parser.add_argument(
        "--nodes",
        metavar="N",
        type=lambda text: positive(text, MOST_NODES),
        help=f"how many nodes (default: those there are, {DEFAULT_NODES} at first)",
    )
    parser.add_argument(
        "--port",
        metavar="P",
        type=lambda text: positive(text, HIGHEST_PORT),
        help=f"where node 1 is, the others above it, controllers 1000 higher (default: {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--set", metavar="K=V", type=setting, action="append", default=[], help="a setting of all nodes"
    )
    _add_dir(parser)
    actions = Actions(parser, is_connected=False, is_required=False)
    for name, summary, run in (
        ("status", "show the nodes and their processes", _status),
        ("kill", "kill a node as a crash would (SIGKILL): it is started again", _kill),
        ("stop", "stop all nodes cleanly, and wait until they have", _stop),
    ):
        action = actions.add(name, summary, f"barnabas up {name}{' 2' if name == 'kill' else ''}", run)
        _add_dir(action)
        if name == "kill":
            action.add_argument("id", metavar="ID", type=positive, help="its node id")
    return parser


def _add_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir",
        metavar="D",
        default=argparse.SUPPRESS,
        help=f"where everything is kept (default: ./{DEFAULT_DIRECTORY})",
    )


# --- up


def _up(options: argparse.Namespace) -> int:
    directory = Path(options.dir).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        release = lock_cluster(directory)
    except DirectoryLocked:
        raise CommandFailed(
            f"a cluster is running in {directory}", f"`barnabas up status --dir {directory}` shows it"
        ) from None
    try:
        plan = _plan(directory, options)
        output = Output(as_json=wants_json(options))
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_supervise(directory, plan, options.set, output))
    finally:
        release()


def _plan(directory: Path, options: argparse.Namespace) -> ClusterPlan:
    """The plan of the cluster that there is, or a new one."""
    state = read_state(directory)
    if state is None:
        strange = [each.name for each in directory.iterdir() if not each.name.startswith(".up")]
        if strange:
            raise CommandFailed(
                f"{directory} is not empty, and no cluster of `barnabas up` (it holds {strange[0]})",
                "name another directory with --dir",
            )
        count, port = options.nodes or DEFAULT_NODES, options.port or DEFAULT_PORT
        plan = new_plan(directory, count, port, SystemRandom())
        _refuse_used_ports(plan, "name other ports with --port")
        # first of all: what is formatted later is formatted with these ids, whenever that is
        write_state(directory, ClusterState(plan, known_process(os.getpid()), {}))
        return plan
    left = [node_id for node_id, node in state.nodes.items() if node.is_alive]
    if left:
        raise CommandFailed(
            f"{_nodes(left)} of an earlier run, whose supervisor is gone, still running in {directory}",
            f"`barnabas up stop --dir {directory}` stops them",
        )
    _refuse_another_shape(directory, state.plan, options)
    _refuse_used_ports(state.plan, "the ports of a cluster stay as they are: stop what listens there")
    return state.plan


def _nodes(ids: Sequence[int]) -> str:
    names = ", ".join(map(str, ids))
    return f"node {names} is" if len(ids) == 1 else f"nodes {names} are"


def _refuse_another_shape(directory: Path, plan: ClusterPlan, options: argparse.Namespace) -> None:
    count, port = len(plan.nodes), plan.nodes[0].port
    if options.nodes not in (None, count) or options.port not in (None, port):
        raise CommandFailed(
            f"{directory} holds a cluster of {counted(count, 'node')} at port {port}",
            "leave out --nodes and --port, or name another directory with --dir",
        )


def _refuse_used_ports(plan: ClusterPlan, next_step: str) -> None:
    """Refuse while nothing is written yet: the ports of a plan hold for all later runs."""
    for node in plan.nodes:
        for port in node.ports:
            with socket.socket() as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    listener.bind((HOST, port))
                except OSError as error:
                    reason = f"node {node.node_id} cannot listen at {HOST}:{port}: {error.strerror}"
                    raise CommandFailed(reason, next_step) from error


async def _supervise(
    directory: Path, plan: ClusterPlan, settings: Sequence[tuple[str, str]], output: Output
) -> int:
    clock, workers = SystemClock(), ThreadWorkers()
    await format_nodes(plan, clock, SystemRandom())
    network, scratch = OsNetwork(workers), memoryview(bytearray(_SCRATCH_BYTES))

    async def is_ready(node: NodePlan) -> bool:
        return await answers_as(plan.cluster_id, Address(HOST, node.port), network, clock, scratch)

    def command(node: NodePlan) -> list[str]:
        more = [word for name, text in settings for word in ("--set", f"{name}={text}")]
        return [sys.executable, "-m", "barnabas", "serve", "--config", str(node.settings_file), *more]

    supervisor = Supervisor(directory, plan, command=command, is_ready=is_ready, tell=_teller(output))
    stop, kill = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: (kill if stop.is_set() else stop).set())
    try:
        is_clean = await supervisor.run(stop, kill)
    finally:
        workers.close()
    _tell_end(output, is_clean=is_clean)
    return OK if is_clean else FAILED


async def answers_as(
    cluster_id: str, address: Address, network: Network, clock: Clock, scratch: memoryview
) -> bool:
    """Whether a broker of that cluster answers there: something else may have the port."""
    try:
        connection = await open_connection(
            network,
            clock,
            address,
            client_id="barnabas-up",
            software_version=__version__,
            connect_timeout_s=_ASK_S,
            request_timeout_s=_ASK_S,
            scratch=scratch,
        )
    except BarnabasError:
        return False
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    try:
        told = await connection.ask(request, DescribeClusterResponse)
    except BarnabasError:
        return False
    finally:
        connection.close()
    return told.cluster_id == cluster_id


def _teller(output: Output) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        if output.as_json:
            node = None if event.node is None else event.node.node_id
            output.item({"event": event.kind, "node": node, "text": event.text})
        else:
            output.say(event.text)
            sys.stdout.flush()

    return tell


def _tell_end(output: Output, *, is_clean: bool) -> None:
    text = "all nodes stopped cleanly" if is_clean else "some node did not stop cleanly: see its log"
    _teller(output)(Event("stopped", None, text))


# --- looking after one that runs


def _read(options: argparse.Namespace) -> tuple[Path, ClusterState]:
    directory = Path(options.dir).absolute()
    state = read_state(directory)
    if state is None:
        raise CommandFailed(
            f"there is no cluster of `barnabas up` in {directory}", "start one, or name another with --dir"
        )
    return directory, state


def _status(options: argparse.Namespace) -> None:
    directory, state = _read(options)
    output = Output(as_json=wants_json(options))
    nodes = [(node, state.nodes.get(node.node_id, NodeState())) for node in state.plan.nodes]
    if output.as_json:
        output.document(
            {
                "directory": str(directory),
                "cluster_id": state.plan.cluster_id,
                "bootstrap": state.plan.bootstrap,
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


def _kill(options: argparse.Namespace) -> None:
    _, state = _read(options)
    node = state.nodes.get(options.id)
    if node is None:
        known = ", ".join(map(str, state.nodes)) or "none yet"
        raise CommandFailed(f"there is no node {options.id}", f"these are there: {known}")
    process = node.process
    if process is None or not process.send(signal.SIGKILL):
        raise CommandFailed(
            f"node {options.id} is not running now ({node.told})", "`barnabas up status` shows all"
        )
    output = Output(as_json=wants_json(options))
    output.done({"id": options.id, "pid": process.pid}, f"node {options.id} (process {process.pid}) killed")


def _stop(options: argparse.Namespace) -> int:
    directory, state = _read(options)
    output = Output(as_json=wants_json(options))
    if state.supervisor is not None and state.supervisor.send(signal.SIGTERM):
        _wait_for([state.supervisor], STOP_S * (len(state.plan.voters) + 1))
    else:
        left = _stop_orphans(state)
        if not left:
            output.done({"directory": str(directory), "stopped": []}, f"nothing is running in {directory}")
            return OK
    after = read_state(directory) or state
    running = [node_id for node_id, node in after.nodes.items() if node.is_alive]
    if running:
        raise CommandFailed(f"{_nodes(running)} still running", "`barnabas up kill ID` ends a node at once")
    ids = [node.node_id for node in state.plan.nodes]
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
