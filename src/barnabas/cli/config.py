"""`barnabas config`: settings of topics, brokers, loggers and groups, where they come from, what they mean.

Kafka takes any name as a broker's setting, since a plugin may know it; a misspelt one then lies there without
effect. So names that a broker does not list are refused here unless `--force` is given.
"""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from barnabas.cli.changes import HIDDEN, KINDS, SIGNS, Target, alter, check_names, texts
from barnabas.cli.connecting import Session, connected
from barnabas.cli.failures import unknown_name
from barnabas.cli.options import Actions, command_parser, natural
from barnabas.cli.running import run_command
from barnabas.client.admin import (
    ALL_BROKERS,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from barnabas.client.errors import BrokerError
from barnabas.protocol.channel import NotSpoken

_LIST = """
barnabas config list                  everything that has settings
barnabas config list --json
"""
_DESCRIBE = """
barnabas config describe --topic orders                        what is not as by default
barnabas config describe --topic orders --all                  everything
barnabas config describe --topic orders retention.ms --docs    where it comes from, what it means
barnabas config describe --broker 1
barnabas config describe --all-brokers
barnabas config describe --loggers 1
"""
_SET = """
barnabas config set --topic orders retention.ms=3600000
barnabas config set --topic orders cleanup.policy+=compact     add to a list (-= takes from it)
barnabas config set --broker 1 log.cleaner.threads=2
barnabas config set --all-brokers message.max.bytes=2097152
barnabas config set --loggers 1 root=DEBUG
"""
_UNSET = """
barnabas config unset --topic orders retention.ms
barnabas config unset --all-brokers message.max.bytes
"""
_CHANGE = re.compile(r"(.+?)(\+=|-=|=)(.*)", re.DOTALL)
_WIDEST = 100


def main(arguments: Sequence[str]) -> int:
    """Look at settings, or change them; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    examples = "".join(text.strip().splitlines()[0] + "\n" for text in (_LIST, _DESCRIBE, _SET, _UNSET))
    parser = command_parser("barnabas config", "Settings of topics, brokers, loggers and groups.", examples)
    actions = Actions(parser)
    actions.add("list", "list what has settings", _LIST, connected(_list))
    describe = actions.add("describe", "show settings", _DESCRIBE, connected(_describe))
    _add_target(describe)
    describe.add_argument("names", metavar="NAME", nargs="*", help="only these settings")
    describe.add_argument("--all", action="store_true", help="also those that are as by default")
    describe.add_argument("--docs", action="store_true", help="what they mean, and where else they come from")
    for name, summary, action_examples, work, metavar, kind in (
        ("set", "change settings", _SET, _set, "NAME=VALUE", _change),
        ("unset", "give settings their defaults again", _UNSET, _set, "NAME", _removal),
    ):
        changing = actions.add(name, summary, action_examples, connected(work))
        _add_target(changing)
        changing.add_argument("changes", metavar=metavar, nargs="+", type=kind)
        changing.add_argument("--dry-run", action="store_true", help="only see whether it could be done")
        changing.add_argument("--force", action="store_true", help="also what a broker does not list")
    return parser


def _add_target(parser: argparse.ArgumentParser) -> None:
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("--topic", metavar="T", help="a topic")
    whose.add_argument("--broker", type=natural, metavar="ID", help="one broker")
    whose.add_argument("--all-brokers", action="store_true", help="what holds for every broker")
    whose.add_argument("--loggers", type=natural, metavar="ID", help="the loggers of a broker")
    whose.add_argument("--group", metavar="G", help="a consumer group")


def _change(text: str) -> ConfigChange:
    parts = _CHANGE.fullmatch(text)
    if parts is None:
        raise argparse.ArgumentTypeError(f"{text!r}: write it as name=value")
    return ConfigChange(parts[1].strip(), parts[3], SIGNS[parts[2]])


def _removal(text: str) -> ConfigChange:
    return ConfigChange(text, None, ConfigOperation.DELETE)


# ---- what is done ----------------------------------------------------------------------------------------


async def _list(session: Session, options: argparse.Namespace) -> None:
    try:
        resources = await session.admin.list_config_resources()
    except NotSpoken:  # before 4.1
        resources = await _resources_by_metadata(session)
    resources = sorted(resources, key=lambda each: (KINDS[each.type], each.name))
    if session.output.as_json:
        session.output.document([{"kind": KINDS[each.type], "name": each.name} for each in resources])
    else:
        session.output.table(("kind", "name"), [(KINDS[each.type], each.name) for each in resources])


async def _resources_by_metadata(session: Session) -> list[ConfigResource]:
    topics = await session.admin.list_topics(with_internal=True)
    brokers = [str(broker.node_id) for broker in (await session.admin.describe_cluster()).brokers]
    return [
        *(ConfigResource(ResourceType.TOPIC, name) for name in topics),
        *(
            ConfigResource(kind, name)
            for kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
            for name in brokers
        ),
    ]


async def _target(session: Session, options: argparse.Namespace) -> Target:
    """Whose settings are meant; it must be there."""
    if options.topic is not None:
        return Target(ResourceType.TOPIC, (await session.topic(options.topic)).name)
    if options.group is not None:
        return Target(ResourceType.GROUP, options.group)
    if options.all_brokers:
        return Target(ResourceType.BROKER, ALL_BROKERS)
    kind = ResourceType.BROKER if options.broker is not None else ResourceType.BROKER_LOGGER
    node_id = options.broker if options.broker is not None else options.loggers
    await session.check_broker(node_id)
    return Target(kind, str(node_id))


async def _describe(session: Session, options: argparse.Namespace) -> None:
    target = await _target(session, options)
    entries = await session.admin.describe_configs(
        *target, options.names or None, with_synonyms=options.docs, with_documentation=options.docs
    )
    if missing := [name for name in options.names if name not in entries]:
        known = await session.admin.describe_configs(*target)
        raise unknown_name("setting", missing[0], known, target.list_command)
    shown = {
        name: entry
        for name, entry in sorted(entries.items())
        if options.all or options.names or entry.source is not ConfigSource.DEFAULT
    }
    if session.output.as_json:
        session.output.document(
            [_document(name, entry, with_docs=options.docs) for name, entry in shown.items()]
        )
    elif not shown:
        session.output.say(f"{target} has no settings of its own; --all shows what holds by default")
    elif options.docs:
        for name, entry in shown.items():
            session.output.say(_in_full(name, entry))
    else:
        rows = [(name, _value(entry), _source(entry.source)) for name, entry in shown.items()]
        session.output.table(("setting", "value", "source"), rows)


def _document(name: str, entry: ConfigEntry, *, with_docs: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": name,
        "value": entry.value,
        "source": _source(entry.source),
        "type": entry.type.name.lower(),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }
    if with_docs:
        document["synonyms"] = [
            {"name": each.name, "value": each.value, "source": _source(each.source)}
            for each in entry.synonyms
        ]
        document["documentation"] = entry.documentation
    return document


def _in_full(name: str, entry: ConfigEntry) -> str:
    width = min(shutil.get_terminal_size((_WIDEST, 0)).columns, _WIDEST)
    kind = entry.type.name.lower()
    words = ", ".join([kind, f"from {_source(entry.source)}", *["read only"] * entry.is_read_only])
    lines = [f"{name} = {_value(entry)}  ({words})"]
    for synonym in entry.synonyms[1:]:
        lines.append(f"    else {synonym.name} = {synonym.value}  (from {_source(synonym.source)})")
    text = " ".join(re.sub(r"<[^>]+>", " ", entry.documentation or "").split())
    lines += textwrap.wrap(text, width, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([*lines, ""])


def _value(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return HIDDEN
    return "(none)" if entry.value is None else entry.value or "(empty)"


def _source(source: ConfigSource) -> str:
    return source.name.lower().replace("_", " ")


async def _set(session: Session, options: argparse.Namespace) -> None:
    target = await _target(session, options)
    changes: list[ConfigChange] = options.changes
    names = [change.name for change in changes]
    # a broker takes any name for itself, and from anybody a name to be forgotten
    is_taken = target.type is ResourceType.BROKER or changes[0].operation is ConfigOperation.DELETE
    if is_taken and not options.force:
        await check_names(session, target, names)
    try:
        await alter(session, target, changes, is_dry=options.dry_run)
    except BrokerError as error:
        if error.error.name == "INVALID_CONFIG":
            await check_names(session, target, names)
        raise
    told = await texts(session, target, changes)
    fact = {"target": str(target), "altered": not options.dry_run, "changes": told}
    session.output.done(fact, f"{target}: {', '.join(told)}{' would do' if options.dry_run else ''}")
