"""Random workloads for compaction, from a seed: what is appended, under which settings, and when.

Few keys, so that most records are superseded; tombstones, empty values, headers, records without a key; every
codec; producers of all three kinds, with transactions interleaved, committed, aborted, left open, ended by a
marker of a later epoch or without any data; several leader epochs; gaps between offsets. The clock moves
between rounds by about the time after which a tombstone may go.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from barnabas.log.config import LogConfig
from barnabas.log.partition import PartitionLog
from barnabas.log.producers import Origin
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.record import Headers, Record

# long before any file of a test is written: see `Twins`
START_MS = 1_700_000_000_000
OFFSET_MAP_SLOT_BYTES = 24


@dataclass(frozen=True)
class Settings:
    """What holds for a whole workload."""

    seed: int
    written: LogConfig
    cleaned: LogConfig
    is_compressed: bool
    rounds: int
    appends_a_round: int
    dedupe_bytes: int
    load_factor: float
    io_buffer_bytes: int

    def kafkas(self) -> dict[str, str]:
        """The settings of the cleaning, by Kafka's names."""
        config = self.cleaned
        return {
            "internal.segment.bytes": str(config.segment_bytes),
            "segment.index.bytes": str(config.segment_index_bytes),
            "index.interval.bytes": str(config.index_interval_bytes),
            "delete.retention.ms": str(config.delete_retention_ms),
            "min.compaction.lag.ms": str(config.min_compaction_lag_ms),
            "max.message.bytes": str(config.max_message_bytes),
            "message.timestamp.type": "LogAppendTime" if config.log_append_time else "CreateTime",
        }


def settings_of(seed: int) -> Settings:
    random = Random(f"settings of {seed}")
    # where the indexes are small as well, Kafka's cleaner fails if every batch asks for an entry
    index_interval_bytes, segment_index_bytes = random.choice(
        ((0, 4096), (200, 4096), (1000, 4096), (1000, 60))
    )
    written = LogConfig(
        segment_bytes=random.choice((700, 1500, 4000)),
        segment_ms=random.choice((3_000, 10**9, 10**9)),
        segment_index_bytes=segment_index_bytes,
        index_interval_bytes=index_interval_bytes,
        # records without a key are there where a topic has not always been compacted
        cleanup_policy=frozenset({random.choice(("compact", "compact", "delete"))}),
        log_append_time=random.random() < 0.15,
        delete_retention_ms=random.choice((0, 1_000, 5_000)),
        min_compaction_lag_ms=random.choice((0, 0, 0, 2_500)),
        producer_id_expiration_ms=random.choice((24 * 3600 * 1000, 24 * 3600 * 1000, 15_000)),
    )
    slots = random.choice((4, 12, 30, 1000, 1000, 1000))
    return Settings(
        seed=seed,
        written=written,
        cleaned=replace(written, segment_bytes=written.segment_bytes * random.choice((1, 1, 2, 5))),
        is_compressed=random.random() < 0.5,
        rounds=random.randint(3, 5),
        appends_a_round=random.randint(20, 60),
        dedupe_bytes=slots * OFFSET_MAP_SLOT_BYTES + random.randrange(OFFSET_MAP_SLOT_BYTES),
        load_factor=random.choice((0.9, 0.9, 0.7)),
        # so small that batches and their neighbours are read apart, or hardly ever
        io_buffer_bytes=random.choice((100, 400, 2_000, 512 << 10)),
    )


class Append(NamedTuple):
    """One batch on its way into a log; with a gap, as a follower gets it from a leader that has compacted."""

    data: bytes
    leader_epoch: int
    at_ms: int
    origin: Origin = Origin.CLIENT
    gap: int = 0

    async def to(self, log: PartitionLog) -> None:
        data = bytearray(self.data)
        if self.gap:
            struct.pack_into(">q", data, 0, log.end_offset + self.gap)
            struct.pack_into(">i", data, 12, self.leader_epoch)
            await log.append_as_follower(data)
        else:
            await log.append_as_leader(data, self.leader_epoch, self.origin)
        log.advance_high_watermark(log.end_offset)


@dataclass
class Producer:
    """One that numbers its batches, and whether it is inside a transaction."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False


@dataclass
class Writers:
    """All who write to a partition, from the first round to the last."""

    settings: Settings
    now_ms: int = START_MS
    leader_epoch: int = 0
    random: Random = field(init=False)
    idempotent: list[Producer] = field(default_factory=lambda: [Producer(number) for number in (1, 2, 3)])
    transactional: list[Producer] = field(default_factory=lambda: [Producer(100 + n) for n in range(4)])

    def __post_init__(self) -> None:
        self.random = Random(f"appends of {self.settings.seed}")
        self.is_keyless_allowed = not self.settings.written.is_compacted

    def round(self) -> Iterator[Append]:
        """The appends of one round; most transactions are ended before it is over."""
        random = self.random
        for _ in range(self.settings.appends_a_round):
            if random.random() < 0.03:
                self.leader_epoch += random.randint(1, 2)
            self.now_ms += random.choice((0, 1, 20))
            yield self._any()
        for producer in self.transactional:
            if producer.is_open and random.random() < 0.85:
                yield self._end(producer)
        self.now_ms += random.choice((0, 1_000, 6_000, 20_000))

    def _any(self) -> Append:
        random = self.random
        kind = random.choices(("plain", "idempotent", "transactional", "end"), (3, 2, 4, 3))[0]
        if kind == "plain":
            return self._batch()
        if kind == "idempotent":
            return self._batch(random.choice(self.idempotent))
        producer = random.choice(self.transactional)
        if kind == "transactional":
            producer.is_open = True
            return self._batch(producer, transactional=True)
        if producer.is_open or random.random() < 0.15:
            return self._end(producer)
        return self._batch()

    def _batch(self, producer: Producer | None = None, *, transactional: bool = False) -> Append:
        random = self.random
        records = [self._record() for _ in range(random.choice((1, 1, 2, 3, 6)))]
        codec = random.choice(list(Codec)) if self.settings.is_compressed else Codec.NONE
        gap = random.randint(1, 9) if random.random() < 0.03 else 0
        if producer is None:
            return Append(bytes(build_batch(records, codec=codec)), self.leader_epoch, self.now_ms, gap=gap)
        if not producer.is_open and random.random() < 0.05:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            transactional=transactional,
        )
        producer.sequence += len(records)
        return Append(bytes(batch), self.leader_epoch, self.now_ms, gap=gap)

    def _end(self, producer: Producer) -> Append:
        random = self.random
        if random.random() < 0.3:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        producer.is_open = False
        marker = build_end_transaction(
            random.choice((ControlType.ABORT, ControlType.COMMIT)),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=0,
            timestamp=self.now_ms,
        )
        return Append(bytes(marker), self.leader_epoch, self.now_ms, Origin.COORDINATOR)

    def _record(self) -> Record:
        random = self.random
        key: bytes | None = b"key-%d" % random.randrange(12)
        if random.random() < 0.05:
            key = None if self.is_keyless_allowed else b""
        value = random.choice(
            (None, b"", random.randbytes(3), random.randbytes(40), b"ab" * random.randrange(60))
        )
        headers: Headers = tuple(
            (random.choice(("", "trace", "é")), random.choice((None, b"", b"\x01\x02")))
            for _ in range(random.choice((0, 0, 0, 1, 3)))
        )
        return Record(0, self.now_ms - random.choice((0, 0, 1, 700)), key, value, headers)
