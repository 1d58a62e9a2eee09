"""A cluster of `barnabas serve` processes on this machine: voters that are brokers too, and brokers alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from barnabas.cli.main import main as barnabas
from barnabas.log.checkpoints import uuid_to_text
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.support.apache_kafka import free_ports
from tests.support.raw_client import RawClient, wait_until
from tests.support.serve_process import ServeProcess

CONTROLLERS = 2  # the endpoint type


class ServeCluster:
    """Nodes `1..voters` are broker and controller, the further ones brokers alone; `start` starts all."""

    def __init__(
        self, root: Path, nodes: int = 3, voters: int = 3, settings: Mapping[str, str] | None = None
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.ids = list(range(1, nodes + 1))
        self.voter_ids = self.ids[:voters]
        ports = free_ports(nodes + voters)
        self.ports = dict(zip(self.ids, ports, strict=False))
        self.controller_ports = dict(zip(self.voter_ids, ports[nodes:], strict=True))
        self.processes: dict[int, ServeProcess] = {}
        self._root = root
        self._settings = dict(settings or {})
        self._format()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def _format(self) -> None:
        cluster_id = uuid_to_text(uuid4())
        voters = ",".join(
            f"{each}@127.0.0.1:{self.controller_ports[each]}:{uuid_to_text(uuid4())}"
            for each in self.voter_ids
        )
        for node_id in self.ids:
            config = self._root / f"{node_id}.properties"
            properties = self.properties(node_id)
            config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
            arguments = ["format", "--cluster-id", cluster_id, "--config", str(config)]
            if node_id in self.voter_ids:
                arguments += ["--initial-controllers", voters]
            status = barnabas(arguments)
            assert status == 0, f"node {node_id} could not be formatted"
            self.processes[node_id] = ServeProcess(
                self._root / f"data-{node_id}", "--config", str(config), listen=None
            )

    def properties(self, node_id: int) -> dict[str, str]:
        """The settings of a node."""
        is_voter = node_id in self.voter_ids
        listeners = [f"PLAINTEXT://127.0.0.1:{self.ports[node_id]}"]
        if is_voter:
            listeners.append(f"CONTROLLER://127.0.0.1:{self.controller_ports[node_id]}")
        return {
            "node.id": str(node_id),
            "process.roles": "broker,controller" if is_voter else "broker",
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(
                f"127.0.0.1:{port}" for port in self.controller_ports.values()
            ),
            "log.dirs": str(self._root / f"data-{node_id}"),
            **self._settings,
        }

    def start(self) -> None:
        """Start all nodes; returns when each of them serves."""
        for process in self.processes.values():
            process.spawn()
        for process in self.processes.values():
            wait_until(lambda process=process: " serves at " in process.log(), "a node serves")  # type: ignore[misc]

    def leader_by(self, node_id: int) -> int:
        """The active controller as a voter knows it, -1 where it knows none."""
        with RawClient(self.controller_ports[node_id]) as client:
            return leader_told(client)

    def leader(self) -> int:
        """The active controller, once all voters agree on it."""
        told: set[int] = set()

        def agree() -> bool:
            told.clear()
            told.update(self.leader_by(each) for each in self.voter_ids)
            return len(told) == 1 and -1 not in told

        wait_until(agree, "all voters know the leader")
        return told.pop()

    def __enter__(self) -> ServeCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.kill()


def leader_told(client: RawClient) -> int:
    """The active controller as that controller knows it."""
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=CONTROLLERS, include_fenced_brokers=True
    )
    return client.ask(request, 2, DescribeClusterResponse).controller_id
