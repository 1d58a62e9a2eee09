"""Writes the markers that end transactions into the partitions that this node leads.

A marker is a batch of its own. Markers of several producers that arrive at once share one append; if it is
refused, each is appended alone, so that none fails because of another. In the partitions of the group
coordinator a marker goes through the host, whose shard must know of it: it makes offsets visible, or drops
them.

A marker is answered when it is committed. Partitions do not wait for one another. A partition whose followers
are late is answered REQUEST_TIMED_OUT after `WAIT_SECONDS`: the sender tries again, while the markers of
other partitions go on. The next request for the same marker waits for the marker that is in the log already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.coordinators.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from barnabas.broker.replicas.replicas import UnknownTopicOrPartition
from barnabas.broker.replicas.roles import NotLeaderOrFollower
from barnabas.coordination.effects import Producer, TopicPartition
from barnabas.core.eager import begin
from barnabas.core.errors import BarnabasError, StorageError, wire_error
from barnabas.metadata.names import CONSUMER_OFFSETS
from barnabas.records.control import ControlType, build_end_transaction

if TYPE_CHECKING:
    from barnabas.broker.replicas.replica import Replica
    from barnabas.broker.services import Services

logger = logging.getLogger("barnabas.transactions")

WAIT_SECONDS = 0.5
PARTITIONS_A_TURN = 200  # before yielding to other tasks


class MarkerNotCommitted(BarnabasError):
    """A marker is in the log, and not yet on enough replicas."""

    wire = wire_error("REQUEST_TIMED_OUT")


class End(NamedTuple):
    """The contents of a marker."""

    producer: Producer
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class _Write:
    """Markers that are being written into one partition, with the error of each; None for a committed one."""

    __slots__ = ("failures", "task")

    def __init__(self) -> None:
        self.failures: dict[End, BarnabasError | None] = {}
        self.task: asyncio.Task[None] | None = None  # None if it did not have to wait


class MarkerWrites:
    """Writes markers into partitions of this node."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._under_way: dict[tuple[TopicPartition, End], _Write] = {}
        self._unmarked: dict[TopicPartition, None] = {}  # whose last write failed, and was logged

    async def write(
        self, wanted: Mapping[TopicPartition, Sequence[End]]
    ) -> dict[tuple[TopicPartition, End], BarnabasError | None]:
        """Write markers; returns the error of each, None for a committed one."""
        writes: dict[tuple[TopicPartition, End], _Write] = {}
        for number, (place, ends) in enumerate(wanted.items(), 1):
            for some in _at_once(place, ends):
                writes.update(self._begin(place, some))
            if number % PARTITIONS_A_TURN == 0:
                await asyncio.sleep(0)
        tasks = {one.task for one in writes.values() if one.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=WAIT_SECONDS)
        late = MarkerNotCommitted("the followers do not have the marker yet")
        return {key: one.failures.get(key[1], late) for key, one in writes.items()}

    def _begin(self, place: TopicPartition, ends: Sequence[End]) -> dict[tuple[TopicPartition, End], _Write]:
        known = {(place, end): self._under_way[place, end] for end in ends if (place, end) in self._under_way}
        ends = [end for end in ends if (place, end) not in known]
        if not ends:
            return known
        write = _Write()
        keys = [(place, end) for end in ends]
        write.task = begin(self._write(place, ends, write))
        if write.task is not None:
            self._under_way.update(dict.fromkeys(keys, write))
            write.task.add_done_callback(lambda task: self._ended(keys, task))
        return known | dict.fromkeys(keys, write)

    def _ended(self, keys: list[tuple[TopicPartition, End]], task: asyncio.Task[None]) -> None:
        for key in keys:
            del self._under_way[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._services.stop(error)

    async def _write(self, place: TopicPartition, ends: Sequence[End], write: _Write) -> None:
        failures = await _write_all(place, ends, self._services)
        write.failures.update(zip(ends, failures, strict=True))
        reason = next((one for one in failures if isinstance(one, StorageError)), None)
        if reason is None:
            self._unmarked.pop(place, None)
        elif place not in self._unmarked:  # every retry fails alike: log the first one only
            self._unmarked[place] = None
            logger.warning("%s-%d takes no markers: %s", *place, reason)

    def close(self) -> None:
        """Stop waiting for followers."""
        for one in list(self._under_way.values()):
            assert one.task is not None
            one.task.cancel()


def _at_once(place: TopicPartition, ends: Sequence[End]) -> list[Sequence[End]]:
    """Groups of ends that may share an append: of different producers, and not in a group coordinator's
    partition."""
    if place.topic != CONSUMER_OFFSETS and len({end.producer.id for end in ends}) == len(ends):
        return [ends]
    return [[end] for end in ends]


async def _write_all(
    place: TopicPartition, ends: Sequence[End], services: Services
) -> list[BarnabasError | None]:
    topic = services.image.topic(place.topic)
    if topic is None or topic.partition(place.partition) is None:
        return [UnknownTopicOrPartition(f"there is no {place.topic}-{place.partition}")] * len(ends)
    if place.topic == CONSUMER_OFFSETS:
        (end,) = ends
        return [await _write_offsets(place.partition, end, services)]
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
        return NotLeaderOrFollower(str(error))  # senders of markers handle a leader's errors only
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
