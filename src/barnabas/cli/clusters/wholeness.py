"""What speaks against stopping a node now: the check before and after every step of a rolling restart.

A cluster is whole when every broker that is to be there is active, every partition has a leader and all its
replicas in sync, nothing moves, and all voters have what the quorum has committed. `barnabas cluster
roll-check` waits for it on any Kafka.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.cli.clusters.health import Health
from barnabas.cli.clusters.partitions import CONTROLLER_S, partitions_of, told
from barnabas.cli.connecting import Session
from barnabas.cli.failures import FAILED, OK
from barnabas.cli.options import Actions, natural, seconds
from barnabas.cli.output import counted
from barnabas.client.admin import Admin, QuorumDescription, QuorumReplica
from barnabas.client.errors import BrokerNotReachable, TimedOut
from barnabas.core.network import ConnectionLost

ROLL_EXAMPLES = """
barnabas cluster roll-check                      may a node be stopped? wait a minute until it may
barnabas cluster roll-check --without 2          and would every partition of node 2 be written on?
barnabas cluster roll-check --wait 600 && systemctl restart kafka
"""
WAIT_S = 60.0
_POLL_S = 0.1
_SILENT_MS = 3000  # a voter that runs fetches twice a second
_SHOWN = 5


class Obstacle(NamedTuple):
    """One reason to wait: of a kind, and what it is about."""

    kind: str
    what: str


def add_roll_check(actions: Actions, run: object) -> None:
    """The options of the command."""
    parser = actions.add(
        "roll-check", "wait until a node may be stopped: all ISRs whole, all voters there", ROLL_EXAMPLES, run
    )
    parser.add_argument("--without", metavar="ID", type=natural, help="the broker that is to be stopped next")
    parser.add_argument(
        "--wait", metavar="S", type=seconds, default=WAIT_S, help=f"for so long (default: {WAIT_S:g})"
    )


async def roll_check(session: Session, options: argparse.Namespace) -> int:
    """Do what the command is to do."""
    clock, output = session.clock, session.output
    began = clock.monotonic()
    found = await wait_until_whole(session, options.wait)
    waited_s = clock.monotonic() - began
    stopped = [] if options.without is None else await _left_without(session.admin, options.without)
    if output.as_json:
        output.document(
            {
                "whole": not found,
                "waited_s": round(waited_s, 3),
                "obstacles": [each._asdict() for each in (*found, *stopped)],
            }
        )
    else:
        for each in (*found, *stopped):
            output.say(each.what)
        if not found and not stopped:
            output.say(f"a node may be stopped: everything is in sync (waited {waited_s:.1f} s)")
    return FAILED if found or stopped else OK


async def wait_until_whole(session: Session, wait_s: float, brokers: Iterable[int] = ()) -> list[Obstacle]:
    """Wait until nothing speaks against it; what does after so long. `brokers` are to be there."""
    clock = session.clock
    deadline = clock.monotonic() + wait_s
    expected = list(brokers)
    while found := await obstacles(session.admin, expected):
        if clock.monotonic() >= deadline:
            break
        await clock.sleep(_POLL_S)
    return found


async def obstacles(admin: Admin, brokers: Sequence[int] = ()) -> list[Obstacle]:
    """What speaks against stopping a node now."""
    cluster = await admin.describe_cluster(with_fenced=True)
    active = {broker.node_id for broker in cluster.brokers if not broker.is_fenced}
    away = sorted(({broker.node_id for broker in cluster.brokers} | set(brokers)) - active)
    found = [Obstacle("broker", f"broker {each} is not active") for each in away]
    partitions = await partitions_of(admin)
    found += partition_obstacles(partitions.every)
    quorum = await quorum_of(admin)
    if quorum is None:
        found.append(Obstacle("quorum", "the controllers do not answer"))
    else:
        found += voter_obstacles(quorum)
    return found


async def quorum_of(admin: Admin) -> QuorumDescription | None:
    """The quorum; None where no controller answers soon, or it is not told."""
    try:
        async with asyncio.timeout(CONTROLLER_S):
            return await told(admin.describe_quorum())
    except (TimeoutError, BrokerNotReachable, ConnectionLost, TimedOut):
        return None


def partition_obstacles(every: Sequence[Health]) -> list[Obstacle]:
    """Partitions that are not in sync on all their replicas."""
    kinds = (
        ("offline", "without a leader", [each for each in every if each.is_offline]),
        ("isr", "under-replicated", [each for each in every if each.is_under_replicated]),
        ("moving", "moving to other brokers", [each for each in every if each.is_moving]),
    )
    return [
        Obstacle(kind, f"{counted(len(found), 'partition')} {what}: {some(found)}")
        for kind, what, found in kinds
        if found
    ]


def some(found: Sequence[Health]) -> str:
    """The first of these partitions by name."""
    shown = ", ".join(str(each.at) for each in found[:_SHOWN])
    return f"{shown} and {len(found) - _SHOWN} more" if len(found) > _SHOWN else shown


def voter_obstacles(quorum: QuorumDescription) -> list[Obstacle]:
    """Voters that do not fetch, or do not have yet what is committed."""
    if quorum.leader_id < 0:
        return [Obstacle("quorum", "no controller leads the quorum")]
    silent = silent_voters(quorum, _SILENT_MS)
    found = [Obstacle("quorum", f"controller {each.node_id} does not fetch the metadata") for each in silent]
    behind = [
        each for each in quorum.voters if each not in silent and each.log_end_offset < quorum.high_watermark
    ]
    return found + [
        Obstacle(
            "quorum",
            f"controller {each.node_id} lacks {quorum.high_watermark - each.log_end_offset:,} "
            "committed records of the metadata",
        )
        for each in behind
    ]


def silent_voters(quorum: QuorumDescription, bound_ms: int) -> list[QuorumReplica]:
    """Voters that follow and have not fetched for so long, by the leader's clock."""
    now_ms = max((each.last_fetch_timestamp_ms or 0 for each in quorum.voters), default=0)
    return [
        voter
        for voter in quorum.voters
        if voter.node_id != quorum.leader_id and now_ms - (voter.last_fetch_timestamp_ms or 0) > bound_ms
    ]


async def _left_without(admin: Admin, node_id: int) -> list[Obstacle]:
    """Partitions that would be refused writes, or be away, without a broker."""
    every = (await partitions_of(admin)).every
    away = [each for each in every if each.partition.replicas == [node_id]]
    short = [
        each
        for each in every
        if each not in away
        and node_id in each.partition.in_sync
        and each.needed is not None
        and len(each.partition.in_sync) - 1 < each.needed
    ]
    found = []
    if away:
        text = f"{counted(len(away), 'partition')} with broker {node_id} alone would be away: {some(away)}"
        found.append(Obstacle("alone", text))
    if short:
        text = f"{counted(len(short), 'partition')} would be under min ISR without broker {node_id}"
        found.append(Obstacle("min-isr", f"{text}: {some(short)}"))
    return found
