"""Transactional producers of replicated partitions: which seeds have them, and that broken promises show."""

from __future__ import annotations

import pytest

from barnabas.sim.replication.plan import COPIED, MIN_IN_SYNC, draw_nodes, replicated_facts
from barnabas.sim.replication.writers import EVERY, OUTPUT, draw_replication
from barnabas.sim.scenario import REPLICATION
from barnabas.sim.workload.moving import moved_topics
from tests.sim.bugs import BUGS, checkers_of, run

SEEDS = range(1, 40)
# with seconds of faults
SHORT = (4, 3.0)


def test_every_fourth_seed_has_a_producer_for_each_partition_of_a_topic_of_their_own() -> None:
    for seed in SEEDS:
        scenario = draw_replication(seed)
        if seed % EVERY:
            assert scenario == draw_nodes(seed)
            continue
        ((topic, partitions),) = scenario.coordination.outputs
        assert topic == OUTPUT
        assert [each.partition for each in scenario.coordination.writers] == list(range(partitions))
        assert all(0 < each.aborts < 1 for each in scenario.coordination.writers)
        assert scenario.topics == draw_nodes(seed).topics


def test_topics_of_transactions_are_replicated_and_power_is_lost_within_the_budget() -> None:
    for seed in SEEDS:
        scenario = draw_replication(seed)
        facts = replicated_facts(scenario)
        if not scenario.coordination.writers:
            assert facts == {}
            continue
        assert {(each.replicas, each.min_in_sync) for each in facts.values()} == {(COPIED, MIN_IN_SYNC)}
        assert scenario.replication is not None
        assert scenario.replication.is_within
        assert OUTPUT in {topic.name for topic in moved_topics(scenario)}


@pytest.mark.parametrize("name", ["stable-is-high-watermark", "aborted-not-told"])
def test_bug_of_transactions_shows_in_them_too(name: str) -> None:
    found = checkers_of(run(BUGS[name], *SHORT, REPLICATION))
    assert set(found) & set(BUGS[name].checkers), found
