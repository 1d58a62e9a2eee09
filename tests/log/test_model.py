"""A partition's log and a plain list of batches, driven side by side through whatever Hypothesis thinks of.

The model is a `Story`: a list of batches, a start and an end. Nothing in it knows of segments, indexes or
files, so every answer of the log is compared with a walk over the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.core.clock import ManualClock
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log import reading, trimming
from barnabas.log.config import NEVER_MS, LogConfig
from barnabas.log.partition import Bound
from barnabas.log.producers import Origin
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.record import Record
from tests.log.crash_checks import (
    check_newest,
    check_read,
    check_time,
    committed,
    examine,
    find,
    last_stable_offset,
)
from tests.log.crash_story import Crash, Step, Story
from tests.support.logs import START_MS, open_directory, read_committed

T = TypeVar("T")

CONFIGS = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from([400, 900, 3000]),
    segment_ms=st.sampled_from([500, NEVER_MS]),
    segment_index_bytes=st.sampled_from([24, 60, 1 << 20]),
    index_interval_bytes=st.sampled_from([0, 60, 300, 1000]),
    retention_ms=st.sampled_from([1_000, 10_000]),
    retention_bytes=st.sampled_from([-1, 0, 700, 2000]),
    cleanup_policy=st.sampled_from([frozenset({"delete"}), frozenset({"compact", "delete"})]),
    flush_messages=st.sampled_from([1, NEVER_MS]),
    file_delete_delay_ms=st.sampled_from([0, 1_000]),
)
# later and earlier, and often the same
TIMES = st.integers(START_MS - 30, START_MS + 30)
VALUES = st.one_of(st.none(), st.binary(max_size=120))
RECORDS = st.lists(st.tuples(TIMES, VALUES), min_size=1, max_size=4)
CODECS = st.sampled_from(list(Codec))
MAX_BYTES = st.integers(0, 1500)


class LogMachine(RuleBasedStateMachine):
    """One partition, and its model."""

    @initialize(config=CONFIGS)
    def begin(self, config: LogConfig) -> None:
        self.config = config
        self.loop = asyncio.new_event_loop()
        self.disk = MemoryDisk()
        self.clock = ManualClock(START_MS)
        self.random = SeededRandom(1)
        self.story = Story()
        self.story.exists = True
        self.high_watermark = 0
        self.epoch = 0
        self.sequence = 0
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    def open(self) -> None:
        self.directory = self.run(open_directory(self.disk, self.config, self.clock, self.random))
        self.log = self.run(self.directory.partition("t", 0))

    # --- appends

    @rule(records=RECORDS, codec=CODECS, new_epoch=st.booleans())
    def append_as_leader(
        self, records: list[tuple[int, bytes | None]], codec: Codec, new_epoch: bool
    ) -> None:
        self.epoch += new_epoch
        data = build_batch(numbered(records), codec=codec)
        self.append(data, Origin.CLIENT)

    @rule(records=RECORDS, codec=CODECS, transactional=st.booleans())
    def append_with_sequences(
        self, records: list[tuple[int, bytes | None]], codec: Codec, transactional: bool
    ) -> None:
        producers, producer_id = self.story.producers(), 8 if transactional else 7
        window = producers.window(producer_id)
        data = build_batch(
            numbered(records),
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producers.epoch(producer_id) or 0,
            base_sequence=window[-1].last_sequence + 1 if window else 0,
            transactional=transactional,
        )
        self.append(data, Origin.CLIENT)

    @precondition(lambda self: self.story.producers().is_open(8))
    @rule(commit=st.booleans(), time=TIMES)
    def end_transaction(self, commit: bool, time: int) -> None:
        data = build_end_transaction(
            ControlType.COMMIT if commit else ControlType.ABORT,
            producer_id=8,
            producer_epoch=self.story.producers().epoch(8) or 0,
            coordinator_epoch=0,
            timestamp=time,
        )
        self.append(data, Origin.COORDINATOR)

    def append(self, data: bytearray, origin: Origin) -> None:
        self.story.begin(Step.APPEND, data=data)
        appended = self.run(self.log.append_as_leader(data, self.epoch, origin, transaction_version=1))
        assert appended.first_offset == self.story.end_offset
        self.story.done()

    @rule(batches=st.lists(RECORDS, min_size=1, max_size=3), codec=CODECS, gap=st.integers(0, 3))
    def append_as_follower(
        self, batches: list[list[tuple[int, bytes | None]]], codec: Codec, gap: int
    ) -> None:
        data, offset = bytearray(), self.story.end_offset
        for records in batches:
            # what a compaction left out at the leader is missing here, too
            offset += gap if self.config.is_compacted and self.story.batches else 0
            data += build_batch(numbered(records), base_offset=offset, leader_epoch=self.epoch, codec=codec)
            offset += len(records)
            self.epoch += gap % 2
        self.story.begin(Step.APPEND, data=data)
        self.run(self.log.append_as_follower(bytes(data) + bytes(data[:20])))
        self.story.done()

    @precondition(lambda self: self.story.producers(self.log.bases[0]).window(7))
    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        """Any of the last five batches of a producer is known for what it is."""
        header = data.draw(st.sampled_from(self.story.producers(self.log.bases[0]).window(7)))
        (stored,) = self.story.between(header.base_offset, header.next_offset)
        sent = bytearray(8) + stored.data[8:]
        appended = self.run(self.log.append_as_leader(sent, self.epoch))
        assert (appended.is_duplicate, appended.first_offset) == (True, header.base_offset)

    # --- what is taken away, and what only moves

    @rule(back=st.integers(0, 30))
    def truncate(self, back: int) -> None:
        offset = max(0, self.story.end_offset - back)
        is_less = offset < self.story.end_offset
        self.story.begin(Step.TRUNCATE, offset=offset)
        assert self.run(trimming.truncate_to(self.log, offset)) == is_less
        self.story.done()

    @rule(forward=st.integers(-10, 10))
    def start_over(self, forward: int) -> None:
        offset = max(0, self.story.end_offset + forward)
        self.story.begin(Step.START_OVER, offset=offset)
        self.run(trimming.truncate_fully_and_start_at(self.log, offset))
        self.story.done()
        self.high_watermark = offset

    @rule(back=st.integers(0, 12))
    def delete_records(self, back: int) -> None:
        offset = max(self.story.start_offset, self.high_watermark - back)
        if offset <= self.high_watermark:
            self.story.begin(Step.RAISE_START, offset=offset)
            assert self.run(trimming.delete_records(self.log, offset)) == offset
            self.story.done(start_offset=offset)

    @rule(seconds=st.integers(0, 4))
    def retain(self, seconds: int) -> None:
        """What goes is the oldest, no more than is below the high watermark, and not without a reason."""
        self.clock.advance(seconds)
        bases, size = list(self.log.bases), self.size_bytes()
        self.story.begin(Step.RAISE_START, offset=self.high_watermark)
        count = self.run(trimming.apply_retention(self.log))
        self.run(trimming.sweep(self.log))
        assert self.story.start_offset <= self.log.start_offset <= self.high_watermark
        gone = [batch for batch in self.story.batches if bases[0] <= batch.base_offset < self.log.bases[0]]
        if count and self.config.retention_bytes < 0:
            newest = max(batch.header.max_timestamp for batch in gone)
            is_old = self.clock.wall_ms() - newest > self.config.retention_ms
            assert is_old or self.log.bases[0] <= self.story.start_offset
        if self.config.retention_bytes >= 0 and self.high_watermark == self.story.end_offset:
            segment_bytes = self.config.segment_bytes
            assert self.size_bytes() < max(self.config.retention_bytes, 1) + segment_bytes or size == 0
        self.story.done(start_offset=self.log.start_offset)

    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.story.batches if batch.base_offset >= self.log.bases[0])

    @rule(back=st.integers(0, 10))
    def advance_high_watermark(self, back: int) -> None:
        self.log.advance_high_watermark(self.story.end_offset - back)
        self.high_watermark = max(self.high_watermark, self.story.end_offset - back)

    @rule()
    def roll(self) -> None:
        before = self.log.bases[-1]
        assert self.run(self.log.roll()) == (before != self.story.end_offset)
        assert self.log.bases[-1] == self.story.end_offset

    @rule()
    def flush(self) -> None:
        self.run(self.log.flush())
        assert self.log.recovery_point == self.story.end_offset

    @rule()
    def checkpoint(self) -> None:
        self.run(self.directory.checkpoint())

    # --- stops

    @rule(new_interval=st.sampled_from([0, 50, 400]))
    def reopen(self, new_interval: int) -> None:
        """Cleanly, with another distance between index entries."""
        self.run(self.directory.close())
        self.config = replace(self.config, index_interval_bytes=new_interval)
        self.open()
        assert self.directory.was_clean
        assert self.log.high_watermark == self.high_watermark

    @rule()
    def crash(self) -> None:
        """The process dies; nothing is lost but what was known of the high watermark."""
        self.disk.crash_process()
        self.open()
        assert not self.directory.was_clean
        assert self.log.high_watermark <= self.high_watermark
        self.high_watermark = self.log.high_watermark
        self.story.judge(Crash.PROCESS, self.run(find(self.log)))

    @rule()
    def crash_and_look_at_everything(self) -> None:
        self.crash()
        self.run(examine(self.log, self.story, self.random))
        self.high_watermark = self.story.end_offset

    # --- reads and look-ups

    @rule(data=st.data(), max_bytes=MAX_BYTES, bound=st.sampled_from(list(Bound)))
    def read(self, data: st.DataObject, max_bytes: int, bound: Bound) -> None:
        offset = data.draw(st.integers(self.story.start_offset, self.story.end_offset))
        upper = self.story.end_offset
        if bound is not Bound.LOG_END:
            upper = self.high_watermark
        if bound is Bound.LAST_STABLE:
            upper = self.log.last_stable_offset
        self.run(check_read(self.log, self.story, offset, max_bytes, upper, bound))

    @rule(max_bytes=MAX_BYTES)
    def read_everything(self, max_bytes: int) -> None:
        found = self.run(find(self.log, max_bytes))
        expected = self.story.between(self.story.start_offset, self.story.end_offset)
        assert [batch.data for batch in found.batches] == [batch.data for batch in expected]

    @rule(max_bytes=MAX_BYTES)
    def read_committed(self, max_bytes: int) -> None:
        expected = committed(self.story, self.log.last_stable_offset)
        assert self.run(read_committed(self.log, max_bytes=max_bytes)) == expected

    @rule(time=TIMES)
    def look_up_time(self, time: int) -> None:
        self.run(check_time(self.log, self.story.records(), time))

    @rule()
    def look_up_newest(self) -> None:
        self.run(check_newest(self.log, self.story.records()))

    @rule(epoch=st.integers(-1, 12))
    def look_up_epoch(self, epoch: int) -> None:
        """The largest epoch up to the one asked for ends where the next one begins."""
        epochs = self.story.epochs()
        if not epochs or [tuple(entry) for entry in self.log.epochs.entries] != epochs:
            return  # an epoch of which no record is left may still be known
        later = [start for number, start in epochs if number > epoch]
        known = [number for number, _ in epochs if number <= epoch]
        expected = (known[-1] if known else epoch, later[0] if later else self.story.end_offset)
        if epoch == -1 or epoch > epochs[-1][0]:
            expected = (-1, -1)
        assert reading.end_offset_for_epoch(self.log, epoch) == expected

    # --- always

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "log"):
            return
        story, log = self.story, self.log
        self.high_watermark = min(self.high_watermark, story.end_offset)
        self.high_watermark = max(self.high_watermark, story.start_offset)
        assert (log.start_offset, log.end_offset) == (story.start_offset, story.end_offset)
        assert log.high_watermark == self.high_watermark
        assert log.bases == sorted(set(log.bases))
        assert log.bases[0] <= log.start_offset
        producers = story.producers()
        low = last_stable_offset(producers, self.high_watermark, story.start_offset)
        high = last_stable_offset(producers, story.end_offset, story.start_offset)
        assert low <= log.last_stable_offset <= min(high, self.high_watermark)


def numbered(records: list[tuple[int, bytes | None]]) -> list[Record]:
    return [Record(at, time, b"k%d" % at, value) for at, (time, value) in enumerate(records)]


LogMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=50)
TestLog = LogMachine.TestCase
