"""A process of a cluster whose nodes are of two kinds: a controller or a broker, of Apache Kafka or Barnabas.

It has a home of its own: `server.properties`, `data`, and `node.log` with what it wrote in all its lives.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from barnabas.core.random import SystemRandom, random_id
from tests.support.apache_kafka import LEAN_JVM, free_ports, java

KAFKA, BARNABAS = "kafka", "barnabas"
DEADLINE_S = 120.0
POLL_S = 0.05
SMALL_JVM = ("-Xmx256m", *LEAN_JVM[1:])

T = TypeVar("T")


class ClusterFailed(AssertionError):
    """A node, or the cluster, did not come to what was waited for."""


def wait_for(what: str, found: Callable[[], T | None], diagnosis: Callable[[], str] = lambda: "") -> T:
    """What `found` gives at last."""
    deadline = time.monotonic() + DEADLINE_S
    while not (result := found()):
        if time.monotonic() > deadline:
            raise ClusterFailed(f"{what}: not within {DEADLINE_S:.0f} s\n{diagnosis()}")
        time.sleep(POLL_S)
    return result


@dataclass
class Absence:
    """From when to when nobody could reach a node, because it was stopped or killed."""

    begin: datetime
    end: datetime = datetime.max


class MixedNode:
    """One process, controller or broker; startable again after its end."""

    def __init__(
        self, home: Path, node_id: int, kind: str, role: str, port: int, settings: Mapping[str, str]
    ) -> None:
        """`settings` are those beside its own."""
        self.home = home
        self.data = home / "data"
        self.node_id = node_id
        self.kind = kind
        self.role = role
        self.directory_id = random_id(SystemRandom())
        self.log_file = home / "node.log"
        self.properties = home / "server.properties"
        self.is_paused = False
        self.absences: list[Absence] = []
        self.pauses: list[Absence] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = dict(settings)
        home.mkdir(parents=True)
        self.listen(port)

    def __str__(self) -> str:
        return f"{self.role} {self.node_id} of {self.kind}"

    def listen(self, port: int | None = None) -> None:
        """Have it listen at that port, or at another one than before, from its next start on."""
        self.port = free_ports(1)[0] if port is None else port
        self.address = f"127.0.0.1:{self.port}"
        lines = {
            "process.roles": self.role,
            "node.id": str(self.node_id),
            "listeners": f"{'CONTROLLER' if self.role == 'controller' else 'PLAINTEXT'}://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data),
            **self._settings,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, and wait for nothing."""
        if self._process is not None:
            raise ClusterFailed(f"{self} was started before, and not stopped")
        if self.kind == KAFKA:
            command = java("kafka.Kafka", self.properties, jvm=SMALL_JVM)
        else:
            command = [sys.executable, "-m", "barnabas", "serve", "--config", str(self.properties)]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def start_again(self) -> None:
        """Start, and wait until it accepts connections; so its absence has an end."""
        self.start()
        wait_for(f"{self} listens", self._listens, self.last_words)
        self.absences[-1].end = datetime.now()

    def _listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """A clean stop; harmless where it does not run."""
        if self._process is None:
            return
        self.absences.append(Absence(datetime.now()))
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ClusterFailed(f"{self} does not stop:\n{self.last_words()}") from None
        self._process = None

    def kill(self) -> None:
        """kill -9; harmless where it does not run."""
        if self._process is not None:
            self.absences.append(Absence(datetime.now()))
            self._process.kill()
            self._process.wait()
            self._process = None
            self.is_paused = False

    def pause(self) -> None:
        """SIGSTOP: it does nothing, and its connections stay."""
        self.pauses.append(Absence(datetime.now()))
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False
        self.pauses[-1].end = datetime.now()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise ClusterFailed(f"{self} does not run")
        self._process.send_signal(number)

    def log(self) -> str:
        """All that it has written."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def last_words(self) -> str:
        return f"--- {self}:\n{self.log()[-3000:]}"
