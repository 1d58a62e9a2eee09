"""`barnabas group`: the groups of a cluster, how far they have read, and where they are to read on."""

from __future__ import annotations

import argparse
import fnmatch
from collections.abc import Sequence
from typing import Any

from barnabas.cli.asking import be_sure
from barnabas.cli.connecting import Session, connected
from barnabas.cli.failures import CommandFailed
from barnabas.cli.groups.describe import describe, groups_meant, groups_named
from barnabas.cli.groups.reset import reset
from barnabas.cli.groups.scope import partitions_in, scope
from barnabas.cli.options import Actions, command_parser, duration, integer, natural, seconds, some_of
from barnabas.cli.output import counted
from barnabas.cli.running import run_command
from barnabas.client.errors import UnknownGroup

STATES = [
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Empty",
    "Dead",
    "Assigning",
    "Reconciling",
    "NotReady",
]
TYPES = ["classic", "consumer", "share", "streams"]
_WATCH_S = 2.0

_LIST = """
barnabas group list
barnabas group list 'orders-*' --state empty        those that nobody is in
barnabas group list --type consumer,share --json
"""
_DESCRIBE = """
barnabas group describe billing                     what is read, and how far behind that is
barnabas group describe billing --members           who is in it, and who reads what
barnabas group describe --all-groups --state        all of them, a line each
barnabas group describe billing --all --watch 5     everything, every five seconds
"""
_RESET = """
barnabas group reset billing --topic orders --to-earliest             only shows what would be
barnabas group reset billing --topic orders:0,1 --to-offset 500 --execute
barnabas group reset billing --all-topics --by-duration PT1H --execute    what came in the last hour
barnabas group reset billing --all-topics --to-datetime 2026-01-31T12:00 --execute
barnabas group reset billing --all-topics --to-current --export > plan.csv
barnabas group reset billing --from-file plan.csv --execute
"""
_DELETE = """
barnabas group delete billing
barnabas group delete billing audit --yes
"""
_DELETE_OFFSETS = """
barnabas group delete-offsets billing --topic orders
barnabas group delete-offsets billing --topic orders:0,3 --yes
"""
_REMOVE = """
barnabas group remove-members billing --instance worker-3      a static member that is gone for good
barnabas group remove-members billing --member consumer-1-0f... --yes
barnabas group remove-members billing --all                    those that run will join again
"""


def main(arguments: Sequence[str]) -> int:
    """Do one thing to groups; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    examples = "".join(text.strip().splitlines()[0] + "\n" for text in (_LIST, _DESCRIBE, _RESET))
    parser = command_parser("barnabas group", "The groups of a cluster.", examples)
    actions = Actions(parser)
    _add_list(actions)
    _add_describe(actions)
    _add_reset(actions)
    delete = actions.add("delete", "delete groups that have no members", _DELETE, connected(_delete))
    _add_groups(delete)
    delete.add_argument("--yes", action="store_true", help="do not ask")
    _add_delete_offsets(actions)
    _add_remove(actions)
    return parser


def _add_groups(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("groups", metavar="GROUP", nargs="*")
    parser.add_argument("--all-groups", action="store_true", help="all there are")


def _add_list(actions: Actions) -> None:
    parser = actions.add("list", "list groups", _LIST, connected(_list))
    parser.add_argument("patterns", metavar="PATTERN", nargs="*", help="names, with * and ?")
    parser.add_argument("--state", type=some_of(STATES), metavar="S[,S]", default=[], help=", ".join(STATES))
    parser.add_argument("--type", type=some_of(TYPES), metavar="T[,T]", default=[], help=", ".join(TYPES))


def _add_describe(actions: Actions) -> None:
    parser = actions.add(
        "describe", "show how far groups have read, and who is in them", _DESCRIBE, connected(describe)
    )
    _add_groups(parser)
    parser.add_argument("--offsets", action="store_true", help="offsets and lag, as by default")
    parser.add_argument("--members", action="store_true", help="members, and what each reads")
    parser.add_argument("--state", action="store_true", help="the state alone")
    parser.add_argument("--all", action="store_true", help="all of this")
    parser.add_argument(
        "--watch",
        metavar="S",
        type=seconds,
        nargs="?",
        const=_WATCH_S,
        help=f"again every so many seconds ({_WATCH_S:g}), until Ctrl-C",
    )


def _add_reset(actions: Actions) -> None:
    parser = actions.add("reset", "let groups without members read on elsewhere", _RESET, connected(reset))
    _add_groups(parser)
    _add_topics(parser)
    parser.add_argument("--all-topics", action="store_true", help="all that the group has committed for")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--to-earliest", action="store_true", help="where partitions begin")
    how.add_argument("--to-latest", action="store_true", help="where they end")
    how.add_argument("--to-current", action="store_true", help="where it is; the end where it is nowhere")
    how.add_argument("--to-offset", type=natural, metavar="N")
    how.add_argument("--shift-by", type=integer, metavar="N", help="so many records on; back if below 0")
    how.add_argument("--to-datetime", metavar="TIME", help="the first record of that time or later")
    how.add_argument("--by-duration", type=duration, metavar="PT1H", help="... of so long ago; or as 90m")
    how.add_argument("--from-file", metavar="FILE", help="what --export wrote; - is standard input")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="only show what would be, as by default")
    what.add_argument("--execute", action="store_true", help="do it")
    parser.add_argument("--export", action="store_true", help="print CSV: topic,partition,offset")


def _add_topics(parser: argparse.ArgumentParser, *, is_required: bool = False) -> None:
    parser.add_argument(
        "--topic",
        type=scope,
        metavar="T[:0,3,5-7]",
        action="append",
        default=[],
        dest="topics",
        required=is_required,
        help="a topic, or some of its partitions; may be repeated",
    )


def _add_delete_offsets(actions: Actions) -> None:
    parser = actions.add(
        "delete-offsets",
        "delete what a group committed for topics that it no longer reads",
        _DELETE_OFFSETS,
        connected(_delete_offsets),
    )
    parser.add_argument("group", metavar="GROUP")
    _add_topics(parser, is_required=True)
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _add_remove(actions: Actions) -> None:
    parser = actions.add("remove-members", "let members leave a group", _REMOVE, connected(_remove))
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--member", metavar="ID", action="append", default=[], dest="members")
    parser.add_argument("--instance", metavar="ID", action="append", default=[], dest="instances")
    parser.add_argument("--all", action="store_true", help="all that are in it")
    parser.add_argument("--yes", action="store_true", help="do not ask")


# ---- what is done ----------------------------------------------------------------------------------------


async def _list(session: Session, options: argparse.Namespace) -> None:
    patterns: list[str] = options.patterns
    groups = [
        each
        for each in await session.admin.list_groups(states=options.state, types=options.type)
        if not patterns or any(fnmatch.fnmatchcase(each.group_id, pattern) for pattern in patterns)
    ]
    if session.output.as_json:
        session.output.document(
            [{"group": each.group_id, **dict(list(each._asdict().items())[1:])} for each in groups]
        )
    elif groups:
        session.output.table(
            ("group", "state", "type", "protocol type", "coordinator"),
            [(g.group_id, g.state, g.type, g.protocol_type or None, g.coordinator) for g in groups],
        )


async def _delete(session: Session, options: argparse.Namespace) -> None:
    groups = await groups_meant(session, options)
    if not groups:
        session.output.done({"deleted": []}, "there are no groups")
        return
    be_sure(f"Delete {', '.join(groups)} and all that is committed?", is_sure=options.yes)
    deleted: list[str] = []
    try:
        for group in groups:
            await _delete_one(session, group)
            deleted.append(group)
    finally:  # one that cannot be deleted does not hide those that were
        if deleted:
            session.output.done({"deleted": deleted}, f"deleted {', '.join(deleted)}")


async def _delete_one(session: Session, group: str) -> None:
    try:
        await session.admin.delete_groups([group])
    except UnknownGroup:
        await groups_named(session, [group])  # tells it with the nearest names
        raise


async def _delete_offsets(session: Session, options: argparse.Namespace) -> None:
    partitions = await partitions_in(session, options.topics)
    count = counted(len(partitions), "partition")
    be_sure(f"Delete what {options.group} committed for {count}?", is_sure=options.yes)
    try:
        await session.admin.delete_group_offsets(options.group, partitions)
    except UnknownGroup:
        await groups_named(session, [options.group])
        raise
    session.output.done(
        {"group": options.group, "deleted": [each._asdict() for each in partitions]},
        f"{options.group} has nothing committed for {count} any more",
    )


async def _remove(session: Session, options: argparse.Namespace) -> None:
    members: list[str] = list(options.members)
    instances: list[str] = list(options.instances)
    if options.all == bool(members or instances):
        raise CommandFailed("which members?", "give --member ID or --instance ID, or --all")
    group = (await groups_named(session, [options.group]))[options.group]
    if options.all:
        instances = [each.instance_id for each in group.members if each.instance_id is not None]
        members = [each.member_id for each in group.members if each.instance_id is None]
    names = members + instances
    fact: dict[str, Any] = {"group": options.group, "removed": names}
    if not names:
        session.output.done(fact, f"{options.group} has no members")
        return
    be_sure(f"Remove {counted(len(names), 'member')} of {options.group}?", is_sure=options.yes)
    await session.admin.remove_group_members(
        options.group, members, instance_ids=instances, reason="removed by barnabas group remove-members"
    )
    session.output.done(fact, f"{counted(len(names), 'member')} of {options.group} removed")
