"""A transactional process with a client of Python, led step by step through its standard input.

    python -m tests.interop.transactor CLIENT HOST:PORT TRANSACTIONAL-ID TIMEOUT-MS GROUP INPUT

It does what a line asks for, answers with one line, and waits for the next; so whoever leads it knows between
which two steps it was stopped or killed. All programs of this kind (Java, Node.js, Go) understand the same:

    init                            "-" as GROUP: a producer alone
    take COUNT                      of the input, in the group: ok PARTITION:OFFSET:VALUE ...
    begin | commit | abort
    send TOPIC PARTITION VALUE      one record, and its acknowledgement: ok OFFSET
    offsets                         behind all that was taken, into the transaction
    close

    ok ...
    error NAME what it says
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import warnings
from typing import Any

DEADLINE_S = 60.0


class Confluent:
    def __init__(self, bootstrap: str, name: str, timeout_ms: int, group: str, source: str) -> None:
        import confluent_kafka

        self.kafka = confluent_kafka
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
            }
        )
        self.consumer = None
        if group != "-":
            settings = {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.instance.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
            self.consumer = confluent_kafka.Consumer(settings)
        self.source = source
        self.is_subscribed = False
        self.taken: dict[int, int] = {}  # the offset behind it, by partition

    def init(self) -> None:
        self.producer.init_transactions(DEADLINE_S)

    def take(self, count: int) -> list[str]:
        assert self.consumer is not None
        if not self.is_subscribed:
            self.consumer.subscribe([self.source])
            self.is_subscribed = True
        taken = []
        while len(taken) < count:
            message = self.consumer.poll(DEADLINE_S)
            if message is None:
                raise TimeoutError("nothing to take")
            if message.error():
                raise self.kafka.KafkaException(message.error())
            self.taken[message.partition()] = message.offset() + 1
            taken.append(f"{message.partition()}:{message.offset()}:{message.value().decode()}")
        return taken

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> int:
        reports: list[Any] = []
        self.producer.produce(
            topic, value, partition=partition, on_delivery=lambda *told: reports.append(told)
        )
        self.producer.flush(DEADLINE_S)
        ((error, message),) = reports
        if error is not None:
            raise self.kafka.KafkaException(error)
        return int(message.offset())

    def offsets(self) -> None:
        assert self.consumer is not None
        positions = [self.kafka.TopicPartition(self.source, *each) for each in self.taken.items()]
        self.producer.send_offsets_to_transaction(
            positions, self.consumer.consumer_group_metadata(), DEADLINE_S
        )

    def commit(self) -> None:
        self.producer.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        self.producer.abort_transaction(DEADLINE_S)

    def close(self) -> None:
        if self.consumer is not None:
            self.consumer.close()


class AioKafka:
    def __init__(self, bootstrap: str, name: str, timeout_ms: int, group: str, source: str) -> None:
        import aiokafka

        self.kafka = aiokafka
        self.producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms
        )
        self.group, self.source = group, source
        self.taken: dict[int, int] = {}
        self.consumer = None
        if group != "-":
            self.consumer = aiokafka.AIOKafkaConsumer(
                source,
                bootstrap_servers=bootstrap,
                group_id=group,
                group_instance_id=name,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                fetch_max_wait_ms=50,
            )
        self.is_started = False

    async def init(self) -> None:
        await self.producer.start()

    async def take(self, count: int) -> list[str]:
        assert self.consumer is not None
        if not self.is_started:
            await self.consumer.start()
            self.is_started = True
        found = [await self.consumer.getone() for _ in range(count)]
        self.taken.update({one.partition: one.offset + 1 for one in found})
        return [f"{one.partition}:{one.offset}:{one.value.decode()}" for one in found]

    async def begin(self) -> None:
        await self.producer.begin_transaction()

    async def send(self, topic: str, partition: int, value: str) -> int:
        sent = await self.producer.send_and_wait(topic, value.encode(), partition=partition)
        return int(sent.offset)

    async def offsets(self) -> None:
        assert self.consumer is not None
        positions = {
            self.kafka.TopicPartition(self.source, number): offset for number, offset in self.taken.items()
        }
        await self.producer.send_offsets_to_transaction(positions, self.group)

    async def commit(self) -> None:
        await self.producer.commit_transaction()

    async def abort(self) -> None:
        await self.producer.abort_transaction()

    async def close(self) -> None:
        if self.consumer is not None and self.is_started:
            await self.consumer.stop()
        await self.producer.stop()


class KafkaPython:
    def __init__(self, bootstrap: str, name: str, timeout_ms: int, group: str, source: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import kafka

        self.kafka = kafka
        self.producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms
        )
        self.consumer = None
        if group != "-":
            self.consumer = kafka.KafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                group_instance_id=name,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                fetch_max_wait_ms=50,
                consumer_timeout_ms=int(DEADLINE_S * 1000),
            )
        self.source = source
        self.is_subscribed = False
        self.taken: dict[int, int] = {}

    def init(self) -> None:
        self.producer.init_transactions()

    def take(self, count: int) -> list[str]:
        assert self.consumer is not None
        if not self.is_subscribed:
            self.consumer.subscribe([self.source])
            self.is_subscribed = True
        found = [next(self.consumer) for _ in range(count)]
        self.taken.update({one.partition: one.offset + 1 for one in found})
        return [f"{one.partition}:{one.offset}:{one.value.decode()}" for one in found]

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> int:
        sent = self.producer.send(topic, value.encode(), partition=partition)
        return int(sent.get(DEADLINE_S).offset)

    def offsets(self) -> None:
        assert self.consumer is not None
        positions = {
            self.kafka.TopicPartition(self.source, number): self.kafka.OffsetAndMetadata(offset, "", -1)
            for number, offset in self.taken.items()
        }
        self.producer.send_offsets_to_transaction(positions, self.consumer.group_metadata())

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def close(self) -> None:
        if self.consumer is not None:
            self.consumer.close()
        self.producer.close(DEADLINE_S)


CLIENTS: dict[str, type[Any]] = {"confluent": Confluent, "aiokafka": AioKafka, "kafka-python": KafkaPython}


def name_of(error: BaseException) -> str:
    """As Kafka's table of errors has it, where the client says so; the client's own class otherwise."""
    if (
        isinstance(error, SystemError) and error.__cause__ is not None
    ):  # librdkafka's fatal errors in a callback
        error = error.__cause__
    if type(error).__name__ == "KafkaException":
        return str(error.args[0].name())
    return type(error).__name__


async def do(client: Any, line: str) -> str:
    name, *arguments = line.split()
    try:
        result = getattr(client, name)(*(int(each) if each.isdigit() else each for each in arguments))
        if inspect.isawaitable(result):
            result = await asyncio.wait_for(result, DEADLINE_S)
    except Exception as error:  # noqa: BLE001 whatever it is, it is the answer
        return f"error {name_of(error)} {error}".replace("\n", " ")
    answers = result if isinstance(result, list) else [] if result is None else [result]
    return " ".join(["ok", *map(str, answers)])


async def main(kind: str, bootstrap: str, name: str, timeout_ms: str, group: str, source: str) -> None:
    client = CLIENTS[kind](bootstrap, name, int(timeout_ms), group, source)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(await do(client, line), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
