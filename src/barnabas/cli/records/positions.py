"""From where to where to read: words, offsets and times of a command line, made into offsets by the cluster.

    earliest  latest | end   2500 (an offset)   -10 (the last ten)   -1h   2026-01-01T10:00

A range begins with its first offset and ends before its second; one that is followed may have no end. An
offset that is gone is the first there is, and one that is not there yet is the end, except where the range is
followed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.cli.times import parse_time
from barnabas.client.consumer import Consumer
from barnabas.client.metadata import TopicPartition

EARLIEST = "earliest"
LATEST = "latest"
_WORDS = {"earliest": EARLIEST, "beginning": EARLIEST, "latest": LATEST, "end": LATEST}


class Position(NamedTuple):
    """A place in every partition: one of these is set."""

    word: str | None = None
    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None


class Range(NamedTuple):
    """What to read of one partition; `end` is None where it never ends."""

    start: int
    end: int | None
    seek: int  # where to begin: before `start` only where that is not there yet


def parse_position(text: str, now_ms: int) -> Position:
    """A position as it stands on a command line."""
    if text in _WORDS:
        return Position(word=_WORDS[text])
    if text.isdecimal():
        return Position(offset=int(text))
    if text[:1] == "-" and text[1:].isdecimal():
        return Position(last=int(text[1:]))
    time_ms = parse_time(text, now_ms)
    if time_ms is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is none of earliest, latest, an offset (2500), the last ten (-10), "
            "a time (2026-01-01T10:00) or a time ago (-1h)"
        )
    return Position(time_ms=time_ms)


async def ranges_of(
    consumer: Consumer,
    partitions: Iterable[TopicPartition],
    begin: Position,
    until: Position | None,
    *,
    is_followed: bool,
) -> dict[TopicPartition, Range]:
    """What to read of each partition, as the cluster stands now; without `until` it never ends."""
    wanted = list(partitions)
    firsts = await consumer.beginning_offsets(*wanted)
    ends = await consumer.end_offsets(*wanted)
    starts = await _offsets(consumer, begin, firsts, ends)
    stops = None if until is None else await _offsets(consumer, until, firsts, ends)
    ranges = {}
    for partition in wanted:
        start = max(firsts[partition], starts[partition])
        stop = None if stops is None else stops[partition]
        if stop is not None and not is_followed:
            stop = min(stop, ends[partition])
        ranges[partition] = Range(start, stop, min(start, ends[partition]))
    return ranges


async def _offsets(
    consumer: Consumer,
    position: Position,
    firsts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if position.word == EARLIEST:
        return dict(firsts)
    if position.word == LATEST:
        return dict(ends)
    if position.offset is not None:
        return dict.fromkeys(ends, position.offset)
    if position.last is not None:
        return {partition: end - position.last for partition, end in ends.items()}
    assert position.time_ms is not None
    found = await consumer.offsets_for_times(dict.fromkeys(ends, position.time_ms))
    return {each: offset if (offset := found[each].offset) >= 0 else ends[each] for each in ends}
