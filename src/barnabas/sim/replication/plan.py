"""What a seed of the kind "replication" decides: nodes, replicated topics, clients, faults, and whether the
faults keep within the budget of what replication promises (checkers/budget.py).

Everything that a broker does with its logs is as in the kind "log", and what the nodes are as in the kind
"cluster". Replicas fall behind, and are looked at, sooner than with Kafka's defaults, since a seed is a
minute.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.random import SeededRandom
from barnabas.sim.chance import between, happens, log_between, pick, stream
from barnabas.sim.cluster.plan import FAULTS as CLUSTER_FAULTS
from barnabas.sim.cluster.plan import ClusterPlan, draw_faults, machine_plan, metadata_settings
from barnabas.sim.coordination_scenario import INTERNAL, CoordinationPlan
from barnabas.sim.history import TopicFacts
from barnabas.sim.scenario import (
    REPLICATION,
    ProducerPlan,
    Scenario,
    TopicPlan,
    draw_producers,
    draw_topic,
    log_settings,
)

# voters and brokers
SHAPES = (
    ((1, 2, 3), (1, 2, 3)),
    ((1, 2, 3), (1, 2, 3)),
    ((1, 2, 3), (1, 2, 3, 4)),
    ((1,), (1, 2, 3)),
    ((1,), (2, 3, 4)),
    ((1, 2, 3), (2, 3, 4)),
    ((1, 2, 3), (3, 4, 5)),
    ((1, 2, 3), (1, 2, 3, 4, 5)),
)
# replication factor and min.insync.replicas
COPIES = ((3, 2), (3, 2), (3, 2), (3, 2), (3, 1), (2, 2), (2, 1), (1, 1))
COPIED, MIN_IN_SYNC = 3, 2  # the same, of the topics of coordinators and those that transactions write
FAULTS = CLUSTER_FAULTS | {
    "replica-crash": (4.0, 30.0),
    "replicas-crash": (10.0, 60.0),
    "replica-cut-off": (5.0, 30.0),
    "replica-slow": (6.0, 40.0),
}
PACE = 0.6  # faults come that much sooner than in the kind "cluster"
WITHIN = 0.8  # how many seeds keep within the budget
UNCLEAN = 0.2  # how many topics allow unclean elections
SYNCED = 0.15  # how many have flush.messages=1
NEVER_SYNCED = str((1 << 63) - 1)


class ReplicationPlan(NamedTuple):
    """Who there is besides the clients of the kind "log". `is_within`: power is lost within the budget only.
    `movers` is the number of admins who have partitions moved and leaders elected."""

    is_within: bool
    movers: int


def draw_nodes(seed: int, seconds: float | None = None) -> Scenario:
    """The scenario of a seed, `seconds` long, or as long as it likes, without transactions."""
    random = stream(seed, "replication scenario")
    length_s = between(random, 30, 60)
    plan = _cluster(random)
    shared = log_settings(random) | metadata_settings(random) | _replication_settings(random)
    topics = tuple(_topic(random, number) for number in range(2 + random.below(2)))
    nodes = sorted({*plan.voters, *plan.brokers})
    return Scenario(
        seed,
        length_s if seconds is None else seconds,
        shared,
        tuple(machine_plan(random, plan, node) for node in nodes),
        topics,
        producers=tuple(_with_acks(random, each) for each in draw_producers(random, topics)),
        readers=1 + random.below(2),
        observers=1,
        client_kill_s=log_between(random, 10, 200),
        faults={kind: mean_s * PACE for kind, mean_s in draw_faults(random, FAULTS).items()},
        kind=REPLICATION,
        cluster=plan,
        replication=ReplicationPlan(happens(random, WITHIN), movers=1),
    )


def replicated_settings() -> dict[str, str]:
    """The settings of the topics of coordinators, where these are replicated."""
    return {f"{prefix}.replication.factor": str(COPIED) for prefix in INTERNAL.values()} | {
        "transaction.state.log.min.isr": str(MIN_IN_SYNC),
        "min.insync.replicas": str(MIN_IN_SYNC),  # of __consumer_offsets, which has no setting of its own
    }


def replicated_facts(scenario: Scenario) -> dict[str, TopicFacts]:
    """What is promised of the topics that clients do not make with settings of their own."""
    if scenario.coordination == CoordinationPlan():
        return {}
    facts = TopicFacts(replicas=COPIED, min_in_sync=MIN_IN_SYNC)
    names = [*INTERNAL, *(name for name, _ in scenario.coordination.outputs)]
    return dict.fromkeys(names, facts)


def _cluster(random: SeededRandom) -> ClusterPlan:
    voters, brokers = pick(random, SHAPES)
    return ClusterPlan(voters, brokers, is_dynamic=happens(random, 0.7), admins=0)


def _topic(random: SeededRandom, number: int) -> TopicPlan:
    topic = draw_topic(random, number)
    replicas, min_in_sync = pick(random, COPIES)
    configs = topic.configs | {
        "min.insync.replicas": str(min_in_sync),
        "flush.messages": "1" if happens(random, SYNCED) else NEVER_SYNCED,
    }
    if happens(random, UNCLEAN):
        configs["unclean.leader.election.enable"] = "true"
    return topic._replace(configs=configs, replicas=replicas)


def _with_acks(random: SeededRandom, plan: ProducerPlan) -> ProducerPlan:
    if plan.is_idempotent:
        return plan
    return plan._replace(acks=pick(random, (-1, 1, 0)))


def _replication_settings(random: SeededRandom) -> dict[str, str]:
    return {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "replica.lag.time.max.ms": pick(random, ("2000", "5000", "10000", "30000")),
        "replica.fetch.wait.max.ms": pick(random, ("500", "500", "100", "2000")),
        "replica.fetch.backoff.ms": pick(random, ("1000", "1000", "200")),
        "replica.fetch.max.bytes": pick(random, ("1048576", "1048576", "3000")),
        "replica.fetch.response.max.bytes": pick(random, ("10485760", "10485760", "5000")),
        "replica.high.watermark.checkpoint.interval.ms": pick(random, ("5000", "1000")),
        "leader.imbalance.check.interval.seconds": pick(random, ("300", "5", "15")),
        "unclean.leader.election.interval.ms": pick(random, ("300000", "5000")),
    }
