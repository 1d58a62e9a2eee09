"""A running cluster, as a client on this machine sees it: reached, described and, if asked to, written to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from barnabas.cli.checks.cluster_state import (
    SILENT_VOTER_MS,
    fenced_brokers,
    log_dir_findings,
    partition_findings,
    quorum_findings,
)
from barnabas.cli.checks.findings import Finding, Level, Section, ok, problem, warning
from barnabas.cli.clusters.documents import LogDirsByBroker
from barnabas.cli.clusters.lag import lags_of
from barnabas.cli.clusters.partitions import CONTROLLER_S, partitions_of
from barnabas.cli.clusters.wholeness import silent_voters
from barnabas.cli.connecting import Session
from barnabas.cli.failures import explained
from barnabas.cli.output import counted
from barnabas.client.admin import Broker, NewTopic
from barnabas.client.consumer import ConsumerConfig, Reset
from barnabas.client.errors import BrokerNotReachable, TimedOut
from barnabas.client.fetched import ConsumerRecord
from barnabas.client.producer import ProducerConfig
from barnabas.core.errors import BarnabasError
from barnabas.core.network import ConnectionLost
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import ProduceRequest

_NEEDED = (ProduceRequest, FetchRequest, ListOffsetsRequest, MetadataRequest)
_SKEW_WARNING_MS = 1000
_MOST_LAGS = 200
_NEW_LEADER_S, _POLL_S = 3.0, 0.2
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
    admin = session.admin
    cluster = await admin.describe_cluster(with_fenced=True)
    live = [broker for broker in cluster.brokers if not broker.is_fenced]
    yield ok(f"cluster {cluster.cluster_id}, {counted(len(live), 'broker')}")
    if cluster.controller_id < 0:
        yield problem("there is no controller", "see that most of the controllers run and reach each other")
    for finding in fenced_brokers(cluster.brokers):
        yield finding
    reached = []
    for broker in live:
        finding = await _reach(session, broker)
        if finding.level is not Level.PROBLEM:
            reached.append(broker)
        yield finding
    async for finding in _quorum(session):
        yield finding
    partitions = await partitions_of(admin)
    lacking = [each for each in partitions.every if each.is_under_replicated][:_MOST_LAGS]
    ids = {name: topic.topic_id for name, topic in partitions.topics.items()}
    lags = await lags_of(session, lacking, ids, [broker.node_id for broker in reached])
    for finding in partition_findings(partitions.topics, partitions.every, lags, live):
        yield finding
    for finding in log_dir_findings(await _log_dirs(session, reached)):
        yield finding
    if write and not reached:
        yield ok("nothing was written: no broker answers at the address that it advertises")
    elif write:
        async for finding in _round_trip(session, reached):
            yield finding
    else:
        yield ok("nothing was written: --write tries a round trip, with a topic of its own")


async def _quorum(session: Session) -> AsyncGenerator[Finding, None]:
    """The active controller's clock, which it tells with the quorum (KIP-836), and the quorum."""
    quorum, is_answered = None, True
    deadline = session.clock.monotonic() + _NEW_LEADER_S
    try:
        while True:
            before = session.clock.wall_ms()
            async with asyncio.timeout(CONTROLLER_S):
                quorum = await session.admin.describe_quorum()
            after = session.clock.wall_ms()
            # a leader that was just elected has not heard of all voters yet
            if not silent_voters(quorum, SILENT_VOTER_MS) or session.clock.monotonic() >= deadline:
                break
            await session.clock.sleep(_POLL_S)
    except (TimeoutError, TimedOut, BrokerNotReachable, ConnectionLost):
        is_answered = False
    except BarnabasError:
        yield ok("its clock is not known: it does not describe its quorum")
    if quorum is not None:
        told = {each.node_id: each.last_fetch_timestamp_ms for each in quorum.voters}
        yield _skew("the controller", told.get(quorum.leader_id), before, after)
    for finding in quorum_findings(quorum, is_answered=is_answered):
        yield finding


async def _log_dirs(session: Session, brokers: Sequence[Broker]) -> LogDirsByBroker:
    """The log directories of the brokers that tell."""
    found: LogDirsByBroker = {}
    for broker in brokers:
        with contextlib.suppress(BarnabasError):
            found |= await session.admin.describe_log_dirs([broker.node_id])
    return found


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
            "start it if it does not run; else mend its advertised.listeners to what works from here",
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


async def _round_trip(session: Session, brokers: Sequence[Broker]) -> AsyncGenerator[Finding, None]:
    """Make a topic with a partition on every broker, write to each, read it back, delete the topic."""
    topic = f"barnabas-doctor-{session.clock.wall_ms()}"
    places = {number: [broker.node_id] for number, broker in enumerate(brokers)}
    await session.admin.create_topics(
        [NewTopic(topic, configs={"message.timestamp.type": "LogAppendTime"}, assignments=places)]
    )
    try:
        async with asyncio.timeout(session.timeout_s):
            found = await _write_and_read(session, topic, brokers)
    except TimeoutError:
        what = f"a record was not written and read back within {session.timeout_s:g} s"
        found = [problem(what, "look at the logs of the brokers")]
    finally:
        await session.admin.delete_topics([topic])
    for finding in found:
        yield finding


async def _write_and_read(session: Session, topic: str, brokers: Sequence[Broker]) -> list[Finding]:
    clock, client, text = session.clock, session.client_config, b"are you well?"
    slowest_ms, times = 0.0, []
    async with session.producer(ProducerConfig(client=client, linger_ms=0)) as producer:
        await producer.partitions_of(topic)
        for number in range(len(brokers)):
            began, before_ms = clock.monotonic(), clock.wall_ms()
            await (await producer.send(topic, text, partition=number))
            slowest_ms = max(slowest_ms, (clock.monotonic() - began) * 1000)
            times.append((before_ms, clock.wall_ms()))
    async with session.consumer(ConsumerConfig(reset=Reset.EARLIEST, client=client)) as consumer:
        consumer.assign([(topic, number) for number in range(len(brokers))])
        began = clock.monotonic()
        records: dict[int, ConsumerRecord] = {}
        while len(records) < len(brokers):
            records |= {record.partition: record for record in await consumer.poll(1000)}
        read_ms = (clock.monotonic() - began) * 1000
    if any(record.value != text for record in records.values()):
        what = "what was read back is not what was written"
        return [problem(what, "keep the broker's directory, and report it")]
    where = f"each of {counted(len(brokers), 'broker')}" if len(brokers) > 1 else "the broker"
    found = [
        ok(f"a record was written to {where} in {slowest_ms:.1f} ms or less, read back in {read_ms:.1f} ms")
    ]
    for number, broker in enumerate(brokers):
        found.append(_skew(f"broker {broker.node_id}", records[number].timestamp_ms, *times[number]))
    return found
