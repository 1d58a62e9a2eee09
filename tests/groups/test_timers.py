"""Timers that are put off again and again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.effects import Now
from barnabas.groups.timers import Timer, Timers
from barnabas.groups.turn import Turn


def make(count: int) -> tuple[Timers, list[Timer], list[int]]:
    fired: list[int] = []

    def timer(number: int) -> Timer:
        return Timer(lambda turn: fired.append(number))

    return Timers(), [timer(number) for number in range(count)], fired


def fire(timers: Timers, now_seconds: float) -> None:
    while (timer := timers.take_due(now_seconds)) is not None:
        timer.fire(Turn(Now(0, now_seconds)))


def test_a_timer_fires_once_when_it_is_due() -> None:
    timers, (one, two, three), fired = make(3)
    timers.set(one, 3.0)
    timers.set(two, 1.0)
    timers.set(three, 2.0)
    assert timers.next_due_seconds() == 1.0
    fire(timers, 2.0)
    assert fired == [1, 2]
    fire(timers, 9.0)
    assert fired == [1, 2, 0]
    assert timers.next_due_seconds() is None


def test_a_timer_that_is_put_off_does_not_fire_before_and_takes_no_more_room() -> None:
    timers, (one,), fired = make(1)
    for second in range(1, 100):
        timers.set(one, float(second))
    assert len(timers) == 1
    fire(timers, 98.9)
    assert fired == []
    assert timers.next_due_seconds() == 99.0
    fire(timers, 99.0)
    assert fired == [0]


def test_a_timer_may_be_set_to_an_earlier_time_or_called_off() -> None:
    timers, (one, two), fired = make(2)
    timers.set(one, 100.0)
    timers.set(one, 1.0)
    timers.set(two, 2.0)
    two.cancel()
    fire(timers, 200.0)
    assert fired == [0]
    assert timers.next_due_seconds() is None
    assert len(timers) == 0


ACTION = st.tuples(
    st.sampled_from(("set", "cancel", "pass")), st.integers(0, 4), st.integers(0, 10).map(float)
)


@given(st.lists(ACTION, max_size=60))
def test_timers_fire_as_a_plain_list_of_them_would(actions: list[tuple[str, int, float]]) -> None:
    timers, five, fired = make(5)
    due: dict[int, float] = {}
    now = 0.0
    expected: list[int] = []
    for name, which, seconds in actions:
        if name == "set":
            timers.set(five[which], now + seconds)
            due[which] = now + seconds
        elif name == "cancel":
            five[which].cancel()
            due.pop(which, None)
        else:
            now += seconds
            fire(timers, now)
            expected += sorted(number for number, at in due.items() if at <= now)
            due = {number: at for number, at in due.items() if at > now}
            assert sorted(fired) == sorted(expected)
        next_due = timers.next_due_seconds()
        assert (next_due is None) == (not due)
        assert next_due is None or next_due <= min(due.values())
