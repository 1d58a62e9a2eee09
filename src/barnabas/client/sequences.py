"""Sequence numbers, by which a broker detects duplicates: one sequence for each partition. Pure.

A batch is numbered when it is first sent, and keeps its number in retries, until the broker's response
settles it. A broker remembers the last five batches of a producer to detect duplicates; so no batch is
numbered until the fifth before it is settled, even if those between are. The states:

    WHOLE   every assigned number is settled as written, or still open
    BROKEN  a numbered batch has failed (refused, too old): a gap that the broker will not accept
            -> no new numbers; open batches are settled: written, or refused as out of order, which proves
               that they were not written: those lose their number
            -> when none is open: the epoch goes up by one, numbers start at 0 again, WHOLE

A broker that does not know a producer accepts any first number. So the first batch is sent alone: until it is
written, no other is numbered.

The epoch belongs to the partition: for a producer without transactions only the partition's leader checks it.
After the last epoch a new producer id is needed.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from barnabas.records.batch import increment_sequence

MAX_EPOCH = 0x7FFF
REMEMBERED_BATCHES = 5


class ProducerIdentity(NamedTuple):
    """A producer id from the broker, and its epoch."""

    producer_id: int
    epoch: int


class Number(NamedTuple):
    """The producer id, epoch and sequence of a batch."""

    producer_id: int
    epoch: int
    base_sequence: int


class Refused(Enum):
    """The next step for a batch that the broker refused as out of order."""

    SEND_AGAIN = auto()  # an earlier one was open: retry
    NUMBER_AGAIN = auto()  # the gap before it is known; it was not written
    GIVE_UP = auto()  # the broker must have lost acknowledged batches


class Sequence:
    """The sequence of one partition."""

    __slots__ = ("_given", "_identity", "_is_known", "_next", "_open", "is_broken")

    def __init__(self) -> None:
        self._identity: ProducerIdentity | None = None
        self._next = 0
        self._open: dict[Number, int] = {}  # with their ordinals, in that order
        self._given = 0
        self.is_broken = False
        self._is_known = False  # to the broker, with this id and epoch

    @property
    def needs_identity(self) -> bool:
        return self._identity is None

    @property
    def may_number(self) -> bool:
        is_whole = self._identity is not None and not self.is_broken
        if not is_whole or not self._open:
            return is_whole
        oldest = next(iter(self._open.values()))
        return self._is_known and self._given - oldest < REMEMBERED_BATCHES

    def start(self, identity: ProducerIdentity) -> None:
        """Number from 0 with a new producer id."""
        assert self._identity is None
        assert not self._open
        self._identity, self._next = identity, 0

    def number(self, record_count: int) -> Number:
        """The number of the next batch, which is about to be sent."""
        assert self._identity is not None
        assert self.may_number
        given = Number(*self._identity, self._next)
        self._next = increment_sequence(self._next, record_count)
        self._open[given] = self._given
        self._given += 1
        return given

    def may_send(self, number: Number) -> bool:
        """Whether a numbered batch may be sent: see REMEMBERED_BATCHES, which halves may exceed."""
        oldest = next(iter(self._open.values()))
        at = self._open[number]
        return at == oldest or (self._is_known and at - oldest < REMEMBERED_BATCHES)

    def split(self, number: Number, record_count: int) -> tuple[Number, Number]:
        """The numbers of two batches that replace one, which the broker has not written."""
        producer_id, epoch, base = number
        second = Number(producer_id, epoch, increment_sequence(base, record_count))
        numbers: dict[Number, int] = {}
        for each, at in self._open.items():
            numbers[each] = at + (second in numbers)
            if each == number:
                numbers[second] = at + 1
        self._open = numbers
        self._given += 1
        return number, second

    def written(self, number: Number) -> None:
        """The broker has written the batch."""
        self._is_known = True
        self._settle(number)

    def given_up(self, number: Number) -> None:
        """The batch has failed: it will not be retried, and the broker may not have written it."""
        self.is_broken = True
        self._settle(number)

    def is_first(self, number: Number) -> bool:
        """Whether all batches before it are settled."""
        return next(iter(self._open)) == number

    def out_of_order(self, number: Number, *, was_first: bool) -> Refused:
        """The broker has refused the batch, since the one before is missing.

        `was_first` is the state when it was sent: batches that were open then may have been written since,
        even by another broker, so that the refusal means nothing any more.
        """
        if not was_first or not self.is_first(number):
            return Refused.SEND_AGAIN
        if not self.is_broken:
            return Refused.GIVE_UP
        self._settle(number)
        return Refused.NUMBER_AGAIN

    def _settle(self, number: Number) -> None:
        del self._open[number]
        if self.is_broken and not self._open:
            assert self._identity is not None
            producer_id, epoch = self._identity
            self._identity = ProducerIdentity(producer_id, epoch + 1) if epoch < MAX_EPOCH else None
            self._next = 0
            self.is_broken = self._is_known = False
