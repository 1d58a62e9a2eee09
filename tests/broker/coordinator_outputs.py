"""Whether the output of something that copies a topic exactly once is what it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from barnabas.client.consumer import ConsumerConfig
from tests.client.real import Clients, real
from tests.support.clients import confluent_consumer

SHOWN = 5
READ_DEADLINE_S = 120.0
Pair = tuple[bytes | None, bytes | None]


def output_of(client: str) -> str:
    """The topic to which it copies the input."""
    return f"output-{client}"


def differences(name: str, expected: Sequence[str], found: Sequence[str]) -> list[str]:
    """Where an output is not the input, once and in order."""
    if list(expected) == list(found):
        return []
    wanted, there = Counter(expected), Counter(found)
    return [
        f"{name} has {len(found)} records, where {len(expected)} are committed; missing "
        f"{[each for each in wanted if each not in there][:SHOWN]}, strange "
        f"{[each for each in there if each not in wanted][:SHOWN]}, "
        f"twice {[each for each in wanted if there[each] > wanted[each]][:SHOWN]}"
    ]


def has_open_transaction(bootstrap: str, topic: str, partitions: int) -> bool:
    """Whether the last stable offset of a partition is not its high watermark."""

    async def ask(clients: Clients) -> bool:
        places = [(topic, number) for number in range(partitions)]
        found = []
        for committed in (True, False):
            async with clients.consumer(ConsumerConfig(read_committed=committed)) as consumer:
                found.append(await consumer.end_offsets(*places))
        return found[0] != found[1]

    return real(bootstrap, ask)


def committed_pairs(bootstrap: str, topic: str, partitions: int) -> list[list[Pair]]:
    """Keys and values of all committed records, by partition, as librdkafka reads them."""
    found: list[list[Pair]] = [[] for _ in range(partitions)]
    unread = set(range(partitions))
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True}
    with confluent_consumer(bootstrap, **settings) as consumer:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        while unread:
            message = consumer.poll(READ_DEADLINE_S)
            assert message is not None, f"no end of {topic} {unread} after {READ_DEADLINE_S:.0f} s"
            error, number = message.error(), message.partition()
            assert number is not None
            if error is None:
                found[number].append((message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(number)
            else:
                raise KafkaException(error)
    return found


def committed_values(bootstrap: str, topic: str, partitions: int) -> list[list[str]]:
    """The values of these, as texts."""
    found = committed_pairs(bootstrap, topic, partitions)
    return [[(value or b"").decode() for _, value in of_one] for of_one in found]
