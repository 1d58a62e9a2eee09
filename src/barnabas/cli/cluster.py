"""`barnabas cluster`: brokers, the quorum of controllers, features, log directories, what is spoken.

Not every Kafka tells everything: what a cluster does not tell (no API for it, or no permission) is left out,
and said to be. A broker that does not answer is said not to, and so are controllers: that may be why somebody
looks.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from barnabas.cli.connecting import Session, connected
from barnabas.cli.options import Actions, command_parser
from barnabas.cli.output import bytes_text
from barnabas.cli.running import run_command
from barnabas.client.admin import (
    Admin,
    ClusterDescription,
    Features,
    LogDirDescription,
    QuorumDescription,
    QuorumReplica,
)
from barnabas.client.errors import BrokerError, BrokerNotReachable, TimedOut
from barnabas.core.network import ConnectionLost
from barnabas.log.checkpoints import uuid_to_text
from barnabas.metadata.versions import level
from barnabas.protocol.channel import NotSpoken

T = TypeVar("T")
LogDirsByBroker = dict[int, dict[str, LogDirDescription]]

_DESCRIBE = """
barnabas cluster describe
barnabas cluster describe --apis                 the versions of every API that a broker speaks
barnabas cluster describe --json
"""
METADATA_VERSION = "metadata.version"
QUORUM_S = 5.0


def main(arguments: Sequence[str]) -> int:
    """Look at a cluster; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("barnabas cluster", "The cluster as a whole.", _DESCRIBE)
    describe = Actions(parser).add(
        "describe", "show brokers, controllers, features and log directories", _DESCRIBE, connected(_describe)
    )
    describe.add_argument("--apis", action="store_true", help="what a broker speaks, instead")
    return parser


async def _describe(session: Session, options: argparse.Namespace) -> None:
    if options.apis:
        await _show_apis(session)
        return
    admin = session.admin
    cluster = await admin.describe_cluster(with_fenced=True)
    features = await _told(admin.describe_features())
    live = sorted(broker.node_id for broker in cluster.brokers if not broker.is_fenced)
    log_dirs, silent = await _log_dirs(admin, live)
    quorum, is_answered = await _quorum(admin)
    if session.output.as_json:
        session.output.document(_document(cluster, quorum, features, log_dirs, silent))
        return
    _show_brokers(session, cluster, log_dirs, silent)
    if is_answered:
        _show_quorum(session, quorum)
    else:
        session.output.say("\nquorum: no controller answers; none leads, or the broker reaches none")
    _show_features(session, features)
    _show_log_dirs(session, log_dirs)


async def _told(answer: Awaitable[T]) -> T | None:
    """The answer; None where the cluster has none for us."""
    try:
        return await answer
    except (NotSpoken, BrokerError):
        return None


async def _quorum(admin: Admin) -> tuple[QuorumDescription | None, bool]:
    """The quorum if it is told, and whether anybody has answered: a broker waits long for a controller."""
    try:
        async with asyncio.timeout(QUORUM_S):
            return await _told(admin.describe_quorum()), True
    except (TimeoutError, BrokerNotReachable, ConnectionLost, TimedOut):
        return None, False


async def _log_dirs(admin: Admin, brokers: Iterable[int]) -> tuple[LogDirsByBroker | None, list[int]]:
    """The log directories of the brokers that tell, None if nobody does; and those that do not answer."""
    silent: list[int] = []

    async def ask(node_id: int) -> LogDirsByBroker | None:
        try:
            return await _told(admin.describe_log_dirs([node_id]))
        except (BrokerNotReachable, ConnectionLost, TimedOut):
            silent.append(node_id)
            return None

    told = [answer for answer in await asyncio.gather(*map(ask, brokers)) if answer is not None]
    return {node_id: found for answer in told for node_id, found in answer.items()} if told else None, silent


# ---- for people ------------------------------------------------------------------------------------------


def _show_brokers(
    session: Session, cluster: ClusterDescription, log_dirs: LogDirsByBroker | None, silent: Sequence[int]
) -> None:
    session.output.say(f"cluster {cluster.cluster_id}")
    session.output.say()
    rows = []
    for broker in sorted(cluster.brokers, key=lambda each: each.node_id):
        directories = (log_dirs or {}).get(broker.node_id)
        logs = None if directories is None else sum(len(each.replicas) for each in directories.values())
        is_silent = broker.node_id in silent
        state = "fenced" if broker.is_fenced else "does not answer" if is_silent else "ok"
        rows.append((broker.node_id, str(broker.address), broker.rack, logs, state))
    session.output.table(("broker", "address", "rack", "partitions", "state"), rows)


def _show_quorum(session: Session, quorum: QuorumDescription | None) -> None:
    output = session.output
    output.say()
    if quorum is None:
        output.say("quorum: not told by this cluster")
        return
    output.say(
        f"quorum: node {quorum.leader_id} leads in epoch {quorum.leader_epoch}, "
        f"committed up to {quorum.high_watermark}"
    )
    output.say()
    end = max((each.log_end_offset for each in quorum.voters), default=0)
    rows = []
    for role, replicas in (("voter", quorum.voters), ("observer", quorum.observers)):
        for each in replicas:
            shown = "leader" if each.node_id == quorum.leader_id else role
            addresses = [str(address) for address in quorum.endpoints.get(each.node_id, {}).values()]
            rows.append((each.node_id, shown, addresses, each.log_end_offset, end - each.log_end_offset))
    output.table(("node", "role", "address", "log end", "lag"), rows)


def _show_features(session: Session, features: Features | None) -> None:
    output = session.output
    output.say()
    if features is None or not (features.supported or features.finalized):
        output.say("features: not told by this cluster")
        return
    rows = []
    for name in sorted(features.supported | features.finalized):
        finalized, supported = features.finalized.get(name), features.supported.get(name)
        level_text = None if finalized is None else _level_text(name, finalized.last)
        can = None if supported is None else f"{supported.first} to {supported.last}"
        rows.append((name, level_text, can))
    output.table(("feature", "level", "supported"), rows)


def _level_text(name: str, number: int) -> str:
    known = level(number) if name == METADATA_VERSION else None
    return str(number) if known is None else f"{number} ({known.release})"


def _show_log_dirs(session: Session, log_dirs: LogDirsByBroker | None) -> None:
    output = session.output
    output.say()
    if log_dirs is None:
        output.say("log directories: not told by this cluster")
        return
    rows = []
    for node_id, directories in log_dirs.items():
        for path, each in sorted(directories.items()):
            size = sum(replica.size_bytes for replica in each.replicas.values())
            room = None if each.usable_bytes is None else bytes_text(each.usable_bytes)
            disk = None if each.total_bytes is None else bytes_text(each.total_bytes)
            state = each.error.name if each.error else "cordoned" if each.is_cordoned else "ok"
            rows.append((node_id, path, len(each.replicas), bytes_text(size), room, disk, state))
    output.table(("broker", "log directory", "logs", "size", "free", "disk", "state"), rows)


async def _show_apis(session: Session) -> None:
    from barnabas.cli.api_names import API_NAMES

    ranges = await session.admin.api_versions()
    rows = [(key, API_NAMES.get(key, "-"), *ranges[key]) for key in sorted(ranges)]
    if session.output.as_json:
        names = ("key", "name", "first", "last")
        session.output.document([dict(zip(names, row, strict=True)) for row in rows])
    else:
        session.output.table(("key", "api", "first", "last"), rows)


# ---- for machines ----------------------------------------------------------------------------------------


def _document(
    cluster: ClusterDescription,
    quorum: QuorumDescription | None,
    features: Features | None,
    log_dirs: LogDirsByBroker | None,
    silent: Sequence[int],
) -> dict[str, Any]:
    return {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "brokers": [
            {
                "id": broker.node_id,
                "host": broker.address.host,
                "port": broker.address.port,
                "rack": broker.rack,
                "fenced": broker.is_fenced,
                "answers": not broker.is_fenced and broker.node_id not in silent,
            }
            for broker in sorted(cluster.brokers, key=lambda each: each.node_id)
        ],
        "quorum": None if quorum is None else _quorum_document(quorum),
        "features": None if features is None else _features_document(features),
        "log_dirs": None if log_dirs is None else _log_dirs_document(log_dirs),
    }


def _quorum_document(quorum: QuorumDescription) -> dict[str, Any]:
    return {
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [_replica_document(each, quorum) for each in quorum.voters],
        "observers": [_replica_document(each, quorum) for each in quorum.observers],
    }


def _replica_document(replica: QuorumReplica, quorum: QuorumDescription) -> dict[str, Any]:
    directory = replica.directory_id
    return {
        "id": replica.node_id,
        "directory_id": None if directory is None else uuid_to_text(UUID(bytes=directory)),
        "log_end_offset": replica.log_end_offset,
        "last_fetch_timestamp_ms": replica.last_fetch_timestamp_ms,
        "last_caught_up_timestamp_ms": replica.last_caught_up_timestamp_ms,
        "endpoints": {
            listener: str(address) for listener, address in quorum.endpoints.get(replica.node_id, {}).items()
        },
    }


def _features_document(features: Features) -> list[dict[str, Any]]:
    return [
        {
            "feature": name,
            "level": features.finalized[name].last if name in features.finalized else None,
            "supported": list(features.supported[name]) if name in features.supported else None,
        }
        for name in sorted(features.supported | features.finalized)
    ]


def _log_dirs_document(log_dirs: LogDirsByBroker) -> list[dict[str, Any]]:
    return [
        {
            "broker": node_id,
            "path": path,
            "error": None if each.error is None else each.error.name,
            "cordoned": each.is_cordoned,
            "total_bytes": each.total_bytes,
            "usable_bytes": each.usable_bytes,
            "logs": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "size_bytes": replica.size_bytes,
                    "offset_lag": replica.offset_lag,
                    "future": replica.is_future,
                }
                for partition, replica in sorted(each.replicas.items())
            ],
        }
        for node_id, directories in log_dirs.items()
        for path, each in sorted(directories.items())
    ]
