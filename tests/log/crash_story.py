"""What was done to each partition, and so what a crash may and may not leave of it.

A `Story` knows nothing of segments, files or indexes: only batches, a start, and how much was promised. One
step is under way at a time (`step`); a crash in the middle of it leaves the partition as it was before, as it
is after, or in between, and `Story.judge` says what "between" may mean. Everything else must be as promised:

- A dead process loses nothing: every batch whose append returned is there.
- A power failure loses at most what was not synced: everything below `synced` is there.
- What a truncation removed never comes back, and neither does what lies below the start.
- Whatever is there is a run of batches without a hole, byte for byte as they were appended.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

from barnabas.records.batch import BatchHeader
from barnabas.records.control import parse_end_transaction
from barnabas.records.reader import read_batch, read_batches
from barnabas.records.record import Record
from tests.support.producer_model import Log, Marker


class Crash(Enum):
    PROCESS = "process"
    POWER = "power"


class Violation(AssertionError):
    """A promise was broken."""


class Stored:
    """A batch as it stands in the log."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.header = BatchHeader.parse(data)
        self.base_offset = self.header.base_offset
        self.next_offset = self.header.next_offset

    @cached_property
    def records(self) -> list[Record]:
        return list(read_batch(self.data))

    @cached_property
    def item(self) -> BatchHeader | Marker | None:
        """What it means to its producer; None without one."""
        header = self.header
        if not header.is_control:
            return header if header.producer_id >= 0 else None
        marker = parse_end_transaction(self.data)
        assert marker is not None
        return Marker(
            header.base_offset,
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            marker.is_commit,
            header.max_timestamp,
        )

    def __repr__(self) -> str:
        return f"<{self.base_offset}..{self.next_offset - 1} epoch {self.header.leader_epoch}>"


def split_batches(data: bytes | bytearray) -> list[Stored]:
    """The batches that stand one behind the other in `data`."""
    return [
        Stored(bytes(data[start : start + header.size_bytes])) for header, start in read_batches(bytes(data))
    ]


class Step(Enum):
    """What is under way. The comment says what a crash may leave."""

    NOTHING = "nothing"  # exactly what was there
    CREATE = "create"  # nothing at all, too
    APPEND = "append"  # the first of the new batches, too
    TRUNCATE = "truncate"  # less, but not less than asked
    START_OVER = "start over"  # any run of the old batches; or nothing, from the new start on
    RAISE_START = "raise start"  # a start between the old and the new one
    DELETE = "delete"  # nothing at all


class Found(NamedTuple):
    """A partition as it was read back; the batches are those from `start_offset` on."""

    start_offset: int
    end_offset: int
    batches: Sequence[Stored]


NOWHERE = Found(0, 0, ())


class Story:
    """The history of one partition. `batches` are all that make up its log, deleted ones at its head
    included, because what they said of producers and epochs may be remembered for longer."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """There is no partition."""
        self.batches: list[Stored] = []
        self.start_offset = self.end_offset = self.synced = 0
        self.exists = False
        # whether a power failure could not take away the partition as a whole
        self.is_durable = False
        self.topic_id: UUID | None = None
        # whether producers of which no batch is left may be unknown: a power failure may have torn a
        # snapshot, a crash in the middle of a fresh start may have taken them all
        self.may_have_forgotten = False
        # a start that a step which failed may have left on the disk
        self.doubtful_start = 0
        self.step = Step.NOTHING
        self._data: bytes | bytearray | memoryview = b""
        self._offset = 0

    def copy(self) -> Story:
        twin = Story.__new__(Story)
        twin.__dict__.update(self.__dict__)
        twin.batches = list(self.batches)
        return twin

    # --- steps: `begin` one, then either what it did is `done`, or a crash is judged

    def begin(self, step: Step, *, data: bytes | bytearray | memoryview = b"", offset: int = 0) -> None:
        if step is Step.TRUNCATE and offset < self.end_offset and self.cut_of(offset) <= self.start_offset:
            # nothing that can be read would be left
            step, offset = Step.START_OVER, min(offset, self.start_offset)
        self.step, self._data, self._offset = step, data, offset
        if step is Step.TRUNCATE:
            self.synced = min(self.synced, self.end_after_cut(offset))
        elif step is Step.START_OVER:
            self.synced = min(self.synced, offset)

    def done(self, *, start_offset: int | None = None) -> None:
        """The step returned."""
        if self.step is Step.CREATE:
            self.exists = True
        elif self.step is Step.APPEND:
            self.batches += self._new_batches()
            self.end_offset = self.batches[-1].next_offset
        elif self.step is Step.TRUNCATE:
            self._cut(self.end_after_cut(self._offset))
        elif self.step is Step.START_OVER:
            self._start_over()
        elif self.step is Step.RAISE_START:
            assert start_offset is not None
            self.start_offset = start_offset
        elif self.step is Step.DELETE:
            self.reset()
        self.step = Step.NOTHING

    def failed(self) -> None:
        """The step raised an error: whatever it did is still to be judged."""
        if self.step is Step.RAISE_START:
            self.doubtful_start = max(self.doubtful_start, self._offset)

    def was_synced(self, up_to: int | None = None) -> None:
        """A flush up to there returned."""
        up_to = self.end_offset if up_to is None else up_to
        self.is_durable = self.is_durable or up_to > self.synced
        self.synced = max(self.synced, up_to)

    def _new_batches(self) -> list[Stored]:
        """What is being appended, if it has its offsets yet."""
        batches = split_batches(bytes(self._data))
        return batches if batches[0].base_offset >= self.end_offset else []

    def _cut(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        self.end_offset = offset

    def _start_over(self) -> None:
        self.batches = []
        self.start_offset = self.end_offset = self.synced = self._offset

    def cut_of(self, offset: int) -> int:
        """Where a truncation to `offset` really cuts: at the start of the batch that holds it."""
        for batch in self.batches:
            if batch.next_offset > offset:
                return min(batch.base_offset, offset)
        return min(offset, self.end_offset)

    def end_after_cut(self, offset: int) -> int:
        """Where the log ends after a truncation to `offset`: with the last batch before it."""
        if offset >= self.end_offset:
            return self.end_offset
        kept = [batch.next_offset for batch in self.batches if batch.next_offset <= offset]
        return kept[-1] if kept else self.cut_of(offset)

    def between(self, start_offset: int, end_offset: int) -> list[Stored]:
        """The batches with something in that range."""
        first = bisect_right(self.batches, start_offset, key=lambda batch: batch.next_offset)
        beyond = bisect_left(self.batches, end_offset, key=lambda batch: batch.base_offset)
        return self.batches[first:beyond] if start_offset < end_offset else []

    # --- after a crash

    def judge(self, crash: Crash, found: Found | None) -> None:
        """Raise a Violation unless a crash now may leave `found` (None: no partition); then go on from
        there."""
        if found in (None, NOWHERE) and self._may_be_gone(crash):
            topic_id = self.topic_id if self.step is Step.CREATE else None
            self.reset()
            self.exists, self.topic_id = found is not None, topic_id
            return
        if found is None:
            raise Violation("the partition is gone")
        if not self.exists and self.step is not Step.CREATE:
            raise Violation(f"a partition that was deleted is back, with {list(found.batches)}")
        candidates = self.batches + (self._new_batches() if self.step is Step.APPEND else [])
        self._judge_end(crash, found, candidates)
        self._judge_start(found)
        self._judge_batches(found, candidates)
        self._go_on(crash, found, candidates)

    def _may_be_gone(self, crash: Crash) -> bool:
        if not self.exists or self.step in (Step.CREATE, Step.DELETE):
            return True
        return crash is Crash.POWER and not self.is_durable

    def _judge_end(self, crash: Crash, found: Found, candidates: Sequence[Stored]) -> None:
        low = self.end_offset
        high = candidates[-1].next_offset if candidates else self.end_offset
        if self.step is Step.TRUNCATE:
            low = self.end_after_cut(self._offset)
        elif self.step is Step.START_OVER:
            low, high = min(self.start_offset, self._offset), max(high, self._offset)
        if crash is Crash.POWER:
            low = min(low, self.synced)
        high = max(high, self.start_offset)
        if not low <= found.end_offset <= high:
            raise Violation(f"the log ends at {found.end_offset}, not between {low} and {high}")

    def _judge_start(self, found: Found) -> None:
        low, high = self.start_offset, max(self.start_offset, self.doubtful_start)
        if self.step is Step.RAISE_START:
            high = max(high, self._offset)
        elif self.step is Step.START_OVER:
            low = low if found.batches else min(low, self._offset)
            high = max(self.end_offset, self._offset)
        if not low <= found.start_offset <= high:
            raise Violation(f"the log starts at {found.start_offset}, not between {low} and {high}")

    def _judge_batches(self, found: Found, candidates: Sequence[Stored]) -> None:
        expected = [
            batch
            for batch in candidates
            if batch.next_offset > found.start_offset and batch.next_offset <= found.end_offset
        ]
        if [batch.data for batch in expected] != [batch.data for batch in found.batches]:
            raise Violation(
                f"from {found.start_offset} to {found.end_offset} there is {list(found.batches)}, "
                f"where {expected} was appended"
            )
        end = expected[-1].next_offset if expected else found.start_offset
        if found.end_offset != end:
            raise Violation(f"the log ends at {found.end_offset}, its batches at {end}")

    def _go_on(self, crash: Crash, found: Found, candidates: Sequence[Stored]) -> None:
        """The survivors are the log from now on; each of them still stands for what it stood for."""
        self.batches = [batch for batch in candidates if batch.next_offset <= found.end_offset]
        if self.batches and self.batches[-1].next_offset != found.end_offset:
            self.batches = []  # nothing is left, and the log begins anew at its start
        self.start_offset, self.end_offset = found.start_offset, found.end_offset
        self.synced = min(self.synced, found.end_offset)
        self.may_have_forgotten |= crash is Crash.POWER or self.step is Step.START_OVER
        self.exists = True
        self.step = Step.NOTHING

    # --- what follows from the batches

    def producers(self, start_offset: int = 0) -> Log:
        """The producers' state that the batches from `start_offset` on amount to."""
        log = Log()
        for batch in self.batches:
            if batch.base_offset >= start_offset and batch.item is not None:
                log.append(batch.item)
        return log

    def epochs(self) -> list[tuple[int, int]]:
        """Every leader epoch that has something between start and end, and where it begins."""
        found: list[tuple[int, int]] = []
        for batch in self.between(self.start_offset, self.end_offset):
            if not found or batch.header.leader_epoch > found[-1][0]:
                found.append((batch.header.leader_epoch, max(batch.base_offset, self.start_offset)))
        return found

    def records(self) -> list[tuple[Record, int]]:
        """Every record between start and end, with its batch's leader epoch."""
        return [
            (record, batch.header.leader_epoch)
            for batch in self.between(self.start_offset, self.end_offset)
            for record in batch.records
            if record.offset >= self.start_offset
        ]
