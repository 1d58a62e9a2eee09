"""What is drawn for coordinators on several nodes keeps within the budget of what replication promises."""

from __future__ import annotations

import pytest

from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.sim.checkers.budget import doubts_of, facts_of
from barnabas.sim.coordination.plan import FAULTS, draw_coordination
from barnabas.sim.history import Crash, Event, History, TopicFacts
from barnabas.sim.replication.events import PartitionSeen
from barnabas.sim.replication.plan import COPIED, MIN_IN_SYNC, replicated_facts
from barnabas.sim.scenario import REPLICATED, REPLICATED_GROUPS, REPLICATED_TRANSACTIONS
from barnabas.sim.transaction_events import OutputMade
from barnabas.sim.workload.moving import moved_topics

SEEDS = range(1, 40)


@pytest.mark.parametrize("kind", REPLICATED)
def test_every_topic_has_three_replicas_of_which_two_must_be_in_sync(kind: str) -> None:
    for seed in SEEDS:
        scenario = draw_coordination(seed, kind)
        assert scenario.cluster is not None
        assert len(scenario.cluster.brokers) >= COPIED
        assert scenario.replication is not None
        assert scenario.replication.is_within
        for prefix in ("offsets.topic", "transaction.state.log"):
            assert scenario.broker[f"{prefix}.replication.factor"] == str(COPIED)
        assert scenario.broker["min.insync.replicas"] == str(MIN_IN_SYNC)
        for topic in moved_topics(scenario):
            assert (topic.facts.replicas, topic.facts.min_in_sync) == (COPIED, MIN_IN_SYNC)


def test_kinds_have_their_own_clients() -> None:
    groups = draw_coordination(1, REPLICATED_GROUPS).coordination
    loops = draw_coordination(1, REPLICATED_TRANSACTIONS).coordination
    assert groups.groups
    assert groups.lone
    assert not groups.loops
    assert loops.loops
    assert not loops.groups


def test_every_fault_is_drawn_by_some_seed() -> None:
    drawn = {kind for seed in SEEDS for kind in draw_coordination(seed, REPLICATED_GROUPS).faults}
    assert drawn == FAULTS.keys()


def test_topics_of_coordinators_and_outputs_are_known_to_be_replicated() -> None:
    facts = facts_of(History(events=[OutputMade(0, "output", 1, COPIED, MIN_IN_SYNC)]))
    expected = TopicFacts(replicas=COPIED, min_in_sync=MIN_IN_SYNC)
    assert facts["output"] == expected
    assert facts[CONSUMER_OFFSETS] == facts[TRANSACTION_STATE] == expected._replace(is_compacted=True)
    scenario = draw_coordination(1, REPLICATED_TRANSACTIONS)
    assert set(replicated_facts(scenario)) == {"output", CONSUMER_OFFSETS, TRANSACTION_STATE}


def test_one_power_loss_puts_nothing_of_a_coordinator_in_doubt() -> None:
    nodes = (1, 2, 3)
    seen = PartitionSeen(0, 1, 1, CONSUMER_OFFSETS, "id", 0, 1, 0, 0, nodes, nodes, (), (), (), (), False)
    one: list[Event] = [seen, Crash(1, "power", 1)]
    assert (doubts := doubts_of(History(events=one))) is not None
    assert doubts[CONSUMER_OFFSETS, 0].all == []
    assert (doubts := doubts_of(History(events=[*one, Crash(2, "power", 2)]))) is not None
    assert doubts[CONSUMER_OFFSETS, 0].has_any(2, 3)
