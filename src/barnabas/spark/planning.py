"""From what was asked for to ranges of offsets: asks the cluster which partitions there are, and where they
begin and end. What is `latest` is decided here, once: all tasks of a read see the same records.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

from barnabas.client.admin import Admin
from barnabas.client.errors import ClientError
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.spark.options import Bound, OptionError, ReadOptions, Topics
from barnabas.spark.ranges import OffsetRange, cut

Offsets = Mapping[TopicPartition, int]


class DataLost(ClientError):
    """Offsets that were asked for are no longer there, or not yet."""


async def plan(admin: Admin, options: ReadOptions) -> list[OffsetRange]:
    """What each Spark partition reads."""
    partitions = await find_partitions(admin, options.topics)
    first, last = await asyncio.gather(
        _list(admin, options, dict.fromkeys(partitions, EARLIEST)),
        _list(admin, options, dict.fromkeys(partitions, LATEST)),
    )
    starts = await _resolve(admin, options, options.start, first, last)
    ends = await _resolve(admin, options, options.end, first, last)
    ranges = []
    for each in partitions:
        if options.start.is_time and starts[each] < 0:
            starts[each] = _no_match(each, options, last)
        end = last[each] if ends[each] < 0 else ends[each]
        ranges.append(_range(each, starts[each], end, first[each], last[each], options.fail_on_data_loss))
    return cut(ranges, options.min_partitions, options.max_records)


async def find_partitions(admin: Admin, topics: Topics) -> list[TopicPartition]:
    """The partitions that are meant, in order; UnknownTopic where there is no such topic."""
    if topics.pattern:
        pattern = re.compile(topics.pattern)
        everything = await admin.describe_topics()
        names = [
            name for name, each in everything.items() if pattern.fullmatch(name) and not each.is_internal
        ]
        if not names:
            raise OptionError(f"subscribePattern={topics.pattern!r} matches no topic of {len(everything)}")
    else:
        names = list(topics.names or dict.fromkeys(topic for topic, _ in topics.partitions))
    described = await admin.describe_topics(names)
    there = [
        TopicPartition(name, each.partition) for name in sorted(names) for each in described[name].partitions
    ]
    if not topics.partitions:
        return there
    for each in topics.partitions:
        if each not in there:
            count = len(described[each.topic].partitions)
            raise OptionError(f"assign: {each.topic} has no partition {each.partition}, it has {count}")
    return sorted(topics.partitions)


async def _resolve(
    admin: Admin, options: ReadOptions, bound: Bound, first: Offsets, last: Offsets
) -> dict[TopicPartition, int]:
    """The offset of each partition; -1 where no record is as young as the time asked for."""
    wanted = bound.at if isinstance(bound.at, Mapping) else dict.fromkeys(first, bound.at)
    _check_all_named(wanted, first)
    if bound.is_time:
        found = await _list(admin, options, wanted)
        # what was written since `last` was asked for is not part of this read
        return {each: min(offset, last[each]) for each, offset in found.items()}
    names: Mapping[int, Offsets] = {EARLIEST: first, LATEST: last}
    return {each: names[at][each] if at in names else at for each, at in wanted.items()}


async def _list(admin: Admin, options: ReadOptions, wanted: Offsets) -> dict[TopicPartition, int]:
    asked = {(each.topic, each.partition): at for each, at in wanted.items()}
    found = await admin.list_offsets(asked, read_committed=options.consumer.read_committed)
    return {each: found[each].offset for each in wanted}


def _check_all_named(named: Mapping[TopicPartition, int], there: Mapping[TopicPartition, int]) -> None:
    missing: Sequence[TopicPartition] = [each for each in there if each not in named]
    unknown = [each for each in named if each not in there]
    for partitions, what in ((missing, "are not named"), (unknown, "are named and not read")):
        if partitions:
            raise OptionError(
                f"offsets and times by partition are for all partitions that are read, and no others: "
                f"{', '.join(map(str, partitions))} {what} (-2 is earliest, -1 is latest)"
            )


def _no_match(partition: TopicPartition, options: ReadOptions, last: Offsets) -> int:
    if options.start_at_end_without_match:
        return last[partition]
    raise OptionError(
        f"{partition} has no record as young as the time to start from; set "
        f"startingOffsetsByTimestampStrategy to latest to read nothing of it"
    )


def _range(
    partition: TopicPartition, start: int, end: int, first: int, last: int, fail_on_data_loss: bool
) -> OffsetRange:
    """The range, if it is there; otherwise as much of it as there is, or an error."""
    if not fail_on_data_loss:
        start, end = min(max(start, first), last), max(min(end, last), first)
    if start > end:
        raise OptionError(f"{partition} would be read from {start} to {end}: it ends before it begins")
    if not (first <= start and end <= last):
        raise DataLost(
            f"{partition} has offsets {first} to {last}, and {start} to {end} were asked for; "
            f"set failOnDataLoss to false to read what is there"
        )
    return OffsetRange(*partition, start, end)
