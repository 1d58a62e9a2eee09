"""Groups of real clients, led from outside: who joins, leaves, stalls, freezes and dies, and when.

A `Host` is a process with any number of members of one client (tests/interop/python_members.py says what it
understands). Hosts are shared by all tests, since a JVM is slow to start; one that is to be killed or frozen
is a test's own. A `Group` is a group of one test: its members, its history, and records that come all the
time, so that a member that does not read can be told from one that has nothing to read.

Everything waits with a deadline, and fails by saying what it waited for and what the members told.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

import confluent_kafka

from tests.support import foreign
from tests.support.apache_kafka import VERSION, missing
from tests.support.clients import confluent_consumer, create_topic
from tests.support.group_history import Event, History, Partition
from tests.support.java_clients import PROGRAMS, java_client

ROOT = Path(__file__).resolve().parent.parent.parent
JAVA_OLD = "3.9.1"
NEW_JAVA, OLD_JAVA = f"java-{VERSION}", f"java-{JAVA_OLD}"
PYTHON = ("confluent", "aiokafka", "kafka-python")
EAGER, ALL = ("range", "roundrobin", "sticky"), ("range", "roundrobin", "sticky", "cooperative-sticky")
# librdkafka has no sticky assignor of the old kind, aiokafka no cooperative one, kafkajs one of its own name
ASSIGNORS = {
    "confluent": ("range", "roundrobin", "cooperative-sticky"),
    "aiokafka": EAGER,
    "kafka-python": ALL,
    "kafkajs": ("RoundRobinAssigner", "roundrobin"),
    "franz-go": ALL,
    NEW_JAVA: ALL,
    OLD_JAVA: ALL,
}

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "3",
}
PARTITIONS = 7
PAUSES: list[str] = []  # told when all tests are done
DEADLINE_S = 120.0
POLL_S = 0.02
FEED_EVERY_S = 0.05
# a member that is only late on a busy machine is not to be taken for a dead one
SESSION_MS, HEARTBEAT_MS, POLL_INTERVAL_MS = 10_000, 200, 60_000
_names = itertools.count(1)


def is_here(client: str) -> bool:
    """Whether this machine can run it."""
    if client == "kafkajs":
        return foreign.missing_node() is None
    if client == "franz-go":
        return foreign.missing_go() is None
    return client in PYTHON or missing() is None


def command(client: str) -> list[str]:
    """What starts a host of that client."""
    if client in PYTHON:
        return [sys.executable, "-m", "tests.interop.python_members", client]
    if client == "kafkajs":
        return foreign.node_command("members.js")
    if client == "franz-go":
        return foreign.go_command("members")
    return java_client(client.removeprefix("java-"), PROGRAMS / "Members.java")


class Host:
    """A process with members of one client."""

    def __init__(self, client: str) -> None:
        self.client = client
        self._histories: dict[str, History] = {}
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `end`)
        self._process = subprocess.Popen(
            command(client),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            start_new_session=True,  # Linux shares a busy processor among sessions
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def do(self, what: str, member: str, **more: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, "member": member, **more}) + "\n")
        self._process.stdin.flush()

    def listen_to(self, member: str, history: History) -> None:
        self._histories[member] = history

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = Event.told(json.loads(line))
            self._histories[event.member].add(event)

    def freeze(self) -> None:
        """As a machine that hangs: nothing of it runs, heartbeats neither."""
        self._process.send_signal(signal.SIGSTOP)
        self._mark("frozen")

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join(DEADLINE_S)
        self._mark("killed")

    def _mark(self, did: str) -> None:
        for member, history in self._histories.items():
            history.add(Event(time.monotonic_ns(), member, did))

    def said(self) -> str:
        """Its standard error."""
        self._complaints.seek(0)
        return self._complaints.read().decode(errors="replace")[-1000:]

    def end(self) -> None:
        """Harmless when repeated."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._listener.join(DEADLINE_S)
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            with suppress(BrokenPipeError):
                end.close()
        self._complaints.close()


class Hosts:
    """Starts hosts; none outlives it."""

    def __init__(self) -> None:
        self._shared: dict[str, Host] = {}
        self._all: list[Host] = []

    def shared(self, client: str) -> Host:
        """The one that all tests use."""
        if client not in self._shared:
            self._shared[client] = self.own(client)
        return self._shared[client]

    def own(self, client: str) -> Host:
        """One that the test may kill or freeze."""
        host = Host(client)
        self._all.append(host)
        return host

    def end(self) -> None:
        for host in self._all:
            host.end()


class Member(NamedTuple):
    """One life of a member."""

    name: str
    host: Host

    def leave(self) -> None:
        self.host.do("leave", self.name)

    def stall(self) -> None:
        self.host.do("stall", self.name)

    def resume(self) -> None:
        self.host.do("resume", self.name)


class Group:
    """The members of one group, and what they told."""

    def __init__(
        self, hosts: Hosts, bootstrap: str, name: str, topics: Sequence[str], assignors: Sequence[str]
    ) -> None:
        self.hosts = hosts
        self.bootstrap = bootstrap
        self.name = name
        self.topics = list(topics)
        self.assignors = list(assignors)
        self.history = History()
        self.members: list[Member] = []

    def join(
        self,
        client: str,
        *,
        host: Host | None = None,
        assignors: Sequence[str] | None = None,
        instance: str | None = None,
        session_ms: int = SESSION_MS,
        poll_ms: int = POLL_INTERVAL_MS,
        **more: object,
    ) -> Member:
        """A new member; `settle` waits until it has its part. `more` is what only some clients understand."""
        member = Member(f"{client}#{next(_names)}", host or self.hosts.shared(client))
        member.host.listen_to(member.name, self.history)
        self.members.append(member)
        member.host.do(
            "join",
            member.name,
            bootstrap=self.bootstrap,
            group=self.name,
            topics=self.topics,
            assignors=list(assignors or self.assignors),
            instance=instance,
            session_ms=session_ms,
            heartbeat_ms=HEARTBEAT_MS,
            poll_ms=poll_ms,
            **more,
        )
        return member

    def leave(self, member: Member) -> None:
        """Cleanly, and wait for it."""
        member.leave()
        self.forget(member)
        self.wait(lambda: self.history.events("left", member=member.name), f"leaving of {member.name}")

    def forget(self, member: Member) -> None:
        """It is no longer expected to have a part."""
        self.members.remove(member)

    def replace(self, member: Member) -> None:
        """Somebody else takes its place, which it learns only later."""
        self.history.add(Event(time.monotonic_ns(), member.name, "replaced"))
        self.forget(member)

    def settle(self, partitions: int, deadline_s: float = DEADLINE_S) -> None:
        """Wait until each member has a part, all partitions are somebody's, and all are read from then on."""
        names = {member.name for member in self.members}

        def is_settled() -> bool:
            owned = self.history.owned()
            parts = [owned.get(name, set()) for name in names]
            return all(parts) and sum(map(len, parts)) == partitions and owned.keys() == names

        self.wait(is_settled, f"settled group of {sorted(names)}", deadline_s)
        since_ns = time.monotonic_ns()
        self.wait(
            lambda: len(self.history.read_since(since_ns)) == partitions,
            "reading of all partitions",
            deadline_s,
        )

    def parts(self) -> list[set[Partition]]:
        """What each of the members has."""
        owned = self.history.owned()
        return [owned.get(member.name, set()) for member in self.members]

    def end(self) -> None:
        """All leave at once."""
        leaving, self.members = self.members, []
        for member in leaving:
            member.leave()
        for member in leaving:
            self.wait(
                lambda member=member: self.history.events("left", "failed", member=member.name),  # type: ignore[misc]
                f"leaving of {member.name}",
            )

    def finish(self, produced: Mapping[Partition, int], deadline_s: float = DEADLINE_S) -> None:
        """Wait until everything is read and committed, and let all leave."""
        self.wait(lambda: self._is_read(produced), "end of reading", deadline_s)
        self.wait(lambda: self.history.committed() == produced, "commit of all that was read", deadline_s)
        self.end()

    def _is_read(self, produced: Mapping[Partition, int]) -> bool:
        read = self.history.read()
        return all(len(read[partition]) >= count for partition, count in produced.items())

    def wait(self, done: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
        deadline = time.monotonic() + deadline_s
        while not done():
            failed = [event for event in self.history.events("failed") if self._is_expected(event.member)]
            if failed or time.monotonic() > deadline:
                raise AssertionError(f"{self.name}: no {what} after {deadline_s:.0f} s\n{self.told()}")
            time.sleep(POLL_S)

    def _is_expected(self, name: str) -> bool:
        return any(member.name == name for member in self.members)

    def told(self) -> str:
        """What happened, for a failure's text: all but the reads, and the clients' own complaints."""
        lines: dict[str, int] = {}  # what is told over and over is told once, with its first time
        for event in self.history.events():
            if event.did not in ("read", "committed"):
                parts = " ".join(str(each.number) for each in event.partitions)
                lines.setdefault(f"{event.member} {event.did} {parts} {event.why}", event.at_ns)
        texts = [f"{at_ns / 1e9:.3f} {line}" for line, at_ns in lines.items()]
        said = {
            host.client: host.said()
            for host in {member.host.client: member.host for member in self.members}.values()
        }
        return "\n".join([*texts[-80:], *(f"{client} said: {text}" for client, text in said.items() if text)])


class Feeder:
    """Writes a record to each partition of a topic, again and again, in a thread."""

    def __init__(self, bootstrap: str, partitions: Sequence[Partition]) -> None:
        self._bootstrap = bootstrap
        self._partitions = partitions
        # idempotent, and more patient than any broker is away: what it sends is there, once
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 300_000,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(FEED_EVERY_S):
            for topic, number in self._partitions:
                self._producer.produce(topic, b"record", partition=number)
            self._producer.poll(0)
        self._producer.flush(DEADLINE_S)

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def stop(self) -> dict[Partition, int]:
        """How many records each partition has in the end."""
        self.ask_to_stop()
        self._thread.join(DEADLINE_S + 10)
        assert len(self._producer) == 0, "records still not delivered"
        with confluent_consumer(self._bootstrap) as consumer:
            return {
                each: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*each), DEADLINE_S)[1]
                for each in self._partitions
            }


class Groups:
    """Groups that go through the same steps side by side, each with a topic of its own that is written to."""

    def __init__(
        self,
        hosts: Hosts,
        bootstrap: str,
        prefix: str,
        assignors: Mapping[str, Sequence[str]],
        replicas: int = 1,
    ) -> None:
        """`assignors`: those of each group, by its name; `replicas` of its topic."""
        self.groups: list[Group] = []
        self._feeders: list[Feeder] = []
        for name, chosen in assignors.items():
            topic = f"{prefix}.{name}.{next(_names)}"
            create_topic(bootstrap, topic, PARTITIONS, replicas=replicas)
            self._feeders.append(
                Feeder(bootstrap, [Partition(topic, number) for number in range(PARTITIONS)])
            )
            self.groups.append(Group(hosts, bootstrap, topic, [topic], chosen))

    def __enter__(self) -> Groups:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for feeder in self._feeders:
            feeder.ask_to_stop()
        if kind is not None:  # members of shared hosts are not to stay
            for group in self.groups:
                for member in group.members:
                    member.leave()

    def settle(self) -> None:
        for group in self.groups:
            group.settle(PARTITIONS)

    def finish(self, *, once: bool) -> None:
        """Wait until everything is read and committed, let all leave, and judge."""
        for feeder in self._feeders:
            feeder.ask_to_stop()
        faults = []
        for group, feeder in zip(self.groups, self._feeders, strict=True):
            produced = feeder.stop()
            group.finish(produced)
            faults += group.history.faults(produced, once=once)
            kept, unread = group.history.longest_pauses()
            if group.assignors == ["cooperative-sticky"]:
                PAUSES.append(f"{group.name}: {kept or 'none'}; longest without any reader: {unread}")
            asked = committed_offsets(group.bootstrap, group.name, list(produced))
            faults += [] if asked == produced else [f"the broker says that {asked} is committed"]
            assert not faults, "\n".join([*faults[:20], group.told()])


def committed_offsets(bootstrap: str, group: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
    """What the broker says that the group has committed."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        asked = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
        found = consumer.committed(asked, timeout=DEADLINE_S)
        return {Partition(each.topic, each.partition): each.offset for each in found}
    finally:
        consumer.close()
