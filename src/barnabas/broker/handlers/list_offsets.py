"""ListOffsets: the offset of a timestamp, or a special one: the end, the start, the largest timestamp.

Special timestamps that a version does not have are refused with UNSUPPORTED_VERSION, as in Kafka: the largest
timestamp (-3) from 7, the earliest local offset (-4) from 8, the latest tiered (-5) from 9, the earliest
pending upload (-6) from 11 on; nothing is tiered here, so the last two find nothing. The response has the
leader epoch from 4 on.

A consumer is shown offsets up to the high watermark, or up to the last stable offset with read_committed
(isolation level, from 2 on). A search by timestamp that ends beyond that has found nothing yet. Replicas and
tools (replica id -2) are shown offsets up to the end of the log; a following replica also answers tools.

A newly elected leader may have an older high watermark than the one that consumers know from its predecessor.
Until it reaches the start of its epoch, consumers are not shown an end that would seem to go back: they get
OFFSET_NOT_AVAILABLE (before version 5 LEADER_NOT_AVAILABLE), and retry.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.broker.replicas.followers import DEBUGGER
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.log.partition import Bound
from barnabas.log.reading import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NOTHING,
    TimestampOffset,
    offset_for_timestamp,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.schema import NO_UUID
from barnabas.records.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.replicas.replica import Replica
    from barnabas.broker.services import Services
    from barnabas.metadata.parts import TopicImage

    _Find = Callable[[TopicImage, int, int], Awaitable[Replica]]

_FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_CONSUMER = -1
_READ_COMMITTED = 1

_OFFSET_NOT_AVAILABLE_FROM = 5

_INVALID_REQUEST = wire_error("INVALID_REQUEST").code
_UNSUPPORTED_VERSION = wire_error("UNSUPPORTED_VERSION").code
_LEADER_NOT_AVAILABLE = wire_error("LEADER_NOT_AVAILABLE").code


class OffsetNotAvailable(BarnabasError):
    """A new leader does not know yet up to where records are committed."""

    wire = wire_error("OFFSET_NOT_AVAILABLE")


async def handle(
    request: ListOffsetsRequest, context: RequestContext, services: Services
) -> ListOffsetsResponse:
    bound, replicas = _bound(request), services.replicas
    find = replicas.any_role if request.replica_id == DEBUGGER else replicas.leader
    times = Counter((topic.name, ask.partition_index) for topic in request.topics for ask in topic.partitions)
    topics = []
    for topic in request.topics:
        answers = []
        for ask in topic.partitions:
            count = times.pop((topic.name, ask.partition_index), 0)
            if count == 1:
                answers.append(await _answer(topic.name, ask, find, bound, context.api_version, services))
            elif count:  # a partition named more than once has one answer, an error
                answers.append(_failed(ask.partition_index, _INVALID_REQUEST))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def _bound(request: ListOffsetsRequest) -> Bound:
    if request.replica_id != _CONSUMER:
        return Bound.LOG_END
    return Bound.LAST_STABLE if request.isolation_level == _READ_COMMITTED else Bound.HIGH_WATERMARK


async def _answer(
    name: str, ask: ListOffsetsPartition, find: _Find, bound: Bound, version: int, services: Services
) -> ListOffsetsPartitionResponse:
    if ask.timestamp < 0 and version < _FIRST_VERSIONS.get(ask.timestamp, version + 1):
        return _failed(ask.partition_index, _UNSUPPORTED_VERSION)
    try:
        topic = services.replicas.topic(name, NO_UUID, by_id=False)
        replica = await find(topic, ask.partition_index, ask.current_leader_epoch)
        replica.check_epoch(ask.current_leader_epoch)
        found = await _find(replica, ask.timestamp, bound)
    except OffsetNotAvailable as error:
        is_known = version >= _OFFSET_NOT_AVAILABLE_FROM
        return _failed(ask.partition_index, error.wire.code if is_known else _LEADER_NOT_AVAILABLE)
    except BarnabasError as error:
        return _failed(ask.partition_index, error.wire.code)
    return ListOffsetsPartitionResponse(
        partition_index=ask.partition_index,
        error_code=0,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


async def _find(replica: Replica, timestamp_ms: int, bound: Bound) -> TimestampOffset:
    log = replica.log
    if timestamp_ms == LATEST:
        _require_known(replica, bound)
        return TimestampOffset(NO_TIMESTAMP, log.bound(bound), replica.leader_epoch)
    found = await offset_for_timestamp(log, timestamp_ms)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL) or 0 <= found.offset < log.bound(bound):
        return found
    _require_known(replica, bound)
    return NOTHING


def _require_known(replica: Replica, bound: Bound) -> None:
    """Refuse a consumer that would be shown an older end than it may know already."""
    mark, start = replica.log.high_watermark, replica.epoch_start
    if bound is not Bound.LOG_END and mark < start:
        raise OffsetNotAvailable(
            f"the high watermark {mark} of {replica.name}-{replica.partition} has not reached the start "
            f"{start} of leader epoch {replica.leader_epoch} yet"
        )


def _failed(partition: int, error_code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=error_code)
