"""The input of a compaction plan: the facts of a log's segments, and the cleanable part."""

from __future__ import annotations

from barnabas.log import names
from barnabas.log.compaction.plan import Cleanable, SegmentFacts, plan_cleaning
from barnabas.log.config import NEVER_MS
from barnabas.log.partition import PartitionLog
from barnabas.records.batch import NO_TIMESTAMP


async def survey(log: PartitionLog) -> Cleanable:
    """The part of the log that a cleaning would cover now."""
    async with log.turn:  # nothing may be cut or removed meanwhile
        log.require_sound()
        return plan_cleaning(
            await segment_facts(log),
            checkpoint=log.cleaned_offset,
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            last_stable_offset=log.last_stable_offset,
            now_ms=log.home.clock.wall_ms(),
            min_compaction_lag_ms=log.config.min_compaction_lag_ms,
            max_compaction_lag_ms=log.config.max_compaction_lag_ms,
        )


async def segment_facts(log: PartitionLog) -> list[SegmentFacts]:
    """The facts about the segments that the plan depends on; the caller holds the log's lock."""
    facts = []
    wants_first = log.config.max_compaction_lag_ms != NEVER_MS
    for segment in log.segments:
        await segment.ready()
        largest_ms = segment.max_timestamp
        if largest_ms < 0 and segment is not log.active:
            largest_ms = await log.home.disk.modified_ms(segment.path(names.LOG))
        if wants_first and segment.first_timestamp is None and segment.size_bytes:
            await segment.learn_first_timestamp()
        first_ms = segment.first_timestamp
        facts.append(
            SegmentFacts(
                base_offset=segment.base_offset,
                size_bytes=segment.size_bytes,
                index_bytes=segment.offsets.count * segment.offsets.ENTRY.size,
                time_index_bytes=segment.times.count * segment.times.ENTRY.size,
                largest_timestamp_ms=largest_ms,
                first_timestamp_ms=NO_TIMESTAMP if first_ms is None else first_ms,
            )
        )
    return facts
