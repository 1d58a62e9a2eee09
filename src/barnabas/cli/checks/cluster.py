"""A running cluster, as a client on this machine sees it: reached, described and, if asked to, written to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping

from barnabas.cli.checks.findings import Finding, Section, ok, problem, warning
from barnabas.cli.connecting import Session
from barnabas.cli.failures import explained
from barnabas.cli.output import counted
from barnabas.client.admin import Broker, NewTopic, TopicDescription
from barnabas.client.consumer import ConsumerConfig, Reset
from barnabas.client.fetched import ConsumerRecord
from barnabas.client.producer import ProducerConfig
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import ProduceRequest

_NEEDED = (ProduceRequest, FetchRequest, ListOffsetsRequest, MetadataRequest)
_SKEW_WARNING_MS = 1000
_SHOWN = 5
_SLOW_ANSWER_MS = 500


async def check_cluster(session: Session, *, write: bool) -> Section:
    """Everything there is to say of a cluster; a topic is made, used and deleted only if `write`."""
    section = Section(f"cluster at {session.bootstrap}", [])
    try:
        async for finding in _findings(session, write=write):
            section.findings.append(finding)
    except BarnabasError as error:
        failure = explained(error)
        section.findings.append(problem(str(failure), failure.next_step))
    return section


async def _findings(session: Session, *, write: bool) -> AsyncGenerator[Finding, None]:
    await session.connect()
    cluster = await session.admin.describe_cluster()
    yield ok(f"cluster {cluster.cluster_id}, {counted(len(cluster.brokers), 'broker')}")
    if cluster.controller_id < 0:
        yield problem("there is no controller", "see that most of the controllers run and reach each other")
    for broker in cluster.brokers:
        yield await _reach(session, broker)
    yield await _clock(session)
    for finding in _partitions(await session.admin.describe_topics()):
        yield finding
    if write:
        yield await _round_trip(session)
    else:
        yield ok("nothing was written: --write tries a round trip, with a topic of its own")


async def _reach(session: Session, broker: Broker) -> Finding:
    """Connect to where the cluster says that the broker is."""
    address = f"{broker.address.host}:{broker.address.port}"
    clock = session.clock
    began = clock.monotonic()
    try:
        connection = await session.admin.cluster.connect(broker.node_id)
        began = clock.monotonic()
        await session.admin.describe_features(broker.node_id)
    except BarnabasError as error:
        return problem(
            f"broker {broker.node_id} is advertised at {address}, where nobody answers: {explained(error)}",
            "mend its advertised.listeners to what works from here, or start it",
        )
    took_ms = (clock.monotonic() - began) * 1000
    told = connection.versions.ranges
    lacking = [
        cls.__name__.removesuffix("Request")
        for cls in _NEEDED
        if cls.__key__ not in told or told[cls.__key__][1] < cls.__versions__[0]
    ]
    text = f"broker {broker.node_id} at {address} answers in {took_ms:.1f} ms and speaks {len(told)} APIs"
    if lacking:
        return problem(
            f"{text}, but not {', '.join(lacking)} as needed", "it is older than Kafka 0.11: upgrade"
        )
    if took_ms > _SLOW_ANSWER_MS:
        return warning(text, "it is far away or busy: look at its load and the network")
    return ok(text)


async def _clock(session: Session) -> Finding:
    """The active controller's clock, which it tells with the quorum (KIP-836)."""
    try:
        before = session.clock.wall_ms()
        quorum = await session.admin.describe_quorum()
        after = session.clock.wall_ms()
    except BarnabasError:
        return ok("its clock is not known: it does not describe its quorum")
    (told,) = [
        each.last_fetch_timestamp_ms for each in quorum.voters if each.node_id == quorum.leader_id
    ] or [None]
    return _skew("the controller", told, before, after)


def _skew(whose: str, told_ms: int | None, before_ms: int, after_ms: int) -> Finding:
    if told_ms is None:
        return ok(f"{whose} does not tell its time")
    skew_ms = max(0, told_ms - after_ms, before_ms - told_ms)
    if skew_ms <= _SKEW_WARNING_MS:
        return ok(f"{whose} and this machine agree on the time, to {max(skew_ms, after_ms - before_ms)} ms")
    direction = "ahead of" if told_ms > after_ms else "behind"
    return warning(
        f"the clock of {whose} is {skew_ms / 1000:.1f} s {direction} this machine's",
        "set both by NTP: retention, timestamps and look-ups by time go by them",
    )


def _partitions(topics: Mapping[str, TopicDescription]) -> Iterator[Finding]:
    every = [(topic.name, each) for topic in topics.values() for each in topic.partitions]
    offline = [f"{name}-{each.partition}" for name, each in every if each.leader < 0]
    lagging = [
        f"{name}-{each.partition}"
        for name, each in every
        if each.leader >= 0 and len(each.in_sync) < len(each.replicas)
    ]
    elsewhere = sum(
        each.leader >= 0 and bool(each.replicas) and each.leader != each.replicas[0] for _, each in every
    )
    yield ok(f"{counted(len(topics), 'topic')}, {counted(len(every), 'partition')}")
    if offline:
        yield problem(
            f"no leader of {counted(len(offline), 'partition')}: {_some(offline)}",
            "start the brokers that hold them (`barnabas topic describe` names these)",
        )
    if lagging:
        yield warning(
            f"{counted(len(lagging), 'partition')} under-replicated: {_some(lagging)}",
            "see that the brokers missing from their in-sync replicas run and keep up",
        )
    if elsewhere:
        yield warning(
            f"{counted(elsewhere, 'partition')} not led by the preferred broker",
            "they go back by themselves within auto.leader.rebalance; or elect preferred leaders",
        )
    if every and not offline and not lagging:
        yield ok("every partition has a leader, and all its replicas are in sync")


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


async def _round_trip(session: Session) -> Finding:
    """Make a topic, write a record, read it back, delete the topic."""
    topic = f"barnabas-doctor-{session.clock.wall_ms()}"
    await session.admin.create_topics(
        [NewTopic(topic, 1, configs={"message.timestamp.type": "LogAppendTime"})]
    )
    try:
        async with asyncio.timeout(session.timeout_s):
            return await _write_and_read(session, topic)
    except TimeoutError:
        return problem(
            f"a record was not written and read back within {session.timeout_s:g} s",
            "look at the log of the broker; min.insync.replicas may ask for more than there are",
        )
    finally:
        await session.admin.delete_topics([topic])


async def _write_and_read(session: Session, topic: str) -> Finding:
    clock, client = session.clock, session.client_config
    async with session.producer(ProducerConfig(client=client, linger_ms=0)) as producer:
        await producer.partitions_of(topic)
        began = clock.monotonic()
        await (await producer.send(topic, b"are you well?"))
        written_ms = (clock.monotonic() - began) * 1000
    async with session.consumer(ConsumerConfig(reset=Reset.EARLIEST, client=client)) as consumer:
        consumer.assign([(topic, 0)])
        began = clock.monotonic()
        records: list[ConsumerRecord] = []
        while not records:
            records = await consumer.poll(1000)
        read_ms = (clock.monotonic() - began) * 1000
    if records[0].value != b"are you well?":
        return problem(
            "what was read back is not what was written", "keep the broker's directory, and report it"
        )
    return ok(
        f"a record was written to all in-sync replicas in {written_ms:.1f} ms, read back in {read_ms:.1f} ms"
    )
