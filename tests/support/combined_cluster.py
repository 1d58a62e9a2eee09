"""A cluster of one system's own nodes: voters that are broker and controller, and brokers alone beside them.

Each node is a process with default settings, of Apache Kafka or of Barnabas, on the loopback interface or
where `network` has it; each system formats the directories with its own tool. No process outlives the `with`
block of the cluster.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from barnabas.core.random import SystemRandom, random_id
from barnabas.log.checkpoints import uuid_to_text
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.support.apache_kafka import LEAN_JVM, free_ports, java, tool
from tests.support.node_networks import Namespaces, NodeNetwork
from tests.support.raw_client import RawClient
from tests.support.raw_quorum import register_broker

KAFKA, BARNABAS = "kafka", "barnabas"
DEADLINE_S = 120.0
POLL_S = 0.002
SLOW_POLL_S = 0.01  # where what is waited for takes seconds
BROKERS, CONTROLLERS = 1, 2  # endpoint types

# of a cluster whose topics have one replica
SINGLE_REPLICAS = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class NotServing(AssertionError):
    """The cluster did not come to what was waited for."""


class CombinedCluster:
    """`system` is barnabas or kafka. Nodes `1..voters` are broker and controller, the further ones brokers
    alone. Inside the block all nodes serve but those in `later`, which are formatted and not started."""

    def __init__(
        self,
        system: str,
        root: Path,
        *,
        nodes: int = 3,
        voters: int = 3,
        later: int = 0,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = LEAN_JVM,
        network: NodeNetwork | None = None,
    ) -> None:
        self.system = system
        self.network = network or NodeNetwork()
        self.ids = list(range(1, nodes + later + 1))
        self.voter_ids = self.ids[:voters]
        self._at_first = self.ids[:nodes]
        self._root = root
        self._settings = {**SINGLE_REPLICAS, **(settings or {})}
        self._jvm = jvm
        ports = free_ports(len(self.ids) + voters)
        self.ports = dict(zip(self.ids, ports, strict=False))
        self.controller_ports = dict(zip(self.voter_ids, ports[len(self.ids) :], strict=True))
        random = SystemRandom()
        self.cluster_id = uuid_to_text(random_id(random))
        self.directory_ids = {each: uuid_to_text(random_id(random)) for each in self.voter_ids}
        self._voters = ",".join(
            f"{each}@{self.network.host(each)}:{port}:{self.directory_ids[each]}"
            for each, port in self.controller_ports.items()
        )
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        """The brokers that run."""
        return ",".join(f"{self.network.host(each)}:{self.ports[each]}" for each in self._processes)

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(f"{self.network.host(each)}:{port}" for each, port in self.controller_ports.items())

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def __enter__(self) -> CombinedCluster:
        for each in self.ids:
            self._format(each)
        try:
            for each in self._at_first:
                self.spawn(each)
            self.wait_until_active(len(self._at_first))
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill_all()

    def _kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _format(self, node_id: int) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        config = self.config(node_id)
        config.write_text("".join(f"{name}={value}\n" for name, value in self._properties(node_id).items()))
        voters = ["--initial-controllers", self._voters]
        if node_id not in self.voter_ids:
            voters = ["--no-initial-controllers"]
        arguments = ["format", "--cluster-id", self.cluster_id, "--config", str(config), *voters]
        if self.system == KAFKA:
            # a benchmark, which brings a JVM of its own, is not to have another one beside it
            jvm = None if self._jvm == LEAN_JVM else LEAN_JVM
            tool("kafka.tools.StorageTool", *arguments, jvm=jvm)
            return
        command = [sys.executable, "-m", "barnabas", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        if done.returncode:
            raise NotServing(f"node {node_id} could not be formatted: {done.stdout}{done.stderr}")

    def config(self, node_id: int) -> Path:
        """The properties of a node."""
        return self._root / f"{node_id}.properties"

    def data(self, node_id: int) -> Path:
        """Where a node keeps its partitions."""
        return self._root / f"data-{node_id}"

    def _properties(self, node_id: int) -> dict[str, str]:
        host = self.network.host(node_id)
        listeners = [f"PLAINTEXT://{host}:{self.ports[node_id]}"]
        if node_id in self.voter_ids:
            listeners.append(f"CONTROLLER://{host}:{self.controller_ports[node_id]}")
        return {
            "node.id": str(node_id),
            "process.roles": "broker,controller" if node_id in self.voter_ids else "broker",
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.bootstrap.servers": self.bootstrap_controllers,
            "log.dirs": str(self.data(node_id)),
            **self._settings,
        }

    def spawn(self, node_id: int) -> float:
        """Start a node, and wait for nothing; the time of its exec."""
        config = str(self.config(node_id))
        if self.system == KAFKA:
            command = java("kafka.Kafka", config, jvm=self._jvm)
        else:
            command = [sys.executable, "-m", "barnabas", "serve", "--config", config]
        with self.log_file(node_id).open("ab") as output:
            executed_at = time.monotonic()
            self._processes[node_id] = subprocess.Popen(
                self.network.command(node_id, command), stdout=output, stderr=output, start_new_session=True
            )
        return executed_at

    def log_file(self, node_id: int) -> Path:
        """What a node has written, in all its lives."""
        return self._root / f"{node_id}.log"

    def is_running(self, node_id: int) -> bool:
        """Whether a node was started, and not stopped or killed since."""
        return node_id in self._processes

    def kill(self, node_id: int) -> float:
        """kill -9; the time of it."""
        process = self._processes.pop(node_id)
        killed_at = time.monotonic()
        process.kill()
        process.wait(DEADLINE_S)
        return killed_at

    def stop(self, node_id: int) -> int:
        """A clean stop; its exit status."""
        process = self._processes.pop(node_id)
        process.terminate()
        return process.wait(DEADLINE_S)

    def pause(self, node_id: int) -> float:
        """SIGSTOP: it seems to live, and does nothing; the time of it."""
        paused_at = time.monotonic()
        self._processes[node_id].send_signal(signal.SIGSTOP)
        return paused_at

    def resume(self, node_id: int) -> None:
        self._processes[node_id].send_signal(signal.SIGCONT)

    def isolate(self, node_id: int) -> float:
        """Cut it off from the others, in a network that can; the time of it."""
        assert isinstance(self.network, Namespaces)
        isolated_at = time.monotonic()
        self.network.isolate(node_id)
        return isolated_at

    def heal(self, node_id: int) -> None:
        assert isinstance(self.network, Namespaces)
        self.network.heal(node_id)

    def client(self, node_id: int, port: int | None = None) -> RawClient:
        """A connection to a broker, or to another port of its node."""
        return RawClient(port or self.ports[node_id], host=self.network.host(node_id), source="0.0.0.0")

    def leader_by(self, node_id: int) -> int:
        """The active controller as a voter knows it, -1 where it knows none or does not answer."""
        return self._described(node_id, self.controller_ports[node_id], CONTROLLERS)[0]

    def leader(self, but: int = -1) -> int:
        """The active controller, once all running voters `but` one agree on it."""
        deadline = time.monotonic() + DEADLINE_S
        running = [each for each in self.voter_ids if each in self._processes and each != but]
        while len(told := {self.leader_by(each) for each in running}) > 1 or not told <= set(running):
            self._check(deadline, "the voters do not agree on a leader")
            time.sleep(POLL_S)
        return told.pop()

    def register_gone(self, broker_id: int) -> None:
        """Have a broker registered that does not exist, and so stays fenced."""
        register_broker(self.controller_ports[self.leader()], self.cluster_id, broker_id)

    def active_by(self, node_id: int) -> list[int]:
        """The brokers that are active, as one of them says."""
        return self._described(node_id, self.ports[node_id], BROKERS)[1]

    def wait_until_active(self, brokers: int) -> float:
        """Wait until so many brokers are active, as each of them says; the time."""
        deadline = time.monotonic() + DEADLINE_S
        for each in list(self._processes):
            while len(self.active_by(each)) < brokers:
                self._check(deadline, f"not all of {brokers} brokers are active")
                time.sleep(POLL_S)
        return time.monotonic()

    def _check(self, deadline: float, what: str) -> None:
        if time.monotonic() > deadline:
            raise NotServing(f"{self.system}: {what}")

    def wait_until_fenced(self, node_id: int) -> float:
        """Wait until the other brokers that run are the active ones, as each of them says; the time."""
        deadline = time.monotonic() + DEADLINE_S
        others = sorted(each for each in self._processes if each != node_id)
        for each in others:
            while sorted(self.active_by(each)) != others:
                self._check(deadline, f"broker {node_id} is not fenced")
                time.sleep(SLOW_POLL_S)
        return time.monotonic()

    def _described(self, node_id: int, port: int, endpoint_type: int) -> tuple[int, list[int]]:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False,
            endpoint_type=endpoint_type,
            include_fenced_brokers=False,
        )
        try:
            with self.client(node_id, port) as client:
                answer = client.ask(request, 2, DescribeClusterResponse)
        except (OSError, EOFError):
            return -1, []
        return answer.controller_id, [each.broker_id for each in answer.brokers]
