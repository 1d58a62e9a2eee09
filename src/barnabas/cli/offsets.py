"""What `barnabas topic offsets` and `trim` do: tell where partitions begin and end, let them begin later."""

from __future__ import annotations

import argparse
from typing import Any

from barnabas.cli.asking import be_sure
from barnabas.cli.connecting import Session
from barnabas.cli.failures import CommandFailed
from barnabas.cli.options import INT64
from barnabas.cli.times import parse_time, time_text
from barnabas.client.admin import TO_THE_END, TopicDescription
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP

_NAMES = {"earliest": EARLIEST, "latest": LATEST, "max-timestamp": MAX_TIMESTAMP}
_NOTHING = -1


async def show_offsets(session: Session, options: argparse.Namespace) -> None:
    """Print the offsets of partitions."""
    partitions = [
        each
        for topic in (await session.topics(options.topics)).values()
        for each in _chosen(topic, options.partitions)
    ]
    if options.at is None:
        await _show_bounds(session, partitions)
    else:
        await _show_at(session, partitions, _moment(options.at, session))


async def _show_bounds(session: Session, partitions: list[TopicPartition]) -> None:
    earliest = await session.admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    latest = await session.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    rows = [(each.topic, each.partition, earliest[each].offset, latest[each].offset) for each in partitions]
    if session.output.as_json:
        names = ("topic", "partition", "earliest", "latest")
        session.output.document([dict(zip(names, row, strict=True)) for row in rows])
        return
    session.output.table(
        ("topic", "partition", "earliest", "latest", "offsets between"),
        [(*row, row[3] - row[2]) for row in rows],
    )


async def _show_at(session: Session, partitions: list[TopicPartition], at: int) -> None:
    found = await session.admin.list_offsets(dict.fromkeys(partitions, at))
    facts: list[dict[str, Any]] = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "offset": _told(found[each].offset),
            "timestamp_ms": _told(found[each].timestamp_ms),
        }
        for each in partitions
    ]
    if session.output.as_json:
        session.output.document(facts)
        return
    rows = [
        (*list(fact.values())[:3], None if fact["timestamp_ms"] is None else time_text(fact["timestamp_ms"]))
        for fact in facts
    ]
    session.output.table(("topic", "partition", "offset", "time"), rows)


async def trim(session: Session, options: argparse.Namespace) -> None:
    """Delete the oldest records of a topic's partitions."""
    topic = await session.topic(options.topic)
    partitions = _chosen(topic, options.partitions)
    earliest = await session.admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    latest = await session.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    ends = await _trim_ends(session, options, partitions)
    before: dict[TopicPartition, int] = {}
    for each in partitions:
        end = latest[each].offset if ends[each] == TO_THE_END else ends[each]
        if end > latest[each].offset:
            raise CommandFailed(
                f"{each} ends at {latest[each].offset}, before {end}",
                "name the partitions that are longer with --partitions, or take --all",
            )
        if end > earliest[each].offset:
            before[each] = end
    count = sum(end - earliest[each].offset for each, end in before.items())
    if before and not options.dry_run:
        be_sure(f"Delete up to {count:,} records of {topic.name}?", is_sure=options.yes)
        await session.admin.delete_records(before)
    _tell_trimmed(session, topic.name, before, count, is_dry=options.dry_run)


async def _trim_ends(
    session: Session, options: argparse.Namespace, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Up to where each partition is to go; TO_THE_END where nothing is as late as the time."""
    if options.all:
        return dict.fromkeys(partitions, TO_THE_END)
    if options.before is not None:
        return dict.fromkeys(partitions, options.before)
    at = _moment(options.before_time, session)
    found = await session.admin.list_offsets(dict.fromkeys(partitions, at))
    return {each: TO_THE_END if found[each].offset == _NOTHING else found[each].offset for each in partitions}


def _tell_trimmed(
    session: Session, name: str, before: dict[TopicPartition, int], count: int, *, is_dry: bool
) -> None:
    fact = {
        "topic": name,
        "trimmed": not is_dry,
        "partitions": [{"partition": each.partition, "earliest": end} for each, end in before.items()],
    }
    if not before:
        text = f"there is nothing to delete in {name}"
    elif is_dry:
        text = f"up to {count:,} records of {name} would be deleted"
    else:
        text = f"up to {count:,} records of {name} deleted"
    if not session.output.as_json and before:
        text += "; " + ", ".join(
            f"partition {each.partition} begins at {end}" for each, end in before.items()
        )
    session.output.done(fact, text)


def _chosen(topic: TopicDescription, wanted: list[int] | None) -> list[TopicPartition]:
    there = [each.partition for each in topic.partitions]
    for number in wanted or ():
        if number not in there:
            raise CommandFailed(f"{topic.name} has no partition {number}; it has 0 to {len(there) - 1}")
    return [TopicPartition(topic.name, number) for number in (there if wanted is None else wanted)]


def _moment(text: str, session: Session) -> int:
    if text in _NAMES:
        return _NAMES[text]
    is_number = text.isdecimal() and len(text) <= len(str(INT64))
    at = int(text) if is_number else parse_time(text, session.clock.wall_ms())
    if at is None or at > INT64:
        raise CommandFailed(
            f"{text!r} is no time",
            "write 2026-01-31, 2026-01-31T12:00, -2h, or milliseconds since 1970",
        )
    return at


def _told(number: int) -> int | None:
    return None if number == _NOTHING else number
