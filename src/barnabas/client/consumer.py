"""The consumer of assigned partitions.

    config = ConsumerConfig(reset=Reset.EARLIEST)
    async with Consumer(network, clock, random, "localhost:9092", config) as consumer:
        consumer.assign([("orders", 0), ("orders", 1)])
        for record in await consumer.poll(timeout_ms=1000):
            print(record.offset, record.value)

`poll` sends fetches, at most one at a time to each broker, for the partitions whose fetched records are used
up; so while one response is used, the next is on its way. `poll_batches` returns whole batches without making
an object of any record. Positions are in assignment, the visibility of records in fetched, sessions in
fetch_session, the handling of responses in fetch_answers: all pure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.client.assignment import Assignment, PartitionState
from barnabas.client.cluster import ClientConfig, Cluster
from barnabas.client.errors import ClientClosed, NoOffset, TimedOut
from barnabas.client.fetch_answers import Answers
from barnabas.client.fetch_session import FetchLimits, FetchSession, Want
from barnabas.client.fetched import ConsumerRecord, FetchedBatches
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST, FoundOffset, list_offsets
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.core.network import Address, Network
from barnabas.core.random import Random
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.transport.waiting import Wake

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

logger = logging.getLogger("barnabas.client")

T = TypeVar("T")
Partition = tuple[str, int]


class Reset(IntEnum):
    """Where to start without a position, or with one that is out of range."""

    LATEST = LATEST
    EARLIEST = EARLIEST
    NONE = 0


class ConsumerConfig(NamedTuple):
    """Settings of a consumer; defaults as Kafka's."""

    reset: Reset = Reset.LATEST
    read_committed: bool = False  # read only records of committed transactions
    fetch_min_bytes: int = 1  # how many bytes a response waits for ...
    fetch_max_wait_ms: int = 500  # ... and for how long
    fetch_max_bytes: int = 50 * 1024 * 1024  # of a response; a larger first batch is sent all the same
    partition_max_bytes: int = 1024 * 1024
    max_poll_records: int = 500
    default_timeout_ms: int = 60_000  # of calls without a timeout of their own
    rack_id: str = ""
    client: ClientConfig = ClientConfig()


class Consumer:
    """Reads assigned partitions. To be used by one task at a time."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        random: Random,
        bootstrap: str | Sequence[Address],
        config: ConsumerConfig | None = None,
    ) -> None:
        self.config = config or ConsumerConfig()
        self.cluster = Cluster(network, clock, random, bootstrap, self.config.client)
        self._clock = clock
        self._wake = Wake(clock)
        self.cluster.on_change = self._wake.call
        self._assignment = Assignment()
        self._sessions: dict[int, FetchSession] = {}
        self._fetching: set[int] = set()
        self._lookups: dict[asyncio.Task[None], None] = {}
        self._failures: list[BarnabasError] = []
        self._is_closed = False
        self._limits = FetchLimits(
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=self.config.fetch_max_bytes,
            max_wait_ms=self.config.fetch_max_wait_ms,
            isolation_level=int(self.config.read_committed),
            rack_id=self.config.rack_id,
        )
        self._answers = Answers(
            self.cluster, self._assignment, self.config.reset, self._failures, self.config.read_committed
        )

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- partitions and positions ------------------------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._assignment.partitions()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions, and no others; partitions that were assigned already keep their
        positions."""
        self._check_open()
        wanted = [TopicPartition(*partition) for partition in partitions]
        for state in self._assignment.replace(wanted):
            if self.config.reset is not Reset.NONE:
                state.look_up(self.config.reset)
        for topic in dict.fromkeys(partition.topic for partition in wanted):
            self.cluster.track(topic)

    def seek(self, partition: Partition, offset: int) -> None:
        """Read a partition from that offset on. At an unchanged position, fetches under way are kept."""
        state = self._state(partition)
        if state.position != offset:
            state.go_to(offset)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Read from the first available record; all partitions if none are named."""
        self._look_up(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Read records written from now on; all partitions if none are named."""
        self._look_up(partitions, LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: Partition) -> None:
        """Read from the first record with that timestamp or a later one, or from the end if there is none."""
        if timestamp_ms < 0:
            raise ValueError(f"a time is not negative: {timestamp_ms}")
        self._look_up(partitions, timestamp_ms)

    def pause(self, *partitions: Partition) -> None:
        """Return no records of these until they are resumed."""
        for partition in partitions:
            self._state(partition).is_paused = True

    def resume(self, *partitions: Partition) -> None:
        """Return records of these again."""
        for partition in partitions:
            self._state(partition).is_paused = False
        self._wake.call()

    async def position(self, partition: Partition, timeout_ms: int | None = None) -> int:
        """The offset of the next record to return, looked up if needed."""
        deadline = self._deadline(timeout_ms)
        state = self._state(partition)
        while state.position is None:
            if state.lookup is None:
                raise NoOffset(f"{TopicPartition(*partition)} has no position; seek, or set a reset policy")
            if self._clock.monotonic() >= deadline:
                raise TimedOut(f"no position of {TopicPartition(*partition)} in time; is its leader up?")
            self._raise_failure()
            self._send_lookups(self._clock.monotonic())
            await self._wait(deadline)
        return state.position

    # ---- reading -----------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records: at once if there are any, otherwise as soon as some arrive; [] after the
        timeout."""
        limit = self.config.max_poll_records if max_records is None else max_records
        return await self._poll(timeout_ms, partial(self._take_records, limit))

    async def poll_batches(self, timeout_ms: int, *, unseen: bool = False) -> list[FetchedBatches]:
        """The same as `poll`, but all fetched records, as batches: bytes, or columns
        (`FetchedBatches.columns`).

        With `unseen` also responses that only move the position (markers, or aborted batches), or that do not
        even move it, since there was nothing at the position.
        """
        return await self._poll(timeout_ms, partial(self._take_batches, unseen))

    def arrow(
        self, timeout_ms: int | None = None, columns: Sequence[str] | None = None
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """The records of all partitions as Arrow record batches, in the order of each partition.

        Ends if nothing has arrived for `timeout_ms`; never, if that is None. Columns: see arrow. As with
        `poll_batches`, positions move over everything that was fetched: a caller that stops in the middle
        must seek.
        """
        from barnabas.client.arrow import COLUMNS, read_all  # pyarrow, only if it is used

        return read_all(self, timeout_ms, columns or COLUMNS)

    async def _poll(self, timeout_ms: int, take: Callable[[], list[T]]) -> list[T]:
        self._check_open()
        deadline = self._clock.monotonic() + timeout_ms / 1000
        while True:
            if self._failures:  # before any record: after a truncation the position has moved back
                raise self._failures.pop(0)
            taken = take()
            self._pump()
            if taken:
                return taken
            self._raise_failure()
            if self._clock.monotonic() >= deadline:
                await asyncio.sleep(0)  # with a timeout of 0, responses would never be received
                return []
            await self._wait(deadline)

    def _take_records(self, limit: int) -> list[ConsumerRecord]:
        taken: list[ConsumerRecord] = []
        for partition, state in self._assignment.full():
            if len(taken) >= limit:
                break
            assert state.fetched is not None
            try:
                taken += state.fetched.take(limit - len(taken))
            except BarnabasError as error:
                self._corrupt(state, error)
                continue
            state.used()
            if state.fetched is None:
                self._assignment.to_the_end(partition)
        return taken

    def _take_batches(self, unseen: bool) -> list[FetchedBatches]:
        taken = []
        for partition, state in self._assignment.full():
            assert state.fetched is not None
            try:
                rest = state.fetched.rest()
            except BarnabasError as error:
                self._corrupt(state, error)
                continue
            state.used()
            self._assignment.to_the_end(partition)
            if rest.ranges or unseen:
                taken.append(rest)
        return taken + self._take_nothing() if unseen else taken

    def _take_nothing(self) -> list[FetchedBatches]:
        taken = []
        for partition, state in self._assignment:
            if state.nothing is not None and state.position is not None and not state.is_paused:
                place = (state.position, state.position)
                taken.append(FetchedBatches(*partition, b"", (), *place, *state.nothing))
                state.nothing = None
        return taken

    def _corrupt(self, state: PartitionState, error: BarnabasError) -> None:
        self._failures.append(error)
        state.fetched = None

    # ---- fetching ----------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send everything that can be sent now: look-ups of offsets, and a fetch to each broker without
        one."""
        now = self._clock.monotonic()
        self._send_lookups(now)
        by_node: dict[int, dict[TopicPartition, Want]] = {}
        for partition, state in self._assignment.wanting(now):
            leader = self.cluster.leader(*partition)
            if leader is not None and leader.node_id not in self._fetching:
                assert state.position is not None
                by_node.setdefault(leader.node_id, {})[partition] = Want(
                    self.cluster.metadata.topic_id(partition.topic),
                    state.position,
                    leader.epoch,
                    state.last_epoch,
                    self.config.partition_max_bytes,
                )
        for node_id, wanted in by_node.items():
            self._fetch(node_id, wanted)

    def _fetch(self, node_id: int, wanted: Mapping[TopicPartition, Want]) -> None:
        connection = self.cluster.connection(node_id)
        if connection is None:
            return
        session = self._sessions.setdefault(node_id, FetchSession())
        request, at_most = session.request(wanted, self._limits)
        turns = {partition: self._turn_of(partition) for partition in wanted}
        timeout_s = (self.config.client.request_timeout_ms + self.config.fetch_max_wait_ms) / 1000
        try:
            answer = connection.submit(request, FetchResponse, at_most=at_most, timeout_s=timeout_s)
        except BarnabasError as error:
            session.failed()
            if not error.wire.retriable:
                self._failures.append(error)
            return
        self._fetching.add(node_id)
        answer.add_done_callback(partial(self._answered, node_id, session, wanted, turns))

    def _answered(
        self,
        node_id: int,
        session: FetchSession,
        wanted: Mapping[TopicPartition, Want],
        turns: Mapping[TopicPartition, int],
        answer: asyncio.Future[FetchResponse],
    ) -> None:
        self._fetching.discard(node_id)
        if answer.cancelled():
            return
        error = answer.exception()
        if self._is_closed:
            return
        if error is None:
            self._answers.take(answer.result(), session, wanted, turns)
        else:
            logger.info("a fetch from broker %d failed: %s", node_id, error)
            session.failed()
        self._wake.call()

    def _turn_of(self, partition: TopicPartition) -> int:
        state = self._assignment.get(partition)
        return -1 if state is None else state.turn

    # ---- offsets -----------------------------------------------------------------------------------------

    async def beginning_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return {each: found.offset for each, found in (await self._offsets(partitions, EARLIEST)).items()}

    async def end_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """The offset of the next record that would become visible in each partition."""
        return {each: found.offset for each, found in (await self._offsets(partitions, LATEST)).items()}

    async def offsets_for_times(self, times_ms: Mapping[Partition, int]) -> dict[TopicPartition, FoundOffset]:
        """The first record with that timestamp or a later one in each partition; offset -1 if there is
        none."""
        wanted = {TopicPartition(*partition): time_ms for partition, time_ms in times_ms.items()}
        return await self._list_offsets(wanted)

    async def _offsets(self, partitions: Iterable[Partition], at: int) -> dict[TopicPartition, FoundOffset]:
        return await self._list_offsets({TopicPartition(*partition): at for partition in partitions})

    async def _list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        timeout_s = self.config.default_timeout_ms / 1000
        return await list_offsets(
            self.cluster, wanted, read_committed=self.config.read_committed, timeout_s=timeout_s
        )

    def _send_lookups(self, now: float) -> None:
        lost = self._assignment.lost(now)
        for partition, at in lost.items():
            state = self._assignment.get(partition)
            if state is not None and self.cluster.leader(*partition) is not None:
                state.is_looked_up = True
                task = asyncio.get_running_loop().create_task(self._find(partition, state, state.turn, at))
                self._lookups[task] = None
                task.add_done_callback(self._lookups.pop)

    async def _find(self, partition: TopicPartition, state: PartitionState, turn: int, at: int) -> None:
        try:
            found = (await self._list_offsets({partition: at}))[partition]
            if found.offset < 0:
                found = (await self._list_offsets({partition: LATEST}))[partition]
        except BarnabasError as error:
            if state.turn == turn:
                state.is_looked_up = False
                state.not_before = self._clock.monotonic() + self.cluster.backoff.seconds(1)
                self._failures.append(error)
        else:
            if state.turn == turn:
                state.go_to(found.offset)
        self._wake.call()

    # ---- helpers -------------------------------------------------------------------------------------------

    def _state(self, partition: Partition) -> PartitionState:
        state = self._assignment.get(TopicPartition(*partition))
        if state is None:
            raise ValueError(
                f"{TopicPartition(*partition)} is not assigned to this consumer; assign it first"
            )
        return state

    def _look_up(self, partitions: Iterable[Partition], at: int) -> None:
        for partition in list(partitions) or self._assignment.partitions():
            self._state(partition).look_up(at)

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures.pop(0)
        for partition, state in self._assignment:
            if state.position is None and state.lookup is None:
                raise NoOffset(f"{partition} has no position; seek, or set a reset policy")

    async def _wait(self, deadline: float) -> None:
        later = self._assignment.next_time(self._clock.monotonic())
        await self._wake.wait(deadline if later is None else min(later, deadline))

    def _deadline(self, timeout_ms: int | None) -> float:
        limit_ms = self.config.default_timeout_ms if timeout_ms is None else timeout_ms
        return self._clock.monotonic() + limit_ms / 1000

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer has been closed; make a new one")

    async def close(self) -> None:
        """Close all connections. It may be called repeatedly."""
        self._is_closed = True
        for task in list(self._lookups):
            task.cancel()
        await self.cluster.close()
