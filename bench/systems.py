"""The brokers that are measured, each a process of its own on the loopback interface.

Both get the same settings and directories on the same disk. A `System` may be started more than once on one
directory; a `Running` never outlives the `with` block it was started in. What is timed is from exec to the
moment the broker serves: Apache Kafka's directory is formatted before the clock starts, Barnabas formats its
own as part of starting.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

from bench.proc import cpu_seconds
from tests.support.apache_kafka import ApacheKafka, free_ports

START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0
POLL_S = 0.001
NOTHING: Mapping[str, str] = MappingProxyType({})
# What a round wrote is gone before the next: memory that no file has used for a while may have to be fetched
# from the host of a virtual machine first, at more cost than everything that is to be measured.
SWIFT_DELETION: Mapping[str, str] = MappingProxyType({"log.segment.delete.delay.ms": "0"})
# as Kafka's own start script has them
KAFKA_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


class DidNotServe(Exception):
    """A broker did not come up, or did not go down, in time."""


class Running(NamedTuple):
    """A broker that serves, or several that are one cluster."""

    name: str
    bootstrap: str
    pid: int
    # on the monotonic clock, just before exec
    executed_at: float
    # from exec to serving
    started_seconds: float
    # the processes of the cluster's other nodes, and how many replicas its topics have
    other_pids: tuple[int, ...] = ()
    replicas: int = 1

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    def cpu_seconds(self) -> float:
        """Of all nodes since they were started."""
        return sum(map(cpu_seconds, (self.pid, *self.other_pids)))


class System(Protocol):
    """A broker that can be started."""

    name: str

    def start(
        self, directory: Path, settings: Mapping[str, str] = NOTHING
    ) -> contextlib.AbstractContextManager[Running]:
        """Serving inside the block, cleanly stopped at its end; killed where the block fails."""
        ...


class Kafka:
    """Apache Kafka, one node in combined mode."""

    name = "kafka"

    @contextlib.contextmanager
    def start(self, directory: Path, settings: Mapping[str, str] = NOTHING) -> Iterator[Running]:
        node = ApacheKafka(directory, settings=settings, jvm=KAFKA_JVM)
        node.format()
        executed_at = time.monotonic()
        with node:
            assert node.pid is not None
            seconds = time.monotonic() - executed_at
            yield Running(self.name, node.bootstrap, node.pid, executed_at, seconds)


class Process(ABC):
    """A broker that is one command; what it prints goes to a file beside its data."""

    name: str

    @abstractmethod
    def command(self, directory: Path, port: int, settings: Mapping[str, str]) -> list[str]:
        """What starts it."""

    @contextlib.contextmanager
    def start(self, directory: Path, settings: Mapping[str, str] = NOTHING) -> Iterator[Running]:
        directory.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        command = self.command(directory, port, settings)
        with (directory / "output.log").open("ab") as output:
            executed_at = time.monotonic()
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            _wait_until_it_listens(process, port, directory / "output.log")
            seconds = time.monotonic() - executed_at
            yield Running(self.name, f"127.0.0.1:{port}", process.pid, executed_at, seconds)
        except BaseException:
            process.kill()
            process.wait()
            raise
        _stop(process, self.name)


class Barnabas(Process):
    """`barnabas serve`."""

    name = "barnabas"

    def command(self, directory: Path, port: int, settings: Mapping[str, str]) -> list[str]:
        given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        listen = ["--listen", f"127.0.0.1:{port}"]
        return [sys.executable, "-m", "barnabas", "serve", "--dir", str(directory / "data"), *listen, *given]


class Responder(Process):
    """Answers like a broker and does nothing: what is measured against it is the client's own."""

    name = "responder"

    def command(self, directory: Path, port: int, settings: Mapping[str, str]) -> list[str]:
        return [sys.executable, "-m", "bench.responder", str(port)]


SYSTEMS: Mapping[str, System] = MappingProxyType({"barnabas": Barnabas(), "kafka": Kafka()})


@contextlib.contextmanager
def started(
    names: tuple[str, ...], root: Path, settings: Mapping[str, str] = NOTHING
) -> Iterator[dict[str, Running]]:
    """Several of them at a time, each in a directory of its own under `root`."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(SYSTEMS[name].start(root / name, settings)) for name in names}


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            state = "running" if process.returncode is None else f"ended with {process.returncode}"
            raise DidNotServe(f"{process.args!r} is {state}:\n{output.read_text()[-4000:]}")
        time.sleep(POLL_S)


def _stop(process: subprocess.Popen[bytes], name: str) -> None:
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise DidNotServe(f"{name} did not stop within {STOP_DEADLINE_S:.0f} s") from None
