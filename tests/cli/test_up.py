"""`barnabas up` with real nodes: started, looked at, killed, stopped, and started again on what is there."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.failures import INTERRUPTED
from barnabas.cli.local_cluster.control import CONTROL
from barnabas.cli.local_cluster.state import read_state
from barnabas.cli.main import main
from barnabas.cli.up import answers_as
from barnabas.core.clock import SystemClock
from barnabas.core.network import Address
from barnabas.core.os_network import OsNetwork
from barnabas.core.settings.listeners import CONTROLLER_PORT_DISTANCE
from barnabas.core.settings.properties import parse_properties
from barnabas.core.workers import InlineWorkers
from tests.cli.running import Commands, heed_interrupts, until
from tests.support.port_ranges import free_port_range

DEADLINE_S = 120.0


class Up:
    """`barnabas up` in a process of its own, with what it prints in a file; nothing outlives the test."""

    def __init__(self, folder: Path, nodes: int, captured: pytest.CaptureFixture[bytes]) -> None:
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
                preexec_fn=heed_interrupts,
            )
        until(lambda: "all nodes serve" in self.said or self._process_ended())
        assert not self._process_ended(), self.said

    def first_start(self, *arguments: str) -> None:
        self.start("--nodes", str(self.nodes), "--port", str(self.port), *arguments)

    def commands(self) -> Commands:
        """Runs other commands against the cluster."""
        return Commands(self.status()["bootstrap"], self._captured, self.directory.parent)

    def quorum(self, run: Commands) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(run.ok("cluster", "describe", "--json"))["quorum"]
        return told

    def partitions(self, run: Commands, topic: str) -> list[dict[str, Any]]:
        (told,) = json.loads(run.ok("topic", "describe", topic, "--json"))
        partitions: list[dict[str, Any]] = told["partitions"]
        return partitions

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
        return (printed.out + printed.err).decode()

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
def up(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Up]:
    made = Up(tmp_path, 1, capfdbinary)
    yield made
    made.close()


@pytest.fixture
def three(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Up]:
    made = Up(tmp_path, 4, capfdbinary)
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


def test_logs_of_nodes_are_shown_and_followed(up: Up) -> None:
    up.first_start()
    (line,) = up.run("logs", "--lines", 1).splitlines()
    assert line in (up.directory / "1.log").read_text()
    assert up.run("logs", 1, "--lines", 0) == ""
    told = [json.loads(each) for each in up.run("logs", "--json", "--lines", 2).splitlines()]
    assert [each["node"] for each in told] == [1, 1]
    assert "there is no node 7" in up.run("logs", 7, status=1)
    follow = [sys.executable, "-m", "barnabas", "up", "logs", "--follow", "--dir", str(up.directory)]
    with (
        subprocess.Popen(follow, stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts) as following,
        ended(following),
    ):
        assert following.stdout is not None
        with (up.directory / "1.log").open("a") as log:
            log.write("half ")
            log.flush()
            log.write("a line\n")
        assert any(line == "half a line\n" for line in following.stdout)
        following.send_signal(signal.SIGINT)
        assert following.wait(DEADLINE_S) == INTERRUPTED


def test_node_is_restarted_by_another_process(up: Up) -> None:
    assert "there is no cluster" in up.run("restart", 1, status=1)
    up.first_start()
    (before,) = up.status()["nodes"]
    said = up.run("restart", 1)
    assert "node 1 is told to stop" in said
    assert "node 1 restarted in" in said
    (after,) = up.status()["nodes"]
    assert (after["state"], after["ended"], after["restarts"]) == ("serving", "ended with status 0", 1)
    assert after["pid"] != before["pid"]
    assert json.loads(up.run("restart", 1, "--json"))["restarts"] == 2
    assert "there is no node 7" in up.run("restart", 7, status=1)
    assert "one node alone is no cluster" in up.run("roll", status=1)
    assert "node 1 is the only one" in up.run("remove", 1, status=1)
    up.run("stop")
    assert "no cluster is running in" in up.run("restart", 1, status=1)


def test_requests_without_the_token_are_refused(up: Up) -> None:
    up.first_start()
    control = up.directory / CONTROL
    assert control.stat().st_mode & 0o777 == 0o600
    right = control.read_text()
    control.write_text(json.dumps({**json.loads(right), "token": "guessed"}))
    assert "the token is wrong" in up.run("restart", 1, status=1)
    control.write_text("{}")
    assert "cannot read" in up.run("restart", 1, status=1)
    control.write_text(right)
    assert up.status()["nodes"][0]["restarts"] == 0
    up.run("stop")
    assert not control.exists()


def test_table_stays_at_a_terminal(up: Up) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))
    command = [sys.executable, "-m", "barnabas", "up", "--dir", str(up.directory)]
    command += ["--nodes", "1", "--port", str(up.port)]
    with (
        subprocess.Popen(command, stdout=slave, stderr=slave, preexec_fn=heed_interrupts) as process,
        ended(process),
    ):
        os.close(slave)
        screen = Screen(master)
        screen.until("all nodes serve")
        screen.until("active")
        screen.until("0 partitions: 0 without a leader")
        assert re.search(r"1\W+active\W+(\x1b\[32m)?serving", screen.text)
        assert "records/s" in screen.text
        assert main(["topic", "create", "letters", "--bootstrap", f"127.0.0.1:{up.port}"]) == 0
        screen.until("1 partition: 0 without a leader")
        process.send_signal(signal.SIGINT)
        screen.until("all nodes stopped cleanly")
        assert process.wait(DEADLINE_S) == 0
    os.close(master)


@contextlib.contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[None]:
    """It ends with the block, however that ends."""
    try:
        yield
    finally:
        process.kill()


class Screen:
    """What a process has written to a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.text = ""

    def until(self, text: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.text:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} does not come: {self.text[-2000:]!r}"
            self.text += os.read(self._descriptor, 1 << 16).decode()


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


def test_more_replicas_than_nodes_are_refused(up: Up) -> None:
    said = up.run("--nodes", 1, "--replication", 2, "--port", up.port, status=1)
    assert "1 node cannot hold 2 replicas" in said
    assert read_state(up.directory) is None


def test_cluster_grows_is_rolled_and_shrinks(three: Up) -> None:
    """One node becomes three, all of them voters, with copies of everything; then the first one leaves."""
    up, written = three, [str(number).encode() for number in range(300)]
    up.nodes = 1
    up.first_start("--set", "offsets.topic.num.partitions=4")
    run = up.commands()
    run.ok("topic", "create", "letters", "--partitions", 3)
    run.ok("produce", "letters", stdin=b"\n".join(written[:100]))
    # __consumer_offsets is made, with one replica
    run.ok("group", "reset", "readers", "--topic", "letters", "--to-latest", "--execute")

    first = json.loads(up.run("add", "--json"))
    assert (first["id"], first["roles"]) == (2, ["broker", "controller"])
    assert first["internal_topics"]["longest_pause_s"] is None  # nothing asked for two in sync
    said = up.run("add")
    assert "node 3 has joined: broker and controller, voter 3 of 3" in said
    assert "4 partitions of 4 have their replicas" in said
    assert "topics get 3 replicas by default, no longer 2" in said
    run.bootstrap = up.status()["bootstrap"]
    assert sorted(voter["id"] for voter in up.quorum(run)["voters"]) == [1, 2, 3]
    assert {len(each["in_sync"]) for each in up.partitions(run, "__consumer_offsets")} == {3}
    assert {tuple(each["replicas"]) for each in up.partitions(run, "letters")} == {(1,)}

    rolled = json.loads(up.run("roll", "--json"))
    assert sorted(step["node"] for step in rolled["nodes"]) == [1, 2, 3]
    assert [node["restarts"] for node in up.status()["nodes"]] == [1, 1, 1]
    run.ok("topic", "create", "orders", "--partitions", 2)
    assert {len(each["replicas"]) for each in up.partitions(run, "orders")} == {3}
    run.ok("produce", "orders", stdin=b"\n".join(written[100:]))

    refused = up.run("remove", 1, status=1)
    assert "3 replicas need as many brokers, and 2 would be left" in refused
    assert "`barnabas up add` adds a node first" in refused
    assert {tuple(each["replicas"]) for each in up.partitions(run, "letters")} == {(1,)}  # nothing was done
    assert json.loads(up.run("add", "--json"))["roles"] == ["broker"]
    removed = up.run("remove", 1)
    assert "node 1 removed: 9 partitions moved" in removed
    assert "two voters are left" in removed
    run.bootstrap = up.status()["bootstrap"]
    assert [node["id"] for node in up.status()["nodes"]] == [2, 3, 4]
    assert sorted(voter["id"] for voter in up.quorum(run)["voters"]) == [2, 3]
    assert sorted(each["id"] for each in json.loads(run.ok("cluster", "describe", "--json"))["brokers"]) == [
        2,
        3,
        4,
    ]
    read = run.ok("consume", "letters", "--values").split() + run.ok("consume", "orders", "--values").split()
    assert sorted(read) == sorted(written)
    assert "there is no node 1" in up.run("remove", 1, status=1)
    run.ok("cluster", "roll-check")
    assert "3 nodes stopped" in up.run("stop")
    assert up.wait() == 0, up.said
    up.start()
    assert [node["id"] for node in up.status()["nodes"]] == [2, 3, 4]
    assert sorted(run.ok("consume", "letters", "--values").split()) == sorted(written[:100])
    up.run("stop")


def test_cluster_without_copies(three: Up) -> None:
    up = three
    up.nodes = 2
    up.first_start("--replication", "1")
    run = up.commands()
    run.ok("topic", "create", "letters", "--partitions", 4)
    assert [len(each["replicas"]) for each in up.partitions(run, "letters")] == [1] * 4
    assert json.loads(up.run("add", "--json"))["internal_topics"] is None
    said = up.run("remove", 2)
    assert "2 partitions moved" in said
    run.bootstrap = up.status()["bootstrap"]
    assert {each["leader"] for each in up.partitions(run, "letters")} <= {1, 3}
    up.run("stop")
    assert "holds a cluster with 1 replica by default" in up.run("--replication", 2, status=1)


def test_three_voters_and_a_broker(three: Up) -> None:
    """A cluster that is formatted, elected, and goes on when a voter is killed."""
    up = three
    up.first_start()
    for node in (1, 2, 3, 4):
        settings = parse_properties((up.directory / str(node) / "server.properties").read_text())
        assert settings["process.roles"] == ("broker,controller" if node < 4 else "broker")
        assert len(settings["controller.quorum.bootstrap.servers"].split(",")) == 3

    run = up.commands()
    told = json.loads(run.ok("cluster", "describe", "--json"))
    assert sorted(broker["id"] for broker in told["brokers"]) == [1, 2, 3, 4]
    assert sorted(voter["id"] for voter in told["quorum"]["voters"]) == [1, 2, 3]
    leader = told["quorum"]["leader_id"]
    up.run("kill", leader)
    run.ok("topic", "create", "letters", "--timeout", 60)
    until(lambda: up.states() == ["serving"] * 4 and up.status()["nodes"][leader - 1]["restarts"] == 1)
    began = time.monotonic()
    assert "4 nodes stopped" in up.run("stop")
    assert time.monotonic() - began < DEADLINE_S
    assert up.wait() == 0, up.said
