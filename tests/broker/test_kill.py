"""A few rounds of kill -9 under load in every test run; `python -m tests.broker.kill` does a hundred."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.kill import run


@pytest.mark.slow  # processes are started and killed, and a second passes between
def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    outcome = run(seed=3, rounds=4, directory=tmp_path / "data")
    assert outcome.kills >= 4
    assert outcome.acknowledged > 1000
    assert outcome.failed == 0
    assert max(outcome.produced_ms) < 10_000
