"""What is compacted: records of 100 bytes (16 of them the key), a tenth as many keys as records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

from barnabas.log.config import LogConfig
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from bench.log import directory

TOPIC = "compacted"
RECORD_BYTES = 100
RECORDS_A_BATCH = 150  # about Kafka's default for batch.size
DISTINCT = 0.1
START_MS = 1_790_000_000_000
WORDS = ("ordered", "paid", "packed", "sent", "received", "returned")
# several segments, as a large partition has
CONFIG = LogConfig(segment_bytes=64 << 20, cleanup_policy=frozenset({"compact"}))


def batches(
    records: int, *, codec: int = 0, timestamp_ms: int = START_MS, records_a_batch: int = RECORDS_A_BATCH
) -> Iterator[bytearray]:
    """Batches of that many records in all, the same every time."""
    random = Random(7)
    keys = [random.randbytes(16) for _ in range(max(1, int(records * DISTINCT)))]
    for start in range(0, records, records_a_batch):
        wanted = min(records_a_batch, records - start)
        yield build_batch(
            [Record(0, timestamp_ms, random.choice(keys), _value(random)) for _ in range(wanted)], codec=codec
        )


def _value(random: Random) -> bytes:
    """Numbers and names, as they are in tables: about half of it can be compressed away."""
    order, state, cents = random.getrandbits(60), random.choice(WORDS), random.getrandbits(30)
    text = f'{{"order": {order}, "state": "{state}", "cents": {cents}}}'
    return text.encode().ljust(RECORD_BYTES - 16)[: RECORD_BYTES - 16]


def write(root: Path, records: int, codec: int) -> Path:
    """A data directory with one partition of them, all in segments that can be cleaned."""

    async def append() -> None:
        async with directory(root, CONFIG) as logs:
            log = await logs.partition(TOPIC, 0)
            for batch in batches(records, codec=codec):
                await log.append_as_leader(batch, 0)
            await log.roll()

    asyncio.run(append())
    return root
