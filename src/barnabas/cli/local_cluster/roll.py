"""`barnabas up roll`: all nodes of a local cluster restarted, one after the other.

Before and after each step it waits until the cluster is whole: every replica in sync, every voter there. The
active controller comes last, so that its role moves once. Each step tells how long the node was away and how
long any partition was without a leader meanwhile: none where others have replicas, as a node that stops hands
over its leaders first; a partition with one replica is away with its node.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.cli.clusters.wholeness import Obstacle, quorum_of, wait_until_whole
from barnabas.cli.connecting import Session
from barnabas.cli.failures import OK, CommandFailed
from barnabas.cli.local_cluster.actions import running_cluster
from barnabas.cli.local_cluster.control import ask_supervisor
from barnabas.cli.local_cluster.plan import NodePlan
from barnabas.cli.local_cluster.sessions import in_session
from barnabas.cli.output import counted
from barnabas.client.errors import BrokerError, BrokerNotReachable, TimedOut
from barnabas.client.metadata import TopicPartition
from barnabas.core.network import ConnectionLost

_POLL_S = 0.05


class Step(NamedTuple):
    """One node: how long it was away, until everything was in sync again, and what nobody led meanwhile."""

    node: int
    away_s: float
    whole_s: float
    leaderless: int
    longest_s: float

    @property
    def text(self) -> str:
        """The same for people."""
        pause = "no partition was without a leader"
        if self.leaderless:
            count = counted(self.leaderless, "partition")
            pause = f"{count} without a leader, for at most {self.longest_s:.2f} s"
        return (
            f"node {self.node} serves again after {self.away_s:.1f} s, all in sync after "
            f"{self.whole_s:.1f} s; {pause}"
        )


def roll(options: argparse.Namespace) -> int:
    """Restart every node, or those that are named."""
    directory, state = running_cluster(options)
    nodes = list(state.plan.nodes)
    unknown = set(options.ids) - {node.node_id for node in nodes}
    if unknown:
        known = ", ".join(str(node.node_id) for node in nodes)
        raise CommandFailed(f"there is no node {min(unknown)}", f"these are there: {known}")
    if len(nodes) == 1:
        raise CommandFailed("one node alone is no cluster", "`barnabas up restart 1` restarts it")

    async def work(session: Session) -> int:
        chosen = [node for node in nodes if not options.ids or node.node_id in options.ids]
        steps = []
        for node in await _order(session, chosen):
            await _whole(session, nodes, options.wait, f"node {node.node_id} is not restarted")
            steps.append(await _step(session, directory, node, nodes, options.wait))
            if not session.output.as_json:
                session.output.line(steps[-1].text)
        _tell(session, steps)
        return OK

    return in_session(options, nodes, work)


def _tell(session: Session, steps: Sequence[Step]) -> None:
    longest_s = max((step.longest_s for step in steps), default=0.0)
    document = {
        "nodes": [_rounded(step) for step in steps],
        "longest_pause_s": round(longest_s, 3),
    }
    text = f"{counted(len(steps), 'node')} restarted; "
    text += f"the longest pause of a partition: {longest_s:.2f} s" if longest_s else "no partition paused"
    session.output.done(document, text)


def _rounded(step: Step) -> dict[str, Any]:
    return {
        name: round(value, 3) if isinstance(value, float) else value for name, value in step._asdict().items()
    }


async def _order(session: Session, nodes: Sequence[NodePlan]) -> list[NodePlan]:
    """Brokers alone first, the active controller last."""
    quorum = await quorum_of(session.admin)
    leader = None if quorum is None else quorum.leader_id
    return sorted(nodes, key=lambda node: (node.is_voter, node.node_id == leader, node.node_id))


async def _whole(session: Session, nodes: Sequence[NodePlan], wait_s: float, consequence: str) -> None:
    found = await wait_until_whole(session, wait_s, [node.node_id for node in nodes])
    if found:
        raise CommandFailed(f"{consequence}: {_first(found)}", "`barnabas doctor --bootstrap ...` says why")


def _first(found: Sequence[Obstacle]) -> str:
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{found[0].what}{more}"


async def _step(
    session: Session, directory: Path, node: NodePlan, nodes: Sequence[NodePlan], wait_s: float
) -> Step:
    clock = session.clock
    began = clock.monotonic()
    pauses = _Pauses(session)
    watching = asyncio.create_task(pauses.watch())
    try:
        await asyncio.to_thread(_restart, directory, node.node_id)
        away_s = clock.monotonic() - began
        await _whole(session, nodes, wait_s, f"node {node.node_id} is back, and no other is restarted")
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    whole_s = clock.monotonic() - began
    return Step(node.node_id, away_s, whole_s, len(pauses.longest), max(pauses.longest.values(), default=0.0))


def _restart(directory: Path, node_id: int) -> None:
    ask_supervisor(directory, "restart", lambda event: None, id=node_id)


class _Pauses:
    """How long partitions had no leader, as clients are told: looked at again and again."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._since: dict[TopicPartition, float] = {}
        self.longest: dict[TopicPartition, float] = {}

    async def watch(self) -> None:
        while True:
            try:
                topics = await self._session.admin.describe_topics()
            except (BrokerNotReachable, ConnectionLost, TimedOut, BrokerError):
                topics = {}
            now = self._session.clock.monotonic()
            for name, topic in topics.items():
                for each in topic.partitions:
                    self._look(TopicPartition(name, each.partition), now, is_led=each.leader >= 0)
            await self._session.clock.sleep(_POLL_S)

    def _look(self, at: TopicPartition, now: float, *, is_led: bool) -> None:
        if not is_led:
            since = self._since.setdefault(at, now)
            self.longest[at] = max(self.longest.get(at, 0.0), now - since)
        elif (began := self._since.pop(at, None)) is not None:
            self.longest[at] = max(self.longest.get(at, 0.0), now - began)
