"""A partition's log: a leader or a follower appends to it, and readers read from it.

Offsets run from `start_offset` to `end_offset`; they are assigned once and never change. Readers are bounded
by the high watermark or the last stable offset, both of which only this class moves. Appends, truncations and
deletions take the log's lock (`turn`); reads do not. They see an append only once it is complete
(`end_offset` moves last), and notice a truncation by the log's `shape`.

Durability: an append that returned is in the page cache, so the death of the process loses nothing of it;
everything below `recovery_point` is on the disk, so a power failure loses nothing of that. `end_offset` and
the producers' state change only after a successful write: a failed one leaves no trace. If a disk failure
leaves the files in doubt, the log refuses appends until it is reopened, which recovers it.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from itertools import takewhile
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from barnabas.core.clock import Clock
from barnabas.core.disk import Buffer, Disk
from barnabas.core.errors import (
    BarnabasError,
    CorruptMessage,
    FencedLeaderEpoch,
    StorageError,
)
from barnabas.core.random import Random
from barnabas.core.workers import Workers
from barnabas.log import names
from barnabas.log.admission import admit_batch, admit_batches, admit_unusual_batch
from barnabas.log.config import LogConfig
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.markers import Markers, aborted_entry, apply_marker, find_markers
from barnabas.log.producers import TRUSTED, Guard, Origin, ProducerStates
from barnabas.log.segment import MAX_RELATIVE_OFFSET, Segment
from barnabas.log.shared_call import SharedCall
from barnabas.log.side_files import SideFiles
from barnabas.log.totals import LogTotals
from barnabas.log.turn import Turn
from barnabas.records import kernel
from barnabas.records.batch import NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader
from barnabas.records.control import EndTransactionMarker

logger = logging.getLogger("barnabas.log")

ANY_EPOCH = 2**31 - 1  # the requester's epoch, if it does not matter

_epoch_of = attrgetter("leader_epoch")


class Home(NamedTuple):
    """The environment of a partition's log, given by its log directory."""

    disk: Disk
    clock: Clock
    random: Random
    workers: Workers
    # make recovery points and start offsets durable, before anything relies on them
    persist: Callable[[], Awaitable[None]]
    # a segment was sealed and can be flushed in the background
    on_roll: Callable[[PartitionLog], None]
    # the contents of the disk are in doubt
    on_failure: Callable[[StorageError], None]
    # a call of the disk failed, but nothing is in doubt because of it
    on_trouble: Callable[[StorageError], None]
    # the counters of all logs in the directory
    totals: LogTotals


class Bound(Enum):
    """The offset up to which a reader may read."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    LAST_STABLE = "last stable offset"


class Appended(NamedTuple):
    """The result of an append."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False
    stored_bytes: int = 0  # with a codec of the topic, it differs from what was sent


# the same as `Appended(...)`, without a call that every append would pay for
_appended = partial(tuple.__new__, Appended)


class WrittenOut(NamedTuple):
    """The state of a log when it was written out, to detect later changes."""

    end_offset: int
    shape: int
    side_files: tuple[int, int]


class UnexpectedOffset(BarnabasError):
    """A leader sent batches that do not follow the end of this follower's log, the first of them from
    `first_offset` to `last_offset`."""

    def __init__(self, what: str, first_offset: int, last_offset: int) -> None:
        super().__init__(what)
        self.first_offset = first_offset
        self.last_offset = last_offset


class Interrupted(StorageError):
    """A change of the log was cancelled half-way."""


class LogClosed(StorageError):
    """The log was closed while it was still in use."""


class ReadEnd(NamedTuple):
    """The position of the batch that begins with a certain offset, valid while `shape` is the same."""

    shape: int
    segment: Segment
    position: int


class Doomed(NamedTuple):
    """A segment that is being removed: renamed, and deleted when it is due and not being read."""

    due_at: float  # by monotonic time: changes of the wall clock would delay or hasten it
    segment: Segment
    paths: tuple[str, ...]


class PartitionLog:
    """One partition on one disk. `trimming` and `reading` implement further operations on it."""

    __slots__ = (
        "_flush",
        "_is_rolling",
        "_latest_epoch",
        "bases",
        "cleaned_offset",
        "config",
        "doomed",
        "end_offset",
        "ended",
        "epochs",
        "failure",
        "flushed_at",
        "high_watermark",
        "home",
        "is_dirty",
        "lowest_epoch",
        "path",
        "producers",
        "read_ends",
        "recovery_point",
        "segments",
        "shape",
        "side",
        "start_offset",
        "start_to_be",
        "topic_id",
        "turn",
    )

    def __init__(
        self,
        home: Home,
        path: str,
        config: LogConfig,
        *,
        segments: list[Segment],
        start_offset: int,
        end_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        snapshot_offset: int,
        topic_id: UUID | None = None,
        is_dirty: bool = True,
    ) -> None:
        self.home = home
        self.path = path
        self.config = config
        self.topic_id = topic_id
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.start_offset = start_offset
        self.start_to_be = 0  # the new start offset, while it is being made durable
        self.end_offset = end_offset
        self.high_watermark = start_offset
        self.recovery_point = recovery_point
        # the offset up to which it was compacted; None if it never was
        self.cleaned_offset: int | None = None
        self.epochs = epochs
        latest = epochs.latest_epoch
        self._latest_epoch = -1 if latest is None else latest
        self.lowest_epoch = -1  # appends of leaders of earlier epochs are refused
        self.producers = producers
        self.side = SideFiles(home.disk, path, epochs, snapshot_offset, is_dirty=is_dirty)
        self.flushed_at = home.clock.monotonic()  # monotonic: a wall clock set back would delay flushes
        self.turn = Turn()
        # why it refuses changes; and why it cannot even be read any more
        self.failure: StorageError | None = None
        self.ended: StorageError | None = None
        self.doomed: list[Doomed] = []
        # odd while segments are being cut or removed, and another number afterwards
        self.shape = 0
        # where reads ended, so that the next ones from there need no look-up (see `reading`)
        self.read_ends: dict[int, ReadEnd] = {}
        self._flush = SharedCall(self._flush_once)
        # a segment is sealed, or about to be, and still the active one; only while the lock is held
        self._is_rolling = False
        # whether a close has anything to do
        self.is_dirty = is_dirty

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def last_stable_offset(self) -> int:
        """All transactions below it are decided, and their markers replicated."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.start_offset), self.high_watermark)

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, -1 if there is none."""
        for epoch, start_offset in reversed(self.epochs.entries):  # the latest epoch may have no records
            if start_offset < self.end_offset:
                return epoch
        return -1

    def start_of_epoch(self, epoch: int) -> int:
        """The start of the latest leader epoch: the end of the log while nothing is written in it."""
        latest = self.epochs.latest
        return latest.start_offset if latest is not None and latest.epoch == epoch else self.end_offset

    @property
    def held_end(self) -> int:
        """The end of the log as it counts for the high watermark: records that flush.messages wants synced
        count once they are."""
        if self.end_offset - self.recovery_point < self.config.flush_messages:
            return self.end_offset
        return self.recovery_point

    def bound(self, bound: Bound) -> int:
        """The offset up to which such a reader may read."""
        if bound is Bound.LOG_END:
            return self.end_offset
        return self.high_watermark if bound is Bound.HIGH_WATERMARK else self.last_stable_offset

    def advance_high_watermark(self, offset: int) -> bool:
        """Move the high watermark up to `offset`, never back or beyond the end; True if it moved."""
        offset = min(offset, self.end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark(offset)
        return True

    def floor_segment(self, offset: int) -> int:
        """The index of the segment that contains `offset`."""
        return max(0, bisect_right(self.bases, offset) - 1)

    @property
    def size_bytes(self) -> int:
        """The bytes of batches in the segments opened so far; of all after `trimming.segment_facts`."""
        return sum(segment.size_bytes for segment in self.segments)

    async def append_as_leader(
        self,
        data: bytearray | memoryview,
        leader_epoch: int,
        origin: Origin = Origin.CLIENT,
        *,
        transaction_version: int = 0,
        guard: Guard | None = TRUSTED,
    ) -> Appended:
        """Assign the next offsets to the batches in `data`, in place, and append them with one write.

        A client appends one batch; `guard` is that of its verification, if it begins a transaction.
        `transaction_version` is the one under which a coordinator wrote markers.
        """
        turn = self.turn
        if turn.is_taken:
            await turn.wait()
        turn.is_taken = True
        try:
            if self.failure is not None:
                raise self.failure
            if leader_epoch < self.lowest_epoch:
                raise FencedLeaderEpoch(f"leader epoch {leader_epoch} of {self.path} is over")
            config, first_offset = self.config, self.end_offset
            now_ms = self.home.clock.wall_ms()
            markers: Markers = {}
            if origin is Origin.CLIENT:
                header = admit_batch(data, config, first_offset, leader_epoch, now_ms)
                if header is None:
                    data, header = await admit_unusual_batch(
                        data, config, first_offset, leader_epoch, now_ms, self.home.workers
                    )
                headers = [header]
            else:
                headers = admit_batches(data, config, first_offset, leader_epoch, now_ms)
                markers = self._check_markers(data, headers, transaction_version)
            duplicate = None
            for header in headers:
                if header.producer_id != NO_PRODUCER_ID and not header.is_control:
                    duplicate = self.producers.check(header, origin=origin, guard=guard)
            if duplicate is None:
                await self._append(data, headers, markers, now_ms)
            end_offset = self.end_offset
        except StorageError as error:
            self.home.on_trouble(error)
            raise
        finally:
            turn.leave()
        if end_offset - self.recovery_point >= config.flush_messages:
            await self.flush(end_offset)
        if duplicate is not None:
            return Appended(*duplicate, self.start_offset, is_duplicate=True)
        stamped_ms = now_ms if config.log_append_time else NO_TIMESTAMP
        return _appended((first_offset, end_offset - 1, stamped_ms, self.start_offset, False, len(data)))

    def _check_markers(
        self, data: Buffer, headers: Sequence[BatchHeader], transaction_version: int
    ) -> Markers:
        markers = find_markers(data, headers)
        for header in headers:
            if (marker := markers.get(header.base_offset)) is not None:
                self.producers.check_marker(
                    header.producer_id,
                    header.producer_epoch,
                    marker.coordinator_epoch,
                    transaction_version=transaction_version,
                )
        return markers

    async def append_as_follower(self, data: Buffer, leader_epoch: int = ANY_EPOCH) -> Appended | None:
        """Append batches with the leader's offsets; an incomplete last one is left out.

        `leader_epoch` is the epoch in which the leader was asked. Batches of a later one are left out: the
        log that they come from may have been truncated between the leader's answer and its bytes.
        """
        headers, consumed, problem = kernel.scan(data, 0, len(data), True)
        if problem is not None:
            raise CorruptMessage(f"a batch for {self.path} from its leader is not sound: {problem}")
        if headers and max(map(_epoch_of, headers)) > leader_epoch:
            logger.info("%s leaves out batches of an epoch later than %d", self.path, leader_epoch)
            headers = list(takewhile(lambda one: one.leader_epoch <= leader_epoch, headers))
            consumed = sum(header.size_bytes for header in headers)
        if not headers:
            return None
        async with self.turn:
            self.require_sound()
            self.require_epoch(leader_epoch)
            expected = self.end_offset
            for header in headers:
                if header.base_offset < expected:
                    raise UnexpectedOffset(
                        f"the leader of {self.path} sent offset {header.base_offset}, "
                        f"not {expected} or later",
                        headers[0].base_offset,
                        headers[0].last_offset,
                    )
                expected = header.next_offset
            first_offset = headers[0].base_offset
            if expected - first_offset > MAX_RELATIVE_OFFSET:
                # no segment can hold such a range; the rest comes with the next fetch
                headers = [one for one in headers if one.last_offset - first_offset <= MAX_RELATIVE_OFFSET]
                consumed = sum(header.size_bytes for header in headers)
            markers = find_markers(data, headers)
            await self._append(memoryview(data)[:consumed], headers, markers, self.home.clock.wall_ms())
            end_offset = self.end_offset
        await self.flush_messages_due(end_offset)
        return Appended(first_offset, end_offset - 1, NO_TIMESTAMP, self.start_offset, stored_bytes=consumed)

    async def _append(
        self,
        data: Buffer,
        headers: Sequence[BatchHeader],
        markers: Markers,
        now_ms: int,
    ) -> None:
        """Write batches that are checked and numbered; the state changes once they are in the file."""
        first, last = headers[0], headers[-1]
        last_offset = last.base_offset + last.last_offset_delta
        segment = self.segments[-1]
        if segment.first_timestamp is None and segment.size_bytes:
            await segment.learn_first_timestamp()
        max_timestamp = last.max_timestamp
        if first is not last:
            max_timestamp = max(header.max_timestamp for header in headers)
        if self._must_roll(segment, len(data), max_timestamp, last_offset, now_ms):
            is_near = last_offset - self.end_offset <= MAX_RELATIVE_OFFSET
            await self.roll_to(self.end_offset if is_near else first.base_offset)
            segment = self.segments[-1]
        self.is_dirty = True
        file = segment.appendable()
        if file is None:
            file = await segment.make_appendable()
        await file.append(data)
        # Readers and the high watermark go by the end of the log: it moves together with the segment's, when
        # the producers' state and the aborted transactions that they need are in place.
        for header in headers:
            if header.leader_epoch != self._latest_epoch:
                self._note_epoch(header)
            if header.producer_id == NO_PRODUCER_ID:
                continue
            if not header.is_control:
                self.producers.apply(header, header.base_offset)
            elif (marker := markers.get(header.base_offset)) is not None:
                await self._end_transaction(header, marker)
        segment.count(headers)
        self.end_offset = last_offset + 1
        if segment.offsets.wants_write:
            await segment.write_entries()

    async def _end_transaction(self, header: BatchHeader, marker: EndTransactionMarker) -> None:
        completed = apply_marker(self.producers, header, marker)
        if completed is None or not completed.aborted:
            return
        try:
            await self.active.aborted.append(aborted_entry(completed))
        except BaseException as error:
            # otherwise readers would take the aborted records for committed ones
            self.fail(error)
            raise

    def begin_leading(self, epoch: int) -> None:
        """Begin this node's epoch as leader at the end of the log. While an append is being written that end
        is about to move: then the epoch begins with its first own append."""
        self.refuse_epochs_before(epoch)
        if not self.turn.is_taken:
            self.begin_epoch(epoch, self.end_offset)

    def require_epoch(self, epoch: int) -> None:
        """Refuse a change that was requested in an epoch that is over."""
        if epoch < self.lowest_epoch:
            raise FencedLeaderEpoch(f"leader epoch {epoch} of {self.path} is over")

    def refuse_epochs_before(self, epoch: int) -> None:
        """Refuse appends of leaders of earlier epochs, also those that wait for the lock."""
        self.lowest_epoch = max(self.lowest_epoch, epoch)

    def begin_epoch(self, epoch: int, start_offset: int) -> None:
        """Note that a leader's epoch begins at `start_offset`."""
        if epoch >= 0 and self.epochs.assign(epoch, start_offset):
            self.epochs_changed()

    def _note_epoch(self, header: BatchHeader) -> None:
        """Note the epoch of a batch that has been appended. It may be earlier than the latest one: this node
        may have led in the latest and written nothing, and the next leader does not know of that epoch. Then
        the latest is not part of this log, and would be taken for the end of the one before."""
        if header.leader_epoch < self._latest_epoch and self.epochs.truncate_from_end(header.base_offset):
            self.epochs_changed()
        if header.leader_epoch > self._latest_epoch:
            self.begin_epoch(header.leader_epoch, header.base_offset)

    def epochs_changed(self) -> None:
        """Note that the epochs must be written with the next flush: until then recovery restores them from
        the batches, which it reads from the recovery point on."""
        latest = self.epochs.latest_epoch
        self._latest_epoch = -1 if latest is None else latest
        self.is_dirty = True
        self.side.epochs_changed()

    def _must_roll(
        self, segment: Segment, size: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        config = self.config
        if (
            segment.size_bytes > config.segment_bytes - size
            or segment.is_full
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            return True
        first_timestamp = segment.first_timestamp
        if first_timestamp is None:
            return False
        waited_ms = max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - segment.created_ms
        return waited_ms > config.roll_ms - segment.roll_jitter_ms

    async def roll(self) -> bool:
        """Seal the active segment and begin a new one; False if it is empty and stays the active one."""
        async with self.turn:
            self.require_sound()
            return await self.roll_to(self.end_offset)

    async def roll_to(self, base_offset: int) -> bool:
        if base_offset == self.active.base_offset:
            return False
        self._is_rolling = True
        try:
            await self._seal_active()
            await self._begin_segment(base_offset)
        finally:
            self._is_rolling = False
        self.home.on_roll(self)
        await self.active.create_indexes()
        self.side.names_changed()
        return True

    async def _seal_active(self) -> None:
        sealed = self.active
        await sealed.seal()
        try:
            if self.recovery_point >= self.end_offset:
                # everything in it counts as synced already, so its indexes must be synced too
                await sealed.sync(sealed=True)
                self.side.names_changed()
            # a segment must not outlive the one before it: the log would seem to start with it
            await self.side.sync_names()
        except StorageError as error:
            self.fail(error)
            raise

    async def _begin_segment(self, base_offset: int) -> None:
        await self.side.write_snapshot(self.end_offset, self.producers)
        segment = new_segment(self.home, self.path, self.config, base_offset)
        try:
            await segment.create()
        except asyncio.CancelledError as error:
            await self._undo(segment, error)
            raise
        self.side.names_changed()
        self.segments.append(segment)
        self.bases.append(base_offset)

    async def _undo(self, segment: Segment, error: asyncio.CancelledError) -> None:
        """Remove the file of a new segment whose creation was cancelled: it would hide what is appended to
        the segment before it. However often this is cancelled, it returns only when the removal has ended."""
        removal = asyncio.ensure_future(self.home.disk.remove(segment.path(names.LOG)))
        while not removal.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((removal,))
        if removal.cancelled() or removal.exception() is not None:
            self.fail(error)
        self.side.names_changed()

    def require_sound(self) -> None:
        """Raise the failure because of which the log refuses changes, if there is one."""
        if self.failure is not None:
            raise self.failure

    def fail(self, error: BaseException) -> None:
        """Refuse all further changes: the contents of the files are in doubt until they are reopened."""
        level = logging.ERROR
        if not isinstance(error, StorageError):
            if isinstance(error, asyncio.CancelledError):
                level = logging.WARNING  # a node stops before it has started: the disk is not at fault
            error = Interrupted(
                f"a change of {self.path} was interrupted ({error!r}); open it anew to recover it"
            )
        logger.log(level, "%s takes no more appends until it is opened anew: %s", self.path, error)
        self.failure = error
        self.home.on_failure(error)

    @contextmanager
    def reshaping(self) -> Iterator[None]:
        """Mark that segments are being cut or removed: look-ups that overlap it start over. If it fails, the
        files are in doubt, and the log refuses further changes."""
        self.shape += 1
        self.is_dirty = True
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self.shape += 1

    async def flush_messages_due(self, end_offset: int) -> None:
        """Make everything below `end_offset` durable if flush.messages requires it, as an append does."""
        if end_offset - self.recovery_point >= self.config.flush_messages:
            await self.flush(end_offset)

    async def write_index_entries(self) -> None:
        """Write the index entries of the active segment that wait in memory."""
        async with self.turn:
            if self.failure is not None:
                return
            try:
                await self.active.write_waiting_entries()
            except StorageError as error:
                self.home.on_trouble(error)  # they stay in memory, and are tried again

    async def flush(self, up_to: int | None = None) -> None:
        """Make everything below `up_to` (default: the end) durable; one sync serves all that wait."""
        target = self.end_offset if up_to is None else up_to
        while self.recovery_point < min(target, self.end_offset):
            self.require_sound()
            if self.shape & 1 or self._is_rolling:
                async with self.turn:
                    continue
            try:
                await self._flush()
            except StorageError as error:
                self.home.on_trouble(error)
                raise

    async def _flush_once(self) -> None:
        """Takes no lock: a holder of the lock that closes the log may be waiting for this."""
        if self.shape & 1 or self.recovery_point >= self.end_offset:
            return  # the caller checks again whether anything is left to flush
        self.require_sound()
        end_offset, shape, active = self.end_offset, self.shape, self.active
        began = self.home.clock.monotonic()
        await self.side.write_epochs()
        try:
            for segment in self.segments[self.floor_segment(self.recovery_point) :]:
                is_sealed = segment is not active
                await segment.sync(sealed=is_sealed)
            await self.side.sync_names()
        except StorageError as error:
            if shape == self.shape:
                # it is unknown what a failed sync left unwritten, and a second sync would not report it
                self.fail(error)
                raise
        self.home.totals.flushes.observe(self.home.clock.monotonic() - began)
        # A segment that was cut or sealed meanwhile is not synced as a whole: its indexes are not, and below
        # the recovery point they would not be checked after a crash. The next round syncs them.
        if shape == self.shape and active is self.active and not self._is_rolling:
            self.recovery_point = max(self.recovery_point, end_offset)
            self.flushed_at = self.home.clock.monotonic()

    def expire_producers(self) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`."""
        self.producers.expire(self.home.clock.wall_ms(), self.config.producer_id_expiration_ms)

    async def write_out(self) -> WrittenOut | None:
        """Write the state of a clean stop, without making it durable: a sync of the whole disk does. None if
        the log has to be closed alone."""
        async with self.turn:
            await self._flush.settled()
            if self.failure is not None or not self.is_dirty:
                return None
            await self.side.write_snapshot(self.end_offset, self.producers)
            for segment in self.segments[self.floor_segment(self.recovery_point) :]:
                await segment.seal()
                if segment.has_waiting_entries:
                    return None
            return WrittenOut(self.end_offset, self.shape, await self.side.prepare())

    async def put_in_place(self, written: WrittenOut) -> bool:
        """After a sync of the disk: the second half of `write_out`, which a second sync makes durable. False
        if the log has changed since, and has to be closed alone."""
        async with self.turn:
            return self.failure is None and await self.side.put_in_place(written.side_files)

    def count_as_flushed(self, written: WrittenOut) -> None:
        """The disk was synced after `put_in_place`: unless the log has changed, mark it as flushed."""
        is_same = (self.end_offset, self.shape) == (written.end_offset, written.shape)
        if self.failure is None and is_same and self.side.all_synced(written.side_files):
            self.recovery_point = self.end_offset
            self.is_dirty = False

    async def close(self) -> bool:
        """Leave the files as a clean stop does: flushed, indexes trimmed, producers' state written. False if
        the log has failed and could only be released."""
        async with self.turn:
            is_sound = self.failure is None
            if is_sound and self.is_dirty:
                await self.flush()
                await self.side.write_snapshot(self.end_offset, self.producers)
                await self.active.seal()
                await self.active.sync(sealed=True)
                await self.side.sync()
                self.is_dirty = False
            await self._flush.settled()
            self.abandon()
            return is_sound

    async def retire(self, reason: StorageError) -> None:
        """Refuse all calls from now on with `reason`, and release the files."""
        async with self.turn:
            # no flush begins any more; the one in progress still needs the files
            self.failure = self.ended = reason
            await self._flush.settled()
            self.abandon(reason)

    def abandon(self, reason: StorageError | None = None) -> None:
        """Release the files as they are: others may soon have their names."""
        self.failure = self.ended = reason or LogClosed(f"{self.path} was closed")
        for segment in self.segments:
            segment.close()
        for gone in self.doomed:
            gone.segment.close()


def new_segment(home: Home, path: str, config: LogConfig, base_offset: int) -> Segment:
    """A segment object at `base_offset`; the caller opens or creates its files."""
    jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
    return Segment(
        home.disk,
        path,
        base_offset,
        index_interval_bytes=config.index_interval_bytes,
        index_bytes=config.segment_index_bytes,
        created_ms=home.clock.wall_ms(),
        roll_jitter_ms=home.random.below(jitter_ms) if jitter_ms else 0,
    )
