"""What a person does to one node with Apache Kafka's tools, step by step: the same on both systems.

Steps come in the order of this table and leave their traces for those after them; those of groups and
transactions come last (kafka_coordination_steps.py).
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.interop import kafka_coordination_steps
from tests.interop.kafka_tool_acts import Act, settled
from tests.interop.kafka_tool_step import Step, steps

FILES: dict[str, object] = {
    "move.json": {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]},
    "move-away.json": {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [9]}]},
    "topics.json": {"version": 1, "topics": [{"topic": "orders"}]},
    "elect.json": {"partitions": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]},
    "trim.json": {"version": 1, "partitions": [{"topic": "lines", "partition": 0, "offset": 2}]},
    "trim-all.json": {"version": 1, "partitions": [{"topic": "lines", "partition": 0, "offset": -1}]},
    "trim-too-far.json": {"version": 1, "partitions": [{"topic": "lines", "partition": 0, "offset": 99}]},
    "trim-compacted.json": {"version": 1, "partitions": [{"topic": "table", "partition": 0, "offset": 0}]},
}


def write_files(folder: Path) -> None:
    """The files that steps name."""
    for name, content in FILES.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "set.properties").write_text("retention.ms=7200000\nmax.message.bytes=500000\n")
    (folder / "committed.properties").write_text("isolation.level=read_committed\n")
    (folder / "patient.properties").write_text("client.id=patient\nauto.commit.interval.ms=3600000\n")
    (folder / "offsets.csv").write_text("letters,0,6\nletters,1,999\nbills,0,1\n")
    (folder / "offsets-of-two.csv").write_text("early,letters,0,2\nlate,letters,1,3\n")


TOPICS = steps(
    "topics",
    "--list",
    "--create --topic orders --partitions 3 --replication-factor 1",
    "--create --topic orders",
    "--create --topic orders --if-not-exists",
    "--create --topic table --partitions 1 --config cleanup.policy=compact --config segment.bytes=1048576",
    "--create --topic lines",
    "--create --topic placed --replica-assignment 1,1",
    "--create --topic placed-badly --replica-assignment 9",
    "--create --topic unlucky --config no.such.setting=1",
    "--create --topic unlucky --config retention.ms=soon",
    "--create --topic unlucky --partitions 0",
    "--create --topic unlucky --replication-factor 3",
    "--create --topic 'not a name'",
    "--create --topic with_under.score",
    "--list",
    "--list --exclude-internal",
    "--list --topic orders",
    "--list --topic 'o.*'",
    "--describe",
    "--describe --topic orders",
    "--describe --topic 'orders|lines'",
    "--describe --topic no-such",
    "--describe --topic no-such --if-exists",
    "--describe --topics-with-overrides",
    "--describe --under-replicated-partitions",
    "--describe --unavailable-partitions",
    "--describe --under-min-isr-partitions",
    "--describe --at-min-isr-partitions",
    "--describe --topic orders --partition-size-limit-per-response 2",
    "--alter --topic orders --partitions 5",
    "--alter --topic orders --partitions 5",
    "--alter --topic orders --partitions 2",
    "--alter --topic no-such --partitions 2",
    "--alter --topic no-such --partitions 2 --if-exists",
    "--alter --topic placed --partitions 3 --replica-assignment 1,1,1",
    "--alter --topic placed --partitions 4 --replica-assignment 1,1,1,7",
    "--describe --topic placed",
    "--delete --topic with_under.score",
    "--delete --topic no-such",
    "--delete --topic no-such --if-exists",
    "--list",
)

CONFIGS = steps(
    "configs",
    "--describe --entity-type topics",
    "--describe --entity-type topics --entity-name orders",
    "--describe --entity-type topics --entity-name orders --all",
    "--alter --entity-type topics --entity-name orders --add-config retention.ms=3600000",
    "--alter --entity-type topics --entity-name orders"
    " --add-config cleanup.policy=[compact,delete],max.message.bytes=2000000",
    "--describe --entity-type topics --entity-name orders",
    "--describe --entity-type topics --entity-name orders --all",
    "--alter --entity-type topics --entity-name orders --delete-config retention.ms,cleanup.policy",
    "--alter --entity-type topics --entity-name orders --add-config-file {dir}/set.properties",
    "--describe --entity-type topics --entity-name orders",
    "--alter --entity-type topics --entity-name orders --delete-config no.such.setting",
    "--alter --entity-type topics --entity-name orders --add-config no.such.setting=1",
    "--alter --entity-type topics --entity-name orders --add-config retention.ms=soon",
    "--alter --entity-type topics --entity-name no-such --add-config retention.ms=1",
    "--describe --entity-type topics --entity-name no-such",
    "--describe --entity-type brokers",
    "--describe --entity-type brokers --entity-name 1",
    "--describe --entity-type brokers --entity-name 1 --all",
    "--describe --entity-type brokers --entity-default",
    "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.backoff.ms=2000",
    "--alter --entity-type brokers --entity-default --add-config log.retention.ms=86400000",
    "--describe --entity-type brokers --entity-name 1",
    "--describe --entity-type brokers --entity-default",
    "--alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.backoff.ms",
    "--alter --entity-type brokers --entity-default --delete-config log.retention.ms",
    "--alter --entity-type brokers --entity-name 1 --add-config node.id=2",
    "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=many",
    "--describe --entity-type broker-loggers --entity-name 7",
    "--alter --entity-type broker-loggers --entity-name 1 --add-config no.such.logger=DEBUG",
    "--alter --entity-type broker-loggers --entity-name 1 --add-config root=LOUD",
    "--alter --entity-type broker-loggers --entity-name 1 --delete-config root",
    "--alter --entity-type users --entity-name ann --add-config producer_byte_rate=1024",
    "--alter --entity-type users --entity-default --add-config consumer_byte_rate=2048.5",
    "--alter --entity-type users --entity-name ann --entity-type clients --entity-name app"
    " --add-config request_percentage=50",
    "--alter --entity-type clients --entity-default --add-config producer_byte_rate=4096",
    "--alter --entity-type ips --entity-name 127.0.0.1 --add-config connection_creation_rate=10",
    "--alter --entity-type clients --entity-name app --add-config no_such_quota=1",
    "--describe --entity-type users --entity-name ann",
    "--describe --entity-type users",
    "--describe --entity-type users --entity-default",
    "--describe --entity-type clients",
    "--describe --entity-type ips",
    # or it would count for all that follows
    "--alter --entity-type ips --entity-name 127.0.0.1 --delete-config connection_creation_rate",
    "--describe --user ann --client app",
    "--alter --entity-type users --entity-name ann --delete-config producer_byte_rate",
    "--describe --entity-type users --entity-name ann",
    "--alter --entity-type clients --entity-default --delete-config producer_byte_rate",
    "--alter --entity-type groups --entity-name readers --add-config consumer.session.timeout.ms=50000",
    "--alter --entity-type groups --entity-name readers --add-config consumer.session.timeout.ms=1",
    "--alter --entity-type groups --entity-name readers --delete-config consumer.session.timeout.ms",
    "--describe --entity-type client-metrics",
    "--alter --entity-type client-metrics --entity-name basic"
    " --add-config metrics=[org.apache.kafka.producer.],interval.ms=60000",
    "--describe --entity-type client-metrics --entity-name basic",
    "--alter --entity-type client-metrics --entity-name basic --add-config interval.ms=1",
)

CLIENT_METRICS = steps(
    "client-metrics",
    "--list",
    "--describe",
    "--describe --name basic",
    "--alter --name slow --interval 300000 --match client_id=app --metrics org.apache.kafka.consumer.",
    "--describe --name slow",
    "--delete --name slow",
    "--list",
)

RECORDS = [
    Step(
        "console-producer",
        "--bootstrap-server {bootstrap} --topic lines --timeout 60000",
        "one\ntwo\nthree\nfour\nfive\n",
    ),
    Step(
        "console-producer",
        "--bootstrap-server {bootstrap} --topic table --reader-property parse.key=true"
        " --reader-property key.separator=: --reader-property parse.headers=true"
        " --compression-codec lz4 --sync",
        "h1:v1,h2:v2\tann:1\nh1:v1\tbob:2\n",
    ),
    Step(
        "console-producer",
        "--bootstrap-server {bootstrap} --topic lines --command-property acks=all"
        " --command-property enable.idempotence=true --batch-size 100 --timeout 60000",
        "six\nseven\n",
    ),
    Step("console-producer", "--bootstrap-server {bootstrap} --topic table --sync", "no key\n"),
    *steps(
        "console-consumer",
        "--topic lines --partition 0 --offset earliest --max-messages 7",
        "--topic lines --partition 0 --offset 4 --max-messages 2",
        "--topic table --partition 0 --offset earliest --max-messages 2 --formatter-property print.key=true"
        " --formatter-property print.headers=true --formatter-property print.offset=true"
        " --formatter-property print.partition=true",
        "--topic lines --partition 0 --offset latest --timeout-ms 300",
        "--topic lines --partition 0 --offset earliest --timeout-ms 300 --isolation-level read_committed",
    ),
    *steps(
        "get-offsets",
        "",
        "--topic lines",
        "--topic lines --time -1",
        "--topic lines --time earliest",
        "--topic lines --time 1",
        "--topic lines --time 33333333333333",
        "--topic orders --partitions 0,2",
        "--topic-partitions lines:0,orders:1-3",
        "--topic no-such",
        "--exclude-internal-topics",
    ),
    *steps(
        "delete-records",
        "--offset-json-file {dir}/trim.json",
        "--offset-json-file {dir}/trim-too-far.json",
        "--offset-json-file {dir}/trim-compacted.json",
    ),
    *steps("get-offsets", "--topic lines --time earliest"),
    *steps("console-consumer", "--topic lines --partition 0 --offset earliest --max-messages 5"),
    *steps("delete-records", "--offset-json-file {dir}/trim-all.json"),
    *steps("get-offsets", "--topic lines --time earliest", "--topic lines"),
]

CLUSTER = [
    *steps(
        "log-dirs",
        "--describe",
        "--describe --topic-list lines,table",
        "--describe --topic-list no-such",
        "--describe --broker-list 1",
        "--describe --broker-list 1,9",
    ),
    *steps(
        "features",
        "describe",
        "upgrade --feature metadata.version=30",
        "upgrade --feature metadata.version=31",
        "upgrade --feature no.such.feature=1",
        "downgrade --feature metadata.version=7",
        "downgrade --feature eligible.leader.replicas.version=0 --dry-run",
        "upgrade --feature eligible.leader.replicas.version=1",
    ),
    *steps(
        "features",
        "version-mapping",
        "version-mapping --release-version 4.0-IV3",
        "feature-dependencies --feature metadata.version=30",
    ),
    *steps("metadata-quorum", "describe --status", "describe --replication"),
    *steps(
        "leader-election",
        "--election-type preferred --all-topic-partitions",
        "--election-type preferred --topic orders --partition 0",
        "--election-type unclean --topic orders --partition 0",
        "--election-type preferred --topic orders --partition 99",
        "--election-type preferred --topic no-such --partition 0",
        "--election-type preferred --path-to-json-file {dir}/elect.json",
    ),
    *steps(
        "reassign-partitions",
        "--list",
        "--generate --topics-to-move-json-file {dir}/topics.json --broker-list 1",
        "--execute --reassignment-json-file {dir}/move.json",
        "--verify --reassignment-json-file {dir}/move.json",
        "--execute --reassignment-json-file {dir}/move-away.json",
        "--cancel --reassignment-json-file {dir}/move.json",
        "--execute --reassignment-json-file {dir}/move.json --throttle 1000",
        "--verify --reassignment-json-file {dir}/move.json",
        "--list",
    ),
    *steps("transactions", "describe-producers --topic table --partition 0"),
    *steps(
        "cluster",
        "--bootstrap-server {bootstrap}",
        at="cluster-id ",
    ),
    *steps("cluster", "--bootstrap-server {bootstrap}", at="list-endpoints "),
    *steps("cluster", "--bootstrap-server {bootstrap} --include-fenced-brokers", at="list-endpoints "),
    *steps("cluster", "--bootstrap-server {bootstrap} --id 9", at="unregister "),
    Step(
        "producer-perf-test",
        "--topic orders --num-records 1000 --record-size 100 --throughput -1"
        " --bootstrap-server {bootstrap} --command-property acks=all",
    ),
    *steps("get-offsets", "--topic orders --time -2"),
]

# what is asked of the quorum itself
CONTROLLER: list[Step | Act] = [
    *steps(
        "metadata-quorum",
        "describe --status",
        "describe --replication",
        at="--bootstrap-controller {controller} ",
    ),
    *steps("features", "describe", at="--bootstrap-controller {controller} "),
    *steps(
        "configs",
        "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.backoff.ms=2000",
        at="--bootstrap-controller {controller} ",
    ),
    settled("log.cleaner.backoff.ms", "2000"),
    *steps(
        "configs",
        "--describe --entity-type brokers --entity-name 1",
        "--describe --entity-type brokers",
        "--alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.backoff.ms",
        "--describe --entity-type topics --entity-name orders",
        at="--bootstrap-controller {controller} ",
    ),
    *steps("cluster", "--bootstrap-controller {controller}", at="cluster-id "),
    *steps("cluster", "--bootstrap-controller {controller}", at="list-endpoints "),
    *steps("cluster", "--bootstrap-controller {controller} --id 9", at="unregister "),
    *steps("reassign-partitions", "--list", at="--bootstrap-controller {controller} "),
    *steps("topics", "--list", at="--bootstrap-server {controller} "),
    *steps("metadata-quorum", "describe --status", at="--bootstrap-controller {bootstrap} "),
]

STEPS: list[Step | Act] = [
    *TOPICS,
    *CONFIGS,
    *CLIENT_METRICS,
    *RECORDS,
    *CLUSTER,
    *CONTROLLER,
    *kafka_coordination_steps.STEPS,
]
