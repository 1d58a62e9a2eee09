"""Transactional producers in seeds of the kind "replication": each writes one partition, commits or aborts.

Every fourth seed has them, so that the others are what they were. They write a topic of their own, replicated
as the topics of coordinators are. Within the budget of replication nothing of these is ever lost, so power is
lost within it only.
"""

from __future__ import annotations

from barnabas.sim.chance import stream
from barnabas.sim.coordination_scenario import CoordinationPlan, GroupPlan, coordination_broker, draw_loop
from barnabas.sim.replication.plan import draw_nodes, replicated_settings
from barnabas.sim.scenario import Scenario

EVERY = 4
OUTPUT = "output"
MOST = 3
ABORTS = 0.1  # at the least
NO_GROUP = GroupPlan("", "", 0, 0, 0, 0)


def draw_replication(seed: int, seconds: float | None = None) -> Scenario:
    """The scenario of a seed, `seconds` long, or as long as it likes."""
    scenario = draw_nodes(seed, seconds)
    return scenario if seed % EVERY else _with_writers(scenario)


def _with_writers(scenario: Scenario) -> Scenario:
    random = stream(scenario.seed, "replication writers")
    count = 1 + random.below(MOST)
    writers = [draw_loop(random, f"writer-{number}", NO_GROUP, number, OUTPUT) for number in range(count)]
    assert scenario.replication is not None
    return scenario._replace(
        broker=scenario.broker | coordination_broker(random, is_synced=False) | replicated_settings(),
        coordination=CoordinationPlan(
            outputs=((OUTPUT, count),),
            writers=tuple(each._replace(aborts=max(each.aborts, ABORTS)) for each in writers),
        ),
        replication=scenario.replication._replace(is_within=True),
    )
