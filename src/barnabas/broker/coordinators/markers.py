"""Sends the markers of decided transactions, and tells the coordinator when every partition has its marker.

Markers go to the brokers that lead the partitions, this one included, in WriteTxnMarkers requests: one at a
time to each broker. Transactions that are decided meanwhile wait for the next request, which gives each
partition all its markers with one append. Markers for `__consumer_offsets` get a request of their own, since
the group coordinator may still be loading.

A partition that cannot be written now is tried again later, with the leader that it has then, for as long as
it takes: readers of committed records wait there. A deleted partition needs no marker. Where a partition has
seen a later epoch of the producer or of the coordinator, another coordinator has taken over: the other
partitions get their markers, but the transaction is not completed here. A host that is lost sends nothing
more; the host that loads its shard finds the transaction decided, and sends all markers again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.host import Host
from barnabas.coordination.effects import Markers, TopicPartition
from barnabas.core.errors import WIRE_ERRORS, BarnabasError, wire_error
from barnabas.metadata.names import CONSUMER_OFFSETS
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.services import Services
    from barnabas.transactions.shard import TransactionShard

logger = logging.getLogger("barnabas.transactions")

RETRY_SECONDS = 0.1

_UNKNOWN_PARTITION = wire_error("UNKNOWN_TOPIC_OR_PARTITION").code
_NO_ANSWER = wire_error("NETWORK_EXCEPTION").code
_TAKEN_OVER = (
    wire_error("INVALID_PRODUCER_EPOCH").code,
    wire_error("TRANSACTION_COORDINATOR_FENCED").code,
)

# the error of a marker, by producer id, topic and partition
_Codes = dict[tuple[int, str, int], int]


class _Ending:
    """One transaction, and the partitions that do not have its marker yet."""

    __slots__ = ("host", "left", "markers")

    def __init__(self, host: Host[TransactionShard], markers: Markers) -> None:
        self.host = host
        self.markers = markers
        self.left = dict.fromkeys(markers.partitions)

    @property
    def is_over(self) -> bool:
        return self.host.lost is not None


_Queue = dict[TopicPartition, list[_Ending]]


class MarkerSender:
    """Takes decided transactions from their hosts."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._queues: dict[int, _Queue] = {}  # by the broker that leads the partitions
        self._complete: list[_Ending] = []
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._aside: dict[asyncio.Task[None], None] = {}
        self._troubled: dict[TopicPartition, None] = {}  # partitions that could not be written

    def send(self, host: Host[TransactionShard], markers: Markers) -> None:
        """Have a transaction ended in all its partitions."""
        ending = _Ending(host, markers)
        for partition in markers.partitions:
            self._enqueue(partition, [ending])
        if not markers.partitions:
            self._complete.append(ending)
            self._begin(self._services.node_id)

    def _enqueue(self, partition: TopicPartition, endings: list[_Ending]) -> None:
        leader = self._services.peers.leader_of(partition)
        if partition.topic == CONSUMER_OFFSETS:
            task = asyncio.get_running_loop().create_task(
                self._guarded(partial(self._write, leader, {partition: endings}))
            )
            self._aside[task] = None
            task.add_done_callback(self._aside.pop)
        else:
            self._queues.setdefault(leader, {}).setdefault(partition, []).extend(endings)
            self._begin(leader)

    def _begin(self, node_id: int) -> None:
        if node_id not in self._workers:
            work = self._guarded(partial(self._work, node_id))
            self._workers[node_id] = asyncio.get_running_loop().create_task(work)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - a marker that is not sent holds readers back for good
            self._services.stop(error)

    async def _work(self, node_id: int) -> None:
        try:
            while node_id in self._queues or self._complete:
                await self._write(node_id, self._queues.pop(node_id, {}))
                complete, self._complete = self._complete, []
                for ending in complete:
                    await self._tell(ending)
        finally:
            del self._workers[node_id]

    async def _write(self, node_id: int, queue: _Queue) -> None:
        wanted = {place: [one for one in endings if not one.is_over] for place, endings in queue.items()}
        wanted = {place: endings for place, endings in wanted.items() if endings}
        if not wanted:
            return
        codes: _Codes = {}
        told: str | None = None  # why there is no answer
        try:
            response = await self._services.peers.send(node_id, _request(wanted), WriteTxnMarkersResponse)
            codes = _codes(response)
        except BarnabasError as error:
            told = str(error)
        for partition, endings in wanted.items():
            self._settle(partition, endings, codes, told)

    def _settle(
        self, partition: TopicPartition, endings: list[_Ending], codes: _Codes, told: str | None
    ) -> None:
        """Complete, drop or retry the endings of a partition, by the answer of its leader."""
        late: list[_Ending] = []
        for ending in endings:
            code = codes.get((ending.markers.producer.id, *partition), _NO_ANSWER)
            if code == 0 or (code == _UNKNOWN_PARTITION and self._is_gone(partition)):
                self._written(ending, partition)
            elif code in _TAKEN_OVER:
                name, refusal = ending.markers.transactional_id, WIRE_ERRORS[code].name
                logger.warning("%s is not ended in %s-%d: %s", name, *partition, refusal)
            else:
                late.append(ending)
                reason = told or (WIRE_ERRORS[code].name if code in WIRE_ERRORS else f"error {code}")
        if not late:
            self._troubled.pop(partition, None)
            return
        if partition not in self._troubled:  # every try fails like the first, and a full disk holds the log
            self._troubled[partition] = None
            logger.warning("%s-%d gets its markers later: %s", *partition, reason)
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._again, partition, late)

    def _written(self, ending: _Ending, partition: TopicPartition) -> None:
        ending.left.pop(partition, None)
        if not ending.left:
            self._complete.append(ending)
            self._begin(self._services.node_id)

    def _is_gone(self, partition: TopicPartition) -> bool:
        topic = self._services.image.topic(partition.topic)
        return topic is None or topic.partition(partition.partition) is None

    def _again(self, partition: TopicPartition, endings: list[_Ending]) -> None:
        endings = [one for one in endings if not one.is_over]
        if endings:
            self._enqueue(partition, endings)
        else:
            self._troubled.pop(partition, None)

    async def _tell(self, ending: _Ending) -> None:
        if not ending.is_over:
            await ending.host.tell(lambda shard, now: shard.markers_written(ending.markers, now))


def _request(queue: _Queue) -> WriteTxnMarkersRequest:
    """The markers of each transaction for these partitions; a producer has at most one decided."""
    by_ending: dict[_Ending, dict[str, list[int]]] = {}
    for place, endings in queue.items():
        for ending in endings:
            by_ending.setdefault(ending, {}).setdefault(place.topic, []).append(place.partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=ending.markers.producer.id,
                producer_epoch=ending.markers.producer.epoch,
                transaction_result=ending.markers.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=some) for name, some in topics.items()
                ],
                coordinator_epoch=ending.host.epoch,
                transaction_version=ending.markers.transaction_version,
            )
            for ending, topics in by_ending.items()
        ]
    )


def _codes(response: WriteTxnMarkersResponse) -> _Codes:
    return {
        (marker.producer_id, topic.name, one.partition_index): one.error_code
        for marker in response.markers
        for topic in marker.topics
        for one in topic.partitions
    }
