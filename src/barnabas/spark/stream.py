"""Plans a stream on the driver: where to begin, how far to go, and what a micro-batch reads.

    offsets            `initial` (once), then Spark's checkpoint; `latest` returns the end of the next batch
    new partitions     are read from their first offset: they are in the end, but not in the start
    lost data          A partition that is gone or created again, or that ends before the read position, is an
                       error. With failOnDataLoss=false it is a warning, and the stream goes on with the
                       available records. Gaps between offsets are no loss. If the position must go back, a
                       batch without records does that: the checkpoint then has the new start.
    the first batch    Spark stores its end, but not its start: after a crash `initial` is asked for again. If
                       that is `latest` it would be another one, and records would be skipped. So such a
                       partition has nothing in the first batch, even if there are new records, and a
                       partition created between the two calls is left for the second batch.

A call costs two round trips: metadata, and the latest offsets from all leaders at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.admin import Admin, TopicDescription
from barnabas.client.errors import NoSuchPartition, UnknownTopic
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.protocol.schema import NO_UUID
from barnabas.spark.admission import Pacing, admit
from barnabas.spark.lost import DataLost
from barnabas.spark.offsets import Offsets
from barnabas.spark.options import Bound, ReadOptions
from barnabas.spark.planning import (
    bound_of,
    ends_of,
    find_topics,
    list_offsets,
    names_of,
    partitions_of,
    resolve,
    start_without_match,
)
from barnabas.spark.ranges import OffsetRange, cut

logger = logging.getLogger("barnabas.spark")

_EARLIEST = Bound(EARLIEST)
_ADVICE = "set failOnDataLoss to false to go on with what there is, or begin anew with another checkpoint"


class _Seen(NamedTuple):
    """The state of the cluster at a moment: the ends of partitions, and the ids of their topics."""

    latest: dict[TopicPartition, int]
    topic_ids: dict[str, bytes]


class Stream:
    """The state of a stream's source; one call at a time."""

    def __init__(self, admin: Admin, clock: Clock, options: ReadOptions) -> None:
        self._admin, self._clock, self._options = admin, clock, options
        stream = options.stream
        self._pacing = Pacing(stream.min_offsets or 0, stream.max_trigger_delay_ms / 1000)
        self._initial: dict[TopicPartition, int] | None = None
        self._from_the_end: set[TopicPartition] = set()
        self._may_be_first = True  # the next batch: no end was asked for yet
        self._is_bounded = False
        self._bound: dict[TopicPartition, int] | None = None
        self._topic_ids: dict[str, bytes] = {}
        self._firsts: dict[TopicPartition, int] = {}  # of new partitions
        self.newest: dict[TopicPartition, int] = {}  # the latest offsets at the last look-up

    def stop_at_what_is_there(self) -> None:
        """Give the stream an end: the available records when the next batch is planned."""
        self._is_bounded = True

    async def initial(self) -> dict[TopicPartition, int]:
        """The start of a query without a checkpoint."""
        if self._initial is None:
            topics = await find_topics(self._admin, self._options.topics)
            partitions = partitions_of(topics, self._options.topics)
            first, last = await ends_of(self._admin, self._options, partitions)
            self._initial = await self._begin(first, last)
        return self._initial

    async def _begin(self, first: Offsets, last: Offsets) -> dict[TopicPartition, int]:
        options, bound = self._options, self._options.start
        found = await resolve(self._admin, options, bound, first, last)
        wanted = bound_of(bound, first)
        for each, at in found.items():
            if bound.is_time and at < 0:
                found[each] = start_without_match(each, options, last)
            if (bound.is_time and at < 0) or (not bound.is_time and wanted[each] == LATEST):
                self._from_the_end.add(each)
            elif not first[each] <= found[each] <= last[each]:
                self._lose(
                    f"{each} has offsets {first[each]} to {last[each]}, and startingOffsets has {found[each]}"
                )
                found[each] = min(max(found[each], first[each]), last[each])
        return found

    async def latest(
        self, start: Offsets, limit: int | None, *, at_least_min: bool
    ) -> dict[TopicPartition, int]:
        """The end of the batch that begins at `start`; `start` itself while there is nothing to read."""
        is_first, self._may_be_first = self._may_be_first and start == self._initial, False
        seen = await self._look(start)
        made_anew = self._judge(start, seen)
        self.newest = seen.latest
        if made_anew and (back := await self._back(start, seen, made_anew)) != start:
            return back
        begin = await self._begin_of(start, seen.latest)
        latest = self._bounded(seen.latest)
        begin = {each: begin[each] for each in latest}
        may_wait = at_least_min and not self._is_bounded
        if may_wait and self._pacing.is_too_early(begin, latest, self._clock.monotonic()):
            return dict(start)
        end = admit(begin, latest, limit)
        return self._end_of_first(start, end) if is_first else end

    def _end_of_first(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """The end of the first batch, restricted so that it is the same batch after a crash."""
        if self._options.start == _EARLIEST:  # new partitions begin there, too
            return dict(end)
        return {
            each: start[each] if each in self._from_the_end else end[each] for each in start if each in end
        }

    def _bounded(self, latest: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not self._is_bounded:
            return latest
        if self._bound is None:
            self._bound = latest
        return {each: min(end, latest[each]) for each, end in self._bound.items() if each in latest}

    async def _look(self, start: Offsets) -> _Seen:
        """Look up the current state; repeated if that fails, or if it looks as if data was lost."""
        attempts = self._options.offset_attempts
        for attempt in range(1, attempts + 1):
            try:
                seen = await self._see()
            except BarnabasError as error:
                if attempt == attempts:
                    raise
                logger.warning("offsets cannot be looked up (%d of %d): %s", attempt, attempts, error)
            else:
                if attempt == attempts or all(seen.latest.get(each, -1) >= at for each, at in start.items()):
                    return seen
            await self._clock.sleep(self._options.offset_retry_ms / 1000)
        raise AssertionError("there is at least one attempt")

    async def _see(self) -> _Seen:
        topics = await self._topics()
        wanted = set(self._options.topics.partitions)
        partitions = [
            place
            for name, topic in topics.items()
            for each in topic.partitions
            if (place := TopicPartition(name, each.partition)) in wanted or not wanted
        ]
        try:
            latest = await list_offsets(self._admin, self._options, dict.fromkeys(partitions, LATEST))
        except NoSuchPartition:  # it is new, and the client has not heard of it yet
            await self._admin.cluster.refresh()
            latest = await list_offsets(self._admin, self._options, dict.fromkeys(partitions, LATEST))
        return _Seen(latest, {name: topic.topic_id for name, topic in topics.items()})

    async def _topics(self) -> Mapping[str, TopicDescription]:
        """The requested topics that exist."""
        try:
            return await find_topics(self._admin, self._options.topics)
        except UnknownTopic:
            one_by_one = (self._topic(name) for name in names_of(self._options.topics))
            found = await asyncio.gather(*one_by_one)
            return {topic.name: topic for topic in found if topic is not None}

    async def _topic(self, name: str) -> TopicDescription | None:
        try:
            return (await self._admin.describe_topics([name]))[name]
        except UnknownTopic:
            return None

    def _judge(self, start: Offsets, seen: _Seen) -> list[TopicPartition]:
        """Check that unread offsets still exist; returns the partitions of topics that were created again."""
        made_anew = []
        for each, at in start.items():
            known = self._topic_ids.get(each.topic, NO_UUID)
            if each not in seen.latest:
                self._lose(f"{each} is gone; it was read up to offset {at}")
            elif NO_UUID != known != seen.topic_ids[each.topic]:
                self._lose(
                    f"topic {each.topic} was deleted and made again; {each} was read up to offset {at}"
                )
                made_anew.append(each)
            elif seen.latest[each] < at:
                self._lose(f"{each} ends at offset {seen.latest[each]}, and was read up to {at} before")
        self._topic_ids |= seen.topic_ids
        return made_anew

    async def _back(
        self, start: Offsets, seen: _Seen, made_anew: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """`start`, with the first offsets of partitions that were created again, and without those that are
        gone."""
        firsts = await list_offsets(self._admin, self._options, dict.fromkeys(made_anew, EARLIEST))
        return {each: firsts.get(each, at) for each, at in start.items() if each in seen.latest}

    async def _begin_of(self, start: Offsets, ends: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The start of a batch whose end has these partitions: new ones begin at their first offset."""
        begin = {each: start[each] for each in ends if each in start}
        new = [each for each in ends if each not in begin]
        unknown = [each for each in new if each not in self._firsts]
        if unknown:
            firsts = await list_offsets(self._admin, self._options, dict.fromkeys(unknown, EARLIEST))
            for each, first in firsts.items():
                if first > 0:
                    self._lose(f"{each} is new, and begins at offset {first}: what was before is gone")
            self._firsts |= firsts
        # forget those that are no longer new: a partition that is gone may come again
        self._firsts = {each: self._firsts[each] for each in new}
        return begin | self._firsts

    async def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """The ranges that the tasks of a batch read."""
        begin = await self._begin_of(start, end)
        if self._may_be_first and start == self._initial:
            begin |= {each: end[each] for each in self._from_the_end if each in end}
        found = []
        for each in sorted(end):
            if begin[each] > end[each]:
                self._lose(f"{each} was read up to offset {begin[each]}, and goes back to {end[each]}")
            else:
                found.append(OffsetRange(*each, begin[each], end[each]))
        return cut(found, self._options.min_partitions, self._options.max_records)

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(f"{what}; {_ADVICE}")
        logger.warning("%s; the stream goes on with what there is", what)
