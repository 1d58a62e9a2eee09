"""`barnabas cluster`: brokers, partitions, the quorum of controllers, features, log directories, APIs; and
replicas for internal topics.

Not every Kafka tells everything: what a cluster does not tell (no API for it, or no permission) is left out,
and said to be. A broker that does not answer is said not to, and so are controllers: that may be why somebody
looks.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence

from barnabas.cli.clusters.documents import LogDirsByBroker, Seen, document
from barnabas.cli.clusters.grow_internal import GROW_EXAMPLES, add_grow_internal, grow_internal
from barnabas.cli.clusters.partitions import EXAMPLES, add_partitions, partitions_of, show_partitions, told
from barnabas.cli.clusters.watch import EXAMPLES as WATCH_EXAMPLES
from barnabas.cli.clusters.watch import add_watch, watch
from barnabas.cli.clusters.wholeness import ROLL_EXAMPLES, add_roll_check, roll_check
from barnabas.cli.connecting import Session, connected
from barnabas.cli.options import Actions, command_parser
from barnabas.cli.output import bytes_text, counted
from barnabas.cli.running import run_command
from barnabas.client.admin import Admin, Features, QuorumDescription
from barnabas.client.errors import BrokerNotReachable, TimedOut
from barnabas.core.network import ConnectionLost
from barnabas.metadata.versions import level

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
    texts = (_DESCRIBE, EXAMPLES, WATCH_EXAMPLES, GROW_EXAMPLES, ROLL_EXAMPLES)
    examples = "".join(text.strip().splitlines()[0] + "\n" for text in texts)
    parser = command_parser("barnabas cluster", "The cluster as a whole.", examples)
    actions = Actions(parser)
    describe = actions.add(
        "describe", "show brokers, controllers, features and log directories", _DESCRIBE, connected(_describe)
    )
    describe.add_argument("--apis", action="store_true", help="what a broker speaks, instead")
    add_partitions(actions, connected(show_partitions))
    add_watch(actions, connected(watch))
    add_grow_internal(actions, connected(grow_internal))
    add_roll_check(actions, connected(roll_check))
    return parser


async def _describe(session: Session, options: argparse.Namespace) -> None:
    if options.apis:
        await _show_apis(session)
        return
    admin = session.admin
    cluster = await admin.describe_cluster(with_fenced=True)
    features = await told(admin.describe_features())
    live = sorted(broker.node_id for broker in cluster.brokers if not broker.is_fenced)
    log_dirs, silent = await _log_dirs(admin, live)
    quorum, is_answered = await _quorum(admin)
    seen = Seen(cluster, await partitions_of(admin), quorum, features, log_dirs, silent)
    if session.output.as_json:
        session.output.document(document(seen))
        return
    _show_brokers(session, seen)
    if is_answered:
        _show_quorum(session, quorum)
    else:
        session.output.say("\nquorum: no controller answers; none leads, or the broker reaches none")
    _show_features(session, features)
    _show_log_dirs(session, log_dirs)


async def _quorum(admin: Admin) -> tuple[QuorumDescription | None, bool]:
    """The quorum if it is told, and whether anybody has answered: a broker waits long for a controller."""
    try:
        async with asyncio.timeout(QUORUM_S):
            return await told(admin.describe_quorum()), True
    except (TimeoutError, BrokerNotReachable, ConnectionLost, TimedOut):
        return None, False


async def _log_dirs(admin: Admin, brokers: Iterable[int]) -> tuple[LogDirsByBroker | None, list[int]]:
    """The log directories of the brokers that tell, None if nobody does; and those that do not answer."""
    silent: list[int] = []

    async def ask(node_id: int) -> LogDirsByBroker | None:
        try:
            return await told(admin.describe_log_dirs([node_id]))
        except (BrokerNotReachable, ConnectionLost, TimedOut):
            silent.append(node_id)
            return None

    answers = [answer for answer in await asyncio.gather(*map(ask, brokers)) if answer is not None]
    found = {node_id: directories for answer in answers for node_id, directories in answer.items()}
    return (found if answers else None), silent


# ---- for people ------------------------------------------------------------------------------------------


def _show_brokers(session: Session, seen: Seen) -> None:
    output, partitions, leaders, replicas = session.output, seen.partitions, seen.leaders, seen.replicas
    output.say(f"cluster {seen.cluster.cluster_id}")
    output.say()
    rows = []
    for broker in sorted(seen.cluster.brokers, key=lambda each: each.node_id):
        node_id, size = broker.node_id, seen.bytes_of(broker.node_id)
        state = "fenced" if broker.is_fenced else "does not answer" if node_id in seen.silent else "ok"
        size_text = None if size is None else bytes_text(size)
        counts = leaders[node_id], replicas[node_id]
        rows.append((node_id, str(broker.address), broker.rack, *counts, size_text, state))
    output.table(("broker", "address", "rack", "leaders", "replicas", "size", "state"), rows)
    output.say()
    output.say(f"{counted(len(partitions.every), 'partition')}: {partitions.counts.text}")


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
