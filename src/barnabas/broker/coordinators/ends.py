"""Writing the ends of transactions into a partition that this node leads.

A marker is a batch of its own. Those of several producers that come at once share one append; if it is
refused, each is tried alone, so that none suffers for another. In the partitions of the group coordinator a
marker goes through the host, whose shard must hear of it: offsets become visible, or are forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.coordinators.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from barnabas.broker.replicas.replicas import UnknownTopicOrPartition
from barnabas.broker.replicas.roles import NotLeaderOrFollower
from barnabas.coordination.effects import Producer, TopicPartition
from barnabas.core.errors import BarnabasError, StorageError
from barnabas.metadata.names import CONSUMER_OFFSETS
from barnabas.records.control import ControlType, build_end_transaction

if TYPE_CHECKING:
    from barnabas.broker.replicas.replica import Replica
    from barnabas.broker.services import Services

logger = logging.getLogger("barnabas.transactions")


class End(NamedTuple):
    """The contents of a marker."""

    producer: Producer
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


async def write_ends(
    place: TopicPartition, ends: Sequence[End], services: Services
) -> list[BarnabasError | None]:
    """Write markers of different producers; the error of each, None where it is committed.

    The sender gets only the code of an error: the log of this node has the reason, once.
    """
    failures = await _write_all(place, ends, services)
    reason = next((one for one in failures if isinstance(one, StorageError)), None)
    if reason is None:
        services.unmarked.pop(place, None)
    elif place not in services.unmarked:  # every try fails like the first, and a full disk holds the log
        services.unmarked[place] = None
        logger.warning("%s-%d takes no markers: %s", *place, reason)
    return failures


async def _write_all(
    place: TopicPartition, ends: Sequence[End], services: Services
) -> list[BarnabasError | None]:
    topic = services.image.topic(place.topic)
    if topic is None or topic.partition(place.partition) is None:
        return [UnknownTopicOrPartition(f"there is no {place.topic}-{place.partition}")] * len(ends)
    if place.topic == CONSUMER_OFFSETS:
        return [await _write_offsets(place.partition, end, services) for end in ends]
    try:
        replica = await services.replicas.leader(topic, place.partition)
    except BarnabasError as error:
        return [error] * len(ends)
    if len({end.transaction_version for end in ends}) == 1:
        failure = await _write(replica, ends, services)
        if failure is None or len(ends) == 1:
            return [failure] * len(ends)
    return [await _write(replica, [end], services) for end in ends]


async def _write(replica: Replica, ends: Sequence[End], services: Services) -> BarnabasError | None:
    now_ms = services.clock.wall_ms()
    data = bytearray().join(_marker(end, now_ms) for end in ends)
    try:
        appended = await replica.append_own(data, transaction_version=ends[0].transaction_version)
        if replica.log.high_watermark <= appended.last_offset:
            await replica.committed(appended.last_offset + 1)
    except BarnabasError as error:
        return error
    return None


async def _write_offsets(partition: int, end: End, services: Services) -> BarnabasError | None:
    try:
        host = await services.groups.host(partition)
        await host.write_marker(
            _marker(end, services.clock.wall_ms()),
            end.producer,
            is_commit=end.is_commit,
            transaction_version=end.transaction_version,
        )
    except (NotCoordinator, CoordinatorNotAvailable, CoordinatorLoadInProgress) as error:
        return NotLeaderOrFollower(str(error))  # senders of markers know errors of leaders only
    except BarnabasError as error:
        return error
    return None


def _marker(end: End, now_ms: int) -> bytearray:
    return build_end_transaction(
        ControlType.COMMIT if end.is_commit else ControlType.ABORT,
        producer_id=end.producer.id,
        producer_epoch=end.producer.epoch,
        coordinator_epoch=end.coordinator_epoch,
        timestamp=now_ms,
    )
