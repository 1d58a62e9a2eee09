"""A partition's log: what a leader or a follower appends to, and readers read from.

Offsets run from `start_offset` to `end_offset`; they are given out once and never change. Readers are bound
by the high watermark or the last stable offset, both of which only this class moves. Appends, truncations
and deletions take turns (`turn`); reads do not wait for them: they see an append only once it is whole
(`end_offset` moves last), and notice a truncation by the log's `shape`.

What survives what: an append that returned is in the page cache, so a dead process loses nothing of it;
below `recovery_point` everything is on the disk, so a power failure loses nothing of that. `end_offset` and
the producers' state change only after the write succeeded: one that fails leaves no trace. Where the
disk fails in a way that leaves the files in doubt, the log refuses further appends until it is opened anew,
which recovers it.
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

ANY_EPOCH = 2**31 - 1  # of who is asked for batches, where that is no matter

_epoch_of = attrgetter("leader_epoch")


class Home(NamedTuple):
    """What a partition's log is given by the directory it lives in."""

    disk: Disk
    clock: Clock
    random: Random
    workers: Workers
    # make recovery points and start offsets durable, before something relies on them
    persist: Callable[[], Awaitable[None]]
    # a segment was sealed and can be flushed in the background
    on_roll: Callable[[PartitionLog], None]
    # what is on the disk is in doubt
    on_failure: Callable[[StorageError], None]
    # a call of the disk failed, though nothing is in doubt because of that
    on_trouble: Callable[[StorageError], None]
    # what is counted of all logs there
    totals: LogTotals


class Bound(Enum):
    """How far a reader may see."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    LAST_STABLE = "last stable offset"


class Appended(NamedTuple):
    """What became of an append."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False
    stored_bytes: int = 0  # where the topic has a codec of its own, it is not what was sent


# what `Appended(...)` comes down to, without the call in between that every append would pay for
_appended = partial(tuple.__new__, Appended)


class WrittenOut(NamedTuple):
    """What a log was when it was written out, to tell whether it has changed since."""

    end_offset: int
    shape: int
    side_files: tuple[int, int]


class UnexpectedOffset(BarnabasError):
    """A leader sent batches that do not follow what this follower has, the first of them from `first_offset`
    to `last_offset`."""

    def __init__(self, what: str, first_offset: int, last_offset: int) -> None:
        super().__init__(what)
        self.first_offset = first_offset
        self.last_offset = last_offset


class Interrupted(StorageError):
    """A change of the log was cancelled half-way."""


class LogClosed(StorageError):
    """The log was closed while something still used it."""


class ReadEnd(NamedTuple):
    """Where the batch stands that begins with a certain offset, as long as the log keeps its shape."""

    shape: int
    segment: Segment
    position: int


class Doomed(NamedTuple):
    """A segment on its way out: renamed, and removed when it is time and nobody reads it."""

    due_at: float  # by monotonic time: a wall clock that is set back would keep it, one set forward hurry it
    segment: Segment
    paths: tuple[str, ...]


class PartitionLog:
    """One partition on one disk. `trimming` and `reading` work on it from their own files."""

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
        self.start_to_be = 0  # where it is to start, while that is being made durable
        self.end_offset = end_offset
        self.high_watermark = start_offset
        self.recovery_point = recovery_point
        # up to where compaction has been; None where it never was
        self.cleaned_offset: int | None = None
        self.epochs = epochs
        latest = epochs.latest_epoch
        self._latest_epoch = -1 if latest is None else latest
        self.lowest_epoch = -1  # leaders of earlier epochs append no more
        self.producers = producers
        self.side = SideFiles(home.disk, path, epochs, snapshot_offset, is_dirty=is_dirty)
        self.flushed_at = home.clock.monotonic()  # a wall clock that is set back would put flushes off
        self.turn = Turn()
        # why it takes no more changes; and why it is not even there to be read any more
        self.failure: StorageError | None = None
        self.ended: StorageError | None = None
        self.doomed: list[Doomed] = []
        # odd while segments are being cut or taken away, and another number afterwards
        self.shape = 0
        # where reads ended, so that those who go on from there need no look-up (see `reading`)
        self.read_ends: dict[int, ReadEnd] = {}
        self._flush = SharedCall(self._flush_once)
        # a segment is sealed, or about to be, and still the active one; only while the turn is taken
        self._is_rolling = False
        # whether a close has anything to do
        self.is_dirty = is_dirty

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def last_stable_offset(self) -> int:
        """Everything below is decided: no transaction that is still open, or not yet replicated as ended."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.start_offset), self.high_watermark)

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, -1 where there is none."""
        for epoch, start_offset in reversed(self.epochs.entries):  # the latest may not have written anything
            if start_offset < self.end_offset:
                return epoch
        return -1

    def start_of_epoch(self, epoch: int) -> int:
        """Where the latest leader epoch begins: at the end of the log as long as nothing is written in it."""
        latest = self.epochs.latest
        return latest.start_offset if latest is not None and latest.epoch == epoch else self.end_offset

    @property
    def held_end(self) -> int:
        """Up to where the log counts as written: what flush.messages wants synced does so once it is."""
        if self.end_offset - self.recovery_point < self.config.flush_messages:
            return self.end_offset
        return self.recovery_point

    def bound(self, bound: Bound) -> int:
        """The offset up to which such a reader may see."""
        if bound is Bound.LOG_END:
            return self.end_offset
        return self.high_watermark if bound is Bound.HIGH_WATERMARK else self.last_stable_offset

    def advance_high_watermark(self, offset: int) -> bool:
        """Move the high watermark up to `offset`, never back and never beyond the end; True if it moved."""
        offset = min(offset, self.end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark(offset)
        return True

    def floor_segment(self, offset: int) -> int:
        """The index of the segment in which `offset` stands."""
        return max(0, bisect_right(self.bases, offset) - 1)

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in the segments opened so far; all of them after `trimming.segment_facts`."""
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
        """Give what is in `data` the next offsets, in place, and append it with one write.

        A client appends one batch; `guard` is what it was verified with, if it begins a transaction.
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
        """Append batches as the leader numbered them; a last one that is cut short is left out.

        `leader_epoch` is the epoch in which the leader was asked. Batches of a later one are left out: the
        log that they come from may have been cut between this leader's word and its bytes.
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
                # no segment has room for such a stretch; what is left out comes with the next fetch
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
        """Write batches that are checked and numbered; the state follows once they are in the file."""
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
        # Readers and the high watermark go by the end of the log: it moves at once with the segment's, when
        # everything that they will ask of the producers and of the aborted transactions is in place.
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
            # readers would take the aborted records for committed ones
            self.fail(error)
            raise

    def begin_leading(self, epoch: int) -> None:
        """The epoch of this node as leader begins at the end of the log. While an append is being written
        that end is about to move: then the epoch begins with the first append of its own."""
        self.refuse_epochs_before(epoch)
        if not self.turn.is_taken:
            self.begin_epoch(epoch, self.end_offset)

    def require_epoch(self, epoch: int) -> None:
        """Refuse a change that was asked for in an epoch that is over."""
        if epoch < self.lowest_epoch:
            raise FencedLeaderEpoch(f"leader epoch {epoch} of {self.path} is over")

    def refuse_epochs_before(self, epoch: int) -> None:
        """Refuse appends of leaders whose epoch is over, also those that wait for their turn."""
        self.lowest_epoch = max(self.lowest_epoch, epoch)

    def begin_epoch(self, epoch: int, start_offset: int) -> None:
        """Note that a leader's epoch begins at `start_offset`."""
        if epoch >= 0 and self.epochs.assign(epoch, start_offset):
            self.epochs_changed()

    def _note_epoch(self, header: BatchHeader) -> None:
        """Note the epoch of a batch that has been appended. It may be an earlier one than the latest, where
        this node has led in the latest, has written nothing, and the next leader has never heard of that. The
        latest is none of this log's then, and would be taken for the end of the one before."""
        if header.leader_epoch < self._latest_epoch and self.epochs.truncate_from_end(header.base_offset):
            self.epochs_changed()
        if header.leader_epoch > self._latest_epoch:
            self.begin_epoch(header.leader_epoch, header.base_offset)

    def epochs_changed(self) -> None:
        """The epochs are written with the next flush: until then the batches themselves, which recovery reads
        from the recovery point on, tell what the file does not."""
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
        """Seal the active segment and begin a new one; False where it is empty and may as well go on."""
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
                # everything in it counts as synced already: its indexes must not be the exception
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
        """Whoever had a segment made went away meanwhile: its file, if it is there by now, would hide what is
        appended to the one before it. However often this is cancelled, it ends when that is settled."""
        removal = asyncio.ensure_future(self.home.disk.remove(segment.path(names.LOG)))
        while not removal.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((removal,))
        if removal.cancelled() or removal.exception() is not None:
            self.fail(error)
        self.side.names_changed()

    def require_sound(self) -> None:
        """Raise what made the log refuse further changes, if anything did."""
        if self.failure is not None:
            raise self.failure

    def fail(self, error: BaseException) -> None:
        """Refuse all further changes: what the files hold is in doubt until they are opened anew."""
        logger.error("%s takes no more appends until it is opened anew: %s", self.path, error)
        if not isinstance(error, StorageError):
            error = Interrupted(
                f"a change of {self.path} was interrupted ({error!r}); open it anew to recover it"
            )
        self.failure = error
        self.home.on_failure(error)

    @contextmanager
    def reshaping(self) -> Iterator[None]:
        """While segments are cut or taken away: look-ups that overlap it start over. Where it is not carried
        through, the files are in doubt, and the log refuses further changes."""
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
        """Make everything below `end_offset` durable if flush.messages asks for it, as an append does."""
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
        """Make everything below `up_to` (by default the end) durable; one sync serves all who wait."""
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
        """Takes no turn: whoever has one, and closes the log, may be waiting for this."""
        if self.shape & 1 or self.recovery_point >= self.end_offset:
            return  # the caller looks again what is left to flush
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
                # what a failed sync left unwritten is unknown, and a second sync would not say
                self.fail(error)
                raise
        self.home.totals.flushes.observe(self.home.clock.monotonic() - began)
        # A segment that was cut or sealed meanwhile is not synced as a whole: its indexes are not, and below
        # the recovery point nobody would look at them again after a crash. The next round syncs them.
        if shape == self.shape and active is self.active and not self._is_rolling:
            self.recovery_point = max(self.recovery_point, end_offset)
            self.flushed_at = self.home.clock.monotonic()

    def expire_producers(self) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`."""
        self.producers.expire(self.home.clock.wall_ms(), self.config.producer_id_expiration_ms)

    async def write_out(self) -> WrittenOut | None:
        """Write what a clean stop leaves behind, without making it durable: that is for a sync of the whole
        disk. None where the log has to be closed by itself."""
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
        where the log has changed since, and has to be closed by itself."""
        async with self.turn:
            return self.failure is None and await self.side.put_in_place(written.side_files)

    def count_as_flushed(self, written: WrittenOut) -> None:
        """The disk was synced after `put_in_place`: unless the log has changed, nothing is left to do."""
        is_same = (self.end_offset, self.shape) == (written.end_offset, written.shape)
        if self.failure is None and is_same and self.side.all_synced(written.side_files):
            self.recovery_point = self.end_offset
            self.is_dirty = False

    async def close(self) -> bool:
        """Leave the files as a clean stop does: flushed, indexes trimmed, producers' state written. False
        where a failed log can only be let go."""
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
        """Refuse everything from now on, for that reason, and let go of the files."""
        async with self.turn:
            # no flush begins any more; the one under way still needs the files
            self.failure = self.ended = reason
            await self._flush.settled()
            self.abandon(reason)

    def abandon(self, reason: StorageError | None = None) -> None:
        """Let go of the files as they are: others may soon stand under their names."""
        self.failure = self.ended = reason or LogClosed(f"{self.path} was closed")
        for segment in self.segments:
            segment.close()
        for gone in self.doomed:
            gone.segment.close()


def new_segment(home: Home, path: str, config: LogConfig, base_offset: int) -> Segment:
    """A segment object at `base_offset`; its files are opened or created by whoever asked for it."""
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
