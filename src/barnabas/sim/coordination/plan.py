"""What a seed of the kinds "replicated-groups" and "replicated-transactions" decides.

Nodes, faults and the settings of replication are drawn as in the kind "replication", groups and loops as in
the kinds of one node. Every topic has three replicas and min.insync.replicas=2, the coordinators' topics
included, and power is lost within the budget only (checkers/budget.py): so nothing that was acknowledged may
ever be lost. Further faults aim at coordinators, and admins move their partitions as well.
"""

from __future__ import annotations

from barnabas.core.random import SeededRandom
from barnabas.sim.chance import happens, log_between, stream
from barnabas.sim.cluster.plan import draw_faults
from barnabas.sim.coordination_scenario import (
    CoordinationPlan,
    coordination_broker,
    draw_groups,
    draw_loops,
    plain_configs,
)
from barnabas.sim.replication.plan import (
    COPIED,
    MIN_IN_SYNC,
    PACE,
    ReplicationPlan,
    draw_nodes,
    replicated_settings,
)
from barnabas.sim.replication.plan import FAULTS as REPLICATION_FAULTS
from barnabas.sim.scenario import REPLICATED_GROUPS, Scenario, TopicPlan, draw_producer

SYNCED = 0.1  # in how many seeds every append is synced
MOVERS = 2
FAULTS = REPLICATION_FAULTS | {
    "coordinator-crash": (4.0, 30.0),
    "coordinator-cut-off": (4.0, 30.0),
    "coordinator-pause": (6.0, 40.0),
    "coordinator-handover": (10.0, 30.0),
    "coordinator-lags": (2.0, 10.0),
}


def draw_coordination(seed: int, kind: str, seconds: float | None = None) -> Scenario:
    """The scenario of a seed, `seconds` long, or as long as it likes."""
    scenario = draw_nodes(seed, seconds)
    random = stream(seed, kind)
    is_synced = happens(random, SYNCED)
    configs = plain_configs(random, is_synced) | {"min.insync.replicas": str(MIN_IN_SYNC)}
    topic = TopicPlan("input", 1 + random.below(4), configs, COPIED)
    producer = draw_producer(random, "producer-0", topic, log_between(random, 1, 6))
    return scenario._replace(
        broker=scenario.broker | coordination_broker(random, is_synced) | replicated_settings(),
        topics=(topic,),
        producers=(producer._replace(is_idempotent=True, acks=-1),),
        readers=1,
        observers=1,
        client_kill_s=log_between(random, 3, 60),
        faults={name: mean_s * PACE for name, mean_s in draw_faults(random, FAULTS).items()},
        kind=kind,
        coordination=_coordination(random, kind, topic),
        replication=ReplicationPlan(is_within=True, movers=MOVERS),
    )


def _coordination(random: SeededRandom, kind: str, topic: TopicPlan) -> CoordinationPlan:
    if kind == REPLICATED_GROUPS:
        lone = tuple(f"lone-{number}" for number in range(1 + random.below(3)))
        return draw_groups(random, topic.name)._replace(lone=lone)
    return draw_loops(random, topic.name, topic.partitions)
