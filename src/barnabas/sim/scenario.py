"""What a seed decides before anything happens: topics and their settings, clients and rates, the faults.

Topics live fast: segments of seconds, indexes of a few entries, retention and compaction every few seconds,
so that a minute sees what otherwise takes weeks. Rates are such that a simulated minute costs about a second.

A seed is of one kind, drawn apart from everything else: what it draws as one kind it draws as any, as far as
that kind has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from barnabas.broker.storage.formatting import InitialVoter
from barnabas.core.random import SeededRandom
from barnabas.records.compression import Codec
from barnabas.sim.chance import between, happens, log_between, pick, stream
from barnabas.sim.coordination_scenario import (
    FOREVER,
    CoordinationPlan,
    coordination_broker,
    draw_groups,
    draw_loops,
    plain_configs,
)
from barnabas.sim.history import TopicFacts

if TYPE_CHECKING:
    from barnabas.sim.cluster.plan import ClusterPlan
    from barnabas.sim.replication.plan import ReplicationPlan

# What a simulation is about: partitions and their logs, groups, or transactions.
LOG, GROUPS, TRANSACTIONS = KINDS = ("log", "groups", "transactions")
# Several nodes and their metadata (sim/cluster); no seed is of these kinds unless they are asked for.
CLUSTER = "cluster"
# Several nodes with replicated partitions (sim/replication).
REPLICATION = "replication"
# The same with groups and transactions, whose coordinators move (sim/coordination).
REPLICATED_GROUPS, REPLICATED_TRANSACTIONS = REPLICATED = ("replicated-groups", "replicated-transactions")
SHORTER = 0.6  # what groups and transactions take of the time that logs need

# The kinds of faults, and the mean time between two of them in seconds: the shortest and the longest drawn.
FAULTS = {
    "process-crash": (5.0, 60.0),
    "process-crash-in-write": (4.0, 40.0),
    "power-loss": (8.0, 60.0),
    "power-loss-in-write": (6.0, 60.0),
    "restart": (10.0, 60.0),
    "slow-disk": (8.0, 40.0),
    "disk-full": (10.0, 60.0),
    "disk-error": (6.0, 60.0),
    "connection-dropped": (2.0, 20.0),
    "connection-half-open": (5.0, 40.0),
    "network-delay": (5.0, 40.0),
    "network-held": (8.0, 40.0),
    "clock-jump": (4.0, 40.0),
}


class Formatted(NamedTuple):
    """How a node's directory was formatted before its first start; `voters` are those of a new quorum."""

    cluster_id: str
    directory_id: UUID
    voters: tuple[InitialVoter, ...]


class MachinePlan(NamedTuple):
    """A machine and the node on it. `drift` is that of its wall clock; `settings` are those of this node
    alone. A node whose directory is not formatted founds a cluster of its own."""

    node: int = 1
    host: str = "broker"
    port: int = 9092
    drift: float = 0.0
    settings: Mapping[str, str] = MappingProxyType({})
    formatted: Formatted | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class TopicPlan(NamedTuple):
    """A topic to be made."""

    name: str
    partitions: int
    configs: dict[str, str]
    replicas: int = 1

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.configs["cleanup.policy"]

    @property
    def facts(self) -> TopicFacts:
        """What its settings promise."""
        has = self.configs
        is_deleted = "delete" in has["cleanup.policy"]
        return TopicFacts(
            partitions=self.partitions,
            flush_every_message=has.get("flush.messages") == "1",
            flush_ms=_number(has.get("flush.ms")),
            is_compacted=self.is_compacted,
            delete_retention_ms=int(has.get("delete.retention.ms", 86_400_000)),
            min_compaction_lag_ms=int(has.get("min.compaction.lag.ms", 0)),
            max_compaction_lag_ms=_number(has.get("max.compaction.lag.ms")),
            retention_ms=_number(has.get("retention.ms")) if is_deleted else None,
            retention_bytes=_number(has.get("retention.bytes")) if is_deleted else None,
            has_append_time=has.get("message.timestamp.type") == "LogAppendTime",
            replicas=self.replicas,
            min_in_sync=int(has.get("min.insync.replicas", 1)),
            is_unclean=has.get("unclean.leader.election.enable") == "true",
        )


class ProducerPlan(NamedTuple):
    """A producer's settings and how much it sends."""

    name: str
    topic: str
    records_per_second: float
    value_bytes: int  # at most
    keys: int  # how many different ones; 0: none
    codec: Codec
    acks: int
    is_idempotent: bool
    linger_ms: float
    batch_bytes: int
    max_in_flight: int


class Scenario(NamedTuple):
    """What a seed has drawn. `seconds`: how long there are faults, and clients at work."""

    seed: int
    seconds: float
    broker: dict[str, str]  # the settings that all nodes share
    machines: tuple[MachinePlan, ...]
    topics: tuple[TopicPlan, ...]
    producers: tuple[ProducerPlan, ...]
    readers: int
    observers: int
    client_kill_s: float  # mean time between two deaths of clients
    faults: dict[str, float]  # the mean time in seconds between two faults, by kind
    kind: str = LOG
    coordination: CoordinationPlan = CoordinationPlan()
    cluster: ClusterPlan | None = None
    replication: ReplicationPlan | None = None

    @property
    def bootstrap(self) -> str:
        """Where clients find the cluster: all nodes that are brokers."""
        brokers = None if self.cluster is None else self.cluster.brokers
        return ",".join(each.address for each in self.machines if brokers is None or each.node in brokers)


def draw_scenario(seed: int, seconds: float | None = None, kind: str | None = None) -> Scenario:
    """The scenario of a seed, `seconds` long, or as long as it likes; of the kind it likes, or of that."""
    scenario = _draw(seed, seconds)
    kind = kind or pick(stream(seed, "kind"), (LOG, LOG, GROUPS, TRANSACTIONS))
    return scenario if kind == LOG else _coordinated(scenario, kind, seconds)


def _coordinated(scenario: Scenario, kind: str, seconds: float | None) -> Scenario:
    """The same faults for groups or transactions."""
    random = stream(scenario.seed, kind)
    is_synced = any(fault.startswith("power-loss") for fault in scenario.faults)
    topic = TopicPlan("input", 1 + random.below(4), plain_configs(random, is_synced))
    producer = draw_producer(random, "producer-0", topic, log_between(random, 1, 6))
    draw = draw_groups(random, topic.name) if kind == GROUPS else None
    return scenario._replace(
        seconds=scenario.seconds if seconds is not None else scenario.seconds * SHORTER,
        broker=scenario.broker | coordination_broker(random, is_synced),
        topics=(topic,),
        producers=(producer._replace(is_idempotent=True, acks=-1),),
        readers=1,
        observers=1,
        client_kill_s=log_between(random, 3, 60),
        kind=kind,
        coordination=draw or draw_loops(random, topic.name, topic.partitions),
    )


def _draw(seed: int, seconds: float | None) -> Scenario:
    random = stream(seed, "scenario")
    length_s = between(random, 60, 90)
    topics = tuple(draw_topic(random, number) for number in range(2 + random.below(3)))
    return Scenario(
        seed,
        length_s if seconds is None else seconds,
        log_settings(random),
        (MachinePlan(drift=pick(random, (0.0, 0.0, 1e-4, -1e-4, 0.02, -0.02))),),
        topics,
        draw_producers(random, topics),
        readers=1 + random.below(3),
        observers=1 + random.below(2),
        client_kill_s=log_between(random, 10, 200),
        faults=_faults(random),
    )


def log_settings(random: SeededRandom) -> dict[str, str]:
    """What all brokers do with their logs, and with connections."""
    return {
        "auto.create.topics.enable": "false",
        "log.flush.offset.checkpoint.interval.ms": _ms(random, 1_000, 20_000),
        "log.retention.check.interval.ms": _ms(random, 500, 10_000),
        "log.cleaner.backoff.ms": _ms(random, 100, 3_000),
        "log.cleaner.dedupe.buffer.size": "1048577",
        # of the least memory there can be, so little that a map has room for a few keys only
        "log.cleaner.io.buffer.load.factor": pick(random, ("0.9", "0.9", "0.0001", "0.0002")),
        "log.cleaner.io.max.bytes.per.second": pick(random, ("1e308", "1e308", "300000")),
        "log.cleaner.io.buffer.size": str(pick(random, (1_024, 16_384, 524_288))),
        "connections.max.idle.ms": str(pick(random, (10_000, 60_000, 600_000))),
        "max.incremental.fetch.session.cache.slots": str(pick(random, (0, 1, 3, 1_000, 1_000))),
    }


def draw_topic(random: SeededRandom, number: int) -> TopicPlan:
    """A topic that lives fast."""
    policy = pick(random, ("delete", "delete", "delete", "compact", "compact,delete"))
    configs = {
        "cleanup.policy": policy,
        "segment.ms": _ms(random, 1_000, 20_000),
        "segment.index.bytes": str(pick(random, (96, 240, 10_485_760))),
        "index.interval.bytes": str(pick(random, (0, 100, 1_000, 4_096))),
        "file.delete.delay.ms": _ms(random, 100, 5_000),
        # the broker's clock jumps, and clients send what time they believe it to be
        "message.timestamp.after.max.ms": FOREVER,
        "retention.ms": "-1",
    }
    if happens(random, 0.4):
        configs["flush.messages"] = "1"
    if happens(random, 0.3):
        configs["flush.ms"] = _ms(random, 500, 5_000)
        if happens(random, 0.5):
            configs["segment.ms"] = _ms(random, 15_000, 60_000)  # or rolling would see to it
    if happens(random, 0.25):
        configs["message.timestamp.type"] = "LogAppendTime"
    if happens(random, 0.2):
        configs["compression.type"] = pick(random, ("gzip", "snappy", "lz4", "zstd", "uncompressed"))
    if happens(random, 0.15):
        configs["max.message.bytes"] = str(pick(random, (3_000, 30_000)))
    if "delete" in policy and happens(random, 0.5):
        configs["retention.ms"] = _ms(random, 5_000, 60_000)
    if "delete" in policy and happens(random, 0.25):
        configs["retention.bytes"] = str(int(log_between(random, 1_000, 50_000)))
    if "compact" in policy:
        configs |= _compaction(random)
    name = f"{policy.replace(',', '-')}-{number}"
    return TopicPlan(name, 1 + random.below(2), configs)


def _compaction(random: SeededRandom) -> dict[str, str]:
    configs = {
        "delete.retention.ms": pick(random, ("0", _ms(random, 500, 5_000), _ms(random, 5_000, 60_000))),
        "min.cleanable.dirty.ratio": pick(random, ("0.0", "0.01", "0.2", "0.5")),
    }
    if happens(random, 0.3):
        configs["min.compaction.lag.ms"] = _ms(random, 500, 10_000)
    if happens(random, 0.3):
        configs["max.compaction.lag.ms"] = _ms(random, 10_000, 30_000)
    return configs


def draw_producers(random: SeededRandom, topics: tuple[TopicPlan, ...]) -> tuple[ProducerPlan, ...]:
    """At least one for each topic."""
    total_per_second = log_between(random, 3, 16)
    count = max(len(topics), 2 + random.below(3))
    return tuple(
        draw_producer(random, f"producer-{number}", topics[number % len(topics)], total_per_second / count)
        for number in range(count)
    )


def draw_producer(random: SeededRandom, name: str, topic: TopicPlan, per_second: float) -> ProducerPlan:
    is_idempotent = happens(random, 0.8)
    return ProducerPlan(
        name,
        topic.name,
        records_per_second=per_second,
        value_bytes=int(log_between(random, 20, 2_000)),
        keys=1 + random.below(12) if topic.is_compacted or happens(random, 0.5) else 0,
        codec=pick(random, (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)),
        acks=-1 if is_idempotent or happens(random, 0.5) else 1,
        is_idempotent=is_idempotent,
        linger_ms=pick(random, (0.0, 5.0, 50.0, 300.0)),
        batch_bytes=pick(random, (200, 2_000, 16_384)),
        max_in_flight=1 + random.below(5),
    )


def _faults(random: SeededRandom) -> dict[str, float]:
    """Few seeds have none, some have one kind alone, most have many."""
    share = pick(random, (0.0, 0.1, 0.3, 0.6, 0.6, 1.0, 1.0, 1.0))
    pace = pick(random, (1.0, 1.0, 2.0))
    kinds = [kind for kind in FAULTS if happens(random, share)]
    return {kind: pace * log_between(random, *FAULTS[kind]) for kind in kinds}


def _ms(random: SeededRandom, least: int, most: int) -> str:
    return str(int(log_between(random, least, most)))


def _number(text: str | None) -> int | None:
    """A limit, None where there is none."""
    return None if text is None or text in ("-1", FOREVER) else int(text)
