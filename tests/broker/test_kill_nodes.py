"""What `python -m tests.broker.kill_nodes` stands on: nodes that are cut off, and its table."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest

from tests.broker.kill_nodes import ACTIVE, MEASURES, ROLES, VOTER, Measured, table
from tests.support import node_networks
from tests.support.node_networks import Namespaces
from tests.support.raw_client import TIMEOUT_S

VANISHED_S = 0.2  # nobody answers, however long one waits


def own_namespace() -> int:
    return os.stat("/proc/thread-self/ns/net").st_ino


def names() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def needs_namespaces() -> None:
    lacks = node_networks.missing()
    if lacks is not None:
        pytest.skip(lacks)


@pytest.mark.usefixtures("needs_namespaces")
def test_an_isolated_node_is_reached_by_nobody_but_those_beside_it() -> None:
    with Namespaces([1, 2]) as network:
        with network.beside(1):
            server = socket.create_server((network.host(1), 0))
        with server:
            address = server.getsockname()
            socket.create_connection(address, TIMEOUT_S).close()
            network.isolate(1)
            with pytest.raises(TimeoutError):
                socket.create_connection(address, VANISHED_S)
            with network.beside(2), pytest.raises(TimeoutError):
                socket.create_connection(address, VANISHED_S)
            with network.beside(1):
                socket.create_connection(address, TIMEOUT_S).close()
            network.heal(1)
            with network.beside(2):
                socket.create_connection(address, TIMEOUT_S).close()


@pytest.mark.usefixtures("needs_namespaces")
def test_nothing_is_left_after_a_failure() -> None:
    before, seen = own_namespace(), []

    def fail() -> None:
        with Namespaces([1]):
            seen.append((own_namespace(), names()))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    prefix = f"barnabas-{os.getpid()}-"
    inside, named = seen.pop()
    assert inside != before
    assert prefix in named
    assert own_namespace() == before
    assert prefix not in names()


def test_systems_stand_side_by_side() -> None:
    first = Measured(1500.0, 20.0, 9000.4, 5.0, is_unseated=False, answered_beside=True)
    found = {role: [first, first._replace(leader_ms=2500.0)] if role == ACTIVE else [] for role in ROLES}
    lines = table({"barnabas": found, "kafka": {role: [] for role in ROLES}}).splitlines()
    assert " ".join(lines[2].split()) == f"{ACTIVE} {MEASURES[0][0]} 2,000 2,500 2 - - 0"
    assert sum(line.startswith(VOTER) for line in lines) == 3
    assert "barnabas: every answered topic is on every node, 2 of them created by nodes" in lines[-4]
