"""Consumer groups, transactional loops and applications on one input topic, and what must hold of them.

Each client has a group with two members, one of them static, and a loop (transaction_loops.py) whose output
is a topic of its own; applications (copying_applications.py) have one, too. `Load` lets members come and go,
and judges:

- of groups: no partition has two owners, nothing is skipped, every record is read, acknowledged commits do
  not go back, neither as members see them nor as the coordinator tells (group_history.py), and a group
  settles;
- of loops and applications: when no more is written they come to the end, the committed output is the input,
  each record once, of loops and of Spark in order, and no transaction stays open.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import KafkaException

from tests.broker.coordinator_outputs import (
    SHOWN,
    committed_values,
    differences,
    has_open_transaction,
    output_of,
)
from tests.broker.copying_applications import APPLICATIONS, Copying
from tests.support.clients import until
from tests.support.group_history import Event, Partition
from tests.support.group_members import Group, Hosts, Member, committed_offsets
from tests.support.replicated_topic import ReplicatedTopic
from tests.support.transaction_loops import TransactionLoop
from tests.support.transactors import Transactors

# longer than any fault: a member is not to be taken for dead because its coordinator was
SESSION_MS, POLL_INTERVAL_MS, SETTLE_S = 45_000, 300_000, 180.0
END_S = 600.0
START_S = OUTPUTS_S = 600.0  # Spark takes minutes to start on a busy machine


class GroupLoad:
    """A group of one client, whose members come and go."""

    def __init__(self, hosts: Hosts, topic: ReplicatedTopic, client: str) -> None:
        self.client = client
        self.failures: list[str] = []  # members that ended by themselves
        self._partitions = [Partition(topic.name, each) for each in range(topic.partitions)]
        self._group = Group(hosts, topic.cluster.bootstrap, f"group-{client}", [topic.name], ["range"])
        self._instance = f"static-{client}"
        self._static = self._join(self._instance)
        self._other = self._join(None)

    def _join(self, instance: str | None) -> Member:
        return self._group.join(
            self.client, instance=instance, session_ms=SESSION_MS, poll_ms=POLL_INTERVAL_MS
        )

    @property
    def commits(self) -> int:
        return len(self._group.history.events("committed"))

    def change(self, random: Random) -> None:
        """A member goes, and another one comes: the static one by the same name."""
        if random.random() < 0.5:
            self._static = self._replace(self._static, self._instance)
        else:
            self._other = self._replace(self._other, None)

    def _replace(self, member: Member, instance: str | None) -> Member:
        member.leave()
        self._group.forget(member)
        self._await_end(member)
        return self._join(instance)

    def _await_end(self, member: Member) -> list[Event]:
        history = self._group.history
        gone: list[Event] = until(
            lambda: history.events("left", "failed", member=member.name), f"end of {member.name}", SETTLE_S
        )
        self.failures += [f"{member.name}: {each.why}" for each in gone if each.did == "failed"]
        return gone

    def settle(self) -> None:
        """Wait until both members have a part, and everything is read; one that has failed is replaced."""
        while True:
            failed = {each.member for each in self._group.history.events("failed")}
            if self._static.name in failed:
                self._static = self._replace(self._static, self._instance)
            if self._other.name in failed:
                self._other = self._replace(self._other, None)
            try:
                self._group.settle(len(self._partitions), SETTLE_S)
            except AssertionError:
                failed = {each.member for each in self._group.history.events("failed")}
                if not failed.intersection((self._static.name, self._other.name)):
                    raise
            else:
                return

    def told(self) -> list[str]:
        """Where the coordinator tells of less than members were acknowledged."""
        acknowledged = self._group.history.committed()
        told = committed_offsets(self._group.bootstrap, self._group.name, self._partitions)
        return [
            f"{self._group.name}: {offset} of {partition} was committed, and is {told[partition]} now"
            for partition, offset in acknowledged.items()
            if told[partition] < offset
        ]

    def finish(self, produced: Mapping[Partition, int]) -> list[str]:
        """Read everything, leave, and judge."""
        self._group.finish(produced, END_S)
        return [*self._group.history.faults(produced)[:SHOWN], *self.told()]


class Counts(NamedTuple):
    """What one client did."""

    client: str
    group_commits: int = 0
    members_failed: int = 0
    transactions: int = 0  # of a loop
    aborted: int = 0  # of them, on purpose
    given_up: int = 0  # processes of a loop, or queries, that failed and were followed by another one
    killed: int = 0  # of an application, on purpose
    copied: int = 0  # records


class Load:
    """Groups and loops of these clients, or applications."""

    def __init__(
        self, stack: ExitStack, topic: ReplicatedTopic, clients: Sequence[str], random: Random, folder: Path
    ) -> None:
        self._topic, self._random = topic, random
        self._hosts = Hosts()
        stack.callback(self._hosts.end)
        start = stack.enter_context(Transactors())
        others = [each for each in clients if each not in APPLICATIONS]
        self._groups = [GroupLoad(self._hosts, topic, each) for each in others]
        bootstrap = topic.cluster.bootstrap
        loops = [
            TransactionLoop(start, each, bootstrap, topic.name, output_of(each), Random(random.random()))
            for each in others
        ]
        self._loops = [stack.enter_context(each) for each in loops]
        applications = [Copying(each, topic, folder) for each in clients if each in APPLICATIONS]
        self._applications = [stack.enter_context(each) for each in applications]
        self.settle()
        self.wait_for_outputs(START_S)

    def change(self) -> None:
        """Have a member of each group replaced; an application may be killed and started again."""
        for group in self._groups:
            group.change(self._random)
        for application in self._applications:
            application.change(self._random)

    def settle(self) -> None:
        for each in self._groups:
            each.settle()

    def check(self) -> list[str]:
        return [problem for each in self._groups for problem in each.told()]

    def stop_loops(self) -> None:
        """While there is still something to take."""
        for each in self._loops:
            each.stop()

    def wait_for_outputs(self, deadline_s: float = OUTPUTS_S) -> None:
        """Wait until every loop and application has committed something more."""
        copied = [each.copied for each in self._applications]
        commits = [each.commits for each in self._loops]
        deadline = time.monotonic() + deadline_s
        for loop, before in zip(self._loops, commits, strict=True):
            while loop.commits == before:
                failures = "\n".join(loop.failures[-3:])
                assert time.monotonic() < deadline, f"{loop.client} commits nothing: {failures}"
                time.sleep(0.05)
        for application, before in zip(self._applications, copied, strict=True):
            application.wait(before + 1, max(deadline - time.monotonic(), 1.0))

    def counts(self) -> list[Counts]:
        loops = [
            Counts(
                loop.client,
                group.commits,
                len(group.failures),
                loop.commits,
                loop.aborts,
                len(loop.failures),
                copied=self._records,
            )
            for group, loop in zip(self._groups, self._loops, strict=True)
        ]
        return loops + [
            Counts(each.name, given_up=each.failed, killed=each.kills, copied=each.copied)
            for each in self._applications
        ]

    def failures(self) -> list[str]:
        """Why members and loops were replaced that were not meant to be, so far."""
        told = [f"a member of {each.client}: {why}" for each in self._groups for why in each.failures]
        return told + [f"the loop of {each.client}: {why}" for each in self._loops for why in each.failures]

    def finish(self, inputs: Sequence[Sequence[str]]) -> list[str]:
        """End everything, when the loops are stopped and no more is written, and judge it by what was
        written: these values, by partition and offset."""
        self._records = sum(map(len, inputs))
        produced = {Partition(self._topic.name, number): len(values) for number, values in enumerate(inputs)}
        with ThreadPoolExecutor(len(self._loops) + len(self._applications)) as threads:
            ends = [threads.submit(each.finish, inputs, END_S) for each in self._applications]
            drained = [
                threads.submit(each.drain, partial(self._left, each, produced)) for each in self._loops
            ]
            problems = [problem for each in self._groups for problem in each.finish(produced)]
            for each in drained:
                each.result()
            problems += [problem for each in ends for problem in each.result()]
        for name in [output_of(each.client) for each in self._loops] + [
            output_of(each.name) for each in self._applications
        ]:
            self._wait_for_markers(name)
        for loop in self._loops:
            problems += self._judge(loop, inputs)
        return problems

    def _left(self, loop: TransactionLoop, produced: Mapping[Partition, int]) -> int:
        """How many records of the input that loop has not committed."""

        def committed() -> Mapping[Partition, int] | None:
            try:
                return committed_offsets(self._topic.cluster.bootstrap, loop.group, list(produced))
            except KafkaException:  # offsets of a transaction that is being ended
                return None

        found = until(committed, f"committed offsets of {loop.group}", SETTLE_S)
        return sum(count - max(found[each], 0) for each, count in produced.items())

    def _wait_for_markers(self, output: str) -> None:
        """No transaction stays open."""
        bootstrap, partitions = self._topic.cluster.bootstrap, self._topic.partitions
        until(
            lambda: not has_open_transaction(bootstrap, output, partitions),
            f"end of the last transaction in {output}",
            SETTLE_S,
        )

    def _judge(self, loop: TransactionLoop, inputs: Sequence[Sequence[str]]) -> list[str]:
        found = committed_values(self._topic.cluster.bootstrap, loop.output, len(inputs))
        return [
            problem
            for number, values in enumerate(inputs)
            for problem in differences(f"{loop.output}-{number}", values, found[number])
        ]
