"""A small workload: producers that count, and a last read of everything."""

from __future__ import annotations

import asyncio

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import ClientConfig
from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.errors import BrokerError
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.core.errors import BarnabasError
from barnabas.sim.history import Acked, Failed, FinalRead, Finished, Kept, Sent
from barnabas.sim.process import Process
from barnabas.sim.scenario import ProducerPlan, TopicPlan
from barnabas.sim.world import World

CLIENT = ClientConfig(request_timeout_ms=5_000, connect_timeout_ms=3_000)


async def run(world: World) -> None:
    """The workload, for `simulate`."""
    await run_at(world, world.bootstrap)


async def run_at(world: World, bootstrap: str) -> None:
    """The same for one cluster, of those that the world's machines are."""
    for topic in world.scenario.topics:
        process = world.process("admin")
        await process.spawn(_make_topic(bootstrap, process, topic))
        await process.kill()
    sending = []
    for plan in world.scenario.producers:
        process = world.process(plan.name)
        sending.append(process.spawn(_produce(world, bootstrap, process, plan)))
    await asyncio.gather(*sending)
    await world.faults_ended.wait()
    reader = world.process("reader")
    for topic in world.scenario.topics:
        for partition in range(topic.partitions):
            await reader.spawn(_read(world, bootstrap, reader, topic.name, partition))
    world.history.add(Finished(world.clock.monotonic()))


async def _make_topic(bootstrap: str, process: Process, topic: TopicPlan) -> None:
    while True:
        try:
            async with Admin(process.network, process.clock, process.random, bootstrap, CLIENT) as admin:
                await admin.create_topics([NewTopic(topic.name, topic.partitions, 1, topic.configs)])
            return
        except BrokerError as error:
            if error.wire.name == "TOPIC_ALREADY_EXISTS":
                return
        except BarnabasError:
            pass
        await process.clock.sleep(0.2)


async def _produce(world: World, bootstrap: str, process: Process, plan: ProducerPlan) -> None:
    config = ProducerConfig(
        acks=plan.acks,
        idempotence=plan.is_idempotent,
        compression=plan.codec,
        linger_ms=plan.linger_ms,
        batch_bytes=plan.batch_bytes,
        max_in_flight=plan.max_in_flight,
        client=CLIENT,
    )
    clock, history = process.clock, world.history
    notes = []
    async with Producer(process.network, clock, process.random, bootstrap, config) as producer:

        async def note(number: int) -> None:
            mark = f"{plan.name}/{number}"
            key = b"%d" % process.random.below(plan.keys) if plan.keys else None
            value = f"{mark} ".encode() + process.random.bytes(process.random.below(plan.value_bytes))
            now = clock.monotonic()
            sent = Sent(now, mark, plan.name, number, True, plan.topic, -1, key, value, clock.wall_ms())
            history.add(sent)
            try:
                written = await (await producer.send(plan.topic, value, key))
            except BarnabasError as error:
                history.add(Failed(clock.monotonic(), mark, str(error)))
            else:
                place = written.topic, written.partition, written.offset, written.timestamp_ms
                history.add(Acked(clock.monotonic(), mark, *place))

        number = 0
        while clock.monotonic() < world.scenario.seconds:
            notes.append(asyncio.create_task(note(number)))
            number += 1
            await clock.sleep(1 / plan.records_per_second)
        await asyncio.gather(*notes)


async def _read(world: World, bootstrap: str, process: Process, topic: str, partition: int) -> None:
    config = ConsumerConfig(reset=Reset.EARLIEST, client=CLIENT)
    asked_at = process.clock.monotonic()
    async with Consumer(process.network, process.clock, process.random, bootstrap, config) as consumer:
        consumer.assign([(topic, partition)])
        (start,) = (await consumer.beginning_offsets((topic, partition))).values()
        (end,) = (await consumer.end_offsets((topic, partition))).values()
        kept = []
        while await consumer.position((topic, partition)) < end:
            for record in await consumer.poll(1_000):
                kept.append(Kept(record.offset, record.timestamp_ms, record.key, record.value, ""))
        now = process.clock.monotonic()
        world.history.add(FinalRead(now, asked_at, topic, partition, start, end, tuple(kept)))
