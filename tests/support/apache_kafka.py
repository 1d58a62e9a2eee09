"""Apache Kafka 4.3.0 itself, run beside the project: the oracle of the interop tests and of the benchmarks.

The jars come from Maven Central by `pom.xml` beside this file, once, into the user's cache. A node is one
KRaft process (broker and controller) under a home of its own: `server.properties`, `kafka.log` and, unless
another place is given, `data`. It listens on free ports of the loopback interface, and it never outlives the
`with` block that started it. Needs Java 17 or later (with its compiler, for the drivers) and Maven.

    python -m tests.support.apache_kafka start HOME [--data DIR] [--port N] [--set KEY=VALUE ...]
    python -m tests.support.apache_kafka tool org.apache.kafka.tools.DumpLogSegments --files ...
    python -m tests.support.apache_kafka libs
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.fetched import FetchFailed, jars_of
from tests.support.java_classes import archive, compiled, listing_classes, using

VERSION = "4.3.0"
HERE = Path(__file__).resolve().parent
START_DEADLINE_S = 180.0
STOP_DEADLINE_S = 180.0
POLL_S = 0.02
# quick to start rather than quick to run; a benchmark brings its own
START_QUICKLY = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SHARE_CLASSES = "-Xshare:auto"  # and those of Apache Kafka, too
LOGGING = f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"
LEAN_JVM = (*START_QUICKLY, SHARE_CLASSES)


class KafkaFailed(Exception):
    """Apache Kafka, or one of its tools, did not do what was asked."""


@functools.cache
def missing() -> str | None:
    """What this machine lacks to run Apache Kafka, None where nothing."""
    if shutil.which("java") is None:
        return "java is not on the PATH"
    if shutil.which("mvn") is None:
        return "mvn (Maven) is not on the PATH"
    listed = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"^java\.base@(\d+)", listed, re.MULTILINE)
    if version is None or int(version[1]) < 17:
        return "java is older than 17"
    if "jdk.compiler@" not in listed:
        return "java comes without its compiler (a JRE, where a JDK is needed)"
    return None


def libs() -> Path:
    """The folder of jars."""
    return jars_of(f"apache-kafka-{VERSION}", HERE / "pom.xml")


def java(main: str | Path, *arguments: str | Path, jvm: Sequence[str] = LEAN_JVM) -> list[str]:
    """The command that runs a main class, or a single source file, with Apache Kafka on the class path."""
    class_path, shared = f"{libs()}/*", shared_classes() if SHARE_CLASSES in jvm else None
    if isinstance(main, Path):
        main, class_path = main.stem, f"{class_path}:{compiled(main, libs())}"
    return ["java", *jvm, *using(shared), LOGGING, "-cp", class_path, main, *map(str, arguments)]


@functools.cache
def shared_classes() -> Path | None:
    """An archive of what a node, its tools and its clients load; programs run without it as well."""
    try:
        return archive(libs(), _use_everything)
    except (KafkaFailed, subprocess.TimeoutExpired):
        return None


def _use_everything(lists: Path) -> None:
    jvm = (*START_QUICKLY, listing_classes(lists))
    tools = "org.apache.kafka.tools"
    with tempfile.TemporaryDirectory() as home, ApacheKafka(Path(home), jvm=jvm) as kafka:
        to, topic = ("--bootstrap-server", kafka.bootstrap), ("--topic", "used")
        tool(f"{tools}.TopicCommand", *to, "--create", *topic, jvm=jvm)
        sent = ("--num-records", "10", "--record-size", "10", "--throughput", "-1")
        tool(f"{tools}.ProducerPerformance", *to, *topic, *sent, jvm=jvm)
        read = ("--group", "readers", "--from-beginning", "--max-messages", "10")
        tool(f"{tools}.consumer.ConsoleConsumer", *to, *topic, *read, jvm=jvm)
        file = kafka.data / "used-0" / f"{0:020}.log"
        tool(f"{tools}.DumpLogSegments", "--print-data-log", "--files", file, jvm=jvm)


def tool(
    main: str | Path,
    *arguments: str | Path,
    timeout_s: float = 120.0,
    jvm: Sequence[str] | None = None,
) -> str:
    """All that a main class (or a .java file) prints, complaints included; KafkaFailed where it fails.

    It runs in the JVM that this process keeps for tools, or, with `jvm`, in one of its own.
    """
    if jvm is None:
        from tests.support.kafka_tools import run_main  # which needs what is here

        return run_main(main, *map(str, arguments), timeout_s=timeout_s)
    done = subprocess.run(
        java(main, *arguments, jvm=jvm),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise KafkaFailed(f"{main} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on now, all different.

    They are below those that systems give to outgoing connections: one of these could take it in between.
    """
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = 10_000 + secrets.randbelow(20_000)
            candidate = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                candidate.bind(("127.0.0.1", port))
                found.append(port)
    return found


def call(port: int, api_key: int, version: int, body: bytes, *, timeout_s: float = 10.0) -> bytes:
    """One request over a connection of its own (of the versions with plain headers), and its response."""
    client = b"apache_kafka.py"
    request = struct.pack(">hhih", api_key, version, 1, len(client)) + client + body
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        return _receive(connection, size)[4:]


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionResetError("closed in the middle of a response")
        received += part
    return received


class ApacheKafka:
    """One node: `with ApacheKafka(home) as kafka: ... kafka.bootstrap`; startable again after a stop."""

    def __init__(
        self,
        home: Path,
        *,
        data: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] | None = None,
        standalone: bool = False,
    ) -> None:
        """`standalone`: the voters stand in the log (kraft.version 1), not in the settings. `jvm`: options of
        its own, which are also those of the JVM that formats its directory."""
        self.home = home
        self.data = data or home / "data"
        free = free_ports(2)
        self.port, self.controller_port = port or free[0], free[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._settings = dict(settings or {})
        self._jvm = None if jvm is None else tuple(jvm)
        self._standalone = standalone
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ApacheKafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return self._process.pid if self._process is not None else None

    def format(self) -> Path:
        """Write server.properties, format the data directory if it is new, and say where the former is."""
        self.home.mkdir(parents=True, exist_ok=True)
        properties = self.home / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        if not (self.data / "meta.properties").exists():
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            how = ["--standalone"] if self._standalone else []
            given = [f"--cluster-id={cluster_id}", *how, "-c", str(properties)]
            tool("kafka.tools.StorageTool", "format", *given, jvm=self._jvm)
        return properties

    def start(self) -> None:
        """Format the data directory if it is new, start, and return when the broker serves clients."""
        self.launch()
        try:
            self._wait_until_it_serves()
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """The same without waiting for anything."""
        if self._process is not None:
            raise KafkaFailed(f"already running as process {self._process.pid}")
        properties = self.format()
        with (self.home / "kafka.log").open("ab") as log:
            command = java("kafka.Kafka", properties, jvm=self._jvm or LEAN_JVM)
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def stop(self) -> None:
        """A clean stop; harmless where it does not run."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise KafkaFailed(f"did not stop within {STOP_DEADLINE_S:.0f} s:\n{self._log()}") from None
        self._process = None

    def kill(self) -> None:
        """kill -9: the page cache survives, nothing is closed; harmless where it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _properties(self) -> dict[str, str]:
        controller = f"127.0.0.1:{self.controller_port}"
        quorum = {"controller.quorum.voters": f"1@{controller}"}
        if self._standalone:
            quorum = {"controller.quorum.bootstrap.servers": controller}
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            **quorum,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data.resolve()),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }

    def _wait_until_it_serves(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._serves():
            if self._process.poll() is not None:
                raise KafkaFailed(f"ended with {self._process.returncode} while starting:\n{self._log()}")
            if time.monotonic() > deadline:
                raise KafkaFailed(f"does not serve after {START_DEADLINE_S:.0f} s:\n{self._log()}")
            time.sleep(POLL_S)

    def _serves(self) -> bool:
        """Whether it names itself as a live broker (Metadata v1, no topics): only then can topics be made."""
        try:
            response = call(self.port, 3, 1, struct.pack(">i", 0), timeout_s=1.0)
        except OSError:
            return False
        (brokers,) = struct.unpack_from(">i", response)
        return bool(brokers > 0)

    def _log(self) -> str:
        return (self.home / "kafka.log").read_text(errors="replace")[-4000:]


def _start(arguments: argparse.Namespace) -> None:
    settings = dict(each.split("=", 1) for each in arguments.set)
    # both ways of ending this script end the node as well
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ApacheKafka(arguments.home, data=arguments.data, port=arguments.port, settings=settings) as kafka:
        print(f"bootstrap {kafka.bootstrap}, data {kafka.data}, pid {kafka.pid}; Ctrl-C stops it", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopping")


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=f"Apache Kafka {VERSION}, from Maven Central")
    commands = parser.add_subparsers(required=True)
    start = commands.add_parser("start", help="run one node until Ctrl-C")
    start.add_argument("home", type=Path)
    start.add_argument("--data", type=Path, help="its log directory (HOME/data)")
    start.add_argument("--port", type=int, help="a free one unless given")
    start.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a line of server.properties"
    )
    start.set_defaults(run=_start)
    of_tool = commands.add_parser("tool", help="run a main class")
    of_tool.add_argument("main_class")
    of_tool.add_argument("arguments", nargs=argparse.REMAINDER)
    of_tool.set_defaults(
        run=lambda given: print(tool(given.main_class, *given.arguments, jvm=LEAN_JVM), end="")
    )
    of_libs = commands.add_parser("libs", help="print the folder of jars")
    of_libs.set_defaults(run=lambda _: print(libs()))
    arguments = parser.parse_args(argv)
    lacking = missing()
    if lacking is not None:
        sys.exit(f"cannot run Apache Kafka here: {lacking}")
    try:
        arguments.run(arguments)
    except (FetchFailed, KafkaFailed) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
