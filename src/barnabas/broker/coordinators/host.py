"""A shard at work: one partition of a coordinator's topic that this node leads, and its state machine.

Commands are decided one after another, and the records of each are replayed at once, so that the next one
finds them. They are written together: all that come while the loop turns, or while an append is under way,
share the next append. Nobody is answered before what he was told is committed, and answers leave in the order
of the commands. If an append fails the state is ahead of its log: the host is lost, whoever waits is told so,
and the next who asks has the shard loaded anew.

A marker that ends a transaction in this very partition (offsets committed in it) has the host for itself: its
place among the records decides what it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from barnabas.broker.coordinators.journal import Journal, encode_write
from barnabas.broker.replicas.replica import Replica
from barnabas.coordination.effects import NOTHING, Effects, Markers, Now, Producer, Reply
from barnabas.coordination.records import KeyedRecord
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    BarnabasError,
    InvariantViolation,
    RecordListTooLarge,
    StorageError,
    wire_error,
)

logger = logging.getLogger("barnabas.coordinators")


class CoordinatorNotAvailable(BarnabasError):
    """Nobody coordinates this at the moment; it is worth another try."""

    wire = wire_error("COORDINATOR_NOT_AVAILABLE")


class NotCoordinator(BarnabasError):
    """Another node coordinates this, or nobody any more."""

    wire = wire_error("NOT_COORDINATOR")


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
    """One shard. `send_markers` gets what a command wants written elsewhere, `on_lost` hears the end."""

    def __init__(
        self,
        replica: Replica,
        shard: S,
        clock: Clock,
        *,
        codec: int,
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
        self._writer: asyncio.Task[None] | None = None
        self._gate: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def begin(self) -> None:
        """The shard is loaded: what follows from its state by now, and its timer."""
        self._let_happen(lambda shard, now: shard.loaded(now))

    def _now(self) -> Now:
        return Now(self._clock.wall_ms(), self._clock.monotonic())

    # ---- commands

    async def ask(self, command: Command[S], *, only_records: bool = False) -> Any:
        """The answer to a command, once what it says is committed.

        `only_records` tells that all that the command changes is in its records: where these cannot be
        written, as they are too many for one batch, nothing has happened. Otherwise the shard is in doubt.
        """
        while self._gate is not None:
            await asyncio.shield(self._gate)
        if self.lost is not None:
            raise self.lost
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = None
        try:
            effects = command(self.shard, self._now(), reply)
            try:
                self._carry_out(effects)
            except RecordListTooLarge as error:
                if not only_records:
                    del self._waiting[reply]  # who asked hears it from here
                    logger.error("%s is loaded anew: %s", self.name, error)
                    self._lose(error)
                raise
            return await reply
        except InvariantViolation as error:
            self._waiting.pop(reply, None)
            self._lose(error)
            self._stop(error)  # whatever becomes of the answer, the node does not go on
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
        """Have the shard know of something to which nobody waits for an answer."""
        while self._gate is not None:
            await asyncio.shield(self._gate)
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
        except Exception as error:  # noqa: BLE001 - there is nobody else who could hear of it
            self._doubt(error)

    def _doubt(self, error: Exception) -> None:
        """An error in the program has left the state half changed: what the log says counts."""
        logger.error("%s is loaded anew: an unexpected error", self.name, exc_info=error)
        self._lose(CoordinatorNotAvailable(f"{self.name} met an unexpected error: {error!r}"))

    def _carry_out(self, effects: Effects) -> None:
        if effects is not NOTHING:
            if effects.writes:
                self._write_down(effects)
            if self._writer is None and not self._has_records:
                self._deliver(effects)
            else:
                self._outcomes.append(effects)
                if self._writer is None:
                    self._writer = asyncio.get_running_loop().create_task(self._write())
                    self._writer.add_done_callback(self._written)
        self._arm()

    def _write_down(self, effects: Effects) -> None:
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
                    await self._append(self._journal.take())
                for effects in outcomes:
                    self._deliver(effects)
        except InvariantViolation as error:
            self._lose(error)
            self._stop(error)
        except BarnabasError as error:
            if self.lost is None:  # else another node leads the partition now, and the write was refused
                logger.error("%s is loaded anew: a write failed: %s", self.name, error)
            self._lose(error)
        finally:
            self._writer = None

    def _written(self, writer: asyncio.Task[None]) -> None:
        if not writer.cancelled() and (error := writer.exception()) is not None:
            self._lose(CoordinatorNotAvailable(f"{self.name} met an unexpected error: {error!r}"))
            self._stop(error)

    async def _append(self, data: bytearray, transaction_version: int = 0) -> None:
        replica = self.replica
        appended = await replica.append_own(data, transaction_version=transaction_version)
        if replica.log.high_watermark <= appended.last_offset:
            await replica.committed(appended.last_offset + 1)

    def _deliver(self, effects: Effects) -> None:
        # who decided is answered first, and the markers are written while the answer is on its way
        for reply, response in effects.replies:
            assert isinstance(reply, asyncio.Future)
            if not reply.done():
                reply.set_result(response)
        for markers in effects.markers:
            self._send_markers(self, markers)

    async def write_marker(
        self, batch: bytearray, producer: Producer, *, is_commit: bool, transaction_version: int
    ) -> None:
        """End a transaction in this partition. A marker that is refused changes nothing; after one that could
        not be written the host is lost, as after any failed append: it may be in the log all the same."""
        while self._gate is not None:
            await asyncio.shield(self._gate)
        if self.lost is not None:
            raise self.lost
        gate = self._gate = asyncio.get_running_loop().create_future()
        try:
            await self.settled()
            if self.lost is not None:
                raise self.lost
            await self._append(batch, transaction_version)
            self.shard.replay_end(producer, is_commit)
        except asyncio.CancelledError:
            # it may be in the log, and the shard does not know
            self._lose(CoordinatorNotAvailable("a marker was being written when the request was given up"))
            raise
        except StorageError as error:
            logger.error("%s is loaded anew: a marker could not be written: %s", self.name, error)
            self._lose(error)
            raise
        finally:
            self._gate = None
            gate.set_result(None)

    # ---- time

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
        self._let_happen(lambda shard, now: shard.tick(now))

    # ---- the end

    @property
    def name(self) -> str:
        return f"{self.replica.name}-{self.replica.partition}"

    def resign(self, error: BarnabasError) -> None:
        """This node does not coordinate it any more."""
        self._lose(error)

    @property
    def is_writing(self) -> bool:
        """Whether records or a marker are on their way to the log, even of a host that is lost."""
        return self._writer is not None or self._gate is not None

    async def ended(self) -> None:
        """Of a host that is lost: wait until nothing of it comes to the log any more."""
        while self._gate is not None:
            await asyncio.shield(self._gate)
        await self.settled()

    async def settled(self) -> None:
        """Wait for what is being written."""
        while self._writer is not None:
            await asyncio.wait((self._writer,))

    def _lose(self, error: BarnabasError | InvariantViolation) -> None:
        if self.lost is not None:
            return
        if isinstance(error, (CoordinatorNotAvailable, NotCoordinator)):
            told: BarnabasError = error
        else:
            told = CoordinatorNotAvailable(f"{self.name} could not be written: {error}")
        self.lost = told
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for reply in self._waiting:
            if not reply.done():
                reply.set_exception(told)
        self._on_lost(self)
