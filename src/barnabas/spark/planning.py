"""From the options to ranges of offsets: asks the cluster for the partitions, and for their start and end
offsets. `latest` is resolved here, once: all tasks of a read see the same records.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence

from barnabas.client.admin import Admin, TopicDescription
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.spark.driving import seams
from barnabas.spark.filters import ANY, Wanted
from barnabas.spark.lost import DataLost
from barnabas.spark.offsets import Offsets
from barnabas.spark.option_values import OptionError
from barnabas.spark.options import Bound, ReadOptions, Topics
from barnabas.spark.ranges import OffsetRange, cut

logger = logging.getLogger("barnabas.spark")


async def plan_batch(options: ReadOptions, wanted: Wanted = ANY) -> list[OffsetRange]:
    """The same as `plan`, with a temporary admin."""
    async with Admin(*seams(), options.bootstrap, options.planning_client) as admin:
        return await plan(admin, options, wanted)


async def plan(admin: Admin, options: ReadOptions, wanted: Wanted = ANY) -> list[OffsetRange]:
    """The range of each Spark partition of a batch, as far as filters want it."""
    topics = await find_topics(admin, options.topics)
    if not topics:
        raise OptionError(f"subscribePattern={options.topics.pattern!r} matches no topic")
    partitions = partitions_of(topics, options.topics)
    first, last = await ends_of(admin, options, partitions)
    starts = await resolve(admin, options, options.start, first, last)
    ends = await resolve(admin, options, options.end, first, last)
    ranges = []
    for each in partitions:
        if options.start.is_time and starts[each] < 0:
            starts[each] = start_without_match(each, options, last)
        end = last[each] if ends[each] < 0 else ends[each]
        ranges.append(_range(each, starts[each], end, first[each], last[each], options.fail_on_data_loss))
    ranges = await _pruned(admin, options, wanted, ranges)
    return cut(ranges, options.min_partitions, options.max_records)


async def _pruned(
    admin: Admin, options: ReadOptions, wanted: Wanted, ranges: Sequence[OffsetRange]
) -> list[OffsetRange]:
    left = [wanted.narrowed(each) for each in ranges]
    if wanted.since_ms is None:
        return left
    asked = {TopicPartition(each.topic, each.partition): wanted.since_ms for each in left if each.size}
    found = await list_offsets(admin, options, asked)
    return [wanted.since(each, found) for each in left]


async def find_topics(admin: Admin, topics: Topics) -> dict[str, TopicDescription]:
    """The requested topics; UnknownTopic if a named one does not exist."""
    if not topics.pattern:
        return await admin.describe_topics(names_of(topics))
    pattern = re.compile(topics.pattern)
    everything = await admin.describe_topics()
    return {
        name: each for name, each in everything.items() if pattern.fullmatch(name) and not each.is_internal
    }


def names_of(topics: Topics) -> list[str]:
    """The named topics."""
    return list(topics.names or dict.fromkeys(topic for topic, _ in topics.partitions))


def partitions_of(described: Mapping[str, TopicDescription], topics: Topics) -> list[TopicPartition]:
    """The requested partitions, in order; OptionError if an assigned one does not exist."""
    there = [
        TopicPartition(name, each.partition)
        for name in sorted(described)
        for each in described[name].partitions
    ]
    if not topics.partitions:
        return there
    for each in topics.partitions:
        if each not in there:
            count = len(described[each.topic].partitions)
            raise OptionError(f"assign: {each.topic} has no partition {each.partition}, it has {count}")
    return sorted(topics.partitions)


async def ends_of(
    admin: Admin, options: ReadOptions, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The first offsets of partitions, and their ends."""
    first, last = await asyncio.gather(
        list_offsets(admin, options, dict.fromkeys(partitions, EARLIEST)),
        list_offsets(admin, options, dict.fromkeys(partitions, LATEST)),
    )
    return first, last


async def resolve(
    admin: Admin, options: ReadOptions, bound: Bound, first: Offsets, last: Offsets
) -> dict[TopicPartition, int]:
    """The offset of each partition; -1 if no record reaches the requested timestamp."""
    wanted = bound_of(bound, first)
    if bound.is_time:
        found = await list_offsets(admin, options, wanted)
        # records written since `last` was looked up are not part of this read
        return {each: min(offset, last[each]) for each, offset in found.items()}
    names: Mapping[int, Offsets] = {EARLIEST: first, LATEST: last}
    return {each: names[at][each] if at in names else at for each, at in wanted.items()}


def bound_of(bound: Bound, there: Offsets) -> Offsets:
    """The bound by partition; OptionError unless it names exactly the partitions that are read."""
    wanted = bound.at if isinstance(bound.at, Mapping) else dict.fromkeys(there, bound.at)
    missing = [each for each in there if each not in wanted]
    unknown = [each for each in wanted if each not in there]
    for partitions, what in ((missing, "are not named"), (unknown, "are named and not read")):
        if partitions:
            raise OptionError(
                f"offsets and times by partition are for all partitions that are read, and no others: "
                f"{', '.join(map(str, partitions))} {what} (-2 is earliest, -1 is latest)"
            )
    return wanted


async def list_offsets(admin: Admin, options: ReadOptions, wanted: Offsets) -> dict[TopicPartition, int]:
    """Offsets by time or special value, with the isolation level of this read."""
    found = await admin.list_offsets(wanted, read_committed=options.consumer.read_committed)
    return {each: found[each].offset for each in wanted}


def start_without_match(partition: TopicPartition, options: ReadOptions, last: Offsets) -> int:
    """The start in a partition without a record that reaches the start timestamp."""
    if options.start_at_end_without_match:
        return last[partition]
    raise OptionError(
        f"{partition} has no record as young as the time to start from; set "
        f"startingOffsetsByTimestampStrategy to latest to begin at its end"
    )


def _range(
    partition: TopicPartition, start: int, end: int, first: int, last: int, fail_on_data_loss: bool
) -> OffsetRange:
    """The range, if it exists; otherwise its existing part, or an error."""
    lost = f"{partition} has offsets {first} to {last}, and {start} to {end} were asked for"
    is_there = first <= start <= last and first <= end <= last
    if not is_there and not fail_on_data_loss:
        logger.warning("%s; what is there is read", lost)
        start, end = min(max(start, first), last), max(min(end, last), first)
    if start > end:
        raise OptionError(f"{partition} would be read from {start} to {end}: it ends before it begins")
    if not is_there and fail_on_data_loss:
        raise DataLost(f"{lost}; set failOnDataLoss to false to read what is there")
    return OffsetRange(*partition, start, end)
