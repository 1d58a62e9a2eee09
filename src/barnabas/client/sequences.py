"""Numbers by which a broker recognises what it has already got: one sequence a partition. Pure.

A batch is numbered when it is first sent, and keeps its number however often it is sent again, until the
broker's answer settles it. A broker remembers the last five batches, by which it recognises one that is sent
again; so no batch is numbered until the fifth before it is settled, even if those between are. The states:

    WHOLE   every number given out is settled as written, or still open
    BROKEN  a numbered batch was given up (refused, too old): a gap that the broker will not accept
            -> no new numbers; open batches are settled: written, or refused as out of order, which proves
               that they were not written: those lose their number
            -> when none is open: the epoch goes up by one, numbers start at 0 again, WHOLE

A broker that knows nothing of a producer accepts whatever number comes first. So the first batch goes alone:
until it is written, no other is numbered.

The epoch is the partition's own: for a producer without transactions nobody but the partition's leader looks
at it. After the last epoch a new producer id is needed.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from barnabas.records.batch import increment_sequence

MAX_EPOCH = 0x7FFF
REMEMBERED_BATCHES = 5


class ProducerIdentity(NamedTuple):
    """Who sends: an id from the broker, and its epoch."""

    producer_id: int
    epoch: int


class Number(NamedTuple):
    """What a batch is sent under."""

    producer_id: int
    epoch: int
    base_sequence: int


class Refused(Enum):
    """What to make of a batch that the broker called out of order."""

    SEND_AGAIN = auto()  # one before it was open: its turn will come
    NUMBER_AGAIN = auto()  # the gap before it is known; it was not written
    GIVE_UP = auto()  # nothing explains it but that the broker lost what it had acknowledged


class Sequence:
    """The numbers of one partition."""

    __slots__ = ("_given", "_identity", "_is_known", "_next", "_open", "is_broken")

    def __init__(self) -> None:
        self._identity: ProducerIdentity | None = None
        self._next = 0
        self._open: dict[Number, int] = {}  # which one it was, counting from the first; in that order
        self._given = 0
        self.is_broken = False
        self._is_known = False  # to the broker, under this id and epoch

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
        """Number from 0 under a producer id that is new."""
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
        """Whether a batch that has a number may go out: see REMEMBERED_BATCHES, which halves may exceed."""
        oldest = next(iter(self._open.values()))
        at = self._open[number]
        return at == oldest or (self._is_known and at - oldest < REMEMBERED_BATCHES)

    def split(self, number: Number, record_count: int) -> tuple[Number, Number]:
        """The numbers of two batches that go in the place of one, which the broker has not got."""
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
        """The broker has the batch."""
        self._is_known = True
        self._settle(number)

    def given_up(self, number: Number) -> None:
        """The batch will not be sent again, and the broker may not have it."""
        self.is_broken = True
        self._settle(number)

    def is_first(self, number: Number) -> bool:
        """Whether everything before it is settled."""
        return next(iter(self._open)) == number

    def out_of_order(self, number: Number, *, was_first: bool) -> Refused:
        """The broker has not got the batch, for the lack of the one before.

        `was_first` tells how it stood when it was sent: what was open then may have been written since, by
        another broker even, so that the refusal means nothing any more.
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
