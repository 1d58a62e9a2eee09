"""Records for tests of commands: written by our own client, beside the command that is tested."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from barnabas.records.record import Record
from tests.client.real import Clients


def write(
    bootstrap: str, topic: str, records: Iterable[bytes | Record], *, partition: int | None = None
) -> None:
    """Write records, or bare values, and wait until they are acknowledged."""

    async def run() -> None:
        async with Clients(bootstrap).producer() as producer:
            waiting = []
            for each in records:
                record = each if isinstance(each, Record) else Record(0, -1, None, each)
                time_ms = None if record.timestamp < 0 else record.timestamp
                waiting.append(
                    await producer.send(
                        topic, record.value, record.key, partition, record.headers, timestamp_ms=time_ms
                    )
                )
            await asyncio.gather(*waiting)

    asyncio.run(run())


def make_topic(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> str:
    """Create a topic; underscores in the names of settings stand for dots."""
    return asyncio.run(Clients(bootstrap).topic(topic, partitions, **configs))
