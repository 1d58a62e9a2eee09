"""Loads a shard: replays the committed records of its partition, in the order of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from barnabas.broker.coordinators.host import Shard
from barnabas.broker.replicas.replica import Replica
from barnabas.broker.replicas.roles import Leading, NotLeaderOrFollower
from barnabas.coordination.effects import Producer
from barnabas.coordination.records import Kinds, NotDecoded, RecordReader
from barnabas.log.partition import PartitionLog
from barnabas.log.reading import batches
from barnabas.records.control import parse_end_transaction
from barnabas.records.reader import read_batch

# how much is decoded before other tasks run; a batch may be larger than a chunk
_CHUNK_BYTES = 16 * 1024
_RECORDS_A_TURN = 50


async def load(replica: Replica, kinds: Kinds, shard: Shard, turn: asyncio.Lock) -> float:
    """Replay a partition; records of unknown types are skipped. Returns the seconds spent waiting, for
    followers and for `turn`.

    Only committed records are replayed. On a new leader, records beyond the high watermark are committed when
    the followers have them: the shard is loaded when everything in the log is committed. While the ISR is too
    small for that, the load goes on waiting. When the leader epoch changes the load ends with
    NotLeaderOrFollower.

    Partitions are replayed one at a time (`turn`); none waits for the followers of another.
    """
    reader, offset, epoch = RecordReader(kinds), replica.log.start_offset, replica.leader_epoch
    waited_seconds = 0.0

    async def pause() -> None:
        await asyncio.sleep(0)
        _require_epoch(replica, epoch)

    while True:
        await replica.count_written()
        _require_epoch(replica, epoch)
        log = replica.log
        if offset < log.high_watermark:
            end_offset = log.high_watermark
            began = log.home.clock.monotonic()
            async with turn:
                waited_seconds += log.home.clock.monotonic() - began
                await _replay(log, offset, end_offset, reader, shard, pause)
            offset = end_offset
        elif offset < log.end_offset:
            began = log.home.clock.monotonic()
            await replica.committed(log.end_offset)
            waited_seconds += log.home.clock.monotonic() - began
        else:
            return waited_seconds


def _require_epoch(replica: Replica, epoch: int) -> None:
    role = replica.role
    if not isinstance(role, Leading) or role.leader_epoch != epoch:
        raise NotLeaderOrFollower(f"leader epoch {epoch} of {replica.name}-{replica.partition} is over")


async def _replay(
    log: PartitionLog,
    offset: int,
    end_offset: int,
    reader: RecordReader,
    shard: Shard,
    pause: Callable[[], Awaitable[None]],
) -> None:
    chunk_seen: bytes | None = None
    async with aclosing(batches(log, offset, end_offset, _CHUNK_BYTES)) as found:
        async for chunk, position, header in found:
            if chunk is not chunk_seen:
                chunk_seen = chunk
                await pause()
            producer = (
                Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
            )
            if header.is_control:
                marker = parse_end_transaction(chunk, position, header)
                if marker is not None and producer is not None:
                    shard.replay_end(producer, marker.is_commit)
                continue
            for number, record in enumerate(read_batch(chunk, position, header), 1):
                try:
                    shard.replay(reader.read(record.key, record.value), producer)
                except NotDecoded:
                    continue
                if number % _RECORDS_A_TURN == 0:
                    await pause()
