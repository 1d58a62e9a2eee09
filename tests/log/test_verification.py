"""What begins a transaction in a partition must have been verified (KIP-890)."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.errors import InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log.producer import Duplicate
from barnabas.log.producers import TRUSTED, Guard, Origin, ProducerStates
from barnabas.records.batch import BatchHeader
from barnabas.records.control import ControlType, build_end_transaction
from tests.support import logs
from tests.support.producer_model import batch

P = 7  # a producer's id


def txn(epoch: int, sequence: int) -> BatchHeader:
    return batch(P, epoch, sequence, transactional=True)


def begin(
    states: ProducerStates, epoch: int, sequence: int, *, starts_at_zero: bool = False, now_ms: int = 0
) -> Guard | None:
    return states.begin_verification(P, epoch, sequence, starts_at_zero=starts_at_zero, now_ms=now_ms)


def check(states: ProducerStates, header: BatchHeader, guard: Guard | None) -> Duplicate | None:
    return states.check(header, origin=Origin.CLIENT, guard=guard)


def end(states: ProducerStates, epoch: int, offset: int = 1) -> None:
    states.apply_marker(P, epoch, 0, commit=True, offset=offset, timestamp=0)


def test_a_transaction_does_not_begin_unverified() -> None:
    states = ProducerStates()
    with pytest.raises(InvalidTransactionState, match="not part of an ongoing transaction"):
        check(states, txn(0, 0), None)
    guard = begin(states, 0, 0)
    assert guard is not None
    assert check(states, txn(0, 0), guard) is None
    with pytest.raises(InvalidTransactionState):
        check(states, txn(0, 0), None)
    assert check(states, txn(0, 0), TRUSTED) is None


def test_where_it_is_open_nobody_needs_to_be_asked() -> None:
    states = ProducerStates()
    states.apply(txn(3, 0), 0)
    assert begin(states, 3, 1) is None
    assert check(states, txn(3, 1), None) is None
    # in another epoch it may have ended without this partition having heard of it
    assert begin(states, 4, 0) is not None
    with pytest.raises(InvalidTransactionState):
        check(states, txn(4, 0), None)


def test_a_marker_in_between_makes_a_verification_void() -> None:
    states = ProducerStates()
    guard = begin(states, 0, 0)
    end(states, 0)
    with pytest.raises(InvalidTransactionState):
        check(states, txn(0, 0), guard)
    # nor does the next one, of the same producer, help it
    assert begin(states, 0, 0) is not guard
    with pytest.raises(InvalidTransactionState):
        check(states, txn(0, 0), guard)


def test_a_verification_serves_one_transaction() -> None:
    states = ProducerStates()
    guard = begin(states, 0, 0)
    states.apply(txn(0, 0), 0)
    end(states, 0)
    with pytest.raises(InvalidTransactionState):
        check(states, txn(0, 1), guard)


def test_a_late_batch_is_fenced_once_the_marker_raised_the_epoch() -> None:
    states = ProducerStates()
    states.apply(txn(5, 0), 0)
    states.check_marker(P, 6, 0, transaction_version=2)
    end(states, 6)
    with pytest.raises(InvalidProducerEpoch):
        begin(states, 5, 1)
    with pytest.raises(InvalidProducerEpoch):
        check(states, txn(5, 1), TRUSTED)
    with pytest.raises(InvalidProducerEpoch):
        check(states, txn(5, 0), TRUSTED)  # even one that it has: that was acknowledged before the end
    guard = begin(states, 6, 0, starts_at_zero=True)
    with pytest.raises(OutOfOrderSequence):
        check(states, txn(6, 1), guard)
    assert check(states, txn(6, 0), guard) is None


def test_a_batch_sent_again_is_recognised_without_a_verification() -> None:
    states = ProducerStates()
    states.apply(txn(0, 0), 0)
    end(states, 0)
    assert check(states, txn(0, 0), None) == Duplicate(0, 0, 1000)


def test_the_lowest_sequence_goes_first() -> None:
    """Batches 0 and 1 are under way, and 0 could not be verified the first time."""
    states = ProducerStates()
    guard = begin(states, 0, 0)
    assert begin(states, 0, 1) is guard
    with pytest.raises(OutOfOrderSequence, match="while 0 is still to come"):
        check(states, txn(0, 1), guard)
    assert check(states, txn(0, 0), guard) is None
    # a new epoch begins anew
    assert begin(states, 1, 3) is guard
    assert check(states, txn(1, 3), guard) is None
    assert begin(states, 1, 2) is guard
    with pytest.raises(OutOfOrderSequence):
        check(states, txn(1, 3), guard)


def test_who_raises_his_epoch_begins_with_zero() -> None:
    states = ProducerStates()
    assert check(states, txn(0, 9), begin(states, 0, 9)) is None  # its state may have expired
    guard = begin(states, 0, 9, starts_at_zero=True)
    with pytest.raises(OutOfOrderSequence, match="of whom nothing is known"):
        check(states, txn(0, 9), guard)


def test_verifications_of_those_who_never_came_back_expire() -> None:
    states = ProducerStates()
    guard = begin(states, 0, 0, now_ms=1000)
    states.expire(1999, 1000)
    assert begin(states, 0, 0) is guard
    states.expire(2000, 1000)
    with pytest.raises(InvalidTransactionState):
        check(states, txn(0, 0), guard)


def test_a_coordinator_asks_before_it_writes() -> None:
    states = ProducerStates()
    guard = begin(states, 2, -1)
    states.check_verified(P, 2, guard)
    states.apply(batch(P, 2, -1, transactional=True), 0)
    states.check_verified(P, 2, guard)  # it is open now
    end(states, 2)
    with pytest.raises(InvalidTransactionState):
        states.check_verified(P, 2, guard)
    end(states, 3, 2)
    with pytest.raises(InvalidProducerEpoch):
        states.check_verified(P, 2, begin(states, 3, -1))
    states.check_verified(P, 3, TRUSTED)


def test_other_producers_are_not_asked() -> None:
    states = ProducerStates()
    begin(states, 0, 5)
    assert check(states, batch(P + 1, 0, 9), None) is None
    states.apply(batch(P + 1, 0, 9), 0)
    assert check(states, batch(P + 1, 0, 10), None) is None


def test_a_marker_that_is_appended_while_a_batch_waits_for_its_turn() -> None:
    async def scenario() -> None:
        directory = await logs.open_directory(MemoryDisk())
        log = await directory.partition("t", 0)
        guard = log.producers.begin_verification(P, 0, 0, starts_at_zero=False, now_ms=0)
        marker = build_end_transaction(
            ControlType.ABORT, producer_id=P, producer_epoch=0, coordinator_epoch=0, timestamp=0
        )
        late = logs.batch(1, producer_id=P, producer_epoch=0, base_sequence=0, transactional=True)
        async with log.turn:
            ending = asyncio.create_task(log.append_as_leader(marker, 0, Origin.COORDINATOR))
            await asyncio.sleep(0)
            sending = asyncio.create_task(log.append_as_leader(late, 0, guard=guard))
            await asyncio.sleep(0)
        await ending
        with pytest.raises(InvalidTransactionState):
            await sending
        assert (log.end_offset, log.last_stable_offset) == (1, 0)
        log.advance_high_watermark(1)
        assert log.last_stable_offset == 1

    asyncio.run(scenario())
