"""`barnabas up` with real nodes: started, looked at, killed, stopped, and started again on what is there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.local_cluster.state import read_state
from barnabas.cli.main import main
from barnabas.cli.up import answers_as
from barnabas.core.clock import SystemClock
from barnabas.core.network import Address
from barnabas.core.os_network import OsNetwork
from barnabas.core.settings.listeners import CONTROLLER_PORT_DISTANCE
from barnabas.core.settings.properties import parse_properties
from barnabas.core.workers import InlineWorkers
from tests.cli.running import until
from tests.support.port_ranges import free_port_range

DEADLINE_S = 60.0


class Up:
    """`barnabas up` in a process of its own, with what it prints in a file; nothing outlives the test."""

    def __init__(self, folder: Path, nodes: int, captured: pytest.CaptureFixture[str]) -> None:
        self.directory = folder / "cluster"
        self.port = free_port_range(nodes)
        self.nodes = nodes
        self._said = folder / "said"
        self._captured = captured
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Start, and wait until all nodes serve."""
        self._said.write_bytes(b"")
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barnabas", "up", "--dir", str(self.directory), *arguments],
                stdout=said,
                stderr=said,
                env={**os.environ, "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:1"},  # of no node
            )
        until(lambda: "all nodes serve" in self.said or self._process_ended())
        assert not self._process_ended(), self.said

    def first_start(self) -> None:
        self.start("--nodes", str(self.nodes), "--port", str(self.port))

    def _process_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def said(self) -> str:
        return self._said.read_text()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(DEADLINE_S)

    def run(self, *arguments: object, status: int = 0) -> str:
        """What another `barnabas up ...` prints, complaints included."""
        self._captured.readouterr()
        assert main(["up", *map(str, arguments), "--dir", str(self.directory)]) == status
        printed = self._captured.readouterr()
        return printed.out + printed.err

    def status(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.run("status", "--json"))
        return told

    def states(self) -> list[str]:
        return [node["state"] for node in self.status()["nodes"]]

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        state = read_state(self.directory)
        for node in () if state is None else state.nodes.values():
            if node.process is not None:
                node.process.send(signal.SIGKILL)


@pytest.fixture
def up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Up]:
    made = Up(tmp_path, 1, capsys)
    yield made
    made.close()


@pytest.fixture
def three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Up]:
    made = Up(tmp_path, 4, capsys)
    yield made
    made.close()


def test_one_node_lives_dies_and_comes_back(up: Up) -> None:
    up.first_start()
    told = up.status()
    assert told["running"]
    assert (told["bootstrap"], up.states()) == (f"127.0.0.1:{up.port}", ["serving"])
    assert "a cluster is running in" in up.run(status=1)
    killed = json.loads(up.run("kill", 1, "--json"))
    assert killed == {"id": 1, "pid": told["nodes"][0]["pid"]}
    until(lambda: up.states() == ["serving"] and up.status()["nodes"][0]["restarts"] == 1)
    assert up.status()["nodes"][0]["pid"] != killed["pid"]
    assert "there is no node 7" in up.run("kill", 7, status=1)
    assert "1 node stopped" in up.run("stop")
    assert up.wait() == 0
    assert up.said.splitlines()[-1] == "all nodes stopped cleanly"
    assert "nothing is running" in up.run("stop")
    assert "not running now (stopped)" in up.run("kill", 1, status=1)
    assert "STATE" in up.run("status")


def test_later_run_is_the_same_cluster(up: Up) -> None:
    up.first_start()
    cluster = up.status()["cluster_id"]
    up.signal(signal.SIGINT)  # as Ctrl-C
    assert up.wait() == 0
    assert f"a cluster of 1 node at port {up.port}" in up.run("--nodes", 3, status=1)
    up.start("--json")
    assert up.status()["cluster_id"] == cluster
    up.signal(signal.SIGTERM)
    assert up.wait() == 0
    events = [json.loads(line) for line in up.said.splitlines()]
    assert [(each["event"], each["node"]) for each in events] == [
        ("serves", 1),
        ("ready", None),
        ("stopping", 1),
        ("stopped", None),
    ]


def test_nodes_whose_supervisor_was_killed_can_be_stopped(up: Up) -> None:
    up.first_start()
    up.signal(signal.SIGKILL)
    up.wait()
    assert up.states() == ["serving"]
    assert not up.status()["running"]
    assert "node 1 is of an earlier run" in up.run(status=1)
    assert "its supervisor is gone, and nodes go on; `barnabas up stop` stops them" in up.run("status")
    assert "1 node stopped" in up.run("stop")
    assert up.states() == ["dead"]
    assert ": not running" in up.run("status")
    assert "stopped cleanly" in (up.directory / "1.log").read_text()


def test_what_a_node_says_is_told_where_it_cannot_start(up: Up) -> None:
    said = up.run("--nodes", 1, "--port", up.port, "--set", "log.retention.ms=0", status=1)
    assert "node 1 ended with status 1 before it served" in said
    assert "log.retention.ms must be -1" in said
    assert f"see {up.directory / '1.log'}" in said


def test_ports_in_use_are_refused_before_anything_is_written(up: Up) -> None:
    """The ports of a cluster stay as they are: the next try may name others."""
    controller = up.port + CONTROLLER_PORT_DISTANCE
    with socket.create_server(("127.0.0.1", controller)):
        said = up.run("--nodes", 1, "--port", up.port, status=1)
    assert f"node 1 cannot listen at 127.0.0.1:{controller}: Address already in use" in said
    assert "name other ports with --port" in said
    assert read_state(up.directory) is None
    up.first_start()
    assert "1 node stopped" in up.run("stop")
    with socket.create_server(("127.0.0.1", up.port)):
        assert f"node 1 cannot listen at 127.0.0.1:{up.port}" in up.run(status=1)


def test_another_cluster_at_the_port_is_not_taken_for_the_node(up: Up) -> None:
    up.first_start()
    cluster, at = up.status()["cluster_id"], Address("127.0.0.1", up.port)

    async def ask(cluster_id: str) -> bool:
        workers, clock = InlineWorkers(), SystemClock()
        return await answers_as(cluster_id, at, OsNetwork(workers), clock, memoryview(bytearray(1 << 16)))

    assert asyncio.run(ask(cluster))
    assert not asyncio.run(ask("another"))


def test_directory_of_something_else_is_refused(up: Up) -> None:
    up.directory.mkdir()
    (up.directory / "notes.txt").touch()
    assert "is not empty" in up.run(status=1)
    assert "there is no cluster" in up.run("status", status=1)


def test_three_voters_and_a_broker(three: Up, capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster that is formatted, elected, and goes on when a voter is killed."""
    up = three
    up.first_start()
    bootstrap = up.status()["bootstrap"]
    for node in (1, 2, 3, 4):
        settings = parse_properties((up.directory / str(node) / "server.properties").read_text())
        assert settings["process.roles"] == ("broker,controller" if node < 4 else "broker")
        assert len(settings["controller.quorum.bootstrap.servers"].split(",")) == 3

    def described() -> dict[str, Any]:
        capsys.readouterr()
        assert main(["cluster", "describe", "--json", "--bootstrap", bootstrap]) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    told = described()
    assert sorted(broker["id"] for broker in told["brokers"]) == [1, 2, 3, 4]
    assert sorted(voter["id"] for voter in told["quorum"]["voters"]) == [1, 2, 3]
    leader = told["quorum"]["leader_id"]
    up.run("kill", leader)
    assert main(["topic", "create", "letters", "--bootstrap", bootstrap, "--timeout", "60"]) == 0
    until(lambda: up.states() == ["serving"] * 4 and up.status()["nodes"][leader - 1]["restarts"] == 1)
    began = time.monotonic()
    assert "4 nodes stopped" in up.run("stop")
    assert time.monotonic() - began < DEADLINE_S
    assert up.wait() == 0, up.said
