"""All that is in a partition, to those who read what is committed and to those who read everything.

Two readers that share no code: librdkafka and Barnabas's own client. Both read up to what the partition's end
is to them: the high watermark, or the last stable offset.
"""

from __future__ import annotations

import asyncio

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from barnabas.client.consumer import ConsumerConfig, Reset
from tests.client.real import Clients, real
from tests.support.clients import DEADLINE_S, confluent_consumer

READERS = ("confluent", "barnabas")


Pair = tuple[bytes | None, bytes | None]


def read_all(
    reader: str, bootstrap: str, topic: str, partition: int, *, committed: bool
) -> list[bytes | None]:
    """The values of all records, up to the end."""
    return [value for _, value in read_pairs(reader, bootstrap, topic, partition, committed=committed)]


def read_pairs(reader: str, bootstrap: str, topic: str, partition: int, *, committed: bool) -> list[Pair]:
    """The keys and values of all records, up to the end."""
    read = _with_confluent if reader == "confluent" else _with_our_own
    return read(bootstrap, topic, partition, committed)


def _with_confluent(bootstrap: str, topic: str, partition: int, committed: bool) -> list[Pair]:
    settings = {
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "enable.partition.eof": True,
    }
    found: list[Pair] = []
    with confluent_consumer(bootstrap, **settings) as consumer:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"no end of {topic}-{partition} after {DEADLINE_S:.0f} s"
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found
            if error is not None:
                raise KafkaException(error)
            found.append((message.key(), message.value()))


def _with_our_own(bootstrap: str, topic: str, partition: int, committed: bool) -> list[Pair]:
    async def read(clients: Clients) -> list[Pair]:
        config = ConsumerConfig(reset=Reset.EARLIEST, read_committed=committed, fetch_max_wait_ms=50)
        async with clients.consumer(config) as consumer:
            consumer.assign([(topic, partition)])
            (end,) = (await consumer.end_offsets((topic, partition))).values()
            found: list[Pair] = []
            async with asyncio.timeout(DEADLINE_S):
                while await consumer.position((topic, partition)) < end:
                    found += [(record.key, record.value) for record in await consumer.poll(100)]
            return found

    return real(bootstrap, read)


def ends(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    """The last stable offset, and the high watermark."""

    async def ask(clients: Clients) -> tuple[int, int]:
        found = []
        for committed in (True, False):
            async with clients.consumer(ConsumerConfig(read_committed=committed)) as consumer:
                found += (await consumer.end_offsets((topic, partition))).values()
        stable, high = found
        return stable, high

    return real(bootstrap, ask)
