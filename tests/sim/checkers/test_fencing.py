"""A producer that goes on although it has a successor is found."""

from __future__ import annotations

from barnabas.sim.checkers.fencing import check
from barnabas.sim.history import Event
from barnabas.sim.transaction_events import TxnAnswered
from tests.sim.checkers.story import only
from tests.sim.checkers.transactions import Tale


def answered(at: float, life: str, epoch: int, error: str = "", *, producer_id: int = 7) -> Event:
    return TxnAnswered(at, at - 0.1, "id", life, producer_id, epoch, "Produce", error)


def two() -> Tale:
    return Tale().life(1, "a", 0).life(5, "b", 1)


def test_the_first_is_over_when_the_second_begins() -> None:
    assert two().add(answered(4, "a", 0), answered(6, "a", 0, "INVALID_PRODUCER_EPOCH")).judged(check) == []
    assert two().add(answered(6, "b", 1)).judged(check) == []
    assert two().add(answered(5.05, "a", 0)).judged(check) == []  # asked before the answer came
    found = only(two().add(answered(6, "a", 0)).judged(check))
    assert "Produce of a with epoch 0, sent at 5.900 s, was answered well, although b had begun" in found.what


def test_the_one_with_the_higher_epoch_is_younger_whenever_it_was_answered() -> None:
    assert Tale().life(5, "a", 1).life(6, "b", 0).add(answered(7, "a", 1)).judged(check) == []


def test_another_producer_id() -> None:
    tale = Tale().life(1, "a", 5).life(5, "b", 0, producer_id=8)
    assert "b had begun" in only(tale.add(answered(6, "a", 5)).judged(check)).what
    assert (
        Tale()
        .life(1, "a", 5)
        .life(5, "b", 0, producer_id=8)
        .add(answered(6, "b", 0, producer_id=8))
        .judged(check)
        == []
    )


def test_the_same_epoch_twice() -> None:
    assert "as a did at 1.000 s" in only(Tale().life(1, "a", 0).life(5, "b", 0).judged(check)).what


def test_what_a_zombie_commits() -> None:
    def zombie(asked_at: float) -> Tale:
        return (
            two()
            .began(2, "x", "a", 0)
            .writes(2, "x/0", 0)
            .asks(asked_at, "x", True)
            .reads(9, 0, 1, {0: "x/0"})
        )

    assert zombie(4).judged(check) == []
    assert "which was asked for at 6.000 s, although b had begun" in only(zombie(6).judged(check)).what
