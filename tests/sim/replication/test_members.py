"""Members of ISR and ELR that lack what is committed are found."""

from __future__ import annotations

from barnabas.sim.replication.checkers.members import Members
from tests.sim.replication.stories import Story, batches, only


def story() -> Story:
    """Two of three nodes have what is committed, and are in sync."""
    told = Story().partition(1, 1, (1, 2)).log(1, 1, batches(0, 1), high_watermark=2, is_leader=True)
    return told.log(1, 2, batches(0, 1), high_watermark=1).log(1, 3, batches(0)).sampled(1)


def test_who_is_in_sync_has_it() -> None:
    assert story().judged(Members()) == []


def test_who_joins_the_isr_without_it() -> None:
    violation = only(story().partition(2, 1).sampled(2).judged(Members()))
    assert violation.what == "t-0 on node 3, in the ISR at offset 2, ends at 1, and 2 was committed"


def test_who_is_eligible_without_it() -> None:
    violation = only(story().partition(2, -1, (), elr=(1, 3), epoch=2).sampled(2).judged(Members()))
    assert "on node 3, in the ELR at offset 2" in violation.what


def test_a_node_that_does_not_run_has_it_on_its_disk() -> None:
    down = story().crashed(2, 2).log(2, 2, same_until=1, is_open=False).sampled(2)
    assert "on node 2, in the ISR at offset 1, ends at 1" in only(down.judged(Members())).what


def test_a_node_that_lost_power_is_asked_when_it_has_started() -> None:
    down = story().power_lost(2, 2).log(2, 2, same_until=1, is_open=False).sampled(2)
    assert down.judged(Members()) == []
    assert len(down.started(3, 2).log(3, 2, same_until=1, high_watermark=1).sampled(3).judged(Members())) == 1


def test_a_member_without_a_log() -> None:
    assert (
        "has no log, and 2 was committed"
        in only(story().no_log(2, 2).partition(2, 1, (1, 2)).sampled(2).judged(Members())).what
    )


def test_a_member_with_another_batch() -> None:
    other = story().log(2, 2, batches(1, digest=99), same_until=1, high_watermark=1).sampled(2)
    assert "on node 2, in the ISR at offset 1, has offsets 1 to 2" in only(other.judged(Members())).what


def test_beyond_the_budget() -> None:
    lost = story().power_lost(2, 1).power_lost(2, 2).started(3, 2).log(3, 2, same_until=1).sampled(3)
    assert lost.judged(Members()) == []
