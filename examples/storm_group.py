"""The group of a storm: a broker, records that come all the time, members, and a book of what they did."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from confluent_kafka import Producer

from barnabas.client.admin import Admin
from barnabas.core.clock import SystemClock
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.workers import InlineWorkers
from barnabas.groups.classic import ClassicGroup
from barnabas.testing import Broker

TOPIC, GROUP = "orders", "billing"
MEMBERS, PARTITIONS = 4, 8
RATE = 60  # records a second in each partition
BATCH = 1000  # records that a member takes at a time, if so many are there
CALM_COST_S = 0.002  # a record's work
SETTLED_S = 60.0
TICK_S = 0.05
SILENCE_S = 1.0  # before a line is said again
PAUSE_S = 0.5  # without anything new: a pause
SETTINGS: dict[str, str | int] = {
    "session.timeout.ms": 1000,
    "heartbeat.interval.ms": 200,
    "max.poll.interval.ms": 2000,
    "partition.assignment.strategy": "range",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "log_level": 0,
}
BROKER = {
    "num.partitions": str(PARTITIONS),
    "offsets.topic.num.partitions": "1",
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "500",
}
SAID = {
    "late": "{name} was later than max.poll.interval.ms",
    "failed": "{name} cannot go on, and is started anew",
    "refused": "{name}: its commit is refused, {error}",
}


class Remedy(NamedTuple):
    """What members are set to beside SETTINGS, and how many records they take at a time."""

    settings: dict[str, str | int]
    batch: int = BATCH
    is_static: bool = False


class Outcome(NamedTuple):
    """What came of it, since the group was complete."""

    rebalances: int
    gone: int  # members that left or were thrown out, as often as that happened
    commits_refused: int
    processed: int
    processed_again: int
    paused_s: float  # of all partitions together
    longest_pause_s: float
    lag: int


class Sight(NamedTuple):
    """The group as its coordinator sees it."""

    state: str
    generation: int
    members: tuple[str, ...]  # by their instance where they have one
    rebalances: int


class Book:
    """What members told: which records were worked on, and when a partition brought anything new."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: Counter[tuple[int, int]] = Counter()
        self._news: dict[int, list[float]] = {partition: [] for partition in range(PARTITIONS)}
        self.counts: Counter[str] = Counter()

    def enter(self, told: dict[str, Any]) -> None:
        with self._lock:
            self.counts[told["event"]] += 1
            for partition, offset, at in told.get("done", ()):
                self._times[partition, offset] += 1
                if self._times[partition, offset] == 1:
                    self._news[partition].append(at)

    def is_complete(self) -> bool:
        """Whether something was read of every partition."""
        return all(self._news.values())

    def processed(self) -> tuple[int, int]:
        """How many records were worked on, and how often one that had been before."""
        with self._lock:
            return len(self._times), self._times.total() - len(self._times)

    def pauses_s(self, began: float, ended: float) -> list[float]:
        """How long partitions brought nothing new, each time that was worth the name."""
        with self._lock:
            moments = [
                [began, *(at for at in news if began < at < ended), ended] for news in self._news.values()
            ]
        gaps = [after - before for each in moments for before, after in pairwise(each)]
        return [gap for gap in gaps if gap >= PAUSE_S]


class StormGroup:
    """Members at work, once each of them has its partitions; `say` gets the timeline, line by line."""

    def __init__(self, remedy: Remedy, say: Callable[[str], None]) -> None:
        self._remedy = remedy
        self._say = say
        self._broker = Broker(settings=BROKER)
        self._book = Book()
        self._members: dict[int, subprocess.Popen[str]] = {}
        self._costs_s = dict.fromkeys(range(MEMBERS), CALM_COST_S)
        self._produced = 0  # in each partition
        self._gone = 0
        self._said_at: dict[str, float] = {}
        self._began = 0.0
        self._at_first = Sight("", 0, (), 0)
        self._processed_at_first = 0
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> StormGroup:
        self._broker.start()
        self._spawn(self._produce)
        for number in range(MEMBERS):
            self._start(number)
        deadline = time.monotonic() + SETTLED_S
        while not self._is_settled():
            if time.monotonic() > deadline:
                raise SystemExit(f"the group has not settled within {SETTLED_S:.0f} s")
            time.sleep(TICK_S)
        self._at_first = self._look()
        self._processed_at_first, _ = self._book.processed()
        self._book.counts.clear()
        self._began = time.monotonic()
        self.note(f"{MEMBERS} members read {PARTITIONS} partitions, {RATE * PARTITIONS} records a second")
        self._spawn(self._watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        for member in self._members.values():
            member.kill()
        for thread in self._threads:
            thread.join()
        for member in self._members.values():
            member.wait()
        self._broker.stop()

    def _spawn(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def outcome(self) -> Outcome:
        processed, again = self._book.processed()
        pauses = self._book.pauses_s(self._began, time.monotonic())
        now = self._look()
        return Outcome(
            rebalances=now.rebalances - self._at_first.rebalances,
            gone=self._gone,
            commits_refused=self._book.counts["refused"],
            processed=processed - self._processed_at_first,
            processed_again=again,
            paused_s=round(sum(pauses), 1),
            longest_pause_s=round(max(pauses, default=0.0), 1),
            lag=self._produced * PARTITIONS - asyncio.run(self._committed()),
        )

    async def _committed(self) -> int:
        seams = OsNetwork(InlineWorkers()), SystemClock(), SystemRandom()
        async with Admin(*seams, self._broker.bootstrap) as admin:
            return sum(one.offset for one in (await admin.list_group_offsets(GROUP)).values())

    # ---- what happens to it

    def set_cost(self, number: int, seconds: float) -> None:
        """How long that member works on a record from now on."""
        self._costs_s[number] = seconds
        self._tell(number, str(seconds))

    def delay(self, number: int, seconds: float) -> None:
        """The next record takes that member so much longer."""
        self._tell(number, f"+{seconds}")

    @contextmanager
    def frozen(self, number: int) -> Iterator[None]:
        """Without a turn of the processor, as long as the block lasts."""
        self._members[number].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._members[number].send_signal(signal.SIGCONT)

    def restart(self, number: int) -> None:
        """Stopped in good order, and started anew."""
        stdin = self._members[number].stdin
        assert stdin is not None
        stdin.close()
        self._members[number].wait()
        self._start(number)

    def kill(self, number: int) -> None:
        self._members[number].kill()

    def wait_until(self, seconds: float) -> None:
        """Until so long after the beginning."""
        time.sleep(max(0.0, self._began + seconds - time.monotonic()))

    def note(self, line: str) -> None:
        """A line of the timeline."""
        self._say(f"{time.monotonic() - self._began:5.1f} s  {line}")

    def _note_once(self, line: str) -> None:
        """The same, unless it was said just now."""
        now = time.monotonic()
        if now > self._said_at.get(line, 0.0) + SILENCE_S:
            self._said_at[line] = now
            self.note(line)

    # ---- members

    def _start(self, number: int) -> None:
        name = f"member-{number + 1}"
        settings = SETTINGS | self._remedy.settings | {"group.id": GROUP, "client.id": name}
        settings["bootstrap.servers"] = self._broker.bootstrap
        if self._remedy.is_static:
            settings["group.instance.id"] = name
        told = json.dumps({"topic": TOPIC, "batch": self._remedy.batch, "settings": settings})
        command = [sys.executable, str(Path(__file__).with_name("storm_member.py")), told]
        member = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._members[number] = member
        self._spawn(partial(self._listen, name, member))
        self._tell(number, str(self._costs_s[number]))

    def _tell(self, number: int, line: str) -> None:
        stdin = self._members[number].stdin
        assert stdin is not None
        stdin.write(f"{line}\n")

    def _listen(self, name: str, member: subprocess.Popen[str]) -> None:
        assert member.stdout is not None
        with member.stdout:
            for line in member.stdout:
                told = json.loads(line)
                self._book.enter(told)
                if self._began and told["event"] in SAID and not self._is_over.is_set():
                    self._note_once(SAID[told["event"]].format(name=name, **told))

    # ---- records

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "linger.ms": 0, "log_level": 0})
        began = time.monotonic()
        while not self._is_over.is_set():
            while self._produced < (time.monotonic() - began) * RATE:
                for partition in range(PARTITIONS):
                    producer.produce(TOPIC, b"an order", partition=partition)
                self._produced += 1
            producer.poll(TICK_S)
        producer.purge()

    # ---- the coordinator's view

    def _is_settled(self) -> bool:
        sight = self._look()
        return sight.state == "Stable" and len(sight.members) == MEMBERS and self._book.is_complete()

    def _watch(self) -> None:
        """Tell of every rebalance, and every generation that stands."""
        seen = self._at_first
        while not self._is_over.wait(TICK_S):
            sight = self._look()
            if sight.state != "Stable" and seen.state == "Stable":
                self.note("a rebalance begins")
            if sight.state == "Stable" and (seen.state, seen.generation) != ("Stable", sight.generation):
                count = len(sight.members)
                self.note(f"generation {sight.generation}: {count} member{'s' * (count != 1)}")
            self._gone += sum(member not in sight.members for member in seen.members)
            seen = sight

    def _look(self) -> Sight:
        return self._broker.run(self._look_inside())

    async def _look_inside(self) -> Sight:
        for host in self._broker.node.services.groups.loaded():
            shard = host.shard
            group = shard.groups.get(GROUP)
            if isinstance(group, ClassicGroup):
                members = tuple(one.instance_id or one.id for one in group.roster.by_id.values())
                return Sight(group.state, group.generation, members, shard.rebalances)
        return Sight("", 0, (), 0)
