"""Fetch: batches from an offset on, as ranges of files; waits if there are too few bytes.

Sessions (KIP-227) from version 7, truncation by epoch from 12, topics by id from 13 on. The first batch is
sent even if it is larger than every limit, so that a reader always makes progress; batches are never split.

A fetch waits only while fewer than min_bytes can be read; bytes beyond the response's limits count. It is
answered when enough bytes have arrived in its partitions, at an error, or after max_wait_ms. For a
read_committed consumer, bytes of open transactions do not count.

A follower reads to the end of the log and waits for it to move, not for the high watermark. Its fetch offset
tells the leader, before the read, which records it has: so the response has the high watermark that follows
from that. This is recorded once for a request, however often it reads again. It is not recorded if the
histories diverge, since the follower is going to truncate, nor for a broker epoch that has been replaced
(KAFKA-15221).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.cluster.leader_hints import point_to_leaders
from barnabas.broker.connections.requests import PARTITIONS_A_TURN, RequestContext
from barnabas.broker.replicas.followers import DEBUGGER
from barnabas.broker.replicas.purgatory import LongPoll
from barnabas.broker.replicas.replicas import UnknownTopicId
from barnabas.broker.replicas.roles import NotLeaderOrFollower
from barnabas.core.disk import FileRange
from barnabas.core.errors import BarnabasError, OffsetOutOfRange
from barnabas.log.partition import Bound
from barnabas.log.reading import UNKNOWN_OFFSET, end_offset_for_epoch, read, read_on, unread
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.records.batch import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from barnabas.broker.replicas.fetch_sessions import FetchContext, Want
    from barnabas.broker.replicas.replica import Replica
    from barnabas.broker.replicas.replicas import Replicas
    from barnabas.broker.services import Services
    from barnabas.broker.traffic import TopicTraffic
    from barnabas.metadata.parts import TopicImage

_TOPIC_IDS_FROM = 13


class _Terms(NamedTuple):
    """Values for every partition of a request."""

    by_id: bool
    bound: Bound
    max_bytes: int
    follower_id: int  # negative for a client, DEBUGGER for a tool
    broker_epoch: int  # of the follower; -1 if it sends none
    known_epoch: int  # of its broker in the metadata; -1 if that is missing or fenced


class _Found(NamedTuple):
    """The result of a read: by partition, how many bytes can be read in total (the responses may have fewer),
    and whether the request must not wait."""

    results: list[PartitionData]
    replicas: list[Replica | None]  # None for those with an error or a diverging epoch
    sent: list[tuple[TopicTraffic, int]]  # the bytes of partitions with records
    readable_bytes: int
    is_final: bool
    ends: list[int] | None  # the log end offsets of `replicas`, for readers up to the log end


async def handle(request: FetchRequest, context: RequestContext, services: Services) -> FetchResponse:
    try:
        session = services.sessions.begin(request, context.api_version, services.replicas.name_of)
    except BarnabasError as error:
        if services.traffic is not None:
            services.traffic.failed("Fetch", context.api_version, [error.wire.code])
        return FetchResponse(throttle_time_ms=0, error_code=error.wire.code, session_id=0, responses=[])
    terms = _terms(request, context, services)
    if terms.follower_id >= 0:
        session.asked(services.clock.monotonic(), (terms.broker_epoch, terms.known_epoch))
    found = await _fetch(request, terms, session, services)
    response = session.respond(found.results)
    session.answered(found.replicas)
    if terms.follower_id >= 0:
        services.replicas.replication.bytes_out += sum(size_bytes for _, size_bytes in found.sent)
    else:
        for traffic, size_bytes in found.sent:
            traffic.bytes_out += size_bytes
    failed = (
        (topic.topic, topic.topic_id, one.partition_index, one)
        for topic in response.responses
        for one in topic.partitions
        if one.error_code
    )
    response.node_endpoints = point_to_leaders("Fetch", failed, context, services)
    return response


def _terms(request: FetchRequest, context: RequestContext, services: Services) -> _Terms:
    state = request.replica_state
    replica_id = request.replica_id if state is None else state.replica_id
    bound = Bound.LAST_STABLE if request.isolation_level == 1 else Bound.HIGH_WATERMARK
    return _Terms(
        context.api_version >= _TOPIC_IDS_FROM,
        Bound.LOG_END if replica_id >= 0 or replica_id == DEBUGGER else bound,
        min(request.max_bytes, services.fetch_max_bytes),
        replica_id,
        -1 if state is None else state.replica_epoch,
        _known_epoch(replica_id, services),
    )


def _known_epoch(node_id: int, services: Services) -> int:
    broker = services.image.brokers.get(node_id) if node_id >= 0 else None
    return -1 if broker is None or broker.fenced else broker.epoch


async def _fetch(request: FetchRequest, terms: _Terms, session: FetchContext, services: Services) -> _Found:
    """Read until there are enough bytes, an error, or the time is over."""
    clock, min_bytes = services.clock, min(request.min_bytes, terms.max_bytes)
    left_seconds = request.max_wait_ms / 1000 if session.asks_for_something else 0
    is_first = True
    while True:
        found = await _read_partitions(session.look(), terms, services, is_first=is_first)
        is_first = False
        if any(isinstance(one.records, FileRange) and one.records.file.is_gone for one in found.results):
            # Partitions are read one after another. Meanwhile a topic that was read first was deleted, or its
            # segment was compacted and removed.
            continue
        if found.readable_bytes >= min_bytes or left_seconds <= 0 or found.is_final:
            return found
        poll = _poll(found, min_bytes, terms.bound)
        if session.has_more:
            poll.look_again()
        began = clock.monotonic()
        with session.waiting(poll):
            has_news = await poll.wait(left_seconds)
        if not has_news and not found.readable_bytes:
            return found
        # Even without news it is read again: data found before the wait may have been removed since.
        left_seconds = left_seconds - (clock.monotonic() - began) if poll.looks_again else 0


def _poll(found: _Found, min_bytes: int, bound: Bound) -> LongPoll:
    """A wait for the missing bytes.

    Readers up to the log end wait for that, others for the high watermark. For a read_committed consumer
    bytes count only when their transactions are decided. In a partition without open transactions, at most
    the new bytes become readable. In others the end of a transaction may be enough.
    """
    poll = LongPoll(min_bytes - found.readable_bytes)
    replicas = [each for each in found.replicas if each is not None]  # after an error nothing waits
    if found.ends is not None:
        for replica, end_offset in zip(replicas, found.ends, strict=True):
            poll.watch_end(replica.marks)
            if replica.log.end_offset > end_offset:
                poll.look_again()
        return poll
    for replica, result in zip(replicas, found.results, strict=True):
        is_undecided = bound is Bound.LAST_STABLE and result.last_stable_offset < result.high_watermark
        if is_undecided:
            poll.watch_stable(replica.marks, result.last_stable_offset)
        else:
            poll.watch(replica.marks)
        if _has_moved(replica, result, is_undecided=is_undecided):
            poll.look_again()
    return poll


def _has_moved(replica: Replica, result: PartitionData, *, is_undecided: bool) -> bool:
    """Whether a partition has moved since it was read, while others were read: no mark would wake the
    poll."""
    if is_undecided:
        return replica.log.last_stable_offset > result.last_stable_offset
    return replica.log.high_watermark > result.high_watermark


async def _read_partitions(wants: list[Want], terms: _Terms, services: Services, *, is_first: bool) -> _Found:
    """Read all partitions; `is_first` for the first read of a request."""
    results: list[PartitionData] = []
    replicas: list[Replica | None] = []
    sent: list[tuple[TopicTraffic, int]] = []
    ends: list[int] | None = [] if terms.bound is Bound.LOG_END else None
    left, found_bytes, readable_bytes, is_final = terms.max_bytes, 0, 0, False
    for number, want in enumerate(wants, 1):
        if number % PARTITIONS_A_TURN == 0:
            await asyncio.sleep(0)
        ask = want.ask
        replica = None
        try:
            topic = _topic(want, services.replicas, by_id=terms.by_id)
            replica = services.replicas.opened(topic, ask.partition)
            if replica is None:
                known_epoch = max(ask.current_leader_epoch, NO_LEADER_EPOCH)
                of = services.replicas
                find = of.any_role if terms.follower_id == DEBUGGER else of.leader
                replica = await find(topic, ask.partition, known_epoch)
            replica.traffic.fetches += is_first
            _check(replica, ask, terms)
            diverging = None if ask.last_fetched_epoch < 0 else _divergence(replica, ask)
            if diverging is not None:
                data, readable, is_final = diverging, 0, True
            else:
                if is_first and terms.follower_id >= 0:
                    _note_follower(replica, ask, terms)
                data, readable = await _read_partition(replica, ask, terms, left, is_empty=not found_bytes)
        except BarnabasError as error:
            is_final = True
            results.append(_failed(ask.partition, error))
            replicas.append(None)
            if replica is not None:
                replica.traffic.refused_fetch(error)
            continue
        replicas.append(replica if diverging is None else None)
        results.append(data)
        if ends is not None:
            ends.append(replica.log.end_offset)
        readable_bytes += readable
        records = data.records
        if records:
            size = records.size  # type: ignore[union-attr]
            found_bytes += size
            left -= size
            sent.append((replica.traffic, size))
    return _Found(results, replicas, sent, readable_bytes, is_final, ends)


def _topic(want: Want, replicas: Replicas, *, by_id: bool) -> TopicImage:
    try:
        return replicas.topic(want.topic, want.topic_id, by_id=by_id)
    except UnknownTopicId:
        if not want.name_of_id:
            raise
        raise replicas.gone(want.name_of_id, want.topic_id, want.ask.partition) from None


def _check(replica: Replica, ask: FetchPartition, terms: _Terms) -> None:
    """Refuse a reader with another leader epoch, and a node that does not follow this leader."""
    if ask.current_leader_epoch >= 0:  # as in Kafka, a negative epoch means that the client knows none
        replica.check_epoch(ask.current_leader_epoch)
    if terms.follower_id >= 0:
        replica.require_follower(terms.follower_id, ask.current_leader_epoch)
        if -1 < terms.broker_epoch < terms.known_epoch:
            raise NotLeaderOrFollower(
                f"node {terms.follower_id} was started anew: its epoch {terms.broker_epoch} is over"
            )


def _note_follower(replica: Replica, ask: FetchPartition, terms: _Terms) -> None:
    log = replica.log
    if log.start_offset <= ask.fetch_offset <= log.end_offset:
        replica.follower_fetched(
            terms.follower_id,
            ask.fetch_offset,
            start_offset=ask.log_start_offset,
            broker_epoch=terms.broker_epoch,
        )


async def _read_partition(
    replica: Replica, ask: FetchPartition, terms: _Terms, left: int, *, is_empty: bool
) -> tuple[PartitionData, int]:
    """The response of one partition, and how many bytes can be read; `is_empty` if the response has no
    records yet."""
    max_bytes = min(ask.partition_max_bytes, left)
    log, limit, offset = replica.log, max(max_bytes, 0), ask.fetch_offset
    if limit or is_empty or log.ended is not None or not log.start_offset <= offset <= log.end_offset:
        fetched = read_on(log, offset, limit, terms.bound) or await read(log, offset, limit, terms.bound)
    else:
        fetched = unread(log, terms.bound)  # other partitions used up the limit: nothing needs to be read
    found = fetched.range
    if found is not None and found.size > max_bytes and not is_empty:
        found = None  # a batch beyond the limit is sent only to a reader that gets nothing else
    aborted = fetched.aborted
    data = PartitionData(
        partition_index=ask.partition,
        error_code=0,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.start_offset,
        aborted_transactions=None
        if aborted is None
        else [
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in aborted
        ],
        records=b"" if found is None else found,
    )
    return data, fetched.readable_bytes


def _divergence(replica: Replica, ask: FetchPartition) -> PartitionData | None:
    """The point where the reader's history diverges from this leader's (KIP-595), which the reader must learn
    first."""
    epoch, end_offset = end_offset_for_epoch(replica.log, ask.last_fetched_epoch)
    if end_offset == UNKNOWN_OFFSET:
        raise OffsetOutOfRange(
            f"epoch {ask.last_fetched_epoch} is not known in {replica.name}-{replica.partition} any more"
        )
    log = replica.log
    if ask.fetch_offset < log.start_offset:
        raise OffsetOutOfRange(
            f"offset {ask.fetch_offset} of {replica.name}-{replica.partition} is before {log.start_offset}"
        )
    if epoch == ask.last_fetched_epoch and end_offset >= ask.fetch_offset:
        return None
    return PartitionData(
        partition_index=ask.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
        aborted_transactions=None,
        records=b"",
    )


def _failed(partition: int, error: BarnabasError) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=error.wire.code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )
