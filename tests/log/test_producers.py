from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.errors import (
    BarnabasError,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from barnabas.log.producer import Duplicate, ProducerEntry
from barnabas.log.producers import MAX_PRODUCER_EPOCH, CompletedTransaction, Origin, ProducerStates
from barnabas.log.snapshots import decode_snapshot, encode_snapshot
from barnabas.records.batch import MAX_SEQUENCE, BatchHeader
from tests.support.producer_model import Log, Marker, batch

CLIENT = Origin.CLIENT
P = 7  # a producer's id


def states_after(*headers: BatchHeader) -> ProducerStates:
    """What is known after these batches, one behind the other from offset 0 on."""
    states, offset = ProducerStates(), 0
    for header in headers:
        states.apply(header, offset)
        offset += header.last_offset_delta + 1
    return states


def check(states: ProducerStates, header: BatchHeader) -> Duplicate | None:
    return states.check(header, origin=CLIENT)


def end(
    states: ProducerStates, offset: int, *, epoch: int = 0, commit: bool = True
) -> CompletedTransaction | None:
    return states.apply_marker(P, epoch, 0, commit=commit, offset=offset, timestamp=2000)


# --- sequences


def test_a_producer_of_which_nothing_is_known_may_begin_anywhere() -> None:
    assert check(ProducerStates(), batch(P, 3, 0)) is None
    assert check(ProducerStates(), batch(P, 3, 1234)) is None


def test_sequences_continue() -> None:
    states = states_after(batch(P, 0, 0, count=3))
    assert check(states, batch(P, 0, 3)) is None
    for sequence in (1, 2, 4, 100, MAX_SEQUENCE):
        with pytest.raises(OutOfOrderSequence, match=f"sequence {sequence} in epoch 0, where 3 comes next"):
            check(states, batch(P, 0, sequence))


def test_sequences_wrap() -> None:
    states = states_after(batch(P, 0, MAX_SEQUENCE - 1, count=2))
    assert check(states, batch(P, 0, 0)) is None
    with pytest.raises(OutOfOrderSequence):
        check(states, batch(P, 0, 1))
    states = states_after(batch(P, 0, MAX_SEQUENCE, count=3))
    assert check(states, batch(P, 0, 2)) is None
    assert check(states, batch(P, 0, MAX_SEQUENCE, count=3)) == Duplicate(0, 2, 1000)


def test_a_new_epoch_begins_with_sequence_0() -> None:
    states = states_after(batch(P, 0, 0))
    assert check(states, batch(P, 1, 0)) is None
    with pytest.raises(OutOfOrderSequence, match="begins epoch 1 with sequence 1, not 0"):
        check(states, batch(P, 1, 1))


def test_an_old_epoch_is_fenced() -> None:
    states = states_after(batch(P, 4, 0))
    with pytest.raises(InvalidProducerEpoch, match="epoch 3, but epoch 4"):
        check(states, batch(P, 3, 1))
    with pytest.raises(InvalidProducerEpoch):
        states.check(batch(P, 3, -1), origin=Origin.COORDINATOR)


def test_a_coordinator_sends_no_sequences() -> None:
    states = states_after(batch(P, 4, 9))
    assert states.check(batch(P, 4, -1), origin=Origin.COORDINATOR) is None


def test_checking_changes_nothing() -> None:
    states = states_after(batch(P, 4, 9))
    before = list(states.entries())
    check(states, batch(P, 4, 10))
    check(states, batch(P + 1, 0, 0))
    states.check_marker(P + 2, 0, 0, transaction_version=2)
    assert (list(states.entries()), len(states)) == (before, 1)


# --- duplicates


def test_the_last_five_batches_are_recognised() -> None:
    batches = [batch(P, 0, i * 2, count=2, timestamp=i) for i in range(6)]
    states = states_after(*batches)
    for i in range(1, 6):
        assert check(states, batches[i]) == Duplicate(i * 2, i * 2 + 1, i)
    with pytest.raises(OutOfOrderSequence):
        check(states, batches[0])


def test_only_the_very_same_sequences_are_a_duplicate() -> None:
    states = states_after(batch(P, 0, 0, count=2), batch(P, 0, 2, count=2))
    for header in (batch(P, 0, 0), batch(P, 0, 0, count=4), batch(P, 0, 1, count=2), batch(P, 0, 3)):
        with pytest.raises(OutOfOrderSequence):
            check(states, header)
    assert states.check(batch(P, 0, 2, count=2), origin=Origin.COORDINATOR) is None


def test_a_new_epoch_forgets_the_batches_of_the_old() -> None:
    states = states_after(batch(P, 0, 0), batch(P, 1, 0))
    assert check(states, batch(P, 1, 0)) == Duplicate(1, 1, 1000)
    with pytest.raises(InvalidProducerEpoch):
        check(states, batch(P, 0, 0))


# --- transactions


def test_a_write_outside_of_the_open_transaction_is_refused() -> None:
    states = states_after(batch(P, 0, 0, transactional=True))
    assert check(states, batch(P, 0, 1, transactional=True)) is None
    with pytest.raises(InvalidTransactionState, match="began at offset 0"):
        check(states, batch(P, 0, 1))
    end(states, 1)
    assert check(states, batch(P, 0, 1)) is None


def test_a_marker_of_the_same_epoch_keeps_the_sequences() -> None:
    states = states_after(batch(P, 0, 0, transactional=True))
    end(states, 1)
    assert check(states, batch(P, 0, 0, transactional=True)) == Duplicate(0, 0, 1000)
    assert check(states, batch(P, 0, 1, transactional=True)) is None


def test_a_marker_that_bumps_the_epoch_starts_the_sequences_anew() -> None:
    states = states_after(batch(P, 0, 0, transactional=True))
    end(states, 1, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        check(states, batch(P, 0, 1, transactional=True))
    with pytest.raises(OutOfOrderSequence, match="where 0 comes next"):
        check(states, batch(P, 1, 1, transactional=True))
    assert check(states, batch(P, 1, 0, transactional=True)) is None
    assert check(states, batch(P, 2, 0, transactional=True)) is None


def test_ongoing_is_a_matter_of_producer_and_epoch() -> None:
    states = states_after(batch(P, 3, 0, transactional=True))
    assert states.has_ongoing_transaction(P, 3)
    assert not states.has_ongoing_transaction(P, 4)
    assert not states.has_ongoing_transaction(P + 1, 3)
    end(states, 1, epoch=3)
    assert not states.has_ongoing_transaction(P, 3)


@pytest.mark.parametrize(
    ("is_open", "marker_epoch", "version", "is_allowed"),
    [
        (True, 5, 0, True),
        (True, 4, 0, False),
        (True, 5, 1, True),
        (True, 6, 2, True),
        (True, 5, 2, False),
        (False, 5, 2, True),  # sent again, already written
        (False, 4, 2, False),
    ],
)
def test_the_epoch_of_a_marker(is_open: bool, marker_epoch: int, version: int, is_allowed: bool) -> None:
    states = states_after(batch(P, 5, 0, transactional=is_open))
    if is_allowed:
        states.check_marker(P, marker_epoch, 0, transaction_version=version)
    else:
        with pytest.raises(InvalidProducerEpoch, match=f"epoch {marker_epoch}, but epoch 5"):
            states.check_marker(P, marker_epoch, 0, transaction_version=version)


def test_the_last_epoch_must_serve_for_its_marker() -> None:
    states = states_after(batch(P, MAX_PRODUCER_EPOCH, 0, transactional=True))
    states.check_marker(P, MAX_PRODUCER_EPOCH, 0, transaction_version=2)


def test_an_old_coordinator_is_fenced() -> None:
    states = states_after(batch(P, 0, 0, transactional=True))
    states.apply_marker(P, 1, 8, commit=True, offset=1, timestamp=0)
    states.check_marker(P, 2, 8, transaction_version=2)
    with pytest.raises(TransactionCoordinatorFenced, match="coordinator epoch 7, but epoch 8"):
        states.check_marker(P, 2, 7, transaction_version=2)


def test_a_marker_without_a_transaction_completes_nothing() -> None:
    states = ProducerStates()
    assert end(states, 5) is None
    assert states.first_unstable_offset is None
    assert states.map_end_offset == 6


def test_transactions_hold_readers_back_until_their_markers_are_replicated() -> None:
    states = ProducerStates()
    states.apply(batch(1, 0, 0, transactional=True), 0)
    states.apply(batch(2, 0, 0, transactional=True), 1)
    assert states.first_unstable_offset == 0
    aborted = states.apply_marker(2, 0, 0, commit=False, offset=2, timestamp=0)
    assert aborted == CompletedTransaction(2, 1, 2, aborted=True, last_stable_offset=0)
    committed = states.apply_marker(1, 0, 0, commit=True, offset=3, timestamp=0)
    assert committed == CompletedTransaction(1, 0, 3, aborted=False, last_stable_offset=4)
    assert states.first_unstable_offset == 0
    states.on_high_watermark(3)
    assert states.first_unstable_offset == 0
    states.on_high_watermark(4)
    assert states.first_unstable_offset is None


def test_a_marker_above_the_high_watermark_still_holds_its_transaction_back() -> None:
    states = ProducerStates()
    states.apply(batch(1, 0, 0, transactional=True), 0)
    states.apply_marker(1, 0, 0, commit=True, offset=1, timestamp=0)
    states.apply(batch(2, 0, 0, transactional=True), 2)
    assert states.first_unstable_offset == 0
    states.on_high_watermark(2)
    assert states.first_unstable_offset == 2


def test_the_start_offset_takes_only_decided_transactions_along() -> None:
    states = ProducerStates()
    states.apply(batch(1, 0, 0, transactional=True), 0)
    states.apply(batch(2, 0, 0, transactional=True), 1)
    states.apply_marker(1, 0, 0, commit=True, offset=2, timestamp=0)
    states.on_log_start_offset(10)
    assert states.first_unstable_offset == 1
    assert states.map_end_offset == 10
    assert len(states) == 2
    states.on_log_start_offset(5)
    assert states.map_end_offset == 10


# --- expiry


def test_silent_producers_expire() -> None:
    states = states_after(batch(1, 0, 0, timestamp=100), batch(2, 0, 0, timestamp=101))
    assert states.expire(199, 100) == 0
    assert states.expire(200, 100) == 1
    assert [entry.producer_id for entry in states.entries()] == [2]


def test_an_open_transaction_does_not_expire_and_a_marker_is_a_sign_of_life() -> None:
    states = states_after(batch(P, 0, 0, timestamp=100, transactional=True))
    assert states.expire(10_000, 100) == 0
    end(states, 1)  # at 2000
    assert states.expire(2099, 100) == 0
    assert states.expire(2100, 100) == 1


# --- snapshots


def test_entries_are_what_a_snapshot_keeps() -> None:
    states = states_after(batch(P, 2, 0, count=4), batch(P, 2, 4, count=2, timestamp=9, transactional=True))
    assert list(states.entries()) == [ProducerEntry(P, 2, 5, 5, 1, 9, -1, 4)]
    end(states, 6, epoch=3)
    assert list(states.entries()) == [ProducerEntry(P, 3, -1, -1, 0, 2000, 0, -1)]


def test_load_starts_over() -> None:
    states = states_after(batch(1, 0, 0, transactional=True))
    entries = [ProducerEntry(9, 0, 0, 8, 0, 5, -1, 8), ProducerEntry(4, 1, -1, -1, 0, 5, 3, 2)]
    states.load(entries, 10)
    assert list(states.entries()) == entries
    assert (states.map_end_offset, states.first_unstable_offset) == (10, 2)
    assert check(states, batch(9, 0, 0, transactional=True)) == Duplicate(8, 8, 5)
    states.clear(3)
    assert (len(states), states.map_end_offset, states.first_unstable_offset) == (0, 3, None)


# --- refilling the window


def reloaded(states: ProducerStates) -> ProducerStates:
    again = ProducerStates()
    again.load(decode_snapshot(encode_snapshot(states.entries()), "here"), states.map_end_offset)
    return again


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("count", [1, 4, 5, 6, 12])
def test_the_tail_refills_the_window(order: int, count: int) -> None:
    headers = [batch(P, 0, i, base_offset=i * 10) for i in range(count)]
    states = ProducerStates()
    for header in headers:
        states.apply(header, header.base_offset)
    again = reloaded(states)
    for header in (headers + headers)[::order]:
        again.remember(header)
    for header in headers[-5:]:
        assert (
            check(again, header)
            == check(states, header)
            == Duplicate(header.base_offset, header.base_offset, 1000)
        )
    assert list(again.entries()) == list(states.entries())


def test_only_older_batches_of_the_same_producer_and_epoch_are_remembered() -> None:
    states = ProducerStates()
    states.load([ProducerEntry(P, 1, 5, 50, 0, 9, -1, -1), ProducerEntry(8, 1, -1, -1, 0, 9, 0, -1)], 60)
    before = list(states.entries())
    states.remember(batch(P, 0, 4, base_offset=40))  # another epoch
    states.remember(batch(P, 1, 6, base_offset=60))  # newer than the snapshot: for apply, not for this
    states.remember(batch(8, 1, 0, base_offset=30))  # a bumped epoch has no batches yet
    states.remember(batch(99, 0, 0, base_offset=30))  # expired
    states.remember(Marker(45, P, 1, 0, True, 9).header)
    assert list(states.entries()) == before
    with pytest.raises(OutOfOrderSequence):
        check(states, batch(P, 1, 4))


# --- the model


@dataclass
class World:
    """The states under test beside the model, through appends, crashes and the rest."""

    states: ProducerStates = field(default_factory=ProducerStates)
    log: Log = field(default_factory=Log)
    high_watermark: int = 0

    def produce(self, header: BatchHeader) -> None:
        expected = self.log.verdict(header)
        assert self.verdict(header) == expected
        if expected == "ok":
            self.states.apply(header, self.log.end_offset)
            self.log.append(header._replace(base_offset=self.log.end_offset))

    def verdict(self, header: BatchHeader) -> str:
        try:
            return "ok" if check(self.states, header) is None else "duplicate"
        except BarnabasError as error:
            return type(error).__name__

    def mark(self, producer_id: int, bump: int, commit: bool) -> None:
        epoch = (self.log.epoch(producer_id) or 0) + bump
        offset = self.log.end_offset
        ended = next(
            (t for t in self.log.transactions() if t.producer_id == producer_id and not t.marker), None
        )
        others = [t.first_offset for t in self.log.transactions() if t.marker is None and t != ended]
        completed = self.states.apply_marker(
            producer_id, epoch, 0, commit=commit, offset=offset, timestamp=offset
        )
        self.log.append(Marker(offset, producer_id, epoch, 0, commit, offset))
        if ended is None:
            assert completed is None
        else:
            stable = min(others, default=offset + 1)
            assert completed == (producer_id, ended.first_offset, offset, not commit, stable)

    def restart(self) -> None:
        """From a snapshot and the headers of the log; markers are taken to be replicated."""
        self.high_watermark = self.log.end_offset
        self.states = reloaded(self.states)
        for item in self.log.items:
            self.states.remember(item.header if isinstance(item, Marker) else item)

    def replay(self) -> None:
        """From the log alone."""
        self.states.clear(0)
        for item in self.log.items:
            if isinstance(item, Marker):
                self.states.apply_marker(
                    item.producer_id,
                    item.epoch,
                    item.coordinator_epoch,
                    commit=item.commit,
                    offset=item.offset,
                    timestamp=item.timestamp,
                )
            else:
                self.states.apply(item, item.base_offset)
        self.states.on_high_watermark(self.high_watermark)

    def compare(self) -> None:
        assert self.states.first_unstable_offset == self.log.first_unstable_offset(self.high_watermark)
        assert self.states.map_end_offset == self.log.end_offset
        for entry in self.states.entries():
            window = self.log.window(entry.producer_id)
            assert entry.epoch == self.log.epoch(entry.producer_id)
            assert entry.last_sequence == (window[-1].last_sequence if window else -1)
            assert entry.last_offset == (window[-1].last_offset if window else -1)
            assert (entry.txn_first_offset >= 0) == self.log.is_open(entry.producer_id)
            last = self.states.last_batches()
            assert (entry.last_offset in last.offsets) == bool(window)
            assert last.epochs.get(entry.producer_id) == (None if window else entry.epoch)
            assert list(last.offsets) == sorted(last.offsets)
            for known in window:
                duplicate = check(self.states, known)
                assert duplicate is not None
                assert duplicate[:2] == (known.base_offset, known.last_offset)


PRODUCERS = st.integers(1, 3)
# where a batch stands to its producer's last one: what comes next, mostly; a retry, a gap, another epoch
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("next"), PRODUCERS, st.integers(1, 3), st.booleans()),
        st.tuples(st.just("next"), PRODUCERS, st.integers(1, 3), st.booleans()),
        st.tuples(st.just("retry"), PRODUCERS, st.integers(1, 7), st.booleans()),
        st.tuples(st.just("any"), PRODUCERS, st.integers(0, 9), st.booleans()),
        st.tuples(st.just("new epoch"), PRODUCERS, st.integers(0, 1), st.booleans()),
        st.tuples(st.just("old epoch"), PRODUCERS, st.integers(0, 1), st.booleans()),
        st.tuples(st.just("marker"), PRODUCERS, st.integers(0, 1), st.booleans()),
        st.tuples(st.just("high watermark"), PRODUCERS, st.integers(0, 9), st.booleans()),
        st.tuples(st.just("restart"), PRODUCERS, st.just(0), st.booleans()),
        st.tuples(st.just("replay"), PRODUCERS, st.just(0), st.booleans()),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(steps=STEPS, first=st.sampled_from([0, MAX_SEQUENCE - 4]))
def test_producers_against_the_model(steps: list[tuple[str, int, int, bool]], first: int) -> None:
    world = World()
    for step, producer_id, number, flag in steps:
        epoch, window = world.log.epoch(producer_id) or 0, world.log.window(producer_id)
        following = (window[-1].last_sequence + 1) & MAX_SEQUENCE if window else 0
        transactional = flag or world.log.is_open(producer_id)
        if step == "next":
            sequence = following if world.log.of(producer_id) else first
            world.produce(batch(producer_id, epoch, sequence, count=number, transactional=transactional))
        elif step == "retry":
            sent = [item for item in world.log.of(producer_id) if isinstance(item, BatchHeader)]
            if len(sent) >= number:
                world.produce(sent[-number])
        elif step == "any":
            world.produce(batch(producer_id, epoch, number, transactional=flag))
        elif step == "new epoch":
            world.produce(batch(producer_id, epoch + 1, number, transactional=flag))
        elif step == "old epoch":
            world.produce(batch(producer_id, max(0, epoch - 1), following, transactional=flag))
        elif step == "marker":
            world.mark(producer_id, number, flag)
        elif step == "high watermark":
            world.high_watermark = min(world.high_watermark + number, world.log.end_offset)
            world.states.on_high_watermark(world.high_watermark)
        elif step == "restart":
            world.restart()
        else:
            world.replay()
        world.compare()
