"""An end or a start that goes back is found."""

from __future__ import annotations

from barnabas.sim.checkers.watermark import check
from barnabas.sim.history import OffsetSeen
from tests.sim.checkers.story import TOPIC, Story, only


def _seen(at: float, offset: int, kind: str = "end", observer: str = "o") -> OffsetSeen:
    return OffsetSeen(at, at - 0.1, observer, TOPIC, 0, kind, offset)


def test_only_upwards() -> None:
    assert Story().add(_seen(1, 5), _seen(2, 5), _seen(3, 8), _seen(3, 0, "start")).judged(check) == []


def test_backwards_for_one_observer_or_another() -> None:
    violation = only(Story().add(_seen(1, 5), _seen(2, 4, observer="p")).judged(check))
    assert violation.at == 2
    assert "t-0: the end offset is 4 to p" in violation.what
    assert "at least 5 at 1.000 s: o was told so" in violation.what


def test_answers_under_way_at_the_same_time_may_overtake_each_other() -> None:
    early = OffsetSeen(3, 0.5, "p", TOPIC, 0, "end", 4)
    assert Story().add(_seen(1, 5), early).judged(check) == []


def test_a_power_loss_between() -> None:
    assert Story().add(_seen(1, 5)).power_lost(1.5).add(_seen(2, 4)).judged(check) == []
    before = Story().add(_seen(1, 5)).power_lost(1.5).add(_seen(2, 4), _seen(3, 3))
    assert "3 to o" in only(before.judged(check)).what
    assert len(Story().power_lost(0.5).add(_seen(1, 5)).crashed(1.5).add(_seen(2, 4)).judged(check)) == 1


def test_the_start_only_goes_up_too() -> None:
    violation = only(Story().add(_seen(1, 5, "start"), _seen(2, 4, "start")).judged(check))
    assert "start offset is 4" in violation.what


def test_the_end_is_past_what_was_acknowledged_or_read() -> None:
    violation = only(Story().written(1, "a/0", 7).add(_seen(2, 7)).judged(check))
    assert "'a/0' was acknowledged at 7" in violation.what
    read = Story().sent(1, "a/0").began(1, "s").reads(2, "s", {7: "a/0"}).add(_seen(3, 7))
    assert "s had read so far" in only(read.judged(check)).what


def test_the_last_read_is_an_observer() -> None:
    assert "to the last read" in only(Story().add(_seen(1, 5)).final(9, {}).judged(check)).what
