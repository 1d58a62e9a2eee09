"""What a seed of the kind "cluster" decides: the machines and their roles, the quorum's voters, the faults.

The metadata log lives fast: segments of a few kilobytes, snapshots every few, and batches so small that a
topic of many partitions needs a metadata transaction. Timeouts are Kafka's defaults: they are what is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from barnabas.broker.storage.formatting import InitialVoter
from barnabas.core.random import SeededRandom
from barnabas.sim.chance import between, happens, log_between, pick, stream
from barnabas.sim.scenario import CLUSTER, Formatted, MachinePlan, Scenario

CLUSTER_ID = "U2ltdWxhdGVkIGNsdXN0ZQ"
PORT, CONTROLLER_PORT = 9092, 9093
CONTROLLER = "CONTROLLER"
DRIFTS = (0.0, 0.0, 1e-4, -1e-4, 0.02, -0.02)

# Kinds of faults, and the mean time between two of them in seconds: the shortest and the longest drawn.
FAULTS = {
    "process-crash": (5.0, 40.0),
    "process-crash-in-write": (4.0, 30.0),
    "power-loss": (8.0, 50.0),
    "power-loss-in-write": (6.0, 50.0),
    "restart": (10.0, 50.0),
    "leader-crash": (5.0, 30.0),
    "crash-after-election": (5.0, 40.0),
    "rolling-restart": (15.0, 60.0),
    "pause": (6.0, 40.0),
    "slow-disk": (8.0, 40.0),
    "disk-full": (10.0, 60.0),
    "disk-error": (8.0, 60.0),
    "partition": (4.0, 30.0),
    "links-dropped": (3.0, 20.0),
    "dials-refused": (5.0, 40.0),
    "dials-hang": (5.0, 40.0),
    "connection-dropped": (2.0, 20.0),
    "connection-half-open": (5.0, 40.0),
    "network-delay": (5.0, 40.0),
    "network-held": (8.0, 40.0),
    "clock-jump": (4.0, 40.0),
    "leader-cut-off": (5.0, 30.0),
}

# voters and brokers
SHAPES = (
    ((1, 2, 3), (1, 2, 3)),
    ((1, 2, 3), (1, 2, 3)),
    ((1, 2, 3), (1, 2, 3, 4)),
    ((1, 2, 3), (4, 5)),
    ((1, 2, 3), (2, 3, 4)),
    ((1, 2, 3, 4, 5), (1, 2, 3, 4, 5)),
    ((1, 2, 3, 4, 5), (1, 3, 5)),
)


class ClusterPlan(NamedTuple):
    """Who there is. `admins` is the number of clients that change the metadata all the time."""

    voters: tuple[int, ...]
    brokers: tuple[int, ...]
    is_dynamic: bool  # the voters stand in the log, not in the settings
    admins: int
    has_operator: bool = False  # who changes the voters


def draw_cluster(seed: int, seconds: float | None = None) -> Scenario:
    """The scenario of a seed, `seconds` long, or as long as it likes."""
    random = stream(seed, "cluster scenario")
    length_s = between(random, 25, 45)
    plan = _plan(random)
    shared = metadata_settings(random)
    nodes = sorted({*plan.voters, *plan.brokers})
    return Scenario(
        seed,
        length_s if seconds is None else seconds,
        shared,
        tuple(machine_plan(random, plan, node) for node in nodes),
        topics=(),
        producers=(),
        readers=0,
        observers=0,
        client_kill_s=log_between(random, 10, 60),
        faults=draw_faults(random, FAULTS),
        kind=CLUSTER,
        cluster=plan,
    )


def _plan(random: SeededRandom) -> ClusterPlan:
    voters, brokers = pick(random, SHAPES)
    is_dynamic, admins = happens(random, 0.7), 2 + random.below(2)
    return ClusterPlan(voters, brokers, is_dynamic, admins, is_dynamic and happens(random, 0.6))


def host_of(node: int) -> str:
    return f"node-{node}"


def directory_of(node: int) -> UUID:
    return UUID(int=0x51 << 64 | node)


def machine_plan(random: SeededRandom, plan: ClusterPlan, node: int) -> MachinePlan:
    """The machine of a node of a cluster, formatted."""
    host = host_of(node)
    is_voter, is_broker = node in plan.voters, node in plan.brokers
    listeners = [f"PLAINTEXT://{host}:{PORT}"] * is_broker + [
        f"{CONTROLLER}://{host}:{CONTROLLER_PORT}"
    ] * is_voter
    settings = {
        "process.roles": ",".join(["broker"] * is_broker + ["controller"] * is_voter),
        "listeners": ",".join(listeners),
        "controller.listener.names": CONTROLLER,
    }
    servers = [(each, f"{host_of(each)}:{CONTROLLER_PORT}") for each in plan.voters]
    if plan.is_dynamic:
        settings["controller.quorum.bootstrap.servers"] = ",".join(server for _, server in servers)
    else:
        settings["controller.quorum.voters"] = ",".join(f"{each}@{server}" for each, server in servers)
    voters = tuple(
        InitialVoter(each, host_of(each), CONTROLLER_PORT, directory_of(each)) for each in plan.voters
    )
    formatted = Formatted(CLUSTER_ID, directory_of(node), voters if plan.is_dynamic and is_voter else ())
    return MachinePlan(node, host, PORT, pick(random, DRIFTS), settings, formatted)


def metadata_settings(random: SeededRandom) -> dict[str, str]:
    """A metadata log that lives fast."""
    return {
        "auto.create.topics.enable": "false",
        "internal.metadata.log.segment.bytes": pick(random, ("2000", "4000", "20000")),
        "internal.metadata.max.batch.size.in.bytes": pick(random, ("1024", "1024", "2000")),
        "metadata.log.max.record.bytes.between.snapshots": pick(
            random, ("1500", "5000", "20000", "20971520")
        ),
        "metadata.log.max.snapshot.interval.ms": pick(random, ("0", "5000", "3600000")),
        "metadata.max.retention.bytes": pick(random, ("3000", "10000", "104857600")),
        "log.retention.check.interval.ms": "5000",
    }


def draw_faults(random: SeededRandom, faults: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Few seeds have none, some have one kind alone, most have many."""
    share = pick(random, (0.0, 0.1, 0.2, 0.4, 0.6, 1.0))
    pace = pick(random, (1.0, 2.0)) * (1 + 2 * share)
    kinds = [kind for kind in faults if happens(random, share)]
    return {kind: pace * log_between(random, *faults[kind]) for kind in kinds}
