"""Transactions from their beginning to their end, as their coordinator sees them."""

from __future__ import annotations

import pytest

from barnabas.coordination.effects import Markers, Now, Producer
from barnabas.transactions.shard import IDS_A_TURN
from barnabas.transactions.states import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING, PREPARE_ABORT
from barnabas.transactions.transaction import LAST_EPOCH, Transaction
from tests.transactions.bench import NEW, NOBODY, OLD, T0, T1, U0, Bench

MINUTE_MS = 60_000


# ---- the ordinary way ------------------------------------------------------------------------------------


def test_a_transaction_of_an_old_client() -> None:
    bench = Bench()
    error, producer = bench.init()
    assert (error, producer.epoch, bench.state()) == ("NONE", 0, "Empty")
    assert bench.add(producer, T0, version=OLD) == "NONE"
    assert bench.add(producer, T1, U0, version=OLD) == "NONE"
    assert bench.state() == "Ongoing"
    assert bench.end(producer, version=OLD) == ("NONE", NOBODY)
    assert bench.state() == "PrepareCommit"
    assert bench.sent == [Markers("a", producer, True, 0, (T0, T1, U0))]
    bench.mark()
    assert bench.state() == "CompleteCommit"
    assert bench.describe().topics == []
    assert bench.add(producer, T0, version=OLD) == "NONE"  # the epoch stays


def test_a_transaction_of_a_new_client_raises_the_epoch() -> None:
    bench = Bench()
    _, producer = bench.init()
    assert bench.add(producer, T0) == "NONE"
    error, after = bench.end(producer)
    assert (error, after) == ("NONE", Producer(producer.id, 1))
    assert bench.sent == [Markers("a", after, True, 2, (T0,))]  # a late write of epoch 0 is fenced by it
    bench.mark()
    assert bench.state() == "CompleteCommit"
    assert bench.add(producer, T0) == "PRODUCER_FENCED"
    assert bench.add(after, T0) == "NONE"
    assert bench.end(after, commit=False) == ("NONE", Producer(producer.id, 2))
    bench.mark()
    assert bench.state() == "CompleteAbort"


def test_partitions_that_are_there_are_not_written_again() -> None:
    bench = Bench()
    _, producer = bench.init()
    bench.add(producer, T0, T1)
    written = len(bench.log)
    assert bench.add(producer, T1) == "NONE"
    assert len(bench.log) == written


def test_old_and_new_clients_take_turns_under_one_name() -> None:
    bench = Bench()
    _, producer = bench.init()
    for version, commit in ((OLD, True), (NEW, True), (OLD, False), (NEW, False)):
        bench.add(producer, T0, version=version)
        error, after = bench.end(producer, commit=commit, version=version)
        bench.mark()
        assert (error, bench.state()) == ("NONE", "CompleteCommit" if commit else "CompleteAbort")
        assert after == (NOBODY if version == OLD else Producer(producer.id, producer.epoch + 1))
        producer = producer if version == OLD else after


def test_whoever_begins_before_the_markers_are_there_waits() -> None:
    bench = Bench()
    _, producer = bench.init()
    bench.add(producer, T0)
    _, after = bench.end(producer)
    assert bench.add(after, T0) == "CONCURRENT_TRANSACTIONS"
    assert bench.verify(after) == {T0: "CONCURRENT_TRANSACTIONS"}
    assert bench.init()[0] == "CONCURRENT_TRANSACTIONS"
    assert bench.end(producer)[0] == "CONCURRENT_TRANSACTIONS"
    bench.mark()
    assert bench.add(after, T0) == "NONE"


def test_partitions_are_verified_by_whoever_is_written_to() -> None:
    bench = Bench()
    _, producer = bench.init()
    bench.add(producer, T0, version=OLD)
    assert bench.verify(producer, T0, T1) == {T0: "NONE", T1: "TRANSACTION_ABORTABLE"}
    assert bench.verify(Producer(producer.id, 1)) == {T0: "PRODUCER_FENCED"}
    assert bench.verify(Producer(producer.id + 1, 0)) == {T0: "INVALID_PRODUCER_ID_MAPPING"}
    assert bench.verify(producer, name="nobody") == {T0: "INVALID_PRODUCER_ID_MAPPING"}


# ---- ends, again -----------------------------------------------------------------------------------------


def test_an_old_client_may_end_again() -> None:
    bench = Bench()
    _, producer = bench.init()
    bench.add(producer, T0, version=OLD)
    bench.end(producer, version=OLD)
    bench.mark()
    written = len(bench.log)
    assert bench.end(producer, version=OLD)[0] == "NONE"
    assert bench.end(producer, version=OLD, commit=False)[0] == "INVALID_TXN_STATE"
    assert len(bench.log) == written


def test_a_new_client_that_lost_the_answer_is_told_it_again() -> None:
    bench = Bench()
    _, producer = bench.init()
    bench.add(producer, T0)
    _, after = bench.end(producer)
    bench.mark()
    written = len(bench.log)
    assert bench.end(producer) == ("NONE", after)
    assert bench.end(producer, commit=False) == ("INVALID_TXN_STATE", NOBODY)
    assert len(bench.log) == written


def test_a_late_end_does_not_reach_the_next_transaction() -> None:
    bench = Bench()
    _, producer = bench.init()
    bench.add(producer, T0)
    _, after = bench.end(producer)
    bench.mark()
    bench.add(after, T0)
    assert bench.end(producer)[0] == "PRODUCER_FENCED"
    assert bench.state() == "Ongoing"


def test_a_new_client_aborts_what_has_no_partitions_at_once() -> None:
    bench = Bench()
    _, producer = bench.init()
    assert bench.end(producer)[0] == "INVALID_TXN_STATE"
    assert bench.end(producer, commit=False) == ("NONE", Producer(producer.id, 1))
    assert (bench.state(), bench.sent) == ("CompleteAbort", [])
    assert bench.describe().transaction_start_time_ms == bench.now.wall_ms


# ---- InitProducerId --------------------------------------------------------------------------------------


def test_another_instance_fences_the_one_before() -> None:
    bench = Bench()
    _, first = bench.init()
    error, second = bench.init()
    assert (error, second) == ("NONE", Producer(first.id, 1))
    assert bench.add(first) == "PRODUCER_FENCED"
    assert bench.end(first, version=2)[0] == "PRODUCER_FENCED"
    assert bench.end(first, version=1)[0] == "INVALID_PRODUCER_EPOCH"
    assert bench.add(first, version=1) == "INVALID_PRODUCER_EPOCH"
    assert bench.init(expected=first, version=4)[0] == "PRODUCER_FENCED"
    assert bench.init(expected=first, version=3)[0] == "INVALID_PRODUCER_EPOCH"


@pytest.mark.parametrize("level", [0, 1, 2])
def test_an_open_transaction_is_aborted_first(level: int) -> None:
    bench = Bench(level)
    _, first = bench.init()
    bench.add(first, T0, version=OLD)
    assert bench.init() == ("CONCURRENT_TRANSACTIONS", NOBODY)
    assert bench.state() == "PrepareAbort"
    assert bench.sent == [Markers("a", Producer(first.id, 1), False, 2 if level == 2 else 0, (T0,))]
    assert bench.init() == ("CONCURRENT_TRANSACTIONS", NOBODY)
    bench.mark()
    error, second = bench.init(timeout_ms=5)
    assert (error, second) == ("NONE", Producer(first.id, 2))
    assert bench.describe().transaction_timeout_ms == 5
    assert bench.end(first, version=2)[0] == "PRODUCER_FENCED"


def test_a_producer_goes_on_after_an_error() -> None:
    bench = Bench()
    _, first = bench.init()
    error, bumped = bench.init(expected=first)
    assert (error, bumped) == ("NONE", Producer(first.id, 1))
    assert bench.init(expected=first) == ("NONE", bumped)  # the answer was lost
    assert bench.init(expected=Producer(first.id + 5, 0))[0] == "PRODUCER_FENCED"
    bench.init()
    assert bench.init(expected=bumped)[0] == "PRODUCER_FENCED"  # another one has its name now


def test_a_producer_whose_open_transaction_was_aborted_goes_on_with_the_raised_epoch() -> None:
    bench = Bench(2)
    _, first = bench.init()
    bench.add(first)
    assert bench.init(expected=first)[0] == "CONCURRENT_TRANSACTIONS"
    bench.mark()
    assert bench.init(expected=first) == ("NONE", Producer(first.id, 1))


def test_a_producer_that_nobody_knows_any_more_begins_anew() -> None:
    bench = Bench()
    error, producer = bench.init(expected=Producer(77, 5))
    assert (error, producer.epoch, producer.id != 77) == ("NONE", 0, True)


# ---- epochs are used up ----------------------------------------------------------------------------------


def exhausted(state: int, epoch: int = LAST_EPOCH - 1, client_version: int = 2) -> Transaction:
    return Transaction(
        7,
        epoch,
        MINUTE_MS,
        state,
        {T0: None} if state == ONGOING else {},
        1,
        1,
        7,
        client_version=client_version,
    )


def test_an_end_that_uses_up_the_epochs_brings_a_new_id() -> None:
    bench = Bench()
    last = Producer(7, LAST_EPOCH - 1)
    bench.put("a", exhausted(ONGOING))
    error, after = bench.end(last)
    assert (error, after) == ("NONE", Producer(1001, 0))
    assert bench.sent == [Markers("a", Producer(7, LAST_EPOCH), True, 2, (T0,))]
    assert bench.add(after) == "CONCURRENT_TRANSACTIONS"  # though its id is not there yet
    assert bench.end(last)[0] == "CONCURRENT_TRANSACTIONS"
    bench.reload()
    bench.mark()
    assert (bench.state(), bench.shard.transactions["a"].producer) == ("CompleteCommit", after)
    assert bench.end(last) == ("NONE", after)  # once more, after the answer was lost
    assert bench.end(last, commit=False)[0] == "INVALID_TXN_STATE"
    assert bench.add(after) == "NONE"
    assert bench.end(last)[0] == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
def test_an_init_that_finds_the_epochs_used_up_brings_a_new_id(epoch: int) -> None:
    bench = Bench()
    bench.put("a", exhausted(COMPLETE_ABORT, epoch))
    assert bench.init() == ("NONE", Producer(1001, 0))
    assert bench.init(expected=Producer(7, epoch))[0] == "PRODUCER_FENCED"  # that was another instance


def test_an_init_that_goes_on_with_a_new_id_may_be_repeated() -> None:
    bench = Bench()
    last = Producer(7, LAST_EPOCH - 1)
    bench.put("a", exhausted(COMPLETE_COMMIT))
    assert bench.init(expected=last) == ("NONE", Producer(1001, 0))
    assert bench.init(expected=last) == ("NONE", Producer(1001, 0))


def test_the_last_epoch_fences_and_is_told_to_nobody() -> None:
    bench = Bench()
    last = Producer(7, LAST_EPOCH - 1)
    bench.put("a", exhausted(ONGOING))
    assert bench.init()[0] == "CONCURRENT_TRANSACTIONS"
    bench.mark()
    assert bench.shard.transactions["a"].producer == Producer(7, LAST_EPOCH)
    assert bench.end(last, commit=False)[0] == "PRODUCER_FENCED"
    assert bench.init(expected=last)[0] == "PRODUCER_FENCED"
    assert bench.init() == ("NONE", Producer(1001, 0))


def test_a_producer_that_holds_the_last_epoch_can_be_fenced_nevertheless() -> None:
    bench = Bench()
    bench.put("a", exhausted(ONGOING, LAST_EPOCH))  # a version of Kafka's may have written it
    bench.reload()
    bench.advance(0)
    assert bench.sent == [Markers("a", Producer(7, LAST_EPOCH), False, 2, (T0,))]


# ---- time ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(level: int) -> None:
    bench = Bench(level)
    _, producer = bench.init(timeout_ms=MINUTE_MS)
    bench.advance(MINUTE_MS * 10)  # time between transactions does not count
    bench.add(producer, T0, version=OLD)
    bench.advance(MINUTE_MS - 1)
    began_ms = bench.describe().transaction_start_time_ms
    bench.add(producer, T1, version=OLD)  # nor does this give it more
    assert bench.describe().transaction_start_time_ms == began_ms == bench.now.wall_ms - MINUTE_MS + 1
    assert bench.state() == "Ongoing"
    bench.advance(1)
    assert bench.state() == "PrepareAbort"
    assert bench.sent[0].producer == Producer(producer.id, 1)
    bench.mark()
    assert bench.end(producer, version=2)[0] == "PRODUCER_FENCED"
    assert bench.add(producer, version=OLD) == "INVALID_PRODUCER_EPOCH"


def test_a_new_client_whose_transaction_timed_out_learns_it_at_its_end() -> None:
    bench = Bench()
    _, producer = bench.init()
    bench.add(producer)
    bench.advance(MINUTE_MS)
    bench.mark()
    assert bench.end(producer)[0] == "INVALID_TXN_STATE"
    assert bench.end(producer, commit=False) == ("NONE", Producer(producer.id, 1))


def test_a_deadline_holds_over_a_restart() -> None:
    bench = Bench()
    _, producer = bench.init()
    bench.add(producer)
    bench.advance(MINUTE_MS // 2)
    bench.reload()
    bench.advance(MINUTE_MS // 2 - 1)
    assert bench.state() == "Ongoing"
    bench.advance(1)
    assert bench.state() == "PrepareAbort"


def test_timeouts_are_looked_at_in_intervals() -> None:
    bench = Bench(timeout_check_interval_ms=10_000)
    producers = {}
    for name in ("a", "b", "c"):
        _, producers[name] = bench.init(name)
        bench.add(producers[name], name=name)
        bench.advance(1000)
    bench.advance(MINUTE_MS - 3000)
    assert [bench.state(name) for name in "abc"] == ["PrepareAbort", "Ongoing", "Ongoing"]
    bench.advance(9_999)
    assert bench.state("b") == "Ongoing"
    bench.advance(1)
    assert [bench.state(name) for name in "abc"] == ["PrepareAbort"] * 3


def test_ids_that_nobody_uses_are_forgotten() -> None:
    bench = Bench(id_expiration_ms=7 * MINUTE_MS, expiration_check_interval_ms=MINUTE_MS)
    _, idle = bench.init("idle")
    _, busy = bench.init("busy", timeout_ms=800_000)
    bench.add(busy, name="busy")
    bench.advance(6 * MINUTE_MS)
    assert bench.state("idle") == "Empty"
    bench.advance(MINUTE_MS)
    assert bench.describe("idle").error_code == 105  # TRANSACTIONAL_ID_NOT_FOUND
    assert bench.state("busy") == "Ongoing"
    assert bench.log[-1][1] is None
    assert bench.add(idle, name="idle") == "INVALID_PRODUCER_ID_MAPPING"
    error, again = bench.init("idle", expected=idle)
    assert (error, again.id != idle.id, again.epoch) == ("NONE", True, 0)


def test_ids_expire_a_slice_at_a_time() -> None:
    bench = Bench(expiration_check_interval_ms=MINUTE_MS)
    bench.init("young")
    for number in range(IDS_A_TURN + 5):
        bench.put(str(number), Transaction(number, 0, MINUTE_MS, updated_ms=0))
    later = Now(bench.now.wall_ms + MINUTE_MS, bench.now.seconds + 60)
    sizes = []
    while bench.shard.next_due_seconds() == later.seconds:  # others have their turn in between
        effects = bench.shard.tick(later)
        bench.carry_out(effects)
        sizes.append(len(effects.writes))
    assert sizes == [IDS_A_TURN, 5]
    assert list(bench.shard.transactions) == ["young"]
    assert bench.shard.next_due_seconds() == later.seconds + 60


# ---- crashes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [OLD, NEW])
def test_what_was_decided_is_carried_out_after_a_crash(commit: bool, version: int) -> None:
    bench = Bench()
    _, producer = bench.init()
    bench.add(producer, T0, U0, version=version)
    bench.end(producer, commit=commit, version=version)
    (before,) = bench.sent
    bench.reload()
    assert bench.sent == [before]
    bench.mark()
    assert bench.state() == ("CompleteCommit" if commit else "CompleteAbort")


def test_an_abort_without_partitions_is_completed_after_a_crash() -> None:
    bench = Bench()
    bench.put("a", Transaction(7, 1, MINUTE_MS, PREPARE_ABORT, {}, 1, 1, 7, client_version=2))
    bench.reload()
    assert bench.state() == "CompleteAbort"


def test_markers_of_another_time_complete_nothing() -> None:
    bench = Bench()
    _, producer = bench.init()
    bench.add(producer)
    _, after = bench.end(producer)
    (first,) = bench.sent
    bench.mark()
    bench.add(after)
    bench.carry_out(bench.shard.markers_written(first, bench.now))
    assert bench.state() == "Ongoing"
    bench.end(after)
    bench.carry_out(bench.shard.markers_written(first, bench.now))
    assert bench.state() == "PrepareCommit"


# ---- records ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2])
def test_records_are_written_in_the_version_of_the_level(level: int) -> None:
    bench = Bench(level)
    _, producer = bench.init()
    bench.add(producer, version=OLD)
    bench.end(producer, version=NEW if level else OLD)
    versions = {int.from_bytes(value[:2]) for _, value in bench.log if value is not None}
    assert versions == {min(level, 1)}


def test_the_bytes_of_records_are_those_of_kafka() -> None:
    """As Apache Kafka 4.3.0 writes them: InitProducerId, AddPartitionsToTxn 5, EndTxn 5, the completion."""
    bench = Bench()
    bench.next_producer_id = -1
    _, producer = bench.init()
    bench.add(producer, T0)
    bench.end(producer)
    bench.mark()
    now = bench.now.wall_ms.to_bytes(8).hex()
    never = "ff" * 8
    same_id = "0008" + "0" * 16  # previous producer id
    version_2 = "02020002"
    assert [key.hex() for key, _ in bench.log] == ["0000" + "000161"] * 4
    values = [value.hex() for _, value in bench.log if value is not None]
    zero = "0" * 16
    assert values == [
        f"0001{zero}0000" + "0000ea60" + "00" + "00" + now + never + "01" + same_id,
        f"0001{zero}0000"
        + "0000ea60"
        + "01"
        + "02"
        + "0274"
        + "0200000000"
        + "00"
        + now
        + now
        + "02"
        + same_id
        + version_2,
        f"0001{zero}0001"
        + "0000ea60"
        + "02"
        + "02"
        + "0274"
        + "0200000000"
        + "00"
        + now
        + now
        + "02"
        + same_id
        + version_2,
        f"0001{zero}0001" + "0000ea60" + "04" + "01" + now + now + "02" + same_id + version_2,
    ]
