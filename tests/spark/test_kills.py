"""A few kills, as the long run has many; and that its judge sees what it has to see."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

import pytest

from tests.spark.kills_judge import Checkpoint, Copy, Place, copy_of, judge


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """Two batches of a query, ten records each."""
    (tmp_path / "offsets").mkdir()
    for batch in (0, 1):
        offsets = {"numbers": {"0": 5 * batch + 5, "1": 5 * batch + 5}}
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}")
    (tmp_path / "offsets" / ".1.crc").write_text("")
    return Checkpoint(tmp_path)


FED = {Place(number % 2, number // 2): number for number in range(20)}
COPIES = [Copy(b"%d" % (place.partition), number, place) for place, number in FED.items()]


def test_what_is_as_it_should_be(checkpoint: Checkpoint) -> None:
    assert judge(FED, [COPIES, []], checkpoint) == []
    assert checkpoint.begun() == 1
    assert checkpoint.committed() == -1
    assert copy_of(b"1", b"17 1 8") == COPIES[17]


def test_what_is_lost_twice_or_foreign_is_told_with_its_batch(checkpoint: Checkpoint) -> None:
    (lost,) = judge(FED, [COPIES[:3] + COPIES[4:12] + COPIES[13:]], checkpoint)
    assert lost.startswith("2 records lost: 0@6, 1@1 ")
    assert lost.endswith("{0: 1, 1: 1}")
    (twice,) = judge(FED, [[*COPIES, COPIES[19]]], checkpoint)
    assert twice.startswith("1 records there more than once: 1@9 ")
    other = COPIES[0]._replace(place=Place(0, 10))
    (foreign,) = judge(FED, [[*COPIES, other._replace(number=20)]], checkpoint)
    assert foreign.startswith("1 records there and never fed: 0@10 ")
    assert foreign.endswith("{None: 1}")


def test_order_is_that_of_a_key(checkpoint: Checkpoint) -> None:
    assert judge(FED, [COPIES[1::2] + COPIES[::2]], checkpoint) == []
    (unordered,) = judge(FED, [[*COPIES[2:], *COPIES[:2]]], checkpoint)
    assert unordered.startswith("2 records out of order: 0@0, 1@0 ")
    with pytest.raises(AssertionError, match="a key is in several partitions"):
        judge(FED, [COPIES[:10], COPIES[10:]], checkpoint)


@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.slow  # processes are killed, and start again
def test_a_few_kills(tmp_path: Path) -> None:
    from tests.spark.kills import run

    outcome = run(1, 5, cycle(("task", "broker", "committer", "driver")), tmp_path)
    assert outcome.kills.total() >= 5
    assert outcome.kills["driver"] == 1
    assert outcome.lives == 2
    assert outcome.fed > 0
