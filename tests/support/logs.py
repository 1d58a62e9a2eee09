"""Short cuts for tests of the log: a directory on any disk, batches, and records read back."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import TypeVar, cast

from barnabas.core.clock import Clock, ManualClock
from barnabas.core.disk import Disk
from barnabas.core.random import Random, SeededRandom
from barnabas.core.workers import InlineWorkers
from barnabas.log import reading
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import Bound, PartitionLog
from barnabas.records.builder import build_batch
from barnabas.records.reader import read_batch, read_batches, read_records
from barnabas.records.record import Record

T = TypeVar("T")

START_MS = 1_700_000_000_000


async def open_directory(
    disk: Disk, config: LogConfig | None = None, clock: Clock | None = None, random: Random | None = None
) -> LogDirectory:
    return await LogDirectory.open(
        disk,
        clock=clock or ManualClock(START_MS),
        random=random or SeededRandom(1),
        workers=InlineWorkers(),
        config=config,
    )


def batch(values: Sequence[bytes | None] | int, *, timestamp: int = START_MS, **options: object) -> bytearray:
    """A batch of these values, or of that many; keys are `k0`, `k1` ..., timestamps go up by one."""
    if isinstance(values, int):
        values = [b"v%d" % number for number in range(values)]
    records = [
        Record(number, timestamp + number, b"k%d" % number, value) for number, value in enumerate(values)
    ]
    return build_batch(records, **options)  # type: ignore[arg-type]


async def read_bytes(
    log: PartitionLog, offset: int, max_bytes: int = 1 << 20, bound: Bound = Bound.LOG_END
) -> bytes:
    """What one read answers, as bytes."""
    fetched = await reading.read(log, offset, max_bytes, bound)
    if fetched.range is None:
        return b""
    file, position, size = fetched.range
    return await file.read(position, size)


async def read_all(
    log: PartitionLog, *, max_bytes: int = 1 << 20, bound: Bound = Bound.LOG_END, control: bool = False
) -> list[Record]:
    """Every record from the start of the log to the bound, read as a consumer reads."""
    found: list[Record] = []
    offset = log.start_offset
    while data := await read_bytes(log, offset, max_bytes, bound):
        records = list(read_records(data, control=True))
        offset = records[-1].offset + 1
        wanted = records if control else list(read_records(data))
        found += [record for record in wanted if record.offset >= log.start_offset]
    return found


def values(records: Iterable[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def drive(call: Coroutine[object, object, T]) -> T:
    """Run a call that never has to wait, as all calls on a disk in memory are, without a turn of the loop.

    So it can be made from anywhere, even from inside another one. A turn that it gives to others is taken at
    once: there are none.
    """
    try:
        while call.send(None) is None:
            pass
    except StopIteration as returned:
        return cast(T, returned.value)
    call.close()
    raise AssertionError("the call waits for something")


async def read_committed(log: PartitionLog, *, max_bytes: int = 1 << 20) -> list[Record]:
    """What a consumer that reads committed data makes of the log: aborted records are left out by the list
    that comes with each fetch, from a transaction's first offset to its marker."""
    found: list[Record] = []
    offset = log.start_offset
    while True:
        fetched = await reading.read(log, offset, max_bytes, Bound.LAST_STABLE)
        if fetched.range is None:
            return found
        file, position, size = fetched.range
        data = await file.read(position, size)
        assert fetched.aborted is not None
        assert list(fetched.aborted) == sorted(fetched.aborted, key=lambda aborted: aborted.first_offset)
        waiting, aborting = list(fetched.aborted), set[int]()
        for header, start in read_batches(data):
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborting.add(waiting.pop(0).producer_id)
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                found += [record for record in read_batch(data, start) if record.offset >= offset]
            offset = header.next_offset
