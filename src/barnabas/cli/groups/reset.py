"""`barnabas group reset`: where groups without members are to read on. Shown only, unless `--execute`.

An offset that a partition does not have becomes the nearest that it has, and that is told; a time after the
last record means the end. `--export` prints the plan as `topic,partition,offset` (with the group in front
where there are several), which is what `--from-file` takes.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas.cli.connecting import Session
from barnabas.cli.failures import CommandFailed
from barnabas.cli.groups.describe import groups_meant
from barnabas.cli.groups.scope import partitions_in
from barnabas.cli.options import INT64
from barnabas.cli.output import counted
from barnabas.cli.times import parse_time
from barnabas.client.admin import CommittedOffset
from barnabas.client.errors import NoSuchPartition, UnknownGroup
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST

_WITHOUT_MEMBERS = ("Empty", "Dead")
_NOTHING = -1

Plan = dict[TopicPartition, "NewOffset"]
FromFile = dict[str | None, dict[TopicPartition, int]]  # by group; None stands for each


class NewOffset(NamedTuple):
    """Where a group is to read on, where it was, and what is to be said about it."""

    offset: int
    before: int | None
    notice: str | None = None


class Bounds(NamedTuple):
    """Where a partition begins and ends."""

    earliest: int
    latest: int

    def nearest(self, at: TopicPartition, offset: int, before: int | None) -> NewOffset:
        """That offset, or the nearest there is."""
        if offset < self.earliest:
            return NewOffset(self.earliest, before, f"{at} begins at {self.earliest}, after {offset}")
        if offset > self.latest:
            return NewOffset(self.latest, before, f"{at} ends at {self.latest}, before {offset}")
        return NewOffset(offset, before)


async def reset(session: Session, options: argparse.Namespace) -> None:
    """Plan for every group, and do it if asked to."""
    if options.from_file is None and not options.topics and not options.all_topics:
        raise CommandFailed("no topic is named", "give --topic T, --topic T:0,1 or --all-topics")
    if options.from_file is not None and (options.topics or options.all_topics):
        raise CommandFailed("--from-file names topics itself", "leave out --topic and --all-topics")
    groups = await groups_meant(session, options)
    for group in groups:
        await _check_nobody_reads(session, group)
    given = None if options.from_file is None else read_plan(options.from_file)
    plans = {group: await _plan(session, options, group, given) for group in groups}
    if not session.output.as_json:
        for each in (each for plan in plans.values() for each in plan.values() if each.notice):
            sys.stderr.write(f"{each.notice}: {each.offset} is taken\n")
    if options.execute:
        await _execute(session, plans, as_csv=options.export)
    else:
        _tell(session, plans, is_done=False, as_csv=options.export)


async def _execute(session: Session, plans: Mapping[str, Plan], *, as_csv: bool) -> None:
    done: dict[str, Plan] = {}
    try:
        for group, plan in plans.items():
            if plan:
                await session.admin.alter_group_offsets(group, {at: each.offset for at, each in plan.items()})
            done[group] = plan
    finally:  # one that cannot be reset does not hide those that were
        if done or not plans:
            _tell(session, done, is_done=True, as_csv=as_csv)


async def _check_nobody_reads(session: Session, group: str) -> None:
    try:
        found = (await session.admin.describe_groups([group]))[group]
    except UnknownGroup:  # it is made by the commit
        return
    if found.state not in _WITHOUT_MEMBERS:
        raise CommandFailed(
            f"group {group!r} has {counted(len(found.members), 'member')} ({found.state}), "
            "and only they may commit",
            f"stop them first; `barnabas group describe {group} --members` shows them",
        )


async def _plan(session: Session, options: argparse.Namespace, group: str, given: FromFile | None) -> Plan:
    committed = await session.admin.list_group_offsets(group)
    if given is not None:
        wanted = {**given.get(None, {}), **given.get(group, {})}
        partitions = sorted(wanted)
    else:
        wanted = {}
        partitions = sorted(committed) if options.all_topics else await partitions_in(session, options.topics)
    bounds = await _bounds(session, partitions)
    if given is not None:
        return {at: bounds[at].nearest(at, wanted[at], _before(committed, at)) for at in partitions}
    if options.to_datetime is not None or options.by_duration is not None:
        return await _at_time(session, _moment(session, options), bounds, committed)
    return {at: _by_rule(options, at, bounds[at], _before(committed, at)) for at in partitions}


def _before(committed: Mapping[TopicPartition, CommittedOffset], at: TopicPartition) -> int | None:
    return committed[at].offset if at in committed else None


async def _bounds(session: Session, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
    try:
        earliest = await session.admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        latest = await session.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    except NoSuchPartition as error:
        raise CommandFailed(str(error), "`barnabas topic describe` shows what there is") from error
    return {at: Bounds(earliest[at].offset, latest[at].offset) for at in partitions}


def _by_rule(
    options: argparse.Namespace, at: TopicPartition, bounds: Bounds, before: int | None
) -> NewOffset:
    if options.to_earliest:
        return NewOffset(bounds.earliest, before)
    if options.to_latest:
        return NewOffset(bounds.latest, before)
    if options.to_offset is not None:
        return bounds.nearest(at, options.to_offset, before)
    if options.to_current:
        return NewOffset(bounds.latest if before is None else before, before)
    if before is None:
        raise CommandFailed(
            f"nothing is committed for {at}, so there is nothing to shift",
            "take --to-offset, or name only partitions that have an offset",
        )
    return bounds.nearest(at, before + options.shift_by, before)


async def _at_time(
    session: Session,
    time_ms: int,
    bounds: Mapping[TopicPartition, Bounds],
    committed: Mapping[TopicPartition, CommittedOffset],
) -> Plan:
    found = await session.admin.list_offsets(dict.fromkeys(bounds, time_ms))
    plan: Plan = {}
    for at, bound in bounds.items():
        before, offset = _before(committed, at), found[at].offset
        if offset == _NOTHING:
            plan[at] = NewOffset(bound.latest, before, f"{at} has no record of that time or later")
        else:
            plan[at] = NewOffset(offset, before)
    return plan


def _moment(session: Session, options: argparse.Namespace) -> int:
    now_ms = session.clock.wall_ms()
    if options.by_duration is not None:
        return max(0, now_ms - int(options.by_duration))
    at = parse_time(options.to_datetime, now_ms)
    if at is None:
        raise CommandFailed(f"{options.to_datetime!r} is no time", "write 2026-01-31T12:00 or -2h")
    return at


# ---- files -----------------------------------------------------------------------------------------------


def read_plan(name: str) -> FromFile:
    """The offsets that a file names, as `--export` writes them; `-` is standard input."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {name}: {error}") from error
    found: FromFile = {}
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        if not row:
            continue
        *group, topic, partition, offset = row if len(row) in (3, 4) else ("", "", "")
        if not (_is_number(partition) and _is_number(offset)):
            raise CommandFailed(
                f"{name}, line {number}: no topic, partition and offset",
                "a line is topic,partition,offset, or has the group in front of that",
            )
        of_group = found.setdefault(group[0] if group else None, {})
        of_group[TopicPartition(topic, int(partition))] = int(offset)
    return found


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(INT64)) and int(text) <= INT64


# ---- what is told ----------------------------------------------------------------------------------------


def _tell(session: Session, plans: Mapping[str, Plan], *, is_done: bool, as_csv: bool) -> None:
    if as_csv:
        _write_csv(plans)
    elif session.output.as_json:
        session.output.document(
            [
                {
                    "group": group,
                    "executed": is_done,
                    "offsets": [{**at._asdict(), **each._asdict()} for at, each in plan.items()],
                }
                for group, plan in plans.items()
            ]
        )
    else:
        _print(session, plans, is_done=is_done)


def _write_csv(plans: Mapping[str, Plan]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for group, plan in plans.items():
        for at, each in plan.items():
            writer.writerow(([group] if len(plans) > 1 else []) + [at.topic, at.partition, each.offset])


def _print(session: Session, plans: Mapping[str, Plan], *, is_done: bool) -> None:
    rows: Iterable[tuple[object, ...]] = [
        (group, at.topic, at.partition, each.before, each.offset)
        for group, plan in plans.items()
        for at, each in plan.items()
    ]
    if not rows:
        session.output.say("there is nothing to reset")
        return
    session.output.table(("group", "topic", "partition", "offset", "new offset"), rows)
    session.output.say("done" if is_done else "nothing was changed; --execute does it")
