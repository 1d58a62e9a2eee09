"""What `python -m tests.broker.kill_coordinators` judges transactional loops by."""

from __future__ import annotations

from tests.broker.coordinator_outputs import differences


def test_an_output_is_its_input_once_and_in_order() -> None:
    assert differences("out", ["a", "b"], ["a", "b"]) == []
    (missing,) = differences("out", ["a", "b"], ["a"])
    assert "missing ['b'], strange [], twice []" in missing
    (strange,) = differences("out", ["a"], ["a", "c"])
    assert "missing [], strange ['c'], twice []" in strange
    (twice,) = differences("out", ["a"], ["a", "a"])
    assert "missing [], strange [], twice ['a']" in twice
    assert differences("out", ["a", "b"], ["b", "a"])
