"""Consumer groups and transactional loops of real clients on one input topic, and what must hold of them.

Each client has a group with two members, one of them static, and a loop (transaction_loops.py) whose output
is a topic of its own. `Load` lets members come and go, and judges:

- of groups: no partition has two owners, nothing is skipped, every record is read, acknowledged commits do
  not go back, neither as members see them nor as the coordinator tells (group_history.py), and a group
  settles;
- of loops: what is committed in the output is, for each partition, exactly the input before the committed
  offset, once and in order, and no transaction stays open.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from random import Random
from typing import NamedTuple

from tests.interop.reading import ends, read_all
from tests.support.clients import until
from tests.support.group_history import Event, Partition
from tests.support.group_members import Group, Hosts, Member, committed_offsets
from tests.support.replicated_topic import ReplicatedTopic
from tests.support.transaction_loops import TransactionLoop
from tests.support.transactors import Transactors

# longer than any fault: a member is not to be taken for dead because its coordinator was
SESSION_MS, POLL_INTERVAL_MS, SETTLE_S = 45_000, 300_000, 180.0
END_S = 240.0
SHOWN = 5


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
    group_commits: int
    members_failed: int
    transactions: int
    restarts: int


class Load:
    """Groups and loops of these clients."""

    def __init__(
        self, stack: ExitStack, topic: ReplicatedTopic, clients: Sequence[str], random: Random
    ) -> None:
        self._topic, self._random = topic, random
        self._hosts = Hosts()
        stack.callback(self._hosts.end)
        start = stack.enter_context(Transactors())
        self._groups = [GroupLoad(self._hosts, topic, each) for each in clients]
        self._loops = [
            stack.enter_context(
                TransactionLoop(
                    start,
                    each,
                    topic.cluster.bootstrap,
                    topic.name,
                    output_of(each),
                    Random(random.random()),
                )
            )
            for each in clients
        ]
        self.settle()

    def change(self) -> None:
        """Have a member of each group replaced."""
        for each in self._groups:
            each.change(self._random)

    def settle(self) -> None:
        for each in self._groups:
            each.settle()

    def check(self) -> list[str]:
        return [problem for each in self._groups for problem in each.told()]

    def stop_loops(self) -> None:
        """While there is still something to take."""
        for each in self._loops:
            each.finish()

    def wait_for_loops(self) -> None:
        """Wait until every loop has committed something more."""
        before = [each.commits for each in self._loops]
        deadline = time.monotonic() + SETTLE_S
        for loop, commits in zip(self._loops, before, strict=True):
            while loop.commits == commits:
                failures = "\n".join(loop.failures[-3:])
                assert time.monotonic() < deadline, f"{loop.client} commits nothing: {failures}"
                time.sleep(0.05)

    def counts(self) -> list[Counts]:
        return [
            Counts(loop.client, group.commits, len(group.failures), loop.commits, loop.restarts)
            for group, loop in zip(self._groups, self._loops, strict=True)
        ]

    def finish(self, inputs: Sequence[Sequence[str]]) -> list[str]:
        """End the groups, when the loops are stopped and no more is written, and judge everything by what
        was written: these values, by partition and offset."""
        produced = {Partition(self._topic.name, number): len(values) for number, values in enumerate(inputs)}
        problems = [problem for each in self._groups for problem in each.finish(produced)]
        for loop in self._loops:
            problems += self._judge(loop, inputs)
        return problems

    def _judge(self, loop: TransactionLoop, inputs: Sequence[Sequence[str]]) -> list[str]:
        bootstrap = self._topic.cluster.bootstrap
        for number in range(len(inputs)):
            until(
                lambda number=number: len(set(ends(bootstrap, loop.output, number))) == 1,  # type: ignore[misc]
                f"end of the last transaction in {loop.output}-{number}",
            )
        partitions = [Partition(self._topic.name, number) for number in range(len(inputs))]
        committed = committed_offsets(bootstrap, loop.group, partitions)
        problems = []
        for partition, values in zip(partitions, inputs, strict=True):
            offset = max(committed[partition], 0)
            found = read_all("confluent", bootstrap, loop.output, partition.number, committed=True)
            texts = [(each or b"").decode() for each in found]
            problems += differences(f"{loop.output}-{partition.number}", values[:offset], texts)
        return problems


def differences(name: str, expected: Sequence[str], found: Sequence[str]) -> list[str]:
    """Where an output is not the input, once and in order."""
    if list(expected) == list(found):
        return []
    known = set(expected)
    return [
        f"{name} has {len(found)} records, where {len(expected)} are committed; missing "
        f"{[each for each in expected if each not in set(found)][:SHOWN]}, strange "
        f"{[each for each in found if each not in known][:SHOWN]}, "
        f"twice {[each for each in known if found.count(each) > 1][:SHOWN]}"
    ]


def output_of(client: str) -> str:
    return f"output-{client}"
