"""Faults of the nodes of a cluster whose three nodes are broker and controller, one at a time or several.

A fault of one node hits a role, and is measured: from its begin until every other node tells that nobody
waits for that node any more (it leads no partition of the topic, and is in no ISR), and until each writer is
acknowledged a record, sent after the fault, in every partition that the node led (in all, where it led none).
Several faults at a time overlap as the seed has it, for a time within which nothing can be promised but that
nothing acknowledged is lost: with two of three nodes away nobody is elected and nothing is acknowledged.

Every fault ends with all nodes active, all replicas in sync and the leaders where they were meant to be.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random
from typing import NamedTuple

from tests.support.combined_cluster import DEADLINE_S, POLL_S, SLOW_POLL_S, CombinedCluster, NotServing
from tests.support.node_networks import Namespaces
from tests.support.numbered_writers import NumberedWriter
from tests.support.raw_client import RawClient
from tests.support.replicated_topic import ReplicatedTopic

# what a node is when it is hit
ROLES = BROKER, CONTROLLER, BOTH = ("broker", "active controller", "both")
KILL, PAUSE, ISOLATE, STOP = "kill", "pause", "isolate", "stop"
PATIENCE_S = 3.0  # a paused or isolated node stays so, once it is replaced, while writers have not noticed


class Measured(NamedTuple):
    """Of one node's fault, in milliseconds from its begin, but `whole_ms`, which is from its end."""

    published_ms: float
    acknowledged_ms: dict[str, float]  # by writer
    whole_ms: float


class Faults:
    """What is done to the nodes of a cluster, by a seed."""

    def __init__(
        self,
        cluster: CombinedCluster,
        topic: ReplicatedTopic,
        writers: Sequence[NumberedWriter],
        random: Random,
        longest_s: float,
    ) -> None:
        """`longest_s`: for how long one of several faults may last."""
        self.cluster, self.topic = cluster, topic
        self._longest_s = longest_s
        self._writers = writers
        self._random = random

    @property
    def kinds(self) -> list[str]:
        """Those that this machine can do."""
        isolation = [ISOLATE] if isinstance(self.cluster.network, Namespaces) else []
        return [KILL, PAUSE, *isolation]

    def one(self, role: str, kind: str) -> Measured:
        """A fault of the node of that role, which ends when the others have replaced it."""
        victim = self._cast(role)
        led = [number for number, each in enumerate(self.topic.states(victim)) if each.leader == victim]
        awaited = led or list(range(self.topic.partitions))
        seen = [len(each.answers) for each in self._writers]
        with ExitStack() as stack:
            survivors = [each for each in self.cluster.ids if each != victim]
            clients = [stack.enter_context(self.cluster.client(each)) for each in survivors]
            with ThreadPoolExecutor(len(clients)) as threads:
                began = self._begin(victim, kind)
                published = [threads.submit(self._published, each, victim) for each in clients]
                published_at = max(each.result() for each in published)
        first = self._acknowledged(seen, awaited, began, DEADLINE_S if kind == KILL else PATIENCE_S)
        ended = time.monotonic()
        self._end(victim, kind)
        whole_at = self._heal()
        first = first or self._acknowledged(seen, awaited, began, DEADLINE_S)
        if first is None:
            raise NotServing(f"after a {kind} of node {victim}: {self._unanswered(seen, awaited, began)}")
        return Measured((published_at - began) * 1000, first, (whole_at - ended) * 1000)

    def _cast(self, role: str) -> int:
        """The node of that role; leaders are moved so that there is one."""
        ids, controller = self.cluster.ids, self.cluster.leader()
        others = [each for each in ids if each != controller]
        self.topic.place(others if role == CONTROLLER else ids)
        return self._random.choice(others) if role == BROKER else controller

    def _begin(self, victim: int, kind: str) -> float:
        if kind == ISOLATE:
            return self.cluster.isolate(victim)
        return self.cluster.pause(victim) if kind == PAUSE else self.cluster.kill(victim)

    def _end(self, victim: int, kind: str) -> None:
        if kind == ISOLATE:
            self.cluster.heal(victim)
        elif kind == PAUSE:
            self.cluster.resume(victim)
        else:
            self.cluster.spawn(victim)

    def _published(self, client: RawClient, victim: int) -> float:
        """When that broker first tells of the topic without the victim."""
        deadline = time.monotonic() + DEADLINE_S
        while any(each.leader in (victim, -1) or victim in each.isr for each in self.topic.ask(client)):
            if time.monotonic() > deadline:
                raise NotServing(f"node {victim} is not replaced")
            time.sleep(POLL_S)
        return time.monotonic()

    def _acknowledged(
        self, seen: Sequence[int], partitions: Sequence[int], began: float, patience_s: float
    ) -> dict[str, float] | None:
        """By writer, when the last of these partitions has acknowledged a record sent after the fault: in
        milliseconds from its begin; None where one has not."""
        deadline = time.monotonic() + patience_s
        found: dict[str, float] = {}
        for writer, before in zip(self._writers, seen, strict=True):
            while (last := _first_answers(writer, before, partitions, began)) is None:
                if time.monotonic() > deadline:
                    return None
                time.sleep(SLOW_POLL_S)
            found[writer.name] = (last - began) * 1000
        return found

    def _unanswered(self, seen: Sequence[int], partitions: Sequence[int], began: float) -> str:
        """Which partitions do not acknowledge any more, by writer."""
        told = []
        for writer, before in zip(self._writers, seen, strict=True):
            later = [each for each in writer.answers[before:] if each.sent_ns > began * 1e9]
            missing = set(partitions) - {each.partition for each in later}
            told.append(f"{writer.name} has no answer of partitions {sorted(missing)} {writer.errors[:3]}")
        return "; ".join(told)

    def _heal(self) -> float:
        """Wait until everything is as before; when it was."""
        self.cluster.wait_until_active(len(self.cluster.ids))
        self.topic.wait_until_whole()
        return time.monotonic()

    def restart(self) -> None:
        """A clean stop of one node, which hands its leaders over, and its start."""
        victim = self._random.choice(self.cluster.ids)
        self.cluster.stop(victim)
        self.cluster.spawn(victim)
        self._settle()

    def several(self, kinds: Sequence[str]) -> None:
        """As many nodes as kinds, each hit a while after the other, and back in any order."""
        victims = list(zip(self._random.sample(self.cluster.ids, len(kinds)), kinds, strict=True))
        for victim, kind in victims:
            self._begin(victim, kind)
            self._dwell()
        self._random.shuffle(victims)
        for victim, kind in victims:
            self._end(victim, kind)
            self._dwell()
        self._settle()

    def _dwell(self) -> None:
        """How long a fault lasts is a part of it: often too short for anybody to notice."""
        time.sleep(self._random.choice((0.0, 0.1, 1.0)) * self._random.random() * self._longest_s)

    def _settle(self) -> None:
        self._heal()
        self.topic.place(self.cluster.ids)


def _first_answers(
    writer: NumberedWriter, seen: int, partitions: Sequence[int], began: float
) -> float | None:
    """When the last of the partitions has acknowledged its first record that was sent after `began`."""
    waiting, began_ns = set(partitions), began * 1e9
    for each in writer.answers[seen:]:
        if each.sent_ns > began_ns:
            waiting.discard(each.partition)
            if not waiting:
                return each.answered_ns / 1e9
    return None
