"""How a shard learns what its partition holds: what is committed is replayed, in the order of the log."""

from __future__ import annotations

import asyncio

from barnabas.broker.coordinators.host import Shard
from barnabas.broker.replicas.replica import Replica
from barnabas.coordination.effects import Producer
from barnabas.coordination.records import Kinds, NotDecoded, RecordReader
from barnabas.log.partition import PartitionLog
from barnabas.log.reading import batches
from barnabas.records.control import parse_end_transaction
from barnabas.records.reader import read_batch

# what is decoded before others have their turn; a batch may hold more than a chunk has room for
_CHUNK_BYTES = 64 * 1024
_RECORDS_A_TURN = 1_000


async def load(replica: Replica, kinds: Kinds, shard: Shard) -> None:
    """Replay a partition; records of types that are not known here are left alone.

    Only committed records are replayed. What stands beyond the high watermark of a new leader is committed
    when its followers have it: the shard is loaded when everything in the log is.
    """
    reader, offset = RecordReader(kinds), replica.log.start_offset
    while True:
        await replica.count_written()
        log = replica.log
        if offset < log.high_watermark:
            end_offset = log.high_watermark
            await _replay(log, offset, end_offset, reader, shard)
            offset = end_offset
        elif offset < log.end_offset:
            await replica.committed(log.end_offset)
        else:
            return


async def _replay(
    log: PartitionLog, offset: int, end_offset: int, reader: RecordReader, shard: Shard
) -> None:
    chunk_seen: bytes | None = None
    async for chunk, position, header in batches(log, offset, end_offset, _CHUNK_BYTES):
        if chunk is not chunk_seen:
            chunk_seen = chunk
            await asyncio.sleep(0)
        producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
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
                await asyncio.sleep(0)
