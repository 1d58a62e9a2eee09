"""Collects records into batches by partition, and tracks each batch to its outcome. Pure: no clock, no I/O.

A lane holds a partition's batches in the order of their records, until they are settled. The next batch to
send is always the first one that is not in flight, so a retried batch goes before all later ones; at most
`max_in_flight` batches of a lane are in flight. With sequence numbers (see sequences) that keeps the order
across retries; without them it does so if `max_in_flight` is 1.

A batch is ready when it is full, its linger time is over, its retry time has come, or when everything is to
be sent at once (flush, close, no memory left).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.client.batches import Batch, Receipt, State, Waiter
from barnabas.client.metadata import TopicPartition
from barnabas.client.sequences import ProducerIdentity, Refused, Sequence
from barnabas.records.columnar import MAX_BATCH_BYTES
from barnabas.records.compression import Codec
from barnabas.records.record import Headers


class AccumulatorConfig(NamedTuple):
    """See ProducerConfig."""

    batch_bytes: int = 16384
    linger_s: float = 0.005
    codec: int = Codec.NONE
    max_in_flight: int = 5
    delivery_timeout_s: float = 120.0
    buffer_bytes: int = 32 * 1024 * 1024
    is_idempotent: bool = True
    is_transactional: bool = False


class Lane:
    """The batches of one partition that are not settled, oldest first."""

    __slots__ = ("batches", "in_flight", "partition", "sequence")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[Batch] = deque()
        self.in_flight = 0
        self.sequence = Sequence()

    def next(self) -> Batch | None:
        """The first batch that is not in flight; in a broken sequence, only one that has a number."""
        needs_number = self.sequence.is_broken
        for batch in self.batches:
            if batch.state is not State.IN_FLIGHT and (batch.number is not None or not needs_number):
                return batch
        return None


class Accumulator:
    """All lanes of a producer."""

    def __init__(
        self,
        config: AccumulatorConfig,
        on_settled: Callable[[Batch], None],
        on_split: Callable[[Batch], None],
    ) -> None:
        self.config = config
        self.on_split = on_split
        self.used_bytes = 0
        self.hurries = 0  # how many callers want everything to be sent at once
        self.created_batches = 0
        self._on_settled = on_settled
        self._lanes: dict[TopicPartition, Lane] = {}
        self._busy: dict[TopicPartition, Lane] = {}  # the lanes with batches
        self._identity: ProducerIdentity | None = None
        self._abandoned: Exception | None = None  # the error with which new and retried batches fail
        self._batch_limits: dict[str, int] = {}

    @property
    def needs_identity(self) -> bool:
        """Whether a producer id is needed before anything more can be sent."""
        is_own = self.config.is_idempotent and not self.config.is_transactional
        return is_own and self._identity is None

    @property
    def is_empty(self) -> bool:
        return not self._busy

    def open_batches(self) -> list[Batch]:
        """Every batch that is not settled."""
        return [batch for lane in self._busy.values() for batch in lane.batches]

    # ---- in ----------------------------------------------------------------------------------------------

    def has_room(self, size_bytes: int) -> bool:
        """Whether a record of at most that size may be added now; a single record always may."""
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self.config.buffer_bytes

    def append(
        self,
        partition: TopicPartition,
        now: float,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        waiter: Waiter,
        size_limit: int,
    ) -> bool:
        """Add a record that takes at most `size_limit` bytes; returns whether the sender should check for
        work."""
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = Lane(partition)
        batches = lane.batches
        batch = batches[-1] if batches and batches[-1].state is State.FILLING else None
        if batch is not None and batch.size_bytes + size_limit > self.config.batch_bytes:
            self._seal(batch)
            batch = None
        is_news = batch is None
        if batch is None:
            batch = Batch(
                partition,
                self.created_batches,
                now,
                self.config.codec,
                is_transactional=self.config.is_transactional,
            )
        before = 0 if is_news else batch.size_bytes
        batch.append(timestamp_ms, key, value, headers, waiter)  # first: an invalid record leaves no batch
        if is_news:
            self.created_batches += 1
            batches.append(batch)
            self._busy[partition] = lane
        self.used_bytes += batch.size_bytes - before
        return is_news or batch.size_bytes >= self.config.batch_bytes

    def append_rows(
        self, partition: TopicPartition, now: float, data: bytearray, record_count: int, receipt: Receipt
    ) -> None:
        """Add a batch that is already encoded, behind all others of its lane."""
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = Lane(partition)
        if lane.batches:
            self._seal(lane.batches[-1])
        lane.batches.append(Batch.of_rows(partition, self.created_batches, now, data, record_count, receipt))
        receipt.expect(record_count)
        self.created_batches += 1
        self.used_bytes += len(data)
        self._busy[partition] = lane

    def _seal(self, batch: Batch) -> None:
        before = batch.size_bytes
        batch.seal()
        self.used_bytes += batch.size_bytes - before

    # ---- sending -----------------------------------------------------------------------------------------

    def identify(self, identity: ProducerIdentity) -> None:
        """Number batches with this producer id from now on, in lanes that have none."""
        self._identity = identity

    def restart(self, identity: ProducerIdentity) -> None:
        """Number all lanes from 0 on with this identity; they are empty, and the epoch is new."""
        assert self.is_empty
        self._lanes.clear()
        self._identity = identity

    def abandon(self, error: Exception) -> None:
        """Send nothing more, and retry nothing: batches in flight are settled by their response, the others
        fail now."""
        self._abandoned = error
        for batch in self.open_batches():
            if batch.state is not State.IN_FLIGHT:
                self._seal(batch)
                self.give_up(batch, error)

    def resume(self) -> None:
        """Accept records again."""
        self._abandoned = None

    def drain(self, now: float, may_send: Callable[[TopicPartition], bool], max_bytes: int) -> list[Batch]:
        """Batches for one request, at most one of each lane, which are now in flight; `may_send` selects the
        partitions."""
        drained: list[Batch] = []
        size = 0
        for partition, lane in self._busy.items():
            batch = self._next_ready(lane, now)
            if batch is None or not may_send(partition) or not self._may_number(lane, batch):
                continue
            self._seal(batch)
            if drained and size + batch.size_bytes > max_bytes:
                continue
            self._take_off(lane, batch)
            drained.append(batch)
            size += batch.size_bytes
        if drained:  # the next request begins with other partitions
            for batch in drained:
                self._busy[batch.partition] = self._busy.pop(batch.partition)
        return drained

    def ready(self, now: float) -> Iterator[TopicPartition]:
        """The partitions that have a batch to send."""
        for partition, lane in self._busy.items():
            batch = self._next_ready(lane, now)
            if batch is not None and self._may_number(lane, batch):
                yield partition

    def next_time(self, now: float) -> float | None:
        """The next time at which a batch becomes ready or expires by itself."""
        earliest: float | None = None
        for lane in self._busy.values():
            time = lane.batches[0].created + self.config.delivery_timeout_s
            batch = lane.next()
            if batch is not None and lane.in_flight < self.config.max_in_flight:
                ready_at = batch.not_before if batch.attempts else batch.created + self.config.linger_s
                if ready_at > now:
                    time = min(time, ready_at)
            if earliest is None or time < earliest:
                earliest = time
        return earliest

    def _next_ready(self, lane: Lane, now: float) -> Batch | None:
        if lane.in_flight >= self.config.max_in_flight:
            return None
        batch = lane.next()
        if batch is None:
            return None
        if batch.attempts:
            return batch if batch.not_before <= now else None
        is_full = batch.state is State.WAITING or batch.size_bytes >= self.config.batch_bytes
        is_ready = is_full or self.hurries or batch.created + self.config.linger_s <= now
        return batch if is_ready else None

    def _may_number(self, lane: Lane, batch: Batch) -> bool:
        if not self.config.is_idempotent:
            return True
        if batch.number is not None:
            return lane.sequence.may_send(batch.number)
        if lane.sequence.needs_identity:
            if self._identity is None:
                return False
            lane.sequence.start(self._identity)
        return lane.sequence.may_number

    def _take_off(self, lane: Lane, batch: Batch) -> None:
        if self.config.is_idempotent and batch.number is None:
            batch.stamp(lane.sequence.number(batch.record_count))
        if batch.number is not None:
            batch.was_first = lane.sequence.is_first(batch.number)
        batch.state = State.IN_FLIGHT
        batch.attempts += 1
        lane.in_flight += 1

    # ---- outcomes ----------------------------------------------------------------------------------------

    def written(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        """The broker has written the batch."""
        lane = self._landed(batch)
        if lane is not None:
            if batch.number is not None:
                lane.sequence.written(batch.number)
            self._settle(lane, batch)
            batch.succeed(base_offset, append_time_ms)
            self._on_settled(batch)

    def send_again(self, batch: Batch, not_before: float) -> None:
        """Retry the batch, not before that time."""
        if self._abandoned is not None:
            self.give_up(batch, self._abandoned)
        elif self._landed(batch) is not None:
            batch.not_before = not_before

    def give_up(self, batch: Batch, error: Exception) -> None:
        """Fail the batch: it is not written, or its outcome is unknown."""
        lane = self._landed(batch)
        if lane is not None:
            if batch.number is not None:
                lane.sequence.given_up(batch.number)
                self._renew(lane)
            self._settle(lane, batch)
            batch.fail(error)
            self._on_settled(batch)

    def out_of_order(self, batch: Batch, not_before: float, error: Exception) -> None:
        """The broker has refused the batch's sequence number."""
        if batch.state is not State.IN_FLIGHT or batch.number is None:
            return
        lane = self._lanes[batch.partition]
        match lane.sequence.out_of_order(batch.number, was_first=batch.was_first):
            case Refused.SEND_AGAIN:
                self.send_again(batch, not_before)
            case Refused.NUMBER_AGAIN:
                batch.number = None
                self._renew(lane)
                self.send_again(batch, 0.0)
            case Refused.GIVE_UP:
                self.give_up(batch, error)

    def split(self, batch: Batch, error: Exception) -> None:
        """The broker refused the batch as too large, and has not written it: replace it by two halves."""
        if self._abandoned is not None or batch.record_count < 2:
            self.give_up(batch, error)
            return
        lane = self._landed(batch)
        if lane is None:
            return
        halves = batch.split()
        if batch.number is not None:
            numbers = lane.sequence.split(batch.number, halves[0].record_count)
            for half, number in zip(halves, numbers, strict=True):
                half.stamp(number)
        at = lane.batches.index(batch)
        lane.batches[at] = halves[1]
        lane.batches.insert(at, halves[0])
        self.used_bytes += sum(half.size_bytes for half in halves) - batch.size_bytes
        topic = batch.partition.topic
        self._batch_limits[topic] = min(self.batch_limit(topic), max(batch.size_bytes // 2, 1))
        batch.state = State.SETTLED
        self.on_split(batch)

    def batch_limit(self, topic: str) -> int:
        """The size limit for batches of the topic, by refused sizes: half of the smallest one."""
        return self._batch_limits.get(topic, MAX_BATCH_BYTES)

    def expire(self, now: float, error: Callable[[Batch], Exception]) -> None:
        """Fail batches that are too old, in flight or not."""
        limit_s = self.config.delivery_timeout_s
        for lane in list(self._busy.values()):
            # the same arithmetic as in next_time, to the bit
            while lane.batches and lane.batches[0].created + limit_s <= now:
                batch = lane.batches[0]
                self._seal(batch)
                self.give_up(batch, error(batch))

    def _landed(self, batch: Batch) -> Lane | None:
        """The lane of a batch that is no longer in flight; None if it was settled meanwhile."""
        if batch.state is State.SETTLED:
            return None
        lane = self._lanes[batch.partition]
        if batch.state is State.IN_FLIGHT:
            lane.in_flight -= 1
            batch.state = State.WAITING
        return lane

    def _settle(self, lane: Lane, batch: Batch) -> None:
        lane.batches.remove(batch)
        self.used_bytes -= batch.size_bytes
        if not lane.batches:
            del self._busy[lane.partition]

    def _renew(self, lane: Lane) -> None:
        """If a lane has used up all epochs, all lanes get a new producer id."""
        if lane.sequence.needs_identity:
            self._identity = None
