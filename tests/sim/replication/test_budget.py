"""What is beyond the budget is in doubt until the partition is whole, and nothing else is."""

from __future__ import annotations

import math

from barnabas.sim.checkers.budget import Budget, Doubt, Doubts, doubts_of, doubts_of_one
from barnabas.sim.history import Crash, History, TopicFacts
from tests.sim.replication.stories import FACTS, TOPIC, Story

PLACE = (TOPIC, 0)


def doubts(story: Story) -> list[Doubt]:
    found = doubts_of(story.history)
    assert found is not None
    return found[PLACE].all


def test_one_power_loss_of_a_replica_is_within_the_budget_of_two_in_sync() -> None:
    assert doubts(Story().partition(1, 1).power_lost(2, 2)) == []
    assert doubts(Story().partition(1, 1).crashed(2, 1).crashed(2, 2).crashed(2, 3)) == []


def test_the_same_node_counts_once() -> None:
    assert doubts(Story().partition(1, 1).power_lost(2, 2).started(3, 2).power_lost(4, 2)) == []


def test_a_second_power_loss_is_beyond_it_until_all_are_in_sync_again() -> None:
    story = Story().partition(1, 1).power_lost(2, 2).power_lost(3, 1)
    assert doubts(story) == [(3, math.inf)]
    story.partition(4, 3, (3,), epoch=2).started(5, 1).started(5, 2).partition(6, 3, (3, 1), epoch=2)
    assert doubts(story) == [(3, math.inf)]
    story.partition(7, 3, epoch=2)
    assert doubts(story) == [(3, 7)]


def test_a_node_that_has_not_started_since_is_not_in_sync_whatever_the_metadata_says() -> None:
    story = Story().partition(1, 1).power_lost(2, 2).partition(2.1, 1).power_lost(3, 1)
    assert doubts(story) == [(3, math.inf)]
    assert doubts(story.partition(4, 1).started(5, 1)) == [(3, math.inf)]
    assert doubts(story.started(6, 2)) == [(3, 6)]


def test_whole_in_between() -> None:
    story = Story().partition(1, 1).power_lost(2, 2).started(3, 2).partition(4, 1, (1, 3))
    assert doubts(story.partition(5, 1).power_lost(6, 1)) == []


def test_a_node_without_a_replica_does_not_count() -> None:
    story = Story().partition(1, 1).power_lost(2, 4).power_lost(3, 5).power_lost(4, 1)
    assert doubts(story) == []


def test_a_replica_that_leaves_counts_until_the_partition_is_whole() -> None:
    story = Story().partition(1, 1, replicas=(1, 2, 3, 4), isr=(1, 2, 3), adding=(4,), removing=(3,))
    assert doubts(story.power_lost(2, 3).power_lost(3, 1)) == [(3, math.inf)]


def test_with_one_in_sync_a_single_power_loss_is_beyond_it() -> None:
    facts = TopicFacts(replicas=3, min_in_sync=1)
    assert doubts(Story(facts).partition(1, 1).power_lost(2, 3)) == [(2, math.inf)]


def test_never_more_in_sync_than_replicas() -> None:
    story = Story().partition(1, 1, replicas=(1,), isr=(1,)).power_lost(2, 1)
    assert doubts(story) == [(2, math.inf)]


def test_an_unclean_election() -> None:
    story = Story().partition(1, 1, (1,)).partition(2, -1, (), epoch=2, last_known=(1,))
    story.partition(3, 2, (2,), epoch=3, is_recovering=True)
    assert doubts(story) == [(3, math.inf)]
    assert doubts(story.partition(4, 2, (2,), epoch=3).partition(5, 2, epoch=3)) == [(3, 5)]


def test_a_topic_created_anew_is_another_one() -> None:
    story = (
        Story().partition(1, 1).power_lost(2, 2).gone(3).partition(4, 1, topic_id="another").power_lost(5, 1)
    )
    assert doubts(story) == []


def test_what_would_be_beyond_it() -> None:
    budget = Budget({TOPIC: FACTS})
    for event in Story().partition(1, 1).events:
        budget.take(event)
    assert not budget.would_exceed(1)
    budget.take(Crash(2, "power", 2))
    assert budget.would_exceed(1)
    assert not budget.would_exceed(2)
    assert not budget.would_exceed(4)


def test_spans() -> None:
    found = Doubts([Doubt(1, 2), Doubt(5, 6)])
    assert found.has_any(2, 3)
    assert found.has_any(0, 9)
    assert found.has_any(1.5, 1.6)
    assert not found.has_any(2.5, 4)
    assert not found.has_any(6.5, math.inf)
    assert found.first(0) == 1
    assert found.first(1.5) == 1
    assert found.first(3) == 5
    assert found.first(7) is None


def test_without_replicas_every_power_loss_counts() -> None:
    history = History(events=[Crash(1, "process"), Crash(2, "power"), Crash(3, "power")])
    assert doubts_of(history) is None
    assert doubts_of_one(history).all == [(2, 2), (3, 3)]
