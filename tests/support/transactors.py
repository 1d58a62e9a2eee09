"""Transactional processes of real clients, led from outside one step at a time (tests/interop/transactor.py).

    with Transactors() as start:
        process = start("java-4.3.0", bootstrap, "ledger", group="clerks", source="letters")
        process.do("init")
        process.do("take 2")          # ["0:0:a", "0:1:b"]
        process.told("commit")        # "ok", or the name of the error
        process.pause(); process.wake(); process.kill()

Between two steps a process waits for the next one: where it is killed or stopped is known exactly.
"""

from __future__ import annotations

import sys
from types import TracebackType

from tests.support import foreign
from tests.support.apache_kafka import VERSION
from tests.support.java_clients import PROGRAMS, java_client
from tests.support.stepped import SteppedProcess

JAVA_OLD = "3.9.1"
PYTHON = ("confluent", "aiokafka", "kafka-python")
JAVA = (f"java-{VERSION}", f"java-{JAVA_OLD}")


def command(client: str) -> list[str]:
    """What starts a process of that client."""
    if client in PYTHON:
        return [sys.executable, "-m", "tests.interop.transactor", client]
    if client == "kafkajs":
        return foreign.node_command("transactor.js")
    if client == "franz-go":
        return foreign.go_command("transactor")
    return java_client(client.removeprefix("java-"), PROGRAMS / "Transactor.java")


class Transactors:
    """Starts processes; none outlives the `with` block."""

    def __init__(self) -> None:
        self._all: list[SteppedProcess] = []

    def __enter__(self) -> Transactors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._all:
            process.kill()

    def __call__(
        self,
        client: str,
        bootstrap: str,
        name: str,
        *,
        timeout_ms: int = 60_000,
        group: str = "-",
        source: str = "-",
    ) -> SteppedProcess:
        """A process of that client, with `name` as transactional id; a producer alone unless in a group."""
        process = SteppedProcess(command(client), [bootstrap, name, str(timeout_ms), group, source])
        self._all.append(process)
        return process
