"""One partition twice: the same is appended to both; `theirs` is cleaned by Apache Kafka, `ours` by Barnabas.

Where the map of offsets holds every key, so that one pass is enough, both must leave the same files.

Where several are needed, the passes differ by design. Kafka's go on with the segment in which the map got
full: what was aborted there goes, and the time begins of tombstones that the map has not seen; Barnabas
leaves batches that it has not seen whole. And where a pass begins inside a segment, Kafka takes transactions
for open that were aborted there earlier, and does not note what their producers committed next. So what must
be the same then, when all passes are over, is what a reader makes of it: the latest value of each key.

The next round begins with the same files after that, and where compressed batches were written anew: two
compressors seldom agree on the size, and sizes decide which segments are merged by the next pass.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from barnabas.core.clock import ManualClock
from barnabas.log.compaction.cleaning import CleanerIo, clean
from barnabas.log.compaction.plan import Cleanable
from barnabas.log.compaction.survey import survey
from barnabas.log.trimming import sweep
from barnabas.log.txn_index import ENTRY
from barnabas.records.kernel import OffsetMap
from barnabas.records.record import Record
from tests.interop.barnabas_log import batches_in, log_directory
from tests.interop.compaction_same import different
from tests.interop.compaction_workload import Append, Settings, Writers
from tests.support.kafka_cleaner import Cleaned, KafkaCleaner

TOPIC = "compacted"
FOLDER = f"{TOPIC}-0"
HASH_KEY = bytes(range(16))


class Pass(NamedTuple):
    """What Barnabas planned, and up to where it has cleaned; None where nothing was to be."""

    planned: Cleanable
    end_offset: int | None


class Twins:
    """Two data directories, in which the partition is the only one."""

    def __init__(self, root: Path, settings: Settings, kafka: KafkaCleaner) -> None:
        self.settings = settings
        self.theirs, self.ours = root / "theirs", root / "ours"
        self.writers = Writers(settings)
        self.rounds_of_several_passes = 0
        self._kafka = kafka
        self._random = Random(f"twins of {settings.seed}")
        self._cleaned_offset: int | None = None
        self._may_differ = False

    def append(self) -> None:
        """The next round of appends, the same to both."""
        if self._may_differ:
            self._make_alike()
        appends = list(self.writers.round())
        for data in (self.theirs, self.ours):
            asyncio.run(append(data, appends, self.settings))
            date_back(data / FOLDER, self.writers.now_ms)

    def clean(self) -> list[str]:
        """A round of cleaning of both, in as many passes as it takes; what differs afterwards."""
        now_ms, first_dirty = self.writers.now_ms, self._cleaned_offset
        theirs = clean_by_kafka(self._kafka, self.theirs, self.settings, now_ms, first_dirty)
        ours = asyncio.run(clean_by_barnabas(self.ours, self.settings, now_ms, first_dirty))
        end_offset = theirs.first_uncleanable_offset
        found = different_plan(theirs, ours)
        if not found and {theirs.end_offset, ours.end_offset} <= {None, end_offset}:
            found = different(self.theirs / FOLDER, self.ours / FOLDER, with_times=True)
            self._may_differ = self.settings.is_compressed
        elif not found:
            self._clean_the_rest(theirs, ours)
            found = different_to_readers(self.theirs / FOLDER, self.ours / FOLDER, end_offset)
            self._may_differ = True
        # sometimes the next round takes in everything again, as where the checkpoint was lost
        self._cleaned_offset = end_offset if self._random.random() < 0.7 else None
        return [f"from {first_dirty} at {now_ms}: {line}" for line in found]

    def _clean_the_rest(self, theirs: Cleaned, ours: Pass) -> None:
        """Pass after pass, of each for itself, until all that can be is clean."""
        self.rounds_of_several_passes += 1
        now_ms, bound = self.writers.now_ms, theirs.first_uncleanable_offset
        while theirs.end_offset is not None and theirs.end_offset < bound:
            theirs = clean_by_kafka(self._kafka, self.theirs, self.settings, now_ms, theirs.end_offset)
        while ours.end_offset is not None and ours.end_offset < bound:
            ours = asyncio.run(clean_by_barnabas(self.ours, self.settings, now_ms, ours.end_offset))

    def _make_alike(self) -> None:
        """One directory, either of them, takes the place of the other."""
        self._may_differ = False
        kept, lost = self._random.sample((self.theirs, self.ours), 2)
        shutil.rmtree(lost)
        shutil.copytree(kept, lost)


async def append(data: Path, appends: Sequence[Append], settings: Settings) -> None:
    clock = ManualClock(appends[0].at_ms)
    async with log_directory(data, clock) as directory:
        log = await directory.partition(TOPIC, 0, config=settings.written)
        log.advance_high_watermark(log.end_offset)
        for each in appends:
            clock.jump_ms(each.at_ms - clock.wall_ms())
            await each.to(log)


def date_back(folder: Path, now_ms: int) -> None:
    """Have what was written since the last time count as written now, by the time of the workload."""
    for file in folder.glob("*.log"):
        if file.stat().st_mtime_ns > now_ms * 1_000_000:
            os.utime(file, ns=(now_ms * 1_000_000, now_ms * 1_000_000))


def clean_by_kafka(
    kafka: KafkaCleaner, data: Path, settings: Settings, now_ms: int, first_dirty: int | None
) -> Cleaned:
    return kafka.clean(
        data / FOLDER,
        now_ms=now_ms,
        config=settings.kafkas(),
        first_dirty_offset=first_dirty,
        dedupe_bytes=settings.dedupe_bytes,
        load_factor=settings.load_factor,
        io_buffer_bytes=settings.io_buffer_bytes,
        producer_expiration_ms=settings.written.producer_id_expiration_ms,
    )


async def clean_by_barnabas(data: Path, settings: Settings, now_ms: int, first_dirty: int | None) -> Pass:
    async def unthrottled(_: int) -> None:
        pass

    async with log_directory(data, ManualClock(now_ms)) as directory:
        config = replace(settings.cleaned, file_delete_delay_ms=0)
        log = await directory.partition(TOPIC, 0, config=config)
        log.advance_high_watermark(log.end_offset)
        log.cleaned_offset = first_dirty
        log.expire_producers()  # Kafka does so when it loads them
        planned = await survey(log)
        if planned.first_uncleanable_offset <= planned.first_dirty_offset:
            return Pass(planned, None)
        offsets = OffsetMap(settings.dedupe_bytes, HASH_KEY)
        io = CleanerIo(settings.io_buffer_bytes, settings.load_factor, unthrottled)
        cleaned = await clean(log, planned, offsets, io=io)
        await sweep(log)
        return Pass(planned, cleaned.end_offset)


def different_plan(theirs: Cleaned, ours: Pass) -> list[str]:
    names = ("first_dirty_offset", "first_uncleanable_offset", "clean_bytes", "cleanable_bytes")
    compared = [(name, getattr(theirs, name), getattr(ours.planned, name)) for name in names]
    return [f"{name} is {their}, not {our}" for name, their, our in compared if their != our]


def different_to_readers(theirs: Path, ours: Path, end_offset: int) -> list[str]:
    """What a reader of committed data would see differently below that offset, or see twice."""
    one, other = (committed_by_key(folder, end_offset) for folder in (theirs, ours))
    latest = [{key: records[-1] for key, records in each.items()} for each in (one, other)]
    their, our = ({key: one for key, one in each.items() if one.value is not None} for each in latest)
    found = [
        f"{key!r}: {their.get(key)}, not {our.get(key)}"
        for key in their | our
        if their.get(key) != our.get(key)
    ]
    return found + [
        f"{key!r} stands {len(records)} times" for key, records in other.items() if len(records) > 1
    ]


def committed_by_key(folder: Path, end_offset: int) -> dict[bytes, list[Record]]:
    aborted = [
        entry for index in folder.glob("*.txnindex") for entry in ENTRY.iter_unpack(index.read_bytes())
    ]
    found: dict[bytes, list[Record]] = {}
    for batch in batches_in(folder):
        header = batch.header
        is_aborted = header.is_transactional and any(
            header.producer_id == producer_id and first <= header.base_offset <= last
            for _, producer_id, first, last, _ in aborted
        )
        if header.is_control or is_aborted or header.base_offset >= end_offset:
            continue
        for record in batch.records():
            if record.key is not None:
                found.setdefault(record.key, []).append(record)
    return found
