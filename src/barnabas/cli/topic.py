"""`barnabas topic`: the topics of a cluster, and what their partitions hold."""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from barnabas.cli.asking import be_sure
from barnabas.cli.changes import Target, alter, check_names, texts
from barnabas.cli.connecting import Session, connected
from barnabas.cli.failures import CommandFailed
from barnabas.cli.offsets import show_offsets, trim
from barnabas.cli.options import INT16, INT32, Actions, command_parser, naturals, positive, setting
from barnabas.cli.running import run_command
from barnabas.client.admin import (
    DEFAULT,
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    NewTopic,
    PartitionDescription,
    ResourceType,
    TopicDescription,
)
from barnabas.client.errors import TopicExists, UnknownTopic
from barnabas.log.checkpoints import uuid_from_text, uuid_to_text
from barnabas.protocol.channel import NotSpoken

_LIST = """
barnabas topic list                     all but the cluster's own
barnabas topic list 'orders-*'          those that match
barnabas topic list --internal --json   all of them, for machines
"""
_CREATE = """
barnabas topic create orders --partitions 12
barnabas topic create orders --partitions 3 --replicas 3 --set retention.ms=86400000
barnabas topic create orders --assign 1:2,2:3,3:1    three partitions and the brokers of each
barnabas topic create users --set cleanup.policy=compact --if-not-exists
"""
_DESCRIBE = """
barnabas topic describe orders
barnabas topic describe orders payments --json
"""
_ALTER = """
barnabas topic alter orders --partitions 24
barnabas topic alter orders --set retention.ms=3600000 --unset segment.bytes
barnabas topic alter orders --append cleanup.policy=compact --dry-run
"""
_DELETE = """
barnabas topic delete orders
barnabas topic delete --id lMVfCHq0SUSwDrKqHs1tBg --yes
"""
_OFFSETS = """
barnabas topic offsets orders                        where each partition begins and ends
barnabas topic offsets orders --at 2026-01-31T12:00  the first record at or after that time
barnabas topic offsets orders --at -2h               ... of the last two hours
barnabas topic offsets orders --at max-timestamp     the record with the latest timestamp
"""
_TRIM = """
barnabas topic trim orders --partitions 0 --before 1000    records 0 to 999 of partition 0 are gone
barnabas topic trim orders --before-time -7d               what is older than a week
barnabas topic trim orders --all --yes                     everything, without a question
"""


def main(arguments: Sequence[str]) -> int:
    """Do one thing to topics; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    examples = "".join(text.strip().splitlines()[0] + "\n" for text in (_LIST, _CREATE, _DESCRIBE, _OFFSETS))
    parser = command_parser("barnabas topic", "The topics of a cluster.", examples)
    actions = Actions(parser)
    _add_list(actions)
    _add_create(actions)
    describe = actions.add(
        "describe", "show topics, their partitions and settings", _DESCRIBE, connected(_describe)
    )
    describe.add_argument("topics", metavar="TOPIC", nargs="+")
    _add_alter(actions)
    _add_delete(actions)
    _add_offsets(actions)
    _add_trim(actions)
    return parser


def _add_list(actions: Actions) -> None:
    parser = actions.add("list", "list topics", _LIST, connected(_list))
    parser.add_argument("patterns", metavar="PATTERN", nargs="*", help="names, with * and ?")
    parser.add_argument("--internal", action="store_true", help="the cluster's own topics, too")


def _add_create(actions: Actions) -> None:
    parser = actions.add("create", "create topics", _CREATE, connected(_create))
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument(
        "--partitions",
        type=partial(positive, most=INT32),
        metavar="N",
        help="(default: the broker's num.partitions)",
    )
    parser.add_argument(
        "--replicas", type=partial(positive, most=INT16), metavar="N", help="(default: the broker's)"
    )
    parser.add_argument(
        "--assign",
        type=_assignment,
        metavar="B[:B],B[:B]",
        help="the brokers of each partition, instead of the two numbers",
    )
    parser.add_argument(
        "--set", type=setting, metavar="K=V", action="append", default=[], dest="settings", help="a setting"
    )
    parser.add_argument("--if-not-exists", action="store_true", help="one that is there already is fine")
    parser.add_argument("--dry-run", action="store_true", help="only see whether it could be done")


def _add_alter(actions: Actions) -> None:
    parser = actions.add("alter", "add partitions to a topic, change its settings", _ALTER, connected(_alter))
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--partitions",
        type=partial(positive, most=INT32),
        metavar="N",
        help="how many there are to be in all",
    )
    for name, operation, help_text in (
        ("--set", ConfigOperation.SET, "give a setting this value"),
        ("--append", ConfigOperation.APPEND, "add to the list that a setting is"),
        ("--subtract", ConfigOperation.SUBTRACT, "take from the list that a setting is"),
    ):
        parser.add_argument(
            name,
            type=lambda text, kind=operation: ConfigChange(*setting(text), kind),  # type: ignore[misc]
            metavar="K=V",
            action="append",
            default=[],
            dest="changes",
            help=help_text,
        )
    parser.add_argument(
        "--unset",
        type=lambda text: ConfigChange(text, None, ConfigOperation.DELETE),
        metavar="K",
        action="append",
        dest="changes",
        help="give a setting its default",
    )
    parser.add_argument("--dry-run", action="store_true", help="only see whether it could be done")


def _add_delete(actions: Actions) -> None:
    parser = actions.add("delete", "delete topics and all their records", _DELETE, connected(_delete))
    parser.add_argument("topics", metavar="TOPIC", nargs="*")
    parser.add_argument("--id", type=_topic_id, metavar="ID", action="append", default=[], dest="topic_ids")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _add_offsets(actions: Actions) -> None:
    parser = actions.add(
        "offsets",
        "show where partitions begin and end, or what is at a time",
        _OFFSETS,
        connected(show_offsets),
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument("--partitions", type=naturals, metavar="0,3,5-7", help="only these")
    parser.add_argument("--at", metavar="WHEN", help="a time, or earliest, latest, max-timestamp")


def _add_trim(actions: Actions) -> None:
    parser = actions.add("trim", "delete the oldest records of a topic", _TRIM, connected(trim))
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partitions", type=naturals, metavar="0,3,5-7", help="only these")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--before", type=positive, metavar="OFFSET", help="what is before that offset")
    how.add_argument("--before-time", metavar="TIME", help="what comes before the first record of that time")
    how.add_argument("--all", action="store_true", help="everything there is")
    parser.add_argument("--dry-run", action="store_true", help="only show what would go")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _assignment(text: str) -> dict[int, list[int]]:
    brokers = [part.split(":") for part in text.split(",")]
    if not all(one.isdecimal() and len(one) < 20 and int(one) <= INT32 for part in brokers for one in part):
        raise argparse.ArgumentTypeError(f"{text!r}: write the brokers of each partition as 1:2,2:3")
    return {at: list(map(int, part)) for at, part in enumerate(brokers)}


def _topic_id(text: str) -> bytes:
    try:
        return uuid_from_text(text).bytes
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no id of a topic; `describe` shows it") from None


# ---- what is done ----------------------------------------------------------------------------------------


async def _list(session: Session, options: argparse.Namespace) -> None:
    patterns: list[str] = options.patterns
    topics = [
        topic
        for name, topic in sorted((await session.admin.describe_topics()).items())
        if (options.internal or not topic.is_internal or name in patterns)
        and (not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))
    ]
    if session.output.as_json:
        session.output.document([_summary(topic) for topic in topics])
    elif topics:
        session.output.table(
            ("topic", "partitions", "replicas", "state"),
            [(t.name, len(t.partitions), _replicas(t), _state(t)) for t in topics],
        )


def _summary(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": uuid_to_text(UUID(bytes=topic.topic_id)),
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": _replicas(topic),
        "state": _state(topic),
    }


def _replicas(topic: TopicDescription) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _state(topic: TopicDescription) -> str:
    leaderless = sum(each.leader < 0 for each in topic.partitions)
    behind = sum(len(each.in_sync) < len(each.replicas) for each in topic.partitions)
    words = [f"{leaderless} without a leader"] if leaderless else []
    words += [f"{behind} under-replicated"] if behind else []
    return ", ".join(words) or "ok"


async def _create(session: Session, options: argparse.Namespace) -> None:
    if options.assign and (options.partitions or options.replicas):
        raise CommandFailed("--assign says all; leave out --partitions and --replicas")
    facts: list[dict[str, Any]] = []
    try:
        for name in options.topics:
            fact, text = await _create_one(session, name, options)
            facts.append(fact)
            if not session.output.as_json:
                session.output.say(text)
    finally:  # one that cannot be created does not hide those that were
        if session.output.as_json and facts:
            session.output.document(facts)


async def _create_one(session: Session, name: str, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Create a topic; what to tell machines, and people."""
    topic = NewTopic(
        name,
        options.partitions or DEFAULT,
        options.replicas or DEFAULT,
        dict(options.settings),
        options.assign or {},
    )
    try:
        (made,) = await session.admin.create_topics([topic], validate_only=options.dry_run)
    except TopicExists:
        if not options.if_not_exists:
            raise
        return {"topic": name, "created": False}, f"{name} is there already"
    fact: dict[str, Any] = {"topic": name, "created": not options.dry_run}
    if not options.dry_run:
        await session.settled(lambda: session.has_topic(name))
        fact["id"] = uuid_to_text(UUID(bytes=made.topic_id))
    fact |= {"partitions": made.partitions, "replicas": made.replication_factor}
    text = f"{name} {'could be created' if options.dry_run else 'created'}"
    if made.partitions > 0:  # brokers before 2.4 do not tell
        text += f": {_counted(made.partitions, 'partition')}, {_counted(made.replication_factor, 'replica')}"
    return fact, text


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


async def _describe(session: Session, options: argparse.Namespace) -> None:
    topics = await session.topics(options.topics)
    with contextlib.suppress(NotSpoken):  # before 3.7 all but eligible leaders is there already
        topics = await session.admin.describe_partitions(options.topics)
    documents = []
    for name in dict.fromkeys(options.topics):
        topic = topics[name]
        entries = await session.admin.describe_configs(ResourceType.TOPIC, name)
        own = {key: entry.value for key, entry in entries.items() if entry.source is ConfigSource.TOPIC}
        if session.output.as_json:
            documents.append(_document(topic, own))
        else:
            _show(session, topic, own, is_first=name == options.topics[0])
    if session.output.as_json:
        session.output.document(documents)


def _document(topic: TopicDescription, own: dict[str, str | None]) -> dict[str, Any]:
    partitions = [
        {key: value for key, value in partition._asdict().items() if value is not None}
        for partition in topic.partitions
    ]
    return {**_summary(topic), "settings": own, "partitions": partitions}


def _show(session: Session, topic: TopicDescription, own: dict[str, str | None], *, is_first: bool) -> None:
    say = session.output.say
    if not is_first:
        say()
    say(f"{topic.name}: {_counted(len(topic.partitions), 'partition')}, {_state(topic)}")
    say(f"id {uuid_to_text(UUID(bytes=topic.topic_id))}{', internal' * topic.is_internal}")
    for key, value in sorted(own.items()):
        say(f"{key}={value}")
    say()
    has_eligible = any(each.eligible or each.last_known_eligible for each in topic.partitions)
    columns = ["partition", "leader", "epoch", "replicas", "in sync"]
    if has_eligible:
        columns += ["eligible", "last eligible"]
    session.output.table(columns, [_row(each, has_eligible=has_eligible) for each in topic.partitions])


def _row(partition: PartitionDescription, *, has_eligible: bool) -> list[object]:
    row: list[object] = [
        partition.partition,
        None if partition.leader < 0 else partition.leader,
        partition.leader_epoch,
        partition.replicas,
        partition.in_sync,
    ]
    return [*row, partition.eligible, partition.last_known_eligible] if has_eligible else row


async def _alter(session: Session, options: argparse.Namespace) -> None:
    if options.partitions is None and not options.changes:
        raise CommandFailed(
            "there is nothing to alter", "give --partitions, --set, --unset, --append or --subtract"
        )
    topic = await session.topic(options.topic)
    target, is_dry = Target(ResourceType.TOPIC, topic.name), options.dry_run
    await check_names(
        session, target, [each.name for each in options.changes if each.operation is ConfigOperation.DELETE]
    )
    # partitions cannot be taken back, so the settings are looked at before any are added
    if options.changes:
        await alter(session, target, options.changes, is_dry=True)
    if options.partitions is not None:
        await session.admin.create_partitions({topic.name: options.partitions}, validate_only=is_dry)
        if not is_dry:
            await session.settled(lambda: session.has_topic(topic.name, options.partitions))
    if options.changes and not is_dry:
        await alter(session, target, options.changes, is_dry=False)
    words = []
    if options.partitions is not None:
        words.append(f"{options.partitions} partitions")
    words += await texts(session, target, options.changes)
    fact = {"topic": topic.name, "altered": not is_dry, "changes": words}
    session.output.done(fact, f"{topic.name} {'could be' if is_dry else 'is'} altered: {', '.join(words)}")


async def _delete(session: Session, options: argparse.Namespace) -> None:
    if not options.topics and not options.topic_ids:
        raise CommandFailed("no topic is named", "give names, or ids with --id")
    wanted: dict[str, TopicDescription] = {}
    if options.topics:
        wanted |= await session.topics(options.topics)
    if options.topic_ids:
        try:
            wanted |= await session.admin.describe_topics(topic_ids=options.topic_ids)
        except UnknownTopic:
            raise CommandFailed(
                "there is no topic of that id", "`barnabas topic list --json` has ids"
            ) from None
    be_sure(f"Delete {', '.join(wanted)} and all records there?", is_sure=options.yes)
    if options.topics:
        await session.admin.delete_topics(options.topics)
    if options.topic_ids:
        await session.admin.delete_topics(topic_ids=options.topic_ids)
    await session.settled(lambda: _are_gone(session, wanted.values()))
    session.output.done({"deleted": list(wanted)}, f"deleted {', '.join(wanted)}")


async def _are_gone(session: Session, topics: Iterable[TopicDescription]) -> bool:
    """Whether topics are no longer there; others of the same names may be there again."""
    for topic in topics:
        try:
            found = (await session.admin.describe_topics([topic.name]))[topic.name]
        except UnknownTopic:
            continue
        if found.topic_id == topic.topic_id:
            return False
    return True
