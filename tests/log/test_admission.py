"""What may enter the log as its leader: numbered and stamped in place, or refused without a trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from barnabas.core.clock import ManualClock
from barnabas.core.errors import BarnabasError, CorruptMessage, InvalidRecord, MessageTooLarge
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log.config import NEVER_MS, LogConfig
from barnabas.log.partition import PartitionLog
from barnabas.log.producers import Origin
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    LAST_OFFSET_DELTA_AT,
    LOG_APPEND_TIME_FLAG,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    RECORD_COUNT_AT,
    BatchHeader,
)
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.reader import read_batch, read_batches
from barnabas.records.record import Record
from tests.support.batches import patched
from tests.support.log_fixtures import from_producer, sized_batch, snapshot_of
from tests.support.logs import START_MS, batch, open_directory, read_all, read_bytes, values

COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))
HOUR_MS = 3600 * 1000


async def fresh_log(
    config: LogConfig | None = None, disk: MemoryDisk | None = None, clock: ManualClock | None = None
) -> PartitionLog:
    directory = await open_directory(disk or MemoryDisk(), config, clock)
    return await directory.partition("t", 0)


def keyless(codec: Codec = Codec.NONE) -> bytearray:
    records = [Record(0, START_MS, b"k", b"v"), Record(1, START_MS, None, b"v")]
    return build_batch(records, codec=codec)


def timed(*timestamps: int, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([Record(0, timestamp, b"k", b"v") for timestamp in timestamps], codec=codec)


# --- what is let in


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_no_time_is_too_late_where_there_is_no_bound(codec: Codec) -> None:
    async def scenario() -> None:
        config = LogConfig(timestamp_after_max_ms=NEVER_MS, timestamp_before_max_ms=NEVER_MS)
        log = await fresh_log(config)
        await log.append_as_leader(timed(START_MS + 1000 * HOUR_MS, codec=codec), 0)
        assert log.end_offset == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", list(Codec))
def test_offsets_and_epoch_are_set_in_place_and_nothing_else_changes(codec: Codec) -> None:
    async def scenario() -> None:
        log = await fresh_log()
        await log.append_as_leader(batch(3), 0)
        sent = batch([b"x" * 100, b"y" * 100], codec=codec)
        before = bytes(sent)
        appended = await log.append_as_leader(sent, 5)
        assert (appended.first_offset, appended.last_offset) == (3, 4)
        header = BatchHeader.parse(sent)
        assert (header.base_offset, header.leader_epoch) == (3, 5)
        assert (sent[8:12], sent[16:]) == (before[8:12], before[16:])
        assert await read_bytes(log, 3) == sent

    asyncio.run(scenario())


def test_a_batch_in_the_middle_of_a_request_is_appended_from_where_it_lies() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        request = bytearray(b"before") + batch([b"value"]) + b"behind"
        await log.append_as_leader(memoryview(request)[6:-6], 0)
        assert values(await read_all(log)) == [b"value"]
        assert request.startswith(b"before")
        assert request.endswith(b"behind")

    asyncio.run(scenario())


def test_a_cut_batch_behind_the_first_is_left_out() -> None:
    """As Kafka does; the part that is left out is not written either."""

    async def scenario() -> None:
        log = await fresh_log()
        whole = batch(2)
        await log.append_as_leader(whole + batch(3)[:40], 0)
        assert log.end_offset == 2
        assert log.size_bytes == len(whole)
        await log.append_as_leader(batch(1), 0)
        assert [record.offset for record in await read_all(log)] == [0, 1, 2]

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_log_append_time_is_stamped_with_a_right_checksum(codec: Codec) -> None:
    async def scenario() -> None:
        clock = ManualClock(START_MS)
        log = await fresh_log(LogConfig(log_append_time=True), clock=clock)
        clock.advance(5)
        appended = await log.append_as_leader(timed(1, 99, 3, codec=codec), 0)
        assert appended.log_append_time_ms == START_MS + 5000
        data = await read_bytes(log, 0)
        ((header, _),) = read_batches(data)  # checks the CRC
        assert header.is_log_append_time
        assert header.max_timestamp == START_MS + 5000
        assert [record.timestamp for record in read_batch(data)] == [START_MS + 5000] * 3

    asyncio.run(scenario())


def test_create_time_answers_no_append_time() -> None:
    async def scenario() -> None:
        log = await fresh_log()
        appended = await log.append_as_leader(batch(1, timestamp=77), 0)
        assert appended.log_append_time_ms == -1
        assert [record.timestamp for record in await read_all(log)] == [77]

    asyncio.run(scenario())


def test_a_largest_timestamp_that_is_wrong_is_corrected() -> None:
    """Otherwise one batch could hide what is behind it from look-ups by time."""

    async def scenario() -> None:
        log = await fresh_log()
        await log.append_as_leader(patched(timed(10, 30, 20), MAX_TIMESTAMP_AT, "q", 9_999), 0)
        ((header, _),) = read_batches(await read_bytes(log, 0))
        assert header.max_timestamp == 30

    asyncio.run(scenario())


def test_timestamps_on_the_bounds_are_let_in() -> None:
    async def scenario() -> None:
        config = LogConfig(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
        log = await fresh_log(config)
        for codec in (Codec.NONE, Codec.LZ4):
            await log.append_as_leader(timed(START_MS - 1000, START_MS + 500, codec=codec), 0)
        assert log.end_offset == 4

    asyncio.run(scenario())


def test_log_append_time_asks_nothing_of_timestamps() -> None:
    async def scenario() -> None:
        log = await fresh_log(LogConfig(log_append_time=True, timestamp_before_max_ms=1))
        await log.append_as_leader(timed(1, START_MS + 10 * HOUR_MS), 0)
        assert log.end_offset == 2

    asyncio.run(scenario())


def test_a_batch_of_exactly_the_limits_is_let_in() -> None:
    async def scenario() -> None:
        log = await fresh_log(LogConfig(max_message_bytes=500, segment_bytes=500))
        for offset in range(3):
            assert (await log.append_as_leader(sized_batch(500), 0)).first_offset == offset
        assert log.bases == [0, 1, 2]

    asyncio.run(scenario())


# --- what is refused

REFUSED: list[tuple[str, Callable[[], bytearray], LogConfig, str]] = [
    ("a timestamp too late", lambda: timed(START_MS + HOUR_MS + 1), LogConfig(), "INVALID_TIMESTAMP"),
    (
        "a compressed timestamp too late",
        lambda: timed(START_MS + HOUR_MS + 1, codec=Codec.GZIP),
        LogConfig(),
        "INVALID_TIMESTAMP",
    ),
    (
        "a timestamp too early",
        lambda: timed(START_MS, START_MS - 1001),
        LogConfig(timestamp_before_max_ms=1000),
        "INVALID_TIMESTAMP",
    ),
    (
        "a compressed timestamp too early",
        lambda: timed(START_MS, START_MS - 1001, codec=Codec.SNAPPY),
        LogConfig(timestamp_before_max_ms=1000),
        "INVALID_TIMESTAMP",
    ),
    ("no key on a compacted topic", keyless, COMPACTED, "INVALID_RECORD"),
    (
        "no key in a compressed batch on a compacted topic",
        lambda: keyless(Codec.ZSTD),
        COMPACTED,
        "INVALID_RECORD",
    ),
    (
        "a batch beyond max.message.bytes",
        lambda: sized_batch(501),
        LogConfig(max_message_bytes=500),
        "MESSAGE_TOO_LARGE",
    ),
    (
        "a batch beyond max.message.bytes and the segment",
        lambda: sized_batch(501),
        LogConfig(max_message_bytes=500, segment_bytes=400),
        "MESSAGE_TOO_LARGE",
    ),
    (
        "a batch beyond the segment",
        lambda: sized_batch(501),
        LogConfig(segment_bytes=500),
        "RECORD_LIST_TOO_LARGE",
    ),
    ("two batches", lambda: batch(1) + batch(1), LogConfig(), "INVALID_RECORD"),
    (
        "a wrong checksum",
        lambda: patched(batch(2), RECORD_COUNT_AT, "i", 3, crc=False),
        LogConfig(),
        "CORRUPT_MESSAGE",
    ),
    ("magic 0", lambda: patched(batch(2), MAGIC_AT, "b", 0, crc=False), LogConfig(), "INVALID_RECORD"),
    ("magic 1", lambda: patched(batch(2), MAGIC_AT, "b", 1, crc=False), LogConfig(), "INVALID_RECORD"),
    ("magic 3", lambda: patched(batch(2), MAGIC_AT, "b", 3, crc=False), LogConfig(), "CORRUPT_MESSAGE"),
    ("too few bytes", lambda: batch(2)[:30], LogConfig(), "INVALID_RECORD"),
    ("no bytes", bytearray, LogConfig(), "INVALID_RECORD"),
    (
        "fewer records than the last offset says",
        lambda: patched(batch(2), LAST_OFFSET_DELTA_AT, "i", 5),
        LogConfig(),
        "INVALID_RECORD",
    ),
    ("a control batch", lambda: batch(1, control=True, producer_id=1), LogConfig(), "INVALID_RECORD"),
    (
        "a client that stamps itself",
        lambda: patched(batch(1), ATTRIBUTES_AT, "h", LOG_APPEND_TIME_FLAG),
        LogConfig(),
        "INVALID_TIMESTAMP",
    ),
    ("a transaction of nobody", lambda: batch(1, transactional=True), LogConfig(), "INVALID_RECORD"),
    (
        "a producer's gap",
        lambda: from_producer(5, producer_id=1, producer_epoch=3),
        LogConfig(),
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
    ),
    (
        "a fenced producer",
        lambda: from_producer(1, producer_id=1, producer_epoch=2),
        LogConfig(),
        "INVALID_PRODUCER_EPOCH",
    ),
]


@pytest.mark.parametrize(
    ("make", "config", "error"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_is_refused_leaves_no_trace(
    make: Callable[[], bytearray], config: LogConfig, error: str
) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        log = await fresh_log(config, disk)
        await log.append_as_leader(from_producer(0, producer_id=1, producer_epoch=3), 4)
        files, producers = await snapshot_of(disk, "t-0"), list(log.producers.entries())
        with pytest.raises(BarnabasError) as refusal:
            await log.append_as_leader(make(), 9)
        assert refusal.value.wire.name == error
        assert (log.end_offset, log.epochs.latest_epoch) == (1, 4)
        assert await snapshot_of(disk, "t-0") == files
        assert list(log.producers.entries()) == producers
        # the next one gets the offset that was not used
        assert (await log.append_as_leader(batch(1), 4)).first_offset == 1
        assert [record.offset for record in await read_all(log)] == [0, 1]

    asyncio.run(scenario())


# --- what coordinators append


def test_a_coordinator_appends_several_batches_with_one_write() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        log = await fresh_log(COMPACTED, disk)
        writes = list[str]()
        disk.before = lambda operation, path: writes.append(f"{operation} {path}")
        appended = await log.append_as_leader(keyless() + batch(3), 2, Origin.COORDINATOR)
        assert (appended.first_offset, appended.last_offset) == (0, 4)
        assert writes == ["append t-0/00000000000000000000.log"]
        found = [
            (header.base_offset, header.leader_epoch) for header, _ in read_batches(await read_bytes(log, 0))
        ]
        assert found == [(0, 2), (2, 2)]

    asyncio.run(scenario())


def test_a_coordinators_batches_are_stamped_each() -> None:
    async def scenario() -> None:
        log = await fresh_log(LogConfig(log_append_time=True))
        await log.append_as_leader(batch(1, timestamp=5) + batch(1, timestamp=9), 0, Origin.COORDINATOR)
        assert [record.timestamp for record in await read_all(log)] == [START_MS, START_MS]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (bytearray(), CorruptMessage),
        (batch(2)[:-1], CorruptMessage),
        (batch(2) + b"x", CorruptMessage),
        (build_batch([]), InvalidRecord),
    ],
)
def test_even_a_coordinators_bytes_must_be_sound(data: bytearray, error: type[BarnabasError]) -> None:
    async def scenario() -> None:
        log = await fresh_log()
        with pytest.raises(error):
            await log.append_as_leader(data, 0, Origin.COORDINATOR)
        assert log.end_offset == log.size_bytes == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("compression_type", ["producer", "uncompressed", "gzip"])
def test_a_batch_that_is_too_large_is_not_looked_at_any_further(compression_type: str) -> None:
    async def scenario() -> None:
        log = await fresh_log(LogConfig(max_message_bytes=1000, compression_type=compression_type))
        damaged = batch([b"x" * 2000])
        damaged[-1] ^= 1
        with pytest.raises(MessageTooLarge):
            await log.append_as_leader(damaged, 0)
        # what counts is the batch, not what was cut short behind it
        await log.append_as_leader(batch([b"y"]) + damaged[:1500], 0)
        assert log.end_offset == 1

    asyncio.run(scenario())


# --- what is opened off the loop


class CountingWorkers:
    """Runs calls at once, and counts them."""

    def __init__(self) -> None:
        self.calls = 0

    async def compute(self, call: Callable[..., object], *args: object, **kwargs: object) -> object:
        self.calls += 1
        return call(*args, **kwargs)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("config", "codec", "opened"),
    [
        (LogConfig(), Codec.NONE, 0),
        (LogConfig(), Codec.ZSTD, 0),
        (COMPACTED, Codec.NONE, 0),
        (COMPACTED, Codec.ZSTD, 1),
        (LogConfig(timestamp_before_max_ms=1000), Codec.GZIP, 1),
        (LogConfig(log_append_time=True, timestamp_before_max_ms=1000), Codec.GZIP, 0),
    ],
)
def test_a_compressed_batch_is_opened_by_a_worker_and_only_where_the_topic_needs_it(
    config: LogConfig, codec: Codec, opened: int
) -> None:
    async def scenario() -> None:
        log = await fresh_log(config)
        workers = CountingWorkers()
        log.home = log.home._replace(workers=workers)  # type: ignore[arg-type]
        await log.append_as_leader(batch(3, codec=codec), 0)
        assert workers.calls == opened

    asyncio.run(scenario())


def test_appends_that_come_together_are_numbered_in_the_order_of_asking() -> None:
    """Also where a compressed batch takes its time in a worker."""

    async def scenario() -> None:
        log = await fresh_log(COMPACTED)

        class SlowWorkers(CountingWorkers):
            async def compute(self, call: Callable[..., object], *args: object, **kwargs: object) -> object:
                for _ in range(5):
                    await asyncio.sleep(0)
                return await super().compute(call, *args, **kwargs)

        log.home = log.home._replace(workers=SlowWorkers())  # type: ignore[arg-type]
        appends: list[Awaitable[object]] = [
            log.append_as_leader(batch([b"%d" % number], codec=Codec.LZ4 if number % 2 else Codec.NONE), 0)
            for number in range(10)
        ]
        await asyncio.gather(*appends)
        assert values(await read_all(log)) == [b"%d" % number for number in range(10)]

    asyncio.run(scenario())
