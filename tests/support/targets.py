"""What tests with real clients are run against: `--target=memory|process|kafka`.

memory is a broker inside the test process with its data in memory, process is `barnabas serve` in a process
and a directory of its own, kafka is Apache Kafka: what holds there is what a test may ask for. All three are
started, stopped cleanly and killed in the same way, and come back at the same port with the same data.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tests.support.apache_kafka import ApacheKafka, free_ports

KINDS = ("memory", "process", "kafka")
# Tests send records of years ago, which the default retention deletes: Apache Kafka looks for them 30 s after
# its start, Barnabas after five minutes, and both every five minutes from then on. With these it is never.
NO_RETENTION = {"log.retention.check.interval.ms": "86400000", "log.initial.task.delay.ms": "86400000"}
START_DEADLINE_S = 180.0
STOP_DEADLINE_S = 180.0
POLL_S = 0.01


class Target(Protocol):
    """A broker that can be ended and started again."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def port(self) -> int: ...
    def start(self) -> object: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


class ServeFailed(Exception):
    """`barnabas serve` did not start, or did not stop."""


class Served:
    """`barnabas serve` as a child process."""

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.port, self.controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{self.port}"
        listeners = f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self.controller_port}"
        given = {"listeners": listeners, **settings}
        self._log_file = home / "serve.log"
        self._command = [sys.executable, "-m", "barnabas", "serve", "--dir", str(home / "data")]
        for name, value in given.items():
            self._command += ["--set", f"{name}={value}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns when it takes connections."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServeFailed(f"does not serve:\n{self._log_file.read_text(errors='replace')[-4000:]}")
            time.sleep(POLL_S)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End it cleanly; harmless when repeated."""
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(signal.SIGTERM)
            try:
                status = process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise ServeFailed("did not stop") from None
            if status != 0:
                raise ServeFailed(
                    f"ended with {status}:\n{self._log_file.read_text(errors='replace')[-4000:]}"
                )

    def kill(self) -> None:
        """kill -9; harmless when repeated."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def make_target(kind: str, home: Path, settings: Mapping[str, str]) -> Target:
    """A target of that kind, not started yet."""
    if kind == "memory":
        from barnabas.testing import Broker  # other tests need not load a broker

        return Broker(settings=settings)
    if kind == "process":
        return Served(home, settings)
    return ApacheKafka(home, settings=settings)
