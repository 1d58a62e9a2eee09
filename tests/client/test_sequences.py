"""Numbers of batches, as a state machine of its own."""

from __future__ import annotations

import pytest

from barnabas.client.sequences import (
    MAX_EPOCH,
    REMEMBERED_BATCHES,
    Number,
    ProducerIdentity,
    Refused,
    Sequence,
)
from barnabas.records.batch import MAX_SEQUENCE


def started(epoch: int = 0) -> Sequence:
    sequence = Sequence()
    assert sequence.needs_identity
    assert not sequence.may_number
    sequence.start(ProducerIdentity(7, epoch))
    return sequence


def known(count: int = 1) -> Sequence:
    """A sequence of which the broker has the first batch."""
    sequence = started()
    sequence.written(sequence.number(count))
    return sequence


def test_numbers_count_records() -> None:
    sequence = known(3)
    assert [sequence.number(count) for count in (2, 1)] == [Number(7, 0, 3), Number(7, 0, 5)]


def test_numbers_wrap_as_the_broker_expects() -> None:
    sequence = known(MAX_SEQUENCE)
    assert sequence.number(1).base_sequence == MAX_SEQUENCE
    assert sequence.number(1).base_sequence == 0


def test_the_first_goes_alone() -> None:
    sequence = started()
    first = sequence.number(1)
    assert not sequence.may_number
    sequence.written(first)
    assert sequence.may_number


def test_the_oldest_stays_among_those_a_broker_remembers() -> None:
    sequence = known()
    oldest, *others = (sequence.number(1) for _ in range(REMEMBERED_BATCHES))
    for number in others:
        sequence.written(number)
    assert not sequence.may_number  # one more, and the oldest would no longer be recognised
    sequence.written(oldest)
    assert sequence.may_number


def test_out_of_order_behind_an_open_one_is_sent_again() -> None:
    sequence = known()
    one, two = sequence.number(1), sequence.number(1)
    assert sequence.out_of_order(two, was_first=False) is Refused.SEND_AGAIN
    sequence.written(one)
    # the refusal is from before the first was written
    assert sequence.out_of_order(two, was_first=False) is Refused.SEND_AGAIN


def test_out_of_order_without_a_reason_is_given_up() -> None:
    sequence = known()
    assert sequence.out_of_order(sequence.number(1), was_first=True) is Refused.GIVE_UP


def test_a_gap_is_closed_by_a_new_epoch_when_all_is_settled() -> None:
    sequence = known()
    one, two, three = (sequence.number(1) for _ in range(3))
    sequence.given_up(one)
    assert not sequence.may_number
    assert sequence.out_of_order(two, was_first=True) is Refused.NUMBER_AGAIN
    assert not sequence.may_number
    sequence.written(three)
    assert sequence.may_number
    assert sequence.number(1) == Number(7, 1, 0)


def test_after_the_last_epoch_a_new_id_is_needed() -> None:
    sequence = started(MAX_EPOCH)
    sequence.given_up(sequence.number(1))
    assert sequence.needs_identity
    sequence.start(ProducerIdentity(8, 0))
    assert sequence.number(1) == Number(8, 0, 0)


def test_no_number_is_given_out_of_turn() -> None:
    with pytest.raises(AssertionError):
        Sequence().number(1)


def test_halves_stand_in_the_place_of_the_whole() -> None:
    sequence = known()
    first, second, third = (sequence.number(10) for _ in range(3))
    halves = sequence.split(second, 4)
    assert [each.base_sequence for each in halves] == [11, 15]
    assert [sequence.may_send(each) for each in (first, *halves, third)] == [True] * 4
    quarters = sequence.split(halves[1], 2)
    eighths = sequence.split(quarters[1], 1)
    # the broker remembers five, and would take a sixth for granted while the first may come again
    assert sequence.may_send(eighths[1])
    assert not sequence.may_send(third)
    assert not sequence.may_number
    sequence.written(first)
    assert sequence.may_send(third)
    for each in (halves[0], quarters[0], *eighths, third):
        assert sequence.is_first(each)
        sequence.written(each)
    assert sequence.number(1).base_sequence == 31


def test_of_the_very_first_batch_the_halves_go_one_after_the_other() -> None:
    sequence = Sequence()
    sequence.start(ProducerIdentity(7, 0))
    halves = sequence.split(sequence.number(2), 1)
    assert [sequence.may_send(each) for each in halves] == [True, False]
    sequence.written(halves[0])
    assert sequence.may_send(halves[1])
