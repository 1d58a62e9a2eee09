"""`barnabas up`: a cluster on this machine, its nodes processes that are started again when they die.

It stays in the foreground; SIGTERM, SIGINT (Ctrl-C) and SIGHUP stop all nodes cleanly, a second one kills
them. At a terminal a table of the nodes stays on the screen. The actions are for another terminal. Everything
is in one directory: the data of node N and its settings in `N/`, what it logs in `N.log`, the processes in
`up.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas import __version__
from barnabas.cli.failures import FAILED, OK, CommandFailed
from barnabas.cli.local_cluster.actions import kill, logs, names_of, restart, status, stop
from barnabas.cli.local_cluster.control import ControlServer, Handler
from barnabas.cli.local_cluster.plan import (
    HIGHEST_PORT,
    HOST,
    MOST_NODES,
    ClusterPlan,
    NodePlan,
    format_nodes,
    new_plan,
    run_settings,
)
from barnabas.cli.local_cluster.state import (
    ClusterState,
    known_process,
    lock_cluster,
    node_document,
    read_state,
    write_state,
)
from barnabas.cli.local_cluster.supervisor import Event, Supervisor
from barnabas.cli.options import Actions, command_parser, natural, positive, seconds, setting, wants_json
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
_WAIT_S = 120.0
_SCRATCH_BYTES = 1 << 16
_EXAMPLES = """
barnabas up                                    three nodes at 127.0.0.1:9092 to 9094, in ./barnabas-cluster
barnabas up --nodes 5 --dir /tmp/five --port 19092
barnabas up --set log.retention.hours=24
barnabas up --nodes 4 --replication 1          many cores, no copies
barnabas up status
barnabas up kill 2                             as a crash would: it is started again
barnabas up add
barnabas up remove 2
barnabas up roll                               restart all, one after the other
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
    parser.add_argument(
        "--replication",
        metavar="R",
        type=positive,
        help="how many replicas topics have by default (default: 3, or as many as there are nodes)",
    )
    _add_actions(Actions(parser, is_connected=False, is_required=False))
    return parser


def _add_actions(actions: Actions) -> None:
    def add(name: str, summary: str, run: object, example: str = "") -> argparse.ArgumentParser:
        action = actions.add(name, summary, f"barnabas up {name} {example}".rstrip(), run)
        _add_dir(action)
        return action

    add("status", "show the nodes and their processes", status)
    shown = add("logs", "show what nodes have logged last", logs, "2 --follow")
    shown.add_argument("ids", metavar="ID", type=positive, nargs="*", help="node ids (default: all)")
    shown.add_argument(
        "--lines", metavar="N", type=natural, default=10, help="how many of each (default: 10)"
    )
    shown.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    killed = add("kill", "kill a node as a crash would (SIGKILL): it is started again", kill, "2")
    restarted = add("restart", "restart a node, also one that was given up", restart, "2")
    added = add("add", "add a node: a controller, too, while there are fewer than three", _add)
    removed = add("remove", "remove a node, after its partitions were moved to the others", _remove, "2")
    removed.add_argument(
        "--fewer-replicas",
        action="store_true",
        help="partitions may have fewer replicas, where there are not enough other nodes",
    )
    rolled = add("roll", "restart all nodes, one after the other, each when all are in sync", _roll)
    rolled.add_argument("ids", metavar="ID", type=positive, nargs="*", help="node ids (default: all)")
    for action in (killed, restarted, removed):
        action.add_argument("id", metavar="ID", type=positive, help="its node id")
    for action in (added, removed, rolled):
        action.add_argument(
            "--wait",
            metavar="S",
            type=seconds,
            default=_WAIT_S,
            help=f"how long each step may take (default: {_WAIT_S:g})",
        )
    add("stop", "stop all nodes cleanly, and wait until they have", stop)


# what needs a client is imported when it is asked for


def _add(options: argparse.Namespace) -> int:
    from barnabas.cli.local_cluster.membership import add

    return add(options)


def _remove(options: argparse.Namespace) -> int:
    from barnabas.cli.local_cluster.membership import remove

    return remove(options)


def _roll(options: argparse.Namespace) -> int:
    from barnabas.cli.local_cluster.roll import roll

    return roll(options)


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
        if options.replication is not None and options.replication > count:
            raise CommandFailed(
                f"{counted(count, 'node')} cannot hold {options.replication} replicas of a partition",
                "ask for more with --nodes, or for a smaller --replication",
            )
        plan = new_plan(directory, count, port, SystemRandom(), options.replication)
        _refuse_used_ports(plan, "name other ports with --port")
        # first of all: what is formatted later is formatted with these ids, whenever that is
        write_state(directory, ClusterState(plan, known_process(os.getpid()), {}))
        return plan
    left = [node_id for node_id, node in state.nodes.items() if node.is_alive]
    if left:
        raise CommandFailed(
            f"{names_of(left)} of an earlier run, whose supervisor is gone, still running in {directory}",
            f"`barnabas up stop --dir {directory}` stops them",
        )
    _refuse_another_shape(directory, state.plan, options)
    _refuse_used_ports(state.plan, "the ports of a cluster stay as they are: stop what listens there")
    return state.plan


def _refuse_another_shape(directory: Path, plan: ClusterPlan, options: argparse.Namespace) -> None:
    count, port = len(plan.nodes), plan.port
    if options.nodes not in (None, count) or options.port not in (None, port):
        raise CommandFailed(
            f"{directory} holds a cluster of {counted(count, 'node')} at port {port}",
            "leave out --nodes and --port, or name another directory with --dir; "
            "`barnabas up add` adds a node to one that runs",
        )
    if options.replication not in (None, plan.replication):
        raise CommandFailed(
            f"{directory} holds a cluster with {counted(plan.replicas, 'replica')} by default",
            "leave out --replication, or name another directory with --dir",
        )


def _refuse_used_ports(plan: ClusterPlan, next_step: str) -> None:
    """Refuse while nothing is written yet: the ports of a plan hold for all later runs."""
    for node in plan.nodes:
        for port in node.ports:
            if (reason := _cannot_listen(port)) is not None:
                raise CommandFailed(
                    f"node {node.node_id} cannot listen at {HOST}:{port}: {reason}", next_step
                )


def _cannot_listen(port: int) -> str | None:
    """Why nothing can listen there; None where it can."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            return error.strerror or str(error)
        except OverflowError:
            return "there is no such port"
    return None


async def _supervise(
    directory: Path, plan: ClusterPlan, settings: Sequence[tuple[str, str]], output: Output
) -> int:
    clock, workers = SystemClock(), ThreadWorkers()
    await format_nodes(plan, clock, SystemRandom())
    network, scratch = OsNetwork(workers), memoryview(bytearray(_SCRATCH_BYTES))

    async def is_ready(node: NodePlan) -> bool:
        return await answers_as(plan.cluster_id, Address(HOST, node.port), network, clock, scratch)

    def command(now: ClusterPlan, node: NodePlan) -> list[str]:
        told = {**run_settings(now, node), **dict(settings)}
        more = [word for name, text in told.items() for word in ("--set", f"{name}={text}")]
        return [sys.executable, "-m", "barnabas", "serve", "--config", str(node.settings_file), *more]

    tellers = [_teller(output)]

    def tell(event: Event) -> None:
        for teller in tellers:
            teller(event)

    supervisor = Supervisor(directory, plan, command=command, is_ready=is_ready, tell=tell)
    control = ControlServer(directory, _handlers(directory, supervisor), SystemRandom())
    tellers.append(control.tell)
    stop, kill = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: (kill if stop.is_set() else stop).set())
    await control.start()
    try:
        if sys.stdout.isatty() and not output.as_json:
            from barnabas.cli.local_cluster.board import Board  # draws, and is a client

            async with Board(supervisor, clock) as board:
                tellers[0] = board.tell
                is_clean = await _run(supervisor, control, stop, kill)
        else:
            is_clean = await _run(supervisor, control, stop, kill)
    finally:
        workers.close()
    _tell_end(output, is_clean=is_clean)
    return OK if is_clean else FAILED


async def _run(
    supervisor: Supervisor, control: ControlServer, stop: asyncio.Event, kill: asyncio.Event
) -> bool:
    running = asyncio.create_task(supervisor.run(stop, kill))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
        await control.close()
        return await running
    finally:
        stopped.cancel()
        await control.close()


def _handlers(directory: Path, supervisor: Supervisor) -> dict[str, Handler]:
    """What other processes may ask for."""

    async def restart(request: Mapping[str, Any]) -> dict[str, Any]:
        node_id = int(request["id"])
        state = await supervisor.restart(node_id)
        node = supervisor.plan.node(node_id)
        return {} if node is None else node_document(node, state)

    async def add(_: Mapping[str, Any]) -> dict[str, Any]:
        node = _next_node(directory, supervisor.plan)
        await format_nodes(supervisor.plan.with_node(node), SystemClock(), SystemRandom(), [node])
        return node_document(node, await supervisor.add(node))

    async def remove(request: Mapping[str, Any]) -> dict[str, Any]:
        await supervisor.remove(int(request["id"]))
        return {}

    return {"restart": restart, "add": add, "remove": remove}


def _next_node(directory: Path, plan: ClusterPlan) -> NodePlan:
    """The next node whose ports nothing has."""
    while plan.next_id <= MOST_NODES:
        node = plan.next_node(directory)
        if all(_cannot_listen(port) is None for port in node.ports):
            return node
        plan = plan._replace(next_id=plan.next_id + 1)
    raise CommandFailed("no ports are left for another node", "begin another cluster with --dir and --port")


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
