"""Commands go on, or begin, while a node of the cluster is gone: nothing of it is seen by their user."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.testing import Cluster
from tests.cli.running import DEADLINE_S, Commands, start

TOPIC = "letters"


@pytest.fixture
def barnabas(cluster: Cluster, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Commands:
    commands = Commands(cluster.bootstrap, capfdbinary, tmp_path)
    commands.ok("topic", "create", TOPIC, "--partitions", 1, "--replicas", 3)
    return commands


def say(process: subprocess.Popen[bytes], lines: list[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"".join(line + b"\n" for line in lines))
    process.stdin.flush()


def hear(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip() for _ in range(count)]


def test_produce_and_consume_follow_the_leader(cluster: Cluster, barnabas: Commands) -> None:
    writer = start(cluster.bootstrap, "produce", TOPIC)
    reader = start(cluster.bootstrap, "consume", TOPIC, "--follow", "--from", "earliest", "--values")
    for turn in range(3):
        lines = [b"letter %d of %d" % (number, turn) for number in range(10)]
        say(writer, lines)
        assert hear(reader, len(lines)) == lines
        cluster.wait_until_in_sync(TOPIC)
        leader = cluster.leader_of(TOPIC)
        cluster.kill(leader)
        lines = [b"%s, without node %d" % (line, leader) for line in lines]
        say(writer, lines)
        assert hear(reader, len(lines)) == lines
        cluster.restart(leader)
    _, told = writer.communicate(timeout=DEADLINE_S)
    assert writer.returncode == 0, told
    reader.send_signal(signal.SIGINT)
    _, told = reader.communicate(timeout=DEADLINE_S)
    assert reader.returncode == 0, told


def test_commands_begin_while_any_node_is_gone(cluster: Cluster, barnabas: Commands) -> None:
    barnabas.ok("produce", TOPIC, stdin=b"dear sir\n")
    barnabas.ok("group", "reset", "clerks", "--topic", TOPIC, "--to-earliest", "--execute")
    finders: list[Callable[[], int]] = [
        cluster.controller,
        lambda: cluster.leader_of(TOPIC),
        lambda: cluster.coordinator_of("clerks"),
    ]
    for number, find in enumerate(finders):
        cluster.wait_until_in_sync()
        node = find()
        cluster.kill(node)
        assert barnabas.ok("consume", TOPIC, "--values").startswith(b"dear sir\n")
        barnabas.ok("topic", "create", f"new-{number}", "--replicas", 3)
        barnabas.ok("topic", "describe", TOPIC)
        barnabas.ok("topic", "list")
        barnabas.ok("group", "list")
        barnabas.ok("group", "describe", "clerks")
        barnabas.ok("config", "describe", "--topic", TOPIC)
        barnabas.ok("txn", "list")
        barnabas.ok("cluster", "describe")
        barnabas.ok("produce", TOPIC, stdin=b"yours\n")
        cluster.restart(node)
