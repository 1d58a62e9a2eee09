"""Decided transactions, until every partition of theirs has the marker and their coordinator is told so.

What is decided while markers are being written waits for the next round, in which each partition gets all its
markers with one append; only those of the group coordinator, which may still be loading, are on their own. A
partition that cannot be written now is tried again later, for as long as it takes:
readers of committed records wait there. One that is gone needs no marker. Where a partition has heard of a
later epoch, of the producer or of the coordinator, somebody else has taken over there: the others get their
markers, but the transaction is not complete. A host that is lost sends nothing: whoever loads its shard finds
the transaction decided, and begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.connections.requests import PARTITIONS_A_TURN
from barnabas.broker.coordinators.ends import End, write_ends
from barnabas.broker.coordinators.host import Host
from barnabas.broker.replicas.replicas import UnknownTopicOrPartition
from barnabas.coordination.effects import Markers, TopicPartition
from barnabas.core.errors import (
    BarnabasError,
    InvalidProducerEpoch,
    TransactionCoordinatorFenced,
)
from barnabas.metadata.names import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from barnabas.broker.services import Services
    from barnabas.transactions.shard import TransactionShard

logger = logging.getLogger("barnabas.transactions")

RETRY_SECONDS = 0.1


class _Ending:
    """One transaction, and the partitions that do not have its marker yet."""

    __slots__ = ("end", "host", "left", "markers")

    def __init__(self, host: Host[TransactionShard], markers: Markers) -> None:
        self.host = host
        self.markers = markers
        self.end = End(markers.producer, markers.is_commit, host.epoch, markers.transaction_version)
        self.left = dict.fromkeys(markers.partitions)

    @property
    def is_over(self) -> bool:
        return self.host.lost is not None


class MarkerSender:
    """Takes decided transactions from their hosts."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._queue: dict[TopicPartition, list[_Ending]] = {}
        self._complete: list[_Ending] = []
        self._worker: asyncio.Task[None] | None = None
        self._aside: dict[asyncio.Task[None], None] = {}
        self._troubled: dict[TopicPartition, None] = {}  # partitions that could not be written

    def send(self, host: Host[TransactionShard], markers: Markers) -> None:
        """Have a transaction ended in all its partitions."""
        ending = _Ending(host, markers)
        for partition in markers.partitions:
            self._enqueue(partition, [ending])
        if not markers.partitions:
            self._complete.append(ending)
            self._begin()

    def _enqueue(self, partition: TopicPartition, endings: list[_Ending]) -> None:
        if partition.topic == CONSUMER_OFFSETS:
            task = asyncio.get_running_loop().create_task(
                self._guarded(partial(self._write, partition, endings))
            )
            self._aside[task] = None
            task.add_done_callback(self._aside.pop)
        else:
            self._queue.setdefault(partition, []).extend(endings)
            self._begin()

    def _begin(self) -> None:
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._guarded(self._work))

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - what it leaves undone would hold readers back for good
            self._services.stop(error)

    async def _work(self) -> None:
        try:
            while self._queue or self._complete:
                queue, self._queue = self._queue, {}
                for number, (partition, endings) in enumerate(queue.items(), 1):
                    await self._write(partition, endings)
                    if number % PARTITIONS_A_TURN == 0:
                        await asyncio.sleep(0)
                complete, self._complete = self._complete, []
                for ending in complete:
                    await self._tell(ending)
        finally:
            self._worker = None

    async def _write(self, partition: TopicPartition, endings: list[_Ending]) -> None:
        endings = [one for one in endings if not one.is_over]
        if not endings:
            return
        failures = await write_ends(partition, [one.end for one in endings], self._services)
        late: list[_Ending] = []
        reason: BarnabasError | None = None
        for ending, failure in zip(endings, failures, strict=True):
            if failure is None or self._is_gone(partition, failure):
                self._written(ending, partition)
            elif isinstance(failure, (InvalidProducerEpoch, TransactionCoordinatorFenced)):
                logger.warning(
                    "%s is not ended in %s-%d: %s", ending.markers.transactional_id, *partition, failure
                )
            else:
                late.append(ending)
                reason = failure
        if not late:
            self._troubled.pop(partition, None)
            return
        if (
            partition not in self._troubled
        ):  # every try fails like the first, and a full disk holds the log too
            self._troubled[partition] = None
            logger.warning("%s-%d gets its markers later: %s", *partition, reason)
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._again, partition, late)

    def _written(self, ending: _Ending, partition: TopicPartition) -> None:
        ending.left.pop(partition, None)
        if not ending.left:
            self._complete.append(ending)
            self._begin()

    def _is_gone(self, partition: TopicPartition, failure: BarnabasError) -> bool:
        if not isinstance(failure, UnknownTopicOrPartition):
            return False
        topic = self._services.image.topic(partition.topic)
        return topic is None or partition.partition not in topic.partitions

    def _again(self, partition: TopicPartition, endings: list[_Ending]) -> None:
        endings = [one for one in endings if not one.is_over]
        if endings:
            self._enqueue(partition, endings)
        else:
            self._troubled.pop(partition, None)

    async def _tell(self, ending: _Ending) -> None:
        if not ending.is_over:
            await ending.host.tell(lambda shard, now: shard.markers_written(ending.markers, now))
