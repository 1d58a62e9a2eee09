"""`barnabas group describe`: offsets and lag, members and what they read, the state; once, or ever again."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NamedTuple

from barnabas.cli.connecting import Session
from barnabas.cli.failures import CommandFailed, unknown_name
from barnabas.cli.groups.lag import PartitionLag, lags_of, total_lag
from barnabas.cli.output import counted
from barnabas.client.admin import GroupDescription, GroupMember
from barnabas.client.errors import UnknownGroup

_DEAD = "Dead"  # what brokers before 3.9 call a group that they do not know
_CLASSIC = (None, "classic")
_CLEAR = "\x1b[H\x1b[2J"


class _Parts(NamedTuple):
    """What is to be shown of a group besides its state."""

    offsets: bool
    members: bool


class _Shown(NamedTuple):
    group: GroupDescription
    address: str
    lags: list[PartitionLag]


async def groups_named(session: Session, names: list[str]) -> dict[str, GroupDescription]:
    """Groups that must be there; one that is not fails with the nearest names."""
    try:
        found = await session.admin.describe_groups(names)
    except UnknownGroup as error:
        await _check_listed(session, names)
        raise CommandFailed(error.what, "only classic groups are described; `barnabas group list`") from error
    dead = [name for name, group in found.items() if group.state == _DEAD and not group.members]
    if dead:
        await _check_listed(session, dead)
    return found


async def _check_listed(session: Session, names: list[str]) -> None:
    listed = [each.group_id for each in await session.admin.list_groups()]
    for name in names:
        if name not in listed:
            raise unknown_name("group", name, listed, "barnabas group list")


async def groups_meant(
    session: Session, options: argparse.Namespace, *, only_classic: bool = False
) -> list[str]:
    """The groups that were named, or with `--all-groups` all that there are, or that can be described."""
    if options.groups and options.all_groups:
        raise CommandFailed("groups are named, and --all-groups is given", "leave out one of them")
    if options.all_groups:
        listed = await session.admin.list_groups()
        return [each.group_id for each in listed if not only_classic or each.type in _CLASSIC]
    if not options.groups:
        raise CommandFailed("no group is named", "name some, or take --all-groups")
    return list(dict.fromkeys(options.groups))


async def describe(session: Session, options: argparse.Namespace) -> None:
    """Show groups, and with `--watch` again every so many seconds until Ctrl-C."""
    parts = _Parts(
        options.offsets or options.all or not (options.members or options.state),
        options.members or options.all,
    )
    while True:
        names = await groups_meant(session, options, only_classic=True)
        shown = await _look(session, list((await groups_named(session, names)).values()), parts)
        _print(session, shown, parts, is_watching=options.watch is not None)
        if options.watch is None:
            return
        sys.stdout.flush()
        await session.clock.sleep(options.watch)


async def _look(session: Session, groups: list[GroupDescription], parts: _Parts) -> list[_Shown]:
    lags = await lags_of(session, groups) if parts.offsets else [[] for _ in groups]
    brokers = session.admin.cluster.metadata.brokers
    return [
        _Shown(group, str(brokers.get(group.coordinator, "?")), of_group)
        for group, of_group in zip(groups, lags, strict=True)
    ]


def _print(session: Session, shown: list[_Shown], parts: _Parts, *, is_watching: bool) -> None:
    output = session.output
    if output.as_json:
        facts = [_fact(each, parts) for each in shown]
        if is_watching:  # a stream: each look on a line of its own
            output.item({"time_ms": session.clock.wall_ms(), "groups": facts})
        else:
            output.document(facts)
        return
    if is_watching and sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    if not parts.offsets and not parts.members:
        _print_states(session, shown)
        return
    for number, each in enumerate(shown):
        if number:
            output.say()
        _print_group(session, each, parts)


def _print_states(session: Session, shown: list[_Shown]) -> None:
    session.output.table(
        ("group", "state", "protocol", "members", "coordinator", "address"),
        [
            (
                group.group_id,
                group.state,
                group.protocol or None,
                len(group.members),
                group.coordinator,
                address,
            )
            for group, address, _ in shown
        ],
    )


def _print_group(session: Session, shown: _Shown, parts: _Parts) -> None:
    group, say = shown.group, session.output.say
    words = [f"{group.group_id}: {group.state}", counted(len(group.members), "member")]
    words += [f"protocol {group.protocol}"] if group.protocol else []
    words += [f"coordinator {group.coordinator} at {shown.address}"]
    say(", ".join(words))
    if parts.offsets:
        say()
        _print_offsets(session, shown)
    if parts.members and group.members:
        say()
        session.output.table(
            ("member", "instance", "host", "client", "partitions", "assignment"),
            [_member_row(each) for each in group.members],
        )


def _print_offsets(session: Session, shown: _Shown) -> None:
    if not shown.lags:
        session.output.say("nothing is committed, and nobody reads")
        return
    has_members = bool(shown.group.members)
    columns = ["topic", "partition", "offset", "end", "lag", *(("member", "host") if has_members else ())]
    rows: list[list[object]] = []
    for each in shown.lags:
        row: list[object] = [*each.partition, each.committed.offset if each.committed else None]
        row += [each.end, each.lag]
        if has_members:
            row += [each.member.member_id, each.member.host] if each.member else [None, None]
        rows.append(row)
    session.output.table(columns, rows)
    session.output.say(_total_text(shown.lags))


def _total_text(lags: list[PartitionLag]) -> str:
    text = f"lag {total_lag(lags):,} in all"
    unknown = sum(each.lag is None for each in lags)
    return f"{text}, and {counted(unknown, 'partition')} of which it is not known" if unknown else text


def _member_row(member: GroupMember) -> list[object]:
    assigned = member.assignment
    return [
        member.member_id,
        member.instance_id,
        member.host,
        member.client_id,
        None if assigned is None else len(assigned),
        None if assigned is None else _assigned_text(member),
    ]


def _assigned_text(member: GroupMember) -> str | None:
    by_topic: dict[str, list[str]] = {}
    for topic, partition in member.assignment or ():
        by_topic.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items()) or None


def _fact(shown: _Shown, parts: _Parts) -> dict[str, Any]:
    group = shown.group
    fact: dict[str, Any] = {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "coordinator": {"id": group.coordinator, "address": shown.address},
        "member_count": len(group.members),
    }
    if parts.offsets:
        fact |= {"offsets": [each.fact() for each in shown.lags], "lag": total_lag(shown.lags)}
    if parts.members:
        fact["members"] = [_member_fact(each) for each in group.members]
    return fact


def _member_fact(member: GroupMember) -> dict[str, Any]:
    assigned = member.assignment
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "host": member.host,
        "client": member.client_id,
        "topics": member.topics,
        "assignment": None if assigned is None else [each._asdict() for each in assigned],
    }
