"""Runs a shard: one partition of a coordinator's topic that this node leads, and its state machine.

Commands are decided one after another, and the records of each are replayed at once, so that the next command
sees them. They are written together: all records that arrive in one turn of the loop, or while an append is
under way, share the next append. A response leaves when everything that it may depend on is committed
(`commits`), and responses leave in the order of the commands. If an append fails, the state is ahead of its
log: the host is lost, waiting requests get an error, and the shard is loaded again.

A host serves one leader epoch. When another begins, or the leadership ends, the host is lost: another leader
may truncate its records, so none of them is acknowledged any more, even if this node leads again and the high
watermark passes the same offsets (KAFKA-20634).

While the ISR is smaller than min.insync.replicas nothing can be written: commands that write are refused
before they change anything, and timers wait.

A marker that ends a transaction in this very partition (with committed offsets) is appended between the
records of two commands, and replayed there: its place among the records decides which of them it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from barnabas.broker.coordinators.commits import CommitWaits
from barnabas.broker.coordinators.errors import CoordinatorNotAvailable, NotCoordinator
from barnabas.broker.coordinators.journal import Journal, encode_write
from barnabas.broker.replicas.replica import NotEnoughReplicas, Replica
from barnabas.broker.replicas.roles import Leading, NotLeaderOrFollower
from barnabas.coordination.effects import NOTHING, Effects, Markers, Now, Producer, Reply
from barnabas.coordination.records import KeyedRecord
from barnabas.core.clock import Clock
from barnabas.core.eager import begin
from barnabas.core.errors import (
    BarnabasError,
    InvariantViolation,
    RecordListTooLarge,
    StorageError,
)

logger = logging.getLogger("barnabas.coordinators")

UNDER_MIN_SECONDS = 0.5  # between two checks whether the ISR is large enough again


class Shard(Protocol):
    """A state machine over one partition: see `coordination.effects`."""

    def replay(self, record: KeyedRecord, producer: Producer | None) -> None: ...

    def replay_end(self, producer: Producer, is_commit: bool) -> None: ...

    def loaded(self, now: Now) -> Effects: ...

    def tick(self, now: Now) -> Effects: ...

    def next_due_seconds(self) -> float | None: ...


S = TypeVar("S", bound=Shard)
Command = Callable[[S, Now, Reply], Effects]


class Host(Generic[S]):
    """One shard in one leader epoch. `send_markers` gets the markers that a command sends to other
    partitions, `on_lost` is called at the end. `commit_timeout` gives the seconds that a response may wait
    for its commit."""

    def __init__(
        self,
        replica: Replica,
        shard: S,
        clock: Clock,
        *,
        codec: int,
        commit_timeout: Callable[[], float],
        send_markers: Callable[[Host[S], Markers], None],
        on_lost: Callable[[Host[S]], None],
        stop: Callable[[BaseException], None],
    ) -> None:
        self.replica = replica
        self.shard = shard
        self.epoch = replica.leader_epoch
        self.lost: BarnabasError | None = None
        self._clock = clock
        self._send_markers = send_markers
        self._on_lost = on_lost
        self._stop = stop
        self._journal = Journal(codec)
        self._has_records = False
        self._outcomes: list[Effects] = []
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._commits = CommitWaits(
            replica, clock, commit_timeout, deliver=self._deliver, fail=self._commit_failed
        )
        self._is_due = False  # a write begins at the end of this turn of the loop
        self._writer: asyncio.Task[None] | None = None  # a write that has to wait
        self._gate: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def begin(self) -> None:
        """Start after loading: carry out the effects of the loaded state, and set the timer."""
        self._let_happen(lambda shard, now: shard.loaded(now))

    def _now(self) -> Now:
        return Now(self._clock.wall_ms(), self._clock.monotonic())

    # ---- commands

    async def ask(self, command: Command[S], *, only_records: bool = False, writes: bool = True) -> Any:
        """The response to a command, once it is committed.

        With `only_records`, all changes of the command are in its records: if these cannot be written, as
        they are too many for one batch, nothing has happened. Otherwise the state of the shard is in doubt,
        and it is loaded again. A command without `writes` is also served when the ISR is too small for
        writes.
        """
        while self._gate is not None:
            await asyncio.shield(self._gate)
        if self.lost is not None:
            raise self.lost
        if writes and not only_records:
            self._require_enough()
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = None
        try:
            effects = command(self.shard, self._now(), reply)
            try:
                self._carry_out(effects)
            except (RecordListTooLarge, CoordinatorNotAvailable) as error:
                if not only_records:
                    del self._waiting[reply]  # it gets the error from here
                    logger.error("%s is loaded anew: %s", self.name, error)
                    self._lose(error)
                raise
            return await reply
        except InvariantViolation as error:
            self._waiting.pop(reply, None)
            self._lose(error)
            self._stop(error)  # the node stops, whatever happens to the response
            raise
        except BarnabasError:
            raise
        except Exception as error:
            self._waiting.pop(reply, None)
            self._doubt(error)
            raise
        finally:
            self._waiting.pop(reply, None)

    async def tell(self, event: Callable[[S, Now], Effects]) -> None:
        """Send an event to the shard that has no response."""
        while self.lost is None and (self._gate is not None or self._is_under_min):
            if self._gate is not None:
                await asyncio.shield(self._gate)
            else:
                await self._clock.sleep(UNDER_MIN_SECONDS)
        if self.lost is None:
            self._let_happen(event)

    def _let_happen(self, event: Callable[[S, Now], Effects]) -> None:
        try:
            self._carry_out(event(self.shard, self._now()))
        except InvariantViolation as error:
            self._lose(error)
            self._stop(error)
        except BarnabasError as error:
            logger.error("%s is loaded anew: what follows cannot be written: %s", self.name, error)
            self._lose(error)
        except Exception as error:  # noqa: BLE001 - no caller could handle it
            self._doubt(error)

    def _doubt(self, error: Exception) -> None:
        """A bug has left the state half changed: load it again from the log."""
        logger.error("%s is loaded anew: an unexpected error", self.name, exc_info=error)
        self._lose(CoordinatorNotAvailable(f"{self.name} met an unexpected error: {error!r}"))

    def _carry_out(self, effects: Effects) -> None:
        if effects is not NOTHING:
            if effects.writes:
                self._write_down(effects)
            if self._writer is None and not self._has_records and not self._is_due:
                self._pass_on(effects)
            else:
                self._outcomes.append(effects)
                if self._writer is None and not self._is_due:
                    self._is_due = True
                    asyncio.get_running_loop().call_soon(self._write_soon)
        self._arm()

    def _write_soon(self) -> None:
        """Write the records of this turn of the loop; this rarely has to wait for the disk."""
        self._is_due = False
        if self._writer is not None:
            return  # it goes on until everything is written
        try:
            self._writer = begin(self._write())
        except asyncio.CancelledError:
            return  # the node stops, as when a task is cancelled: no request is answered
        except Exception as error:  # noqa: BLE001 - no caller could handle it
            self._write_failed(error)
        if self._writer is not None:
            self._writer.add_done_callback(self._written)

    def _pass_on(self, effects: Effects) -> None:
        """Deliver effects whose records are all in the log."""
        if self._commits:
            self._commits.add_behind(effects)
        else:
            self._deliver(effects)

    @property
    def _is_under_min(self) -> bool:
        role = self.replica.role
        return isinstance(role, Leading) and role.is_under_min

    def _require_enough(self) -> None:
        if self._is_under_min:
            raise CoordinatorNotAvailable(f"{self.name} has fewer in-sync replicas than min.insync.replicas")

    def _write_down(self, effects: Effects) -> None:
        self._require_enough()
        log = self.replica.log
        max_bytes = min(log.config.max_message_bytes, log.config.segment_bytes)
        encoded = [encode_write(write, max_bytes) for write in effects.writes]
        for write in effects.writes:
            if write.producer is not None:
                log.producers.check_epoch(write.producer.id, write.producer.epoch)
        self._journal.add(encoded, self._clock.wall_ms(), max_bytes)
        self._has_records = True
        for write in effects.writes:
            for record in write.records:
                self.shard.replay(record, write.producer)

    # ---- writing

    async def _write(self) -> None:
        try:
            while self.lost is None and (self._outcomes or self._has_records):
                outcomes, self._outcomes = self._outcomes, []
                if self._has_records:
                    self._has_records = False
                    await self._append(self._journal.take(), outcomes)
                else:
                    for effects in outcomes:
                        self._pass_on(effects)
        except InvariantViolation as error:
            self._lose(error)
            self._stop(error)
        except BarnabasError as error:
            if self.lost is None:  # else it was refused, as another node leads the partition now
                is_minor = isinstance(error, (NotEnoughReplicas, NotLeaderOrFollower))
                level = logging.WARNING if is_minor else logging.ERROR
                logger.log(level, "%s is loaded anew: a write failed: %s", self.name, error)
            self._lose(error)
        finally:
            self._writer = None

    def _written(self, writer: asyncio.Task[None]) -> None:
        if not writer.cancelled() and (error := writer.exception()) is not None:
            self._write_failed(error)

    def _write_failed(self, error: BaseException) -> None:
        self._lose(CoordinatorNotAvailable(f"{self.name} met an unexpected error: {error!r}"))
        self._stop(error)

    async def _append(self, data: bytearray, outcomes: list[Effects], transaction_version: int = 0) -> int:
        """Append, and deliver the outcomes when all is committed; returns the next offset."""
        appended = await self.replica.append_own(data, transaction_version=transaction_version)
        end_offset = appended.last_offset + 1
        if self.lost is None:
            self._commits.add(outcomes, end_offset)
        return end_offset

    def _commit_failed(self, error: BarnabasError) -> None:
        self._lose(error)

    def _deliver(self, effects: Effects) -> None:
        # responses first: the markers are written while these are on their way
        for reply, response in effects.replies:
            assert isinstance(reply, asyncio.Future)
            if not reply.done():
                reply.set_result(response)
        for markers in effects.markers:
            self._send_markers(self, markers)

    async def write_marker(
        self, batch: bytearray, producer: Producer, *, is_commit: bool, transaction_version: int
    ) -> None:
        """End a transaction in this partition; returns when the marker is committed. A refused marker changes
        nothing. After a marker that could not be written the host is lost, as after any failed append: it may
        be in the log all the same."""
        while self._gate is not None:
            await asyncio.shield(self._gate)
        if self.lost is not None:
            raise self.lost
        gate = self._gate = asyncio.get_running_loop().create_future()
        try:
            await self.settled()
            if self.lost is not None:
                raise self.lost
            end_offset = await self._append(batch, [NOTHING], transaction_version)
            if self.lost is not None:
                raise self.lost
            self.shard.replay_end(producer, is_commit)
        except asyncio.CancelledError:
            # the marker may be in the log, and the shard has not replayed it
            self._lose(CoordinatorNotAvailable("a marker was being written when the request was given up"))
            raise
        except StorageError as error:
            logger.error("%s is loaded anew: a marker could not be written: %s", self.name, error)
            self._lose(error)
            raise
        finally:
            self._gate = None
            gate.set_result(None)
        if self.replica.log.high_watermark < end_offset:
            await self.replica.committed(end_offset)
        if self.lost is not None:
            raise self.lost

    # ---- timers

    def _arm(self) -> None:
        due = self.shard.next_due_seconds()
        if due is None or self.lost is not None:
            return
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        wait_seconds = max(0.0, due - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(wait_seconds, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self.lost is not None:
            return
        if self._gate is not None:
            self._gate.add_done_callback(lambda _: self._on_time())
            return
        if self._is_under_min:  # nothing can be written: delay what is due
            self._timer_due = self._clock.monotonic() + UNDER_MIN_SECONDS
            self._timer = asyncio.get_running_loop().call_later(UNDER_MIN_SECONDS, self._on_time)
            return
        self._let_happen(lambda shard, now: shard.tick(now))

    # ---- the end

    @property
    def name(self) -> str:
        return f"{self.replica.name}-{self.replica.partition}"

    def resign(self, error: BarnabasError) -> None:
        """End the host: this node does not coordinate the partition any more."""
        self._lose(error)

    @property
    def is_writing(self) -> bool:
        """Whether records or a marker are being written, even by a lost host."""
        return self._is_due or self._writer is not None or self._gate is not None

    async def ended(self) -> None:
        """Wait until a lost host writes nothing to the log any more."""
        while self._gate is not None:
            await asyncio.shield(self._gate)
        await self.settled()

    async def settled(self) -> None:
        """Wait for writes under way."""
        while self._is_due or self._writer is not None:
            if self._writer is None:
                await asyncio.sleep(0)
            else:
                await asyncio.wait((self._writer,))

    def _lose(self, error: BarnabasError | InvariantViolation) -> None:
        if self.lost is not None:
            return
        if isinstance(error, (CoordinatorNotAvailable, NotCoordinator)):
            told: BarnabasError = error
        elif isinstance(error, NotLeaderOrFollower):
            told = NotCoordinator(str(error))
        else:
            told = CoordinatorNotAvailable(f"{self.name} could not be written: {error}")
        self.lost = told
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._commits.clear()
        for reply in self._waiting:
            if not reply.done():
                reply.set_exception(told)
        self._on_lost(self)
