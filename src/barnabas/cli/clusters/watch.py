"""`barnabas cluster watch`: leaders, ISRs and reassignments of partitions as they change, on any Kafka.

The cluster is asked again and again, and what is different from the answer before is told: a change that is
undone between two answers is not seen. Brokers that do not answer are waited for.
"""

from __future__ import annotations

import argparse
import fnmatch
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.cli.clusters.health import Health
from barnabas.cli.clusters.partitions import partitions_of
from barnabas.cli.connecting import Session
from barnabas.cli.options import Actions, seconds
from barnabas.cli.output import counted
from barnabas.cli.times import time_text
from barnabas.client.errors import BrokerNotReachable, TimedOut
from barnabas.client.metadata import TopicPartition
from barnabas.core.network import ConnectionLost

EXAMPLES = """
barnabas cluster watch                        until Ctrl-C
barnabas cluster watch 'orders-*' --for 60    a minute, these topics
barnabas cluster watch --every 0.2 --json     five times a second, one object a change
"""
SHRUNK, EXPANDED, REPLACED, LEADER, MOVE = KINDS = (
    "shrunk",
    "expanded",
    "replaced",
    "leader",
    "reassignment",
)
_EVERY_S = 1.0


class Change(NamedTuple):
    """What has become of one partition. ISRs shrink, expand, or both; leaders are numbers, -1 for none."""

    kind: str
    at: TopicPartition
    before: list[int]
    after: list[int]

    @property
    def text(self) -> str:
        """The same for people."""
        before, after = (",".join(map(str, each)) or "-" for each in (self.before, self.after))
        if self.kind == LEADER:
            before, after = before.replace("-1", "none"), after.replace("-1", "none")
            return f"{self.at} leader {before} -> {after}"
        if self.kind == MOVE:
            return f"{self.at} moves to {after}" if self.after else f"{self.at} moves no more"
        return f"{self.at} ISR {self.kind} {before} -> {after}"


def changes(
    before: Mapping[TopicPartition, Health], after: Mapping[TopicPartition, Health]
) -> Iterator[Change]:
    """What is different in partitions that were there before."""
    for at, new in after.items():
        old = before.get(at)
        if old is None or old == new:
            continue
        if old.partition.leader != new.partition.leader:
            yield Change(LEADER, at, [old.partition.leader], [new.partition.leader])
        was, now = old.partition.in_sync, new.partition.in_sync
        if set(was) != set(now):
            kind = SHRUNK if set(now) < set(was) else EXPANDED if set(was) < set(now) else REPLACED
            yield Change(kind, at, was, now)
        targets = [_target(old), _target(new)]
        if targets[0] != targets[1]:
            yield Change(MOVE, at, *targets)


def _target(each: Health) -> list[int]:
    """Where a partition is on its way to; empty where it is on none."""
    if each.move is None:
        return []
    return [broker for broker in each.move.replicas if broker not in each.move.removing]


def add_watch(actions: Actions, run: object) -> None:
    """The options of the command."""
    parser = actions.add("watch", "tell of leaders, ISRs and reassignments as they change", EXAMPLES, run)
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="only these, with * and ?")
    parser.add_argument(
        "--every",
        type=seconds,
        metavar="S",
        default=_EVERY_S,
        help="how often to look (default: every second)",
    )
    parser.add_argument(
        "--for", type=seconds, metavar="S", dest="for_s", help="how long (default: until Ctrl-C)"
    )


async def watch(session: Session, options: argparse.Namespace) -> None:
    """Do what the command is to do."""
    clock, output = session.clock, session.output
    began, counts = clock.monotonic(), Counter[str]()
    seen = await _look(session, options.topics) or {}
    try:
        while options.for_s is None or clock.monotonic() - began < options.for_s:
            await clock.sleep(options.every)
            found = await _look(session, options.topics)
            if found is None:
                continue
            for change in changes(seen, found):
                counts[change.kind] += 1
                _tell(session, change)
            seen = found
    finally:
        if not output.as_json:
            output.say(f"{_summary(counts)} in {clock.monotonic() - began:.0f} s")


def _summary(counts: Mapping[str, int]) -> str:
    both = counts[REPLACED]
    shrinks, expands = counted(counts[SHRUNK] + both, "shrink"), counted(counts[EXPANDED] + both, "expand")
    return f"ISRs: {shrinks}, {expands}; leaders: {counted(counts[LEADER], 'change')}"


async def _look(session: Session, patterns: list[str]) -> dict[TopicPartition, Health] | None:
    """The partitions as they are; None where nobody answers."""
    try:
        found = await partitions_of(session.admin)
    except (BrokerNotReachable, ConnectionLost, TimedOut):
        return None
    return {
        each.at: each
        for each in found.every
        if not patterns or any(fnmatch.fnmatchcase(each.at.topic, pattern) for pattern in patterns)
    }


def _tell(session: Session, change: Change) -> None:
    at_ms = session.clock.wall_ms()
    if session.output.as_json:
        told = {"time": time_text(at_ms), "topic": change.at.topic, "partition": change.at.partition}
        session.output.item({**told, "change": change.kind, "before": change.before, "after": change.after})
    else:
        session.output.line(f"{time_text(at_ms)}  {change.text}")
