"""A compacted partition and what was ever written to it: the model that tests of compaction hold it against.

The model is a dictionary of every record by its offset, and the markers. It knows nothing of segments and
batches: what may be gone is worked out from keys, offsets, markers, and the times of the compactions.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.core.clock import ManualClock
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log import reading
from barnabas.log.compaction.cleaning import Cleaned, CleanerIo, clean
from barnabas.log.compaction.survey import survey
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import PartitionLog
from barnabas.log.producers import Origin
from barnabas.records.batch import BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.control import ControlType, build_end_transaction, parse_marker
from barnabas.records.kernel import OffsetMap
from barnabas.records.reader import read_batch, read_batches
from barnabas.records.record import Record
from tests.support.logs import START_MS, open_directory, read_bytes, read_committed

RETENTION_MS = 1_000
COMPACTED = LogConfig(
    segment_bytes=500,
    index_interval_bytes=60,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=500,
)

Entry = tuple[bytes, bytes | None]


class Stored(NamedTuple):
    """A record as it was written."""

    record: Record
    producer_id: int
    is_transactional: bool


class Marker(NamedTuple):
    """The end of a transaction."""

    producer_id: int
    is_commit: bool
    timestamp: int


@dataclass
class Model:
    """What was written, and when compactions have come across it."""

    records: dict[int, Stored] = field(default_factory=dict)
    markers: dict[int, Marker] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    # when the first compaction began that took an offset in; when the last one did
    seen_ms: dict[int, int] = field(default_factory=dict)
    cleaned_ms: int = 0

    def is_committed(self, offset: int, end_offset: int) -> bool:
        """Whether a record counts, in a log that ends there."""
        return (
            self.is_decided(offset, end_offset, is_commit=True) or not self.records[offset].is_transactional
        )

    def is_decided(self, offset: int, end_offset: int, *, is_commit: bool) -> bool:
        stored = self.records[offset]
        ends = (
            marker
            for at, marker in sorted(self.markers.items())
            if offset < at < end_offset and marker.producer_id == stored.producer_id
        )
        end = next(ends, None) if stored.is_transactional else None
        return end is not None and end.is_commit is is_commit

    def latest(self, bound: int, end_offset: int) -> dict[bytes, int]:
        """The offset of each key's latest record below `bound`."""
        return {
            stored.record.key or b"": offset
            for offset, stored in sorted(self.records.items())
            if offset < bound and self.is_committed(offset, end_offset)
        }

    def begin_clean(self, bound: int, now_ms: int) -> None:
        self.cleaned_ms = now_ms
        for offset in self.records:
            if offset < bound:
                self.seen_ms.setdefault(offset, now_ms)


class Batch(NamedTuple):
    """A batch found in the log."""

    header: BatchHeader
    records: list[Record]


async def find_batches(log: PartitionLog, max_bytes: int = 1 << 20) -> list[Batch]:
    """Everything there is, from the start to the end of the log."""
    found: list[Batch] = []
    offset = log.start_offset
    while data := await read_bytes(log, offset, max_bytes):
        for header, position in read_batches(data):
            found.append(Batch(header, list(read_batch(data, position, header))))
            assert header.base_offset >= offset, "batches out of order"
            offset = header.next_offset
    return found


class Life:
    """A partition, opened, written to, compacted, closed, and the model beside it."""

    def __init__(self, disk: MemoryDisk | None = None, config: LogConfig = COMPACTED) -> None:
        self.clock = ManualClock(START_MS)
        self.disk = disk or MemoryDisk(clock=self.clock)
        self.config = config
        self.model = Model()
        self.directory: LogDirectory | None = None
        self.epoch = 0
        self._sequences: dict[int, int] = {}
        self._first_offsets: dict[int, int] = {}  # of open transactions, by producer
        self.throttled: list[int] = []

    @property
    def log(self) -> PartitionLog:
        assert self.directory is not None
        log = self.directory.opened("t", 0)
        assert log is not None
        return log

    async def open(self) -> PartitionLog:
        self.directory = await open_directory(self.disk, self.config, self.clock)
        log = await self.directory.partition("t", 0)
        log.advance_high_watermark(log.end_offset)
        return log

    def after_crash(self, disk: MemoryDisk) -> Life:
        """The same partition on a disk that went on without it."""
        other = Life(disk, self.config)
        other.clock = ManualClock(self.clock.wall_ms())
        other.model = copy.deepcopy(self.model)
        return other

    async def put(self, entries: Sequence[Entry], producer_id: int = -1, codec: int = 0) -> None:
        """Append a batch; producers from 10 on are transactional, the others idempotent but for -1."""
        log, is_transactional = self.log, producer_id >= 10
        now_ms = self.clock.wall_ms()
        records = [
            Record(number, now_ms + number * 7 % 5, key, value, (("h", key),) if number % 2 else ())
            for number, (key, value) in enumerate(entries)
        ]
        sequence = self._sequences.get(producer_id, 0)
        data = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else sequence,
            transactional=is_transactional,
        )
        appended = await log.append_as_leader(data, self.epoch)
        assert not appended.is_duplicate
        self._sequences[producer_id] = sequence + len(records)
        self.model.epochs.setdefault(self.epoch, appended.first_offset)
        for record in records:
            offset = appended.first_offset + record.offset
            timestamp = now_ms if self.config.log_append_time else record.timestamp
            numbered = record._replace(offset=offset, timestamp=timestamp)
            self.model.records[offset] = Stored(numbered, producer_id, is_transactional)
        if is_transactional:
            self._first_offsets.setdefault(producer_id, appended.first_offset)
        log.advance_high_watermark(log.end_offset)

    async def end(self, producer_id: int, *, commit: bool) -> None:
        """End a transaction, if one is open."""
        if self._first_offsets.pop(producer_id, None) is None:
            return
        log, now_ms = self.log, self.clock.wall_ms()
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker = build_end_transaction(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=now_ms
        )
        appended = await log.append_as_leader(marker, self.epoch, Origin.COORDINATOR)
        self.model.epochs.setdefault(self.epoch, appended.first_offset)
        self.model.markers[appended.first_offset] = Marker(producer_id, commit, now_ms)
        log.advance_high_watermark(log.end_offset)

    async def clean(self, slots: int = 1000, buffer_bytes: int = 300) -> Cleaned | None:
        """A round, as the cleaner does it; None where there is nothing to do."""
        log = self.log
        assert self.directory is not None
        cleanable = await survey(log)
        if not cleanable.cleanable_bytes:
            return None

        async def throttle(size: int) -> None:
            self.throttled.append(size)

        self.model.begin_clean(cleanable.first_uncleanable_offset, self.clock.wall_ms())
        offsets = OffsetMap(slots * 24, bytes(16))
        cleaned = await clean(log, cleanable, offsets, io=CleanerIo(buffer_bytes, 0.9, throttle))
        assert cleanable.first_dirty_offset < cleaned.end_offset <= cleanable.first_uncleanable_offset
        log.cleaned_offset = cleaned.end_offset
        await self.directory.offsets.write_cleaned()
        return cleaned

    async def reopen(self, *, is_clean: bool, without_snapshots: bool = False) -> None:
        """Stop, or die, and start again; the producers are known as before."""
        before = {entry.producer_id: entry for entry in self.log.producers.entries()}
        if is_clean:
            assert self.directory is not None
            await self.directory.close()
        else:
            self.disk.crash_process()
        if without_snapshots:
            for name in await self.disk.listdir("t-0"):
                if name.endswith(".snapshot"):
                    await self.disk.remove(f"t-0/{name}")
        log = await self.open()
        after = {entry.producer_id: entry for entry in log.producers.entries()}
        for producer_id, entry in before.items():
            if without_snapshots and entry.last_offset < 0:
                continue  # its marker may be empty by now
            found = after[producer_id]
            assert found[:4] == entry[:4], f"{found} was {entry}"
            assert found.txn_first_offset == entry.txn_first_offset

    # --- checks

    async def check(self, *, is_clean_below: int = 0, is_thorough: bool = True) -> None:
        """Hold the log against the model. Below `is_clean_below` nothing is left that could have gone."""
        log, model = self.log, self.model
        batches = await find_batches(log)
        if is_thorough:
            assert [b.header for b in await find_batches(log, 100)] == [b.header for b in batches]
        found = {record.offset: record for batch in batches for record in batch.records}
        for batch in batches:
            for record in batch.records:
                if batch.header.is_control:
                    marker = parse_marker(record)
                    assert marker is not None
                    assert marker.is_commit == model.markers[record.offset].is_commit
                else:
                    assert record == model.records[record.offset].record
        self._check_kept(found)
        self._check_gone(batches, is_clean_below)
        await self._check_readers([100, 1 << 20] if is_thorough else [1 << 20])
        await self._check_look_ups(batches, 1 if is_thorough else 9)

    def _check_kept(self, found: dict[int, Record]) -> None:
        log, model = self.log, self.model
        for offset in model.records:
            is_undecided = log.last_stable_offset <= offset < log.end_offset
            assert not is_undecided or offset in found, f"{offset} is above the last stable offset"
        for key, offset in model.latest(log.last_stable_offset, log.end_offset).items():
            if offset not in found:
                assert model.records[offset].record.value is None, f"the value of {key!r} at {offset} is lost"
                due_ms = model.seen_ms[offset] + RETENTION_MS
                assert model.cleaned_ms >= due_ms, f"the tombstone of {key!r} at {offset} went early"

    def _check_gone(self, batches: list[Batch], bound: int) -> None:
        log, model = self.log, self.model
        seen: dict[bytes, int] = {}
        for header, records in batches:
            for record in records:
                if header.is_control or record.offset >= bound:
                    continue
                assert model.is_committed(record.offset, log.end_offset), f"{record.offset} was aborted"
                assert record.key is not None
                assert record.key not in seen, f"{record.key!r} at {seen[record.key]} and {record.offset}"
                seen[record.key] = record.offset
                if record.value is None:
                    horizon_ms = header.delete_horizon_ms
                    assert horizon_ms is not None, f"the time of the tombstone at {record.offset} never ends"
                    assert horizon_ms > model.cleaned_ms, f"the tombstone at {record.offset} should be gone"

    async def _check_readers(self, sizes: Sequence[int]) -> None:
        """A reader of committed data from the start ends up with the latest value of every key."""
        log, model = self.log, self.model
        values = {
            key: value
            for key, offset in model.latest(log.last_stable_offset, log.end_offset).items()
            if (value := model.records[offset].record.value) is not None
        }
        for max_bytes in sizes:
            table: dict[bytes, bytes] = {}
            for record in await read_committed(log, max_bytes=max_bytes):
                assert model.is_committed(record.offset, log.end_offset), f"{record.offset} was aborted"
                table.pop(record.key or b"", None)
                if record.value is not None:
                    table[record.key or b""] = record.value
            assert table == values

    async def _check_look_ups(self, batches: list[Batch], every: int) -> None:
        log, model = self.log, self.model
        records = [record for batch in batches for record in batch.records]
        for offset in range(log.start_offset, log.end_offset, every):
            following = [header for header, _ in batches if header.last_offset >= offset]
            data = await read_bytes(log, offset, 1)
            assert bool(data) == bool(following)
            assert not data or BatchHeader.parse(data) == following[0]
        times = sorted({record.timestamp for record in records})
        for timestamp in [*times[:3], *times[-2:], *(one + 1 for one in times[::7])]:
            first = next((one for one in records if one.timestamp >= timestamp), None)
            at = await reading.offset_for_timestamp(log, timestamp)
            assert (at.timestamp_ms, at.offset) == ((first.timestamp, first.offset) if first else (-1, -1))
        newest = max(records, key=lambda one: (one.timestamp, -one.offset), default=None)
        at = await reading.offset_for_timestamp(log, reading.MAX_TIMESTAMP)
        assert (at.timestamp_ms, at.offset) == ((newest.timestamp, newest.offset) if newest else (-1, -1))
        starts = sorted(offset for offset in model.epochs.values() if offset < log.end_offset)
        for epoch, start in model.epochs.items():
            if start < log.end_offset:
                end = next((other for other in starts if other > start), log.end_offset)
                assert reading.end_offset_for_epoch(log, epoch) == (epoch, end)

    async def check_names(self) -> None:
        """No file of a compaction under way is left."""
        names = await self.disk.listdir("t-0")
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


class Story:
    """Random work on a partition, from a seed: a few keys, tombstones, all kinds of producers."""

    def __init__(self, life: Life, random: SeededRandom) -> None:
        self._life = life
        self._random = random

    async def write(self, batches: int) -> None:
        life, random = self._life, self._random
        for _ in range(batches):
            life.clock.advance(0.001 * random.below(400))
            producer_id = (-1, -1, 1, 2, 10, 11)[random.below(6)]
            await life.put([self._entry() for _ in range(1 + random.below(4))], producer_id, random.below(5))
            if random.below(3) == 0:
                await life.end(10 + random.below(2), commit=bool(random.below(2)))
            if random.below(15) == 0:
                life.epoch += 1

    async def settle(self) -> None:
        """Make everything cleanable that was written so far: transactions end, and the segment is sealed."""
        for producer_id in (10, 11):
            await self._life.end(producer_id, commit=bool(self._random.below(2)))
        await self._life.log.roll()

    def _entry(self) -> Entry:
        random = self._random
        value = None if random.below(4) == 0 else bytes(random.below(40)) + b"%d" % random.below(1000)
        return b"k%d" % random.below(8), value
