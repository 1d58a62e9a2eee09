"""Sends the markers of decided transactions, and tells the coordinator when every partition has its marker.

Markers go to the brokers that lead the partitions, this one included, in WriteTxnMarkers requests. Each
broker has separate lanes, which do not wait for one another:

    PLAIN       most partitions
    OFFSETS     __consumer_offsets: the group coordinator may still be loading
    TROUBLED    partitions whose last write failed

A lane has one request in flight. Transactions that are decided meanwhile wait for the next one, which sends
each partition all its markers for one append. While a request takes longer than `PATIENCE_SECONDS`, up to
`MAX_REQUESTS` are in flight. A partition is in one request at a time.

A partition that cannot be written is retried later, with its leader at that time, for as long as it takes,
since read_committed consumers wait there. When the metadata names another leader the markers go there at
once, even if the old leader has not answered yet. A deleted partition needs no marker. If a partition has
seen a later epoch of the producer or of the coordinator, another coordinator has taken over: the other
partitions get their markers, but the transaction is not completed here. A lost host sends nothing more; the
host that loads its shard finds the transaction decided, and sends all markers again. Writing a marker twice
does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.coordinators.host import Host
from barnabas.coordination.effects import Markers, TopicPartition
from barnabas.core.eager import begin
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
    from barnabas.metadata.parts import TopicImage
    from barnabas.transactions.shard import TransactionShard

logger = logging.getLogger("barnabas.transactions")

RETRY_SECONDS = 0.1
PATIENCE_SECONDS = 0.05
MAX_REQUESTS = 3  # of a lane, in flight

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


class _Kind(IntEnum):
    PLAIN = 0
    OFFSETS = 1
    TROUBLED = 2


class _Lane(NamedTuple):
    """A queue of requests to a broker."""

    node_id: int
    kind: _Kind


class _Request:
    """A request in flight, and the partitions for which its response counts."""

    __slots__ = ("node_id", "places")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.places: dict[TopicPartition, list[_Ending]] = {}


class MarkerSender:
    """Sends the markers of decided transactions."""

    def __init__(self, services: Services) -> None:
        self._services = services
        # each marker of a partition is either not sent yet or in one request
        self._waiting: dict[TopicPartition, list[_Ending]] = {}
        self._sent: dict[TopicPartition, _Request] = {}
        self._queues: dict[_Lane, dict[TopicPartition, None]] = {}
        self._workers: dict[_Lane, set[int]] = {}  # the numbers of the requests in flight
        self._helpers: dict[_Lane, asyncio.TimerHandle] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._retries: dict[TopicPartition, asyncio.TimerHandle] = {}
        self._troubled: dict[TopicPartition, None] = {}  # partitions whose last write failed
        services.replicas.on_changed.append(self._topic_changed)
        services.replicas.on_removed.append(self._topic_changed)

    def send(self, host: Host[TransactionShard], markers: Markers) -> None:
        """End a transaction in all its partitions."""
        ending = _Ending(host, markers)
        for place in markers.partitions:
            self._waiting.setdefault(place, []).append(ending)
            self._schedule(place)
        if not markers.partitions:
            self._complete(ending)

    # ---- requests

    def _schedule(self, place: TopicPartition) -> None:
        """Send the markers of a partition to its leader, if there is one."""
        if place in self._sent:
            return  # these markers are sent after the response
        if (retry := self._retries.pop(place, None)) is not None:
            retry.cancel()
        if self._is_gone(place):
            for ending in self._waiting.pop(place, ()):
                self._written(ending, place)
            return
        leader = self._services.peers.known_leader_of(place)
        if leader is None:
            self._retry(place)
            return
        lane = _Lane(leader, self._kind_of(place))
        self._queues.setdefault(lane, {})[place] = None
        workers = self._workers.setdefault(lane, set())
        if not workers:
            self._begin(lane, 0)
        elif len(workers) < MAX_REQUESTS and lane not in self._helpers:
            later = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._help, lane)
            self._helpers[lane] = later

    def _kind_of(self, place: TopicPartition) -> _Kind:
        if place in self._troubled:
            return _Kind.TROUBLED
        return _Kind.OFFSETS if place.topic == CONSUMER_OFFSETS else _Kind.PLAIN

    def _begin(self, lane: _Lane, number: int) -> None:
        self._workers[lane].add(number)
        self._run(self._work(lane, number))

    def _help(self, lane: _Lane) -> None:
        """A request takes long and others wait for it: send them in another request."""
        del self._helpers[lane]
        workers = self._workers[lane]
        if lane in self._queues and len(workers) < MAX_REQUESTS:
            self._begin(lane, next(each for each in range(MAX_REQUESTS) if each not in workers))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._services.stop(error)  # without its marker, a partition blocks its readers for good

    async def _work(self, lane: _Lane, number: int) -> None:
        try:
            while (queue := self._queues.pop(lane, None)) is not None:
                request = self._take(lane, queue)
                if request.places:
                    await self._send(request, lane.kind * MAX_REQUESTS + number)
        finally:
            self._workers[lane].discard(number)

    def _take(self, lane: _Lane, queue: dict[TopicPartition, None]) -> _Request:
        """The request for these partitions, without those that have another leader now."""
        request = _Request(lane.node_id)
        for place in queue:
            if place in self._sent:
                continue
            if self._services.peers.known_leader_of(place) != lane.node_id:
                self._schedule(place)
                continue
            endings = [one for one in self._waiting.pop(place, ()) if not one.is_over]
            if endings:
                request.places[place] = endings
                self._sent[place] = request
            else:
                self._troubled.pop(place, None)
        return request

    # ---- responses

    async def _send(self, request: _Request, way: int) -> None:
        codes: _Codes = {}
        told: str | None = None  # why there is no response
        try:
            response = await self._services.peers.send(
                request.node_id, _message(request.places), WriteTxnMarkersResponse, way=way
            )
            codes = _codes(response)
        except BarnabasError as error:
            told = str(error)
        for place, endings in request.places.items():  # without partitions that have another leader since
            del self._sent[place]
            self._settle(place, endings, codes, told)

    def _settle(self, place: TopicPartition, endings: list[_Ending], codes: _Codes, told: str | None) -> None:
        """Complete, drop or retry the endings of a partition, by its leader's answer."""
        late: list[_Ending] = []
        for ending in endings:
            code = codes.get((ending.markers.producer.id, *place), _NO_ANSWER)
            if code == 0 or (code == _UNKNOWN_PARTITION and self._is_gone(place)):
                self._written(ending, place)
            elif code in _TAKEN_OVER:
                name, refusal = ending.markers.transactional_id, WIRE_ERRORS[code].name
                logger.warning("%s is not ended in %s-%d: %s", name, *place, refusal)
            else:
                late.append(ending)
                reason = told or (WIRE_ERRORS[code].name if code in WIRE_ERRORS else f"error {code}")
        if not late:
            self._troubled.pop(place, None)
            if place in self._waiting:
                self._schedule(place)
            return
        if place not in self._troubled:  # every retry fails alike: log the first one only
            self._troubled[place] = None
            logger.warning("%s-%d gets its markers later: %s", *place, reason)
        self._waiting[place] = late + self._waiting.get(place, [])
        self._retry(place)

    def _written(self, ending: _Ending, place: TopicPartition) -> None:
        ending.left.pop(place, None)
        if not ending.left:
            self._complete(ending)

    def _complete(self, ending: _Ending) -> None:
        if not ending.is_over:
            task = begin(ending.host.tell(lambda shard, now: shard.markers_written(ending.markers, now)))
            if task is not None:
                self._tasks[task] = None
                task.add_done_callback(self._ended)

    # ---- retries and leaders

    def _is_gone(self, place: TopicPartition) -> bool:
        """Whether a partition was deleted. It existed for the coordinator that added it, and a later
        coordinator's image is at least as new."""
        topic = self._services.image.topic(place.topic)
        return topic is None or topic.partition(place.partition) is None

    def _retry(self, place: TopicPartition) -> None:
        if place not in self._retries:
            later = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._again, place)
            self._retries[place] = later

    def _again(self, place: TopicPartition) -> None:
        del self._retries[place]
        endings = [one for one in self._waiting.pop(place, ()) if not one.is_over]
        if endings:
            self._waiting[place] = endings
            self._schedule(place)
        else:
            self._troubled.pop(place, None)

    def _topic_changed(self, topic: TopicImage) -> None:
        """The leaders of partitions may have changed: send markers to new leaders without waiting for the old
        ones."""
        if not self._sent and not self._waiting:
            return
        for place, request in list(self._sent.items()):
            if place.topic == topic.name and self._services.peers.known_leader_of(place) != request.node_id:
                del self._sent[place]
                self._waiting[place] = request.places.pop(place) + self._waiting.get(place, [])
        for place in [one for one in self._waiting if one.topic == topic.name]:
            self._schedule(place)


def _message(places: dict[TopicPartition, list[_Ending]]) -> WriteTxnMarkersRequest:
    """The markers of each transaction for these partitions; a producer has at most one decided
    transaction."""
    by_ending: dict[_Ending, dict[str, list[int]]] = {}
    for place, endings in places.items():
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
