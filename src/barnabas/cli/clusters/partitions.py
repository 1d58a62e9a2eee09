"""`barnabas cluster partitions`: those that are not as they should be, and how far followers are behind."""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.cli.clusters.health import Counts, Health, counts_of, healths
from barnabas.cli.clusters.lag import ReplicaLag, lags_of
from barnabas.cli.connecting import Session
from barnabas.cli.options import Actions
from barnabas.cli.output import counted
from barnabas.client.admin import Admin, Reassignment, TopicDescription
from barnabas.client.errors import BrokerError, BrokerNotReachable, TimedOut
from barnabas.client.metadata import TopicPartition
from barnabas.core.network import ConnectionLost
from barnabas.protocol.channel import NotSpoken

T = TypeVar("T")

EXAMPLES = """
barnabas cluster partitions                    those that are not as they should be
barnabas cluster partitions 'orders-*' --all   all of these topics
barnabas cluster partitions --at-min-isr       one replica less in sync, and acks=all is refused
barnabas cluster partitions --lagging --json   followers that lack records
"""
MIN_IN_SYNC = "min.insync.replicas"
CONTROLLER_S = 5.0
_TOPICS_AT_ONCE = 500

# by option: which partitions it asks for
_FILTERS: dict[str, tuple[str, Callable[[Health], bool]]] = {
    "offline": ("nobody leads", lambda each: each.is_offline),
    "under_min_isr": ("have too few in sync for acks=all", lambda each: each.is_under_min),
    "at_min_isr": ("have just enough in sync for acks=all", lambda each: each.is_at_min),
    "under_replicated": ("have replicas that are not in sync", lambda each: each.is_under_replicated),
    "moving": ("are on their way to other brokers", lambda each: each.is_moving),
}


class Partitions(NamedTuple):
    """All partitions of a cluster, as far as it tells."""

    topics: Mapping[str, TopicDescription]
    every: list[Health]
    moves: Mapping[TopicPartition, Reassignment] | None  # None where the cluster does not tell

    @property
    def counts(self) -> Counts:
        """How many of each kind there are."""
        counts = counts_of(self.every)
        return counts if self.moves is not None else counts._replace(reassigning=None)


async def partitions_of(admin: Admin) -> Partitions:
    """What metadata, settings and reassignments say together."""
    topics = await admin.describe_topics()
    moves = await _moves(admin)
    needed: dict[str, int] = {}
    names = sorted(topics)
    for at in range(0, len(names), _TOPICS_AT_ONCE):
        found = await told(admin.describe_topic_setting(names[at : at + _TOPICS_AT_ONCE], MIN_IN_SYNC))
        needed |= {name: int(value) for name, value in (found or {}).items() if value}
    return Partitions(topics, list(healths(topics, needed, moves or {})), moves)


async def _moves(admin: Admin) -> dict[TopicPartition, Reassignment] | None:
    """The reassignments under way; None where no controller answers."""
    try:
        async with asyncio.timeout(CONTROLLER_S):
            return await told(admin.list_reassignments())
    except (TimeoutError, BrokerNotReachable, ConnectionLost, TimedOut):
        return None


async def told(answer: Awaitable[T]) -> T | None:
    """The answer; None where the cluster has none for us."""
    try:
        return await answer
    except (NotSpoken, BrokerError):
        return None


def add_partitions(actions: Actions, run: object) -> None:
    """The options of the command."""
    parser = actions.add(
        "partitions",
        "show partitions that are not as they should be, and how far replicas lag",
        EXAMPLES,
        run,
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="only these, with * and ?")
    for name, (help_text, _) in _FILTERS.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", action="store_true", help=f"those that {help_text}"
        )
    parser.add_argument("--lagging", action="store_true", help="those with followers that lack records")
    parser.add_argument(
        "--all", action="store_true", help="all of them, also those that are as they should be"
    )


async def show_partitions(session: Session, options: argparse.Namespace) -> None:
    """Do what the command is to do."""
    found = await partitions_of(session.admin)
    cluster = await session.admin.describe_cluster()
    chosen = _chosen(found.every, options)
    ids = {name: topic.topic_id for name, topic in found.topics.items()}
    lags = await lags_of(session, chosen, ids, [each.node_id for each in cluster.brokers])
    if options.lagging:
        chosen = [each for each in chosen if any(lag.records for lag in lags.get(each.at, ()))]
    if session.output.as_json:
        session.output.document(_document(found, chosen, lags))
        return
    session.output.say(f"{counted(len(found.every), 'partition')}: {found.counts.text}")
    if chosen:
        session.output.say()
        columns = ("partition", "leader", "replicas", "in sync", "min", "state", "behind")
        session.output.table(columns, [_row(each, lags.get(each.at, ())) for each in chosen])


def _chosen(every: Sequence[Health], options: argparse.Namespace) -> list[Health]:
    """The partitions that were asked for; where nothing was, those that are not as they should be."""
    asked = [wants for name, (_, wants) in _FILTERS.items() if getattr(options, name)]
    takes_all = options.all or (options.lagging and not asked)
    patterns: list[str] = options.topics
    return [
        each
        for each in every
        if (not patterns or any(fnmatch.fnmatchcase(each.at.topic, pattern) for pattern in patterns))
        and (takes_all or (any(wants(each) for wants in asked) if asked else not each.is_as_it_should_be))
    ]


def _row(each: Health, lags: Sequence[ReplicaLag]) -> tuple[object, ...]:
    behind = [lag.text for lag in lags if lag.records != 0]
    return (
        f"{each.at.topic}-{each.at.partition}",
        None if each.is_offline else each.partition.leader,
        each.partition.replicas,
        each.partition.in_sync,
        each.needed,
        ", ".join(each.states) or "ok",
        "; ".join(behind) or None,
    )


def _document(
    found: Partitions, chosen: Sequence[Health], lags: Mapping[TopicPartition, Sequence[ReplicaLag]]
) -> dict[str, Any]:
    return {
        **found.counts._asdict(),
        "shown": [
            {
                "topic": each.at.topic,
                "partition": each.at.partition,
                "leader": None if each.is_offline else each.partition.leader,
                "replicas": each.partition.replicas,
                "in_sync": each.partition.in_sync,
                "min_in_sync": each.needed,
                "offline": each.is_offline,
                "under_min_isr": each.is_under_min,
                "at_min_isr": each.is_at_min,
                "under_replicated": each.is_under_replicated,
                "reassignment": None if each.move is None else each.move._asdict(),
                "followers": [lag._asdict() for lag in lags.get(each.at, ())],
            }
            for each in chosen
        ],
    }
