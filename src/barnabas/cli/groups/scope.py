"""Which partitions a command is about: `--topic orders`, `--topic orders:0,3,5-7`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.cli.connecting import Session
from barnabas.cli.failures import CommandFailed
from barnabas.cli.options import naturals
from barnabas.client.metadata import TopicPartition


class Scope(NamedTuple):
    """A topic, and some of its partitions, or all."""

    topic: str
    partitions: list[int] | None


def scope(text: str) -> Scope:
    """A type of arguments; a topic's name has no colon."""
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not numbers):
        raise argparse.ArgumentTypeError(f"{text!r}: write TOPIC, or TOPIC:0,3,5-7")
    return Scope(topic, naturals(numbers) if colon else None)


async def partitions_in(session: Session, scopes: Iterable[Scope]) -> list[TopicPartition]:
    """The partitions that are meant, all of which must be there, sorted."""
    scopes = list(scopes)
    topics = await session.topics(each.topic for each in scopes)
    found: dict[TopicPartition, None] = {}
    for name, wanted in scopes:
        there = [each.partition for each in topics[name].partitions]
        for number in there if wanted is None else wanted:
            if number not in there:
                raise CommandFailed(f"{name} has no partition {number}; it has 0 to {len(there) - 1}")
            found[TopicPartition(name, number)] = None
    return sorted(found)
