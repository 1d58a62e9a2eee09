"""What the watch tells of logs that have changed since they were seen last."""

from __future__ import annotations

from barnabas.sim.replication.logs import DiskLog
from barnabas.sim.replication.watch import same_until
from tests.sim.replication.stories import batches


def test_appended_batches_leave_the_rest_as_it_was() -> None:
    assert same_until(list(batches(0, 1)), DiskLog("", 0, 3, list(batches(0, 1, 2)))) == 2


def test_batches_below_the_start_do_not_count() -> None:
    assert same_until(list(batches(0, 1, 2)), DiskLog("", 1, 3, list(batches(1, 2)))) == 3


def test_cut_batches_are_gone_where_later_ones_begin_behind_a_gap() -> None:
    """A follower was cut and fetched again from a leader that had compacted its log meanwhile."""
    new = DiskLog("", 0, 42, list(batches(0)) + list(batches(41)))
    assert same_until(list(batches(0, 1, 2)), new) == 1


def test_batches_at_the_end_are_gone() -> None:
    assert same_until(list(batches(0, 1, 2)), DiskLog("", 0, 3, list(batches(0)))) == 1
