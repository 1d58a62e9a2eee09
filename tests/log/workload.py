"""Random work on a log directory: everything a broker does to its partitions, from a seed.

Each step tells the story of its partition what it is about to do, does it, and tells that it is done, so that
at any moment in between the story knows what a crash may leave. Nothing is remembered besides the stories
(producers' sequences, open transactions and epochs follow from the batches): a workload can go on after a
crash on whatever was recovered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from barnabas.core.clock import ManualClock
from barnabas.core.disk import Disk
from barnabas.core.random import Random, SeededRandom
from barnabas.log import housekeeping, trimming
from barnabas.log.config import NEVER_MS, LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import PartitionLog
from barnabas.log.producers import Origin
from barnabas.records.batch import LENGTH_AT, MAX_SEQUENCE, BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.record import Record
from tests.log.crash_story import Step, Story, Violation
from tests.support.logs import START_MS, open_directory
from tests.support.producer_model import Log, Marker

Key = tuple[str, int]

PARTITIONS: tuple[Key, ...] = (("orders", 0), ("orders", 1), ("audit-log", 0))
IDEMPOTENT, TRANSACTIONAL = (1, 2), (11, 12)
CODECS = tuple(Codec)


def random_config(random: Random) -> LogConfig:
    """Segments and indexes so small that everything rolls, in a few steps."""

    def one_of(*choices: int) -> int:
        return choices[random.below(len(choices))]

    return LogConfig(
        segment_bytes=one_of(600, 1200, 4000),
        segment_ms=one_of(2_000, NEVER_MS),
        segment_jitter_ms=one_of(0, 500),
        segment_index_bytes=one_of(36, 96, 10 << 20),
        index_interval_bytes=one_of(0, 100, 400),
        retention_ms=one_of(3_000, 20_000),
        retention_bytes=one_of(-1, 1000, 3000),
        log_append_time=one_of(0, 0, 0, 1) == 1,
        flush_messages=one_of(1, 6, NEVER_MS, NEVER_MS),
        flush_ms=one_of(1_000, NEVER_MS),
        file_delete_delay_ms=one_of(0, 500, 60_000),
    )


class Batch(NamedTuple):
    """Something to append, and who does it."""

    data: bytearray
    origin: Origin = Origin.CLIENT
    transaction_version: int = 0


class Workload:
    """A directory at work. `run` takes steps; whoever runs it may end it at any operation of the disk."""

    def __init__(
        self,
        disk: Disk,
        config: LogConfig,
        random: Random,
        stories: dict[Key, Story] | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.disk = disk
        self.config = config
        self.random = random
        self.clock = clock or ManualClock(START_MS)
        self.stories = {key: Story() for key in PARTITIONS} if stories is None else stories
        self.directory: LogDirectory | None = None
        self.trace: list[str] = []

    def copy_stories(self) -> dict[Key, Story]:
        """The stories as of now. What the log itself says is synced counts as promised."""
        for key, story in self.stories.items():
            log = self.directory.opened(*key) if self.directory else None
            if log is not None and story.step not in (Step.DELETE, Step.CREATE):
                story.was_synced(log.recovery_point)
        return {key: story.copy() for key, story in self.stories.items()}

    async def run(self, steps: int) -> None:
        if self.directory is None:
            await self._open()
        for _ in range(steps):
            await self.step()

    async def step(self) -> None:
        """Do one thing, to one partition or to all."""
        action = _ACTIONS[self.random.below(len(_ACTIONS))]
        key = PARTITIONS[self.random.below(len(PARTITIONS))]
        self.trace.append(f"{action.__name__} {key[0]}-{key[1]}")
        story = self.stories[key]
        await action(self, key, story)
        log = self.opened.opened(*key)
        if log is not None and log.failure is None and story.exists:
            self._check(log, story)

    def _check(self, log: PartitionLog, story: Story) -> None:
        if (log.start_offset, log.end_offset) != (story.start_offset, story.end_offset):
            raise Violation(
                f"{log.path} has offsets {log.start_offset} to {log.end_offset}, "
                f"not {story.start_offset} to {story.end_offset}"
            )
        story.was_synced(log.recovery_point)

    # --- the directory

    async def _open(self) -> None:
        random = SeededRandom(self.random.below(1 << 30))
        self.directory = await open_directory(self.disk, self.config, self.clock, random)

    @property
    def opened(self) -> LogDirectory:
        assert self.directory is not None
        return self.directory

    async def log(self, key: Key) -> PartitionLog:
        """The partition's log, made if need be."""
        story = self.stories[key]
        if not story.exists:
            story.begin(Step.CREATE)
            if story.topic_id is None and key[1] == 0:
                story.topic_id = self.random.uuid()
        log = await self.opened.partition(*key, topic_id=story.topic_id)
        if not story.exists:
            story.done()
        return log

    async def reopen(self, key: Key, story: Story) -> None:
        """Stop cleanly and start again."""
        directory = self.opened
        await directory.close()
        self.directory = None
        for closed in directory.partitions:
            log = directory.opened(*closed)
            if log is not None and not log.is_dirty:
                self.stories[closed].was_synced()
                self.stories[closed].is_durable = True
        await self._open()

    async def checkpoint(self, key: Key, story: Story) -> None:
        await self.opened.checkpoint()

    async def delete_partition(self, key: Key, story: Story) -> None:
        if story.exists:
            story.begin(Step.DELETE)
            await self.opened.delete_partition(*key)
            story.done()

    async def let_time_pass(self, key: Key, story: Story) -> None:
        self.clock.advance(self.random.below(2_000) / 1000)
        await housekeeping.flush_due(self.opened)

    async def retain(self, key: Key, story: Story) -> None:
        """Retention everywhere, and files removed that were deleted long enough ago."""
        for one in PARTITIONS:
            if (log := self.opened.opened(*one)) is not None:
                await self._retain(log, self.stories[one])
        await housekeeping.apply_retention(self.opened)

    async def _retain(self, log: PartitionLog, story: Story) -> None:
        story.begin(Step.RAISE_START, offset=log.high_watermark)
        await trimming.apply_retention(log)
        if log.start_offset < story.start_offset:
            raise Violation(f"retention moved the start of {log.path} back to {log.start_offset}")
        story.done(start_offset=log.start_offset)

    # --- a partition

    async def append(self, key: Key, story: Story) -> None:
        """As a leader."""
        log = await self.log(key)
        new = self._batch(story)
        story.begin(Step.APPEND, data=new.data)
        appended = await log.append_as_leader(
            new.data, self._epoch(log, story), new.origin, transaction_version=new.transaction_version
        )
        if appended.first_offset != story.end_offset or appended.is_duplicate:
            raise Violation(f"{appended} where {story.end_offset} comes next")
        story.done()
        if self.config.flush_messages == 1:
            story.was_synced()

    async def replicate(self, key: Key, story: Story) -> None:
        """As a follower: several batches at a time, numbered by the leader, perhaps of several epochs."""
        log = await self.log(key)
        data, offset, epoch = bytearray(), story.end_offset, self._epoch(log, story)
        for number in range(1 + self.random.below(3)):
            new = self._batch(story, base_offset=offset, epoch=epoch, plain=number > 0)
            data += new.data
            offset = BatchHeader.parse(new.data).next_offset
            epoch += self.random.below(2)
        story.begin(Step.APPEND, data=data)
        await log.append_as_follower(bytes(data))
        story.done()
        if self.config.flush_messages == 1:
            story.was_synced()

    async def send_again(self, key: Key, story: Story) -> None:
        """A producer that did not see the acknowledgement."""
        log = await self.log(key)
        if self.config.log_append_time:
            return  # what is stored is not what was sent
        for producer_id in (*IDEMPOTENT, *TRANSACTIONAL):
            window = story.producers(log.bases[0]).window(producer_id)
            if window and story.producers().epoch(producer_id) == window[-1].producer_epoch:
                header = window[self.random.below(len(window))]
                (stored,) = (one for one in story.batches if one.base_offset == header.base_offset)
                sent = bytearray(stored.data)
                sent[:LENGTH_AT] = bytes(LENGTH_AT)  # clients number from 0
                appended = await log.append_as_leader(sent, 99)
                if not appended.is_duplicate or appended.first_offset != stored.base_offset:
                    raise Violation(f"{stored}, sent again, is answered with {appended}")

    async def flush(self, key: Key, story: Story) -> None:
        await (await self.log(key)).flush()
        story.was_synced()

    async def roll(self, key: Key, story: Story) -> None:
        await (await self.log(key)).roll()

    async def advance(self, key: Key, story: Story) -> None:
        log = await self.log(key)
        log.advance_high_watermark(log.end_offset - self.random.below(8))

    async def truncate(self, key: Key, story: Story) -> None:
        log = await self.log(key)
        offset = max(0, story.end_offset - self.random.below(story.end_offset - story.start_offset + 3))
        story.begin(Step.TRUNCATE, offset=offset)
        await trimming.truncate_to(log, offset)
        story.done()

    async def start_over(self, key: Key, story: Story) -> None:
        log = await self.log(key)
        offset = max(0, story.end_offset + 20 - self.random.below(30))
        if self.random.below(2):
            # where a segment, and a snapshot, stands already
            offset = story.end_offset
            await log.roll()
        story.begin(Step.START_OVER, offset=offset)
        await trimming.truncate_fully_and_start_at(log, offset)
        story.done()

    async def delete_records(self, key: Key, story: Story) -> None:
        log = await self.log(key)
        offset = log.high_watermark - self.random.below(4)
        if offset > story.start_offset:
            story.begin(Step.RAISE_START, offset=offset)
            await trimming.delete_records(log, offset)
            story.done(start_offset=offset)

    # --- batches

    def _epoch(self, log: PartitionLog, story: Story) -> int:
        """A leader's epoch: the last one's or the next; after a fresh start any, for it is another's log."""
        known = log.epochs.latest_epoch
        if not story.batches:
            return self.random.below(4) if known is None else known
        return max(story.batches[-1].header.leader_epoch, known or 0) + (self.random.below(5) == 0)

    def _batch(self, story: Story, base_offset: int = 0, epoch: int = 0, plain: bool = False) -> Batch:
        """Something that a producer, or a coordinator, would send next."""
        producers = story.producers()
        kind = 0 if plain else self.random.below(3)
        codec = CODECS[self.random.below(len(CODECS))]
        records = self._records()
        if kind == 0:
            data = build_batch(records, base_offset=base_offset, leader_epoch=epoch, codec=codec)
            return Batch(data)
        ids = IDEMPOTENT if kind == 1 else TRANSACTIONAL
        producer_id = ids[self.random.below(len(ids))]
        if producers.is_open(producer_id) and self.random.below(2):
            return self._marker(producers, producer_id, base_offset, epoch)
        producer_epoch, sequence = self._next_sequence(producers, producer_id)
        data = build_batch(
            records,
            base_offset=base_offset,
            leader_epoch=epoch,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=kind == 2,
        )
        return Batch(data)

    def _records(self) -> list[Record]:
        """Their timestamps go back and forth."""
        now_ms = self.clock.wall_ms()
        return [
            Record(
                number,
                now_ms - self.random.below(3_000),
                b"k%d" % self.random.below(9),
                None if self.random.below(8) == 0 else self.random.bytes(self.random.below(90)),
            )
            for number in range(1 + self.random.below(3))
        ]

    def _marker(self, producers: Log, producer_id: int, base_offset: int, epoch: int) -> Batch:
        version = 1 + self.random.below(2)
        coordinator_epoch = max(
            (item.coordinator_epoch for item in producers.of(producer_id) if isinstance(item, Marker)),
            default=0,
        )
        data = build_end_transaction(
            ControlType.COMMIT if self.random.below(2) else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=(producers.epoch(producer_id) or 0) + (version == 2),
            coordinator_epoch=coordinator_epoch + (self.random.below(4) == 0),
            timestamp=self.clock.wall_ms() - self.random.below(1_000),
            base_offset=base_offset,
            leader_epoch=epoch,
        )
        return Batch(data, Origin.COORDINATOR, version)

    def _next_sequence(self, producers: Log, producer_id: int) -> tuple[int, int]:
        epoch = producers.epoch(producer_id)
        if epoch is None:
            return 0, 0
        if self.random.below(12) == 0 and not producers.is_open(producer_id):
            return epoch + 1, 0
        window = producers.window(producer_id)
        return epoch, (window[-1].last_sequence + 1) % (MAX_SEQUENCE + 1) if window else 0


Action = Callable[[Workload, Key, Story], Awaitable[None]]

_WEIGHTS: tuple[tuple[int, Action], ...] = (
    (40, Workload.append),
    (14, Workload.replicate),
    (3, Workload.send_again),
    (6, Workload.flush),
    (4, Workload.roll),
    (10, Workload.advance),
    (4, Workload.truncate),
    (2, Workload.start_over),
    (4, Workload.delete_records),
    (4, Workload.let_time_pass),
    (5, Workload.retain),
    (3, Workload.checkpoint),
    (3, Workload.reopen),
    (1, Workload.delete_partition),
)
_ACTIONS = tuple(action for weight, action in _WEIGHTS for _ in range(weight))
