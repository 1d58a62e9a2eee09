"""What a person does to replicated partitions of three nodes with Apache Kafka's tools, step by step.

It is the same on both systems: with all brokers there, with one down, and with two that go one after another.

Node 1 is the controller and a broker, 2 and 3 are brokers alone. Replicas are placed by hand, so that it is
known who leads.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.interop.kafka_tool_step import Step, steps
from tests.interop.replica_tool_acts import (
    NOBODY,
    ClusterAct,
    arrived,
    joined,
    killed,
    moved,
    settled,
    started,
    stopped,
    told_by_barnabas,
    verified,
    whole,
)

AT = "--bootstrap-server {bootstrap} "


def _moves(*moves: tuple[str, int, list[int]]) -> dict[str, object]:
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": partition, "replicas": replicas}
            for topic, partition, replicas in moves
        ],
    }


FILES: dict[str, object] = {
    "orders.json": {"version": 1, "topics": [{"topic": "orders"}]},
    "no-such.json": {"version": 1, "topics": [{"topic": "no-such"}]},
    "grow.json": _moves(("pairs", 1, [1, 2, 3]), ("alone", 1, [2])),
    "shrink.json": _moves(("orders", 1, [2, 3])),
    "more.json": _moves(("pairs", 1, [1, 2, 3])),
    "reorder.json": _moves(("orders", 0, [3, 2, 1])),
    "unknown-broker.json": _moves(("orders", 0, [1, 9])),
    "unknown-topic.json": _moves(("no-such", 0, [1])),
    "unknown-partition.json": _moves(("orders", 9, [1])),
    "twice.json": _moves(("orders", 0, [1, 2, 3]), ("orders", 0, [3, 2, 1])),
    "twice-a-broker.json": _moves(("orders", 0, [1, 1])),
    "nobody.json": _moves(("orders", 0, [])),
    "pending.json": _moves(("alone", 1, [2, 3])),
    "other.json": _moves(("strict", 0, [1, 2])),
    "instead.json": _moves(("alone", 1, [1])),
    "elect.json": {"partitions": [{"topic": "orders", "partition": 0}, {"topic": "pairs", "partition": 0}]},
}


def write_files(folder: Path) -> None:
    """The files that steps name."""
    for name, content in FILES.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "patient.properties").write_text("auto.commit.interval.ms=3600000\n")


FILTERS = [
    f"--describe --exclude-internal {each}"
    for each in (
        "",
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
        "--at-min-isr-partitions",
        "--topics-with-overrides",
    )
]

TOPICS: list[Step | ClusterAct] = [
    *steps(
        "topics",
        "--create --topic orders --replica-assignment 1:2:3,2:3:1,3:1:2 --config min.insync.replicas=2",
        "--create --topic pairs --replica-assignment 3:2,1:3",
        "--create --topic strict --replica-assignment 1:3 --config min.insync.replicas=2",
        "--create --topic alone --replica-assignment 3,1",
        "--create --topic journal --replica-assignment 2:1:3 --config min.insync.replicas=2",
        "--create --topic __consumer_offsets --replica-assignment 1:2:3 --config cleanup.policy=compact",
        "--create --topic spread --partitions 3 --replication-factor 3",
        "--delete --topic spread",
        "--create --topic copies --partitions 1 --replication-factor 4",
        "--create --topic uneven --replica-assignment 1:2,3",
        "--create --topic twice --replica-assignment 1:1",
    ),
    whole(),
    *steps("topics", *FILTERS, "--describe --topic orders", "--list --exclude-internal"),
    told_by_barnabas("describe"),
    told_by_barnabas("partitions", "--at-min-isr"),
    *steps(
        "topics",
        "--describe --topic orders --under-replicated-partitions",
        "--describe --topic strict --at-min-isr-partitions",
        "--describe --under-min-isr-partitions --at-min-isr-partitions",
        "--describe --topics-with-overrides --under-replicated-partitions",
    ),
]

RECORDS: list[Step | ClusterAct] = [
    Step("verifiable-producer", f"{AT}--topic journal --max-messages 20 --acks -1"),
    Step(
        "verifiable-consumer",
        f"{AT}--topic journal --group-id verified --max-messages 20"
        " --command-config {dir}/patient.properties",
    ),
    *steps(
        "get-offsets",
        "--topic journal",
        "--topic journal --time earliest",
        "--topic journal --time 1",
        "--topic-partitions journal:0,orders:0-2",
        "--exclude-internal-topics",
    ),
    whole(),
    verified("journal|strict", 2),
    *steps(
        "log-dirs",
        "--describe --topic-list journal,orders",
        "--describe --topic-list journal --broker-list 2,3",
        "--describe --topic-list journal --broker-list 2,9",
    ),
    *steps("topics", "--describe --at-min-isr-partitions"),
]

CONFIGS: list[Step | ClusterAct] = steps(
    "configs",
    "--describe --entity-type topics --entity-name orders",
    "--alter --entity-type topics --entity-name orders --add-config min.insync.replicas=3",
    "--describe --entity-type topics --entity-name orders",
    "--describe --entity-type topics",
    "--alter --entity-type brokers --entity-default --add-config min.insync.replicas=2",
    "--describe --entity-type brokers --entity-default",
    "--alter --entity-type brokers --entity-name 2 --add-config min.insync.replicas=3",
    "--alter --entity-type brokers --entity-default --delete-config min.insync.replicas",
    "--alter --entity-type brokers --entity-default --add-config min.insync.replicas=1",
    "--alter --entity-type brokers --entity-name 2 --add-config unclean.leader.election.enable=true",
    "--describe --entity-type brokers --entity-name 2",
    "--alter --entity-type brokers --entity-name 2 --delete-config unclean.leader.election.enable",
    "--describe --entity-type brokers --entity-name 9",
    "--describe --entity-type brokers",
)

LIMITED: list[Step | ClusterAct] = [
    *steps("topics", "--describe --exclude-internal --at-min-isr-partitions"),
    *steps(
        "configs",
        "--alter --entity-type topics --entity-name orders --add-config min.insync.replicas=2",
    ),
]

REASSIGN: list[Step | ClusterAct] = [
    *steps(
        "reassign-partitions",
        "--list",
        "--generate --topics-to-move-json-file {dir}/orders.json --broker-list 1,2,3",
        "--generate --topics-to-move-json-file {dir}/orders.json --broker-list 3,1,2 --disable-rack-aware",
        "--generate --topics-to-move-json-file {dir}/orders.json --broker-list 1,2",
        "--generate --topics-to-move-json-file {dir}/orders.json --broker-list 1,1",
        "--generate --topics-to-move-json-file {dir}/no-such.json --broker-list 1",
        "--execute --reassignment-json-file {dir}/unknown-broker.json",
        "--execute --reassignment-json-file {dir}/unknown-topic.json",
        "--execute --reassignment-json-file {dir}/unknown-partition.json",
        "--execute --reassignment-json-file {dir}/twice.json",
        "--execute --reassignment-json-file {dir}/twice-a-broker.json",
        "--execute --reassignment-json-file {dir}/nobody.json",
        "--execute --reassignment-json-file {dir}/more.json --disallow-replication-factor-change",
        "--execute --reassignment-json-file {dir}/grow.json",
    ),
    arrived(),
    whole(),
    *steps("reassign-partitions", "--verify --reassignment-json-file {dir}/grow.json"),
    *steps("topics", "--describe --topic pairs", "--describe --topic alone"),
    *steps(
        "reassign-partitions",
        "--execute --reassignment-json-file {dir}/shrink.json --throttle 10000000"
        " --replica-alter-log-dirs-throttle 20000000",
    ),
    arrived(),
    *steps(
        "configs",
        "--describe --entity-type brokers --entity-name 1",
        "--describe --entity-type brokers --entity-name 3",
        "--describe --entity-type topics --entity-name orders",
    ),
    *steps(
        "reassign-partitions",
        "--verify --reassignment-json-file {dir}/shrink.json --preserve-throttles",
        "--verify --reassignment-json-file {dir}/shrink.json",
        "--execute --reassignment-json-file {dir}/reorder.json",
    ),
    arrived(),
    *steps(
        "configs",
        "--describe --entity-type brokers --entity-name 3",
        "--describe --entity-type topics --entity-name orders",
    ),
    *steps(
        "reassign-partitions",
        "--verify --reassignment-json-file {dir}/reorder.json",
        "--verify --reassignment-json-file {dir}/unknown-topic.json",
        "--cancel --reassignment-json-file {dir}/reorder.json",
    ),
    *steps("topics", "--describe --topic orders"),
]

ELECT: list[Step | ClusterAct] = [
    *steps(
        "leader-election",
        "--election-type preferred --topic orders --partition 0",
        "--election-type preferred --topic orders --partition 0",
        "--election-type unclean --topic orders --partition 0",
        "--election-type preferred --path-to-json-file {dir}/elect.json",
        "--election-type preferred --all-topic-partitions",
        "--election-type preferred --topic orders --partition 7",
    ),
    settled({("orders", 0): (3, [1, 2, 3])}),
    *steps("topics", "--describe --topic orders"),
]

ONE_DOWN: list[Step | ClusterAct] = [
    killed(3),
    settled({("orders", 0): (2, [1, 2]), ("alone", 0): (NOBODY, []), ("journal", 0): (2, [1, 2])}),
    *steps("topics", *FILTERS, "--describe --topic orders"),
    told_by_barnabas("describe"),
    told_by_barnabas("partitions"),
    told_by_barnabas("partitions", "orders", "strict", "--under-min-isr"),
    *steps(
        "topics",
        "--create --topic late --replica-assignment 3:1",
        "--create --topic nowhere --replica-assignment 3",
        "--create --topic placed --partitions 3 --replication-factor 3",
        "--delete --topic placed",
        "--create --topic copies --partitions 1 --replication-factor 4",
        "--alter --topic late --partitions 2 --replica-assignment 3:1,1:2",
    ),
    settled({("late", 1): (1, [1, 2])}),
    *steps("topics", "--describe --topic late", "--describe --topic late --under-replicated-partitions"),
    *steps(
        "leader-election",
        "--election-type preferred --topic orders --partition 0",
        "--election-type preferred --topic late --partition 0",
        "--election-type unclean --topic alone --partition 0",
        "--election-type unclean --topic orders --partition 0",
        "--election-type preferred --path-to-json-file {dir}/elect.json",
        "--election-type preferred --all-topic-partitions",
        "--election-type unclean --all-topic-partitions",
    ),
    Step("verifiable-producer", f"{AT}--topic journal --max-messages 5 --acks -1"),
    Step("verifiable-producer", f"{AT}--topic strict --max-messages 1 --acks -1"),
    Step("verifiable-producer", f"{AT}--topic strict --max-messages 1 --acks 1"),
    *steps("get-offsets", "--topic journal", "--topic strict"),
    *steps(
        "log-dirs",
        "--describe --topic-list journal",
        "--describe --topic-list journal --broker-list 3",
        "--describe --topic-list journal --broker-list 1,3",
    ),
    *steps(
        "configs",
        "--alter --entity-type topics --entity-name strict --add-config min.insync.replicas=1",
    ),
    *steps("topics", "--describe --topic strict", "--describe --topic strict --at-min-isr-partitions"),
    *steps("reassign-partitions", "--execute --reassignment-json-file {dir}/pending.json"),
    moved("alone", 1, 2, 3),
    *steps(
        "reassign-partitions",
        "--list",
        "--verify --reassignment-json-file {dir}/pending.json",
        "--execute --reassignment-json-file {dir}/other.json",
        "--execute --reassignment-json-file {dir}/other.json --additional",
    ),
    settled({("strict", 0): (1, [1, 2])}),
    *steps("topics", "--describe --topic alone", "--describe --topic strict"),
    told_by_barnabas("partitions", "--moving"),
    *steps(
        "reassign-partitions",
        "--list",
        "--verify --reassignment-json-file {dir}/other.json",
        "--cancel --reassignment-json-file {dir}/other.json",
        "--execute --reassignment-json-file {dir}/instead.json --additional --throttle 5000000",
    ),
    arrived(),
    *steps("topics", "--describe --topic alone"),
    moved("alone", 1, 2, 3),
    *steps(
        "reassign-partitions",
        "--list",
        # without this it would wait for the broker that is down, to take its throttles from it
        "--cancel --reassignment-json-file {dir}/pending.json --preserve-throttles",
        "--cancel --reassignment-json-file {dir}/pending.json --preserve-throttles",
        "--list",
    ),
    *steps("configs", "--describe --entity-type topics --entity-name alone"),
    *steps("topics", "--describe --topic alone"),
    moved("alone", 1, 1, 3),
]

BACK: list[Step | ClusterAct] = [
    started(3),
    whole(),
    arrived(),
    *steps("reassign-partitions", "--list", "--verify --reassignment-json-file {dir}/instead.json"),
    *steps("topics", *FILTERS),
    *steps(
        "configs",
        "--describe --entity-type brokers --entity-name 3",
        "--describe --entity-type topics --entity-name alone",
    ),
    *steps("leader-election", "--election-type preferred --all-topic-partitions"),
    settled({("orders", 0): (3, [1, 2, 3]), ("orders", 2): (3, [1, 2, 3])}),
    *steps("topics", "--describe --exclude-internal"),
    told_by_barnabas("partitions", "--all"),
    *steps("log-dirs", "--describe --topic-list journal,alone"),
    verified("journal|strict", 2),
]

UNCLEAN: list[Step | ClusterAct] = [
    stopped(2),
    settled({("pairs", 0): (3, [3])}),
    *steps(
        "topics", "--describe --exclude-internal", "--describe --topic orders --under-replicated-partitions"
    ),
    killed(3),
    settled({("pairs", 0): (NOBODY, [])}),
    *steps("topics", *FILTERS),
    started(2),
    joined(),
    *steps("topics", "--describe --topic pairs", "--describe --topic orders"),
    *steps(
        "leader-election",
        "--election-type unclean --topic pairs --partition 1",
        "--election-type unclean --topic pairs --partition 0",
        "--election-type unclean --topic pairs --partition 0",
    ),
    settled({("pairs", 0): (2, [2])}),
    *steps("topics", "--describe --topic pairs", "--describe --unavailable-partitions --exclude-internal"),
    started(3),
    whole(),
    *steps("topics", "--describe --exclude-internal"),
]

STEPS: list[Step | ClusterAct] = [
    *TOPICS,
    *RECORDS,
    *CONFIGS,
    *LIMITED,
    *REASSIGN,
    *ELECT,
    *ONE_DOWN,
    *BACK,
    *UNCLEAN,
]
