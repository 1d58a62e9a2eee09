"""The settings beside Apache Kafka's own: what it accepts, what it describes, how Java reads a file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.describe import Described, describe_broker, describe_topic
from barnabas.core.settings.listeners import read_listeners
from barnabas.core.settings.properties import format_properties, parse_properties
from barnabas.core.settings.sources import resolve
from barnabas.core.settings.topic import validate_topic_overrides
from tests.support.apache_kafka import ApacheKafka, java, tool

pytestmark = pytest.mark.java

HERE = Path(__file__).resolve().parent / "java"

BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:10092",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:10092",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/nowhere",
}

# ruff: noqa: E501
# one case a line: the settings that differ from BASE
BROKER_CASES = """
num.io.threads=4
log.retention.ms=0
log.retention.ms=-5
log.retention.hours=0
log.retention.hours=0 log.retention.ms=5
log.retention.minutes=0
log.roll.ms=0
log.roll.hours=0
log.roll.jitter.ms=-1
log.flush.interval.ms=0
log.segment.bytes=1048575
log.segment.bytes=1048576
log.segment.bytes=2147483648
log.segment.bytes=1e6
log.segment.bytes=0x100000
log.segment.bytes=+2000000
log.segment.bytes=2_000_000
log.cleaner.min.cleanable.ratio=1.1
log.cleaner.min.cleanable.ratio=.5
log.cleaner.min.cleanable.ratio=half
log.cleaner.dedupe.buffer.size=100
log.cleaner.dedupe.buffer.size=1048577 log.cleaner.threads=2
log.cleanup.policy=
log.cleanup.policy=compact,compact
log.cleanup.policy=compact,
log.cleanup.policy=Compact
log.message.timestamp.type=createtime
queued.max.request.bytes=100
queued.max.request.bytes=0
queued.max.request.bytes=104857600
replica.fetch.wait.max.ms=40000
replica.fetch.wait.max.ms=31000 replica.socket.timeout.ms=60000
replica.lag.time.max.ms=100
connections.max.idle.ms=100
connections.max.idle.ms=101
connections.max.idle.ms=-1
max.connections.per.ip=0
max.connections.per.ip=0 max.connections.per.ip.overrides=127.0.0.1:5
max.connections.per.ip.overrides=foo
offsets.topic.compression.codec=9
offsets.topic.compression.codec=4
offsets.topic.replication.factor=40000
auto.create.topics.enable=maybe
auto.create.topics.enable=TRUE
compression.gzip.level=0
compression.gzip.level=-1
compression.zstd.level=-131072
compression.type=none
group.consumer.heartbeat.interval.ms=1
group.consumer.heartbeat.interval.ms=16000
group.consumer.session.timeout.ms=70000
group.consumer.min.session.timeout.ms=50000
group.consumer.max.heartbeat.interval.ms=50000 group.consumer.heartbeat.interval.ms=46000
group.consumer.max.heartbeat.interval.ms=50000 group.consumer.heartbeat.interval.ms=45000
group.consumer.assignment.interval.ms=16000
group.consumer.migration.policy=Upgrade
group.consumer.migration.policy=sideways
group.share.heartbeat.interval.ms=46000 group.share.max.heartbeat.interval.ms=50000
group.share.session.timeout.ms=1
group.share.delivery.count.limit=10 group.share.max.delivery.count.limit=5
group.share.record.lock.duration.ms=1000
group.share.record.lock.duration.ms=70000
group.share.partition.max.record.locks=5000
group.streams.session.timeout.ms=1
group.streams.num.standby.replicas=3
group.streams.heartbeat.interval.ms=46000 group.streams.max.heartbeat.interval.ms=50000
group.coordinator.rebalance.protocols=consumer
group.coordinator.rebalance.protocols=classic
node.id=2
node.id=-1
broker.id=5
broker.id=1
process.roles=broker
process.roles=broker controller.quorum.voters=2@127.0.0.1:10092 listeners=PLAINTEXT://:1
process.roles=broker controller.quorum.voters=2@127.0.0.1:10092
process.roles=broker controller.quorum.voters= listeners=PLAINTEXT://:1
process.roles=broker controller.quorum.voters= controller.quorum.bootstrap.servers=c:1 listeners=PLAINTEXT://:1
process.roles=broker controller.quorum.voters=2@h:1 listeners=PLAINTEXT://:1 controller.quorum.auto.join.enable=true
controller.quorum.voters= controller.quorum.bootstrap.servers=c:1 controller.quorum.auto.join.enable=true
process.roles=controller
process.roles=controller listeners=CONTROLLER://:1 advertised.listeners=CONTROLLER://h:1
process.roles=controller listeners=CONTROLLER://:1 advertised.listeners=CONTROLLER://0.0.0.0:1
process.roles=controller listeners=CONTROLLER://127.0.0.1:10092
process.roles=worker
controller.listener.names=FOO
controller.quorum.voters=2@127.0.0.1:10092
controller.quorum.voters=a
controller.quorum.voters=1@h:99999
controller.quorum.bootstrap.servers=foo
controller.quorum.bootstrap.servers=foo:9093
listeners=PLAINTEXT://127.0.0.1:9092
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9092
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092
listeners=PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9093,CONTROLLER://:1
listeners=PLAINTEXT://127.0.0.1:9092,PLAINTEXT://[::1]:9092,CONTROLLER://:1
listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://:1
listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://:1 advertised.listeners=PLAINTEXT://h:9092
listeners=PLAINTEXT://:9092,CONTROLLER://:1
listeners=PLAINTEXT://[fe80::1%eth0]:9092,CONTROLLER://:1
listeners=PLAINTEXT://:0,CONTROLLER://:0
listeners=plaintext://:9092,controller://:1
listeners=FOO://:9092,CONTROLLER://:1
listeners=FOO://:1,CONTROLLER://:2 listener.security.protocol.map=FOO:PLAINTEXT,CONTROLLER:PLAINTEXT
listeners=F://:1,CONTROLLER://:2 listener.security.protocol.map=F:PLAINTEXT,CONTROLLER:PLAINTEXT inter.broker.listener.name=f
listeners=SSL://:9092,CONTROLLER://:1
listeners=PLAINTEXT:9092,CONTROLLER://:1
listeners=PLAINTEXT://h,CONTROLLER://:1
listeners=://h:1,CONTROLLER://:2
listeners=PLAINTEXT://h!h:1,CONTROLLER://:2
listener.security.protocol.map=PLAINTEXT:PLAINTEXT
listener.security.protocol.map=PLAINTEXT:FOO,CONTROLLER:PLAINTEXT
listener.security.protocol.map=PLAINTEXT:plaintext,CONTROLLER:PLAINTEXT
listener.security.protocol.map=PLAINTEXT,CONTROLLER:PLAINTEXT
listener.security.protocol.map=
advertised.listeners=PLAINTEXT://0.0.0.0:9092
advertised.listeners=PLAINTEXT://h:9092
advertised.listeners=PLAINTEXT://h:0
advertised.listeners=PLAINTEXT://:9092
advertised.listeners=OTHER://h:9092
advertised.listeners=OTHER://h:9092 listener.security.protocol.map=OTHER:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:SSL
advertised.listeners=CONTROLLER://h:9092
advertised.listeners=PLAINTEXT://h:9092,CONTROLLER://h:9092
advertised.listeners=PLAINTEXT://h:1,PLAINTEXT://h:2
inter.broker.listener.name=CONTROLLER
inter.broker.listener.name=PLAINTEXT
inter.broker.listener.name=PLAINTEXT security.inter.broker.protocol=PLAINTEXT
security.inter.broker.protocol=SSL
cordoned.log.dirs=/elsewhere
cordoned.log.dirs=/nowhere
early.start.listeners=FOO
early.start.listeners=PLAINTEXT
remote.log.metadata.manager.impl.prefix=
"""

TOPIC_CASES = """
segment.bytes=2000000
segment.bytes=1000
segment.bytes=2147483648
retention.ms=-1
retention.ms=-2
retention.bytes=-7
cleanup.policy=compact,delete
cleanup.policy=compact,compact
cleanup.policy=
cleanup.policy=gone
min.compaction.lag.ms=10 max.compaction.lag.ms=5
min.compaction.lag.ms=5 max.compaction.lag.ms=5
min.cleanable.dirty.ratio=2
compression.type=none
compression.type=zstd compression.zstd.level=23
remote.storage.enable=true
remote.storage.enable=false local.retention.ms=99 retention.ms=10
remote.log.copy.disable=true
remote.log.delete.on.disable=true
message.timestamp.type=LogAppendTime
min.insync.replicas=0
preallocate=yes
leader.replication.throttled.replicas=*
leader.replication.throttled.replicas=0:1,1:2
leader.replication.throttled.replicas=0-1
leader.replication.throttled.replicas=
flush.messages=0
flush.ms=0
unclean.leader.election.enable=TRUE
no.such.setting=1
message.format.version=3.0
internal.segment.bytes=100
"""


def cases(text: str) -> list[dict[str, str]]:
    """Settings of each line that is not empty."""
    pairs = ([part.split("=", 1) for part in line.split()] for line in text.strip().splitlines())
    return [dict(line) for line in pairs]


def judged_by_kafka(kind: str, given: list[dict[str, str]]) -> list[str]:
    """`accepted` or `refused: why`, for each case."""
    lines = ("\t".join([kind, *(f"{name}={text}" for name, text in each.items())]) for each in given)
    done = subprocess.run(
        java(HERE / "JudgeSettings.java"),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    verdicts = done.stdout.splitlines()
    assert len(verdicts) == len(given), done.stderr
    return verdicts


def refusal_here(kind: str, given: dict[str, str]) -> str | None:
    """Why Barnabas refuses, None where it does not."""
    try:
        if kind == "topic":
            validate_topic_overrides(given)
        else:
            read_listeners(resolve(file=given, built_in={}))
    except InvalidSetting as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", ["broker", "topic"])
def test_the_same_settings_are_refused(kind: str) -> None:
    changes = cases(BROKER_CASES if kind == "broker" else TOPIC_CASES)
    given = [BASE | each for each in changes] if kind == "broker" else changes
    verdicts = judged_by_kafka(kind, given)
    assert {verdict[:7] for verdict in verdicts} == {"accepte", "refused"}
    differences = []
    for change, each, verdict in zip(changes, given, verdicts, strict=True):
        here = refusal_here(kind, each)
        if (here is None) != (verdict == "accepted"):
            differences.append(f"{change}: Kafka {verdict}; here {here or 'accepted'}")
    assert not differences, "\n".join(differences)


def shown(described: Described) -> list[str]:
    """A described setting as DescribeSettings.java prints it."""
    synonyms = [f"{one.name}={null(one.value)}@{one.source.name}" for one in described.synonyms]
    flags = [described.read_only, described.is_sensitive, described.is_default]
    return [
        described.name,
        null(described.value),
        described.source.name,
        described.kind.name,
        *(str(flag).lower() for flag in flags),
        *synonyms,
    ]


def null(text: str | None) -> str:
    return "null" if text is None else text


def test_every_setting_is_described_alike(tmp_path: Path) -> None:
    own = {
        "log.retention.hours": "24",
        "log.roll.ms": "1234567",
        "num.io.threads": "4",
        "custom.thing": "abc",
        "log.cleaner.io.buffer.load.factor": "0.0001",
        "listener.name.plaintext.ssl.keystore.password": "secret",
    }
    with ApacheKafka(tmp_path / "kafka", settings=own) as kafka:
        printed = tool(HERE / "DescribeSettings.java", kafka.bootstrap)
        file = parse_properties((kafka.home / "server.properties").read_text())
    theirs = [line.split("\t") for line in printed.splitlines() if line.startswith(("broker\t", "topic\t"))]

    settings = resolve(file=file, built_in={}).with_dynamic(
        {"log.flush.interval.ms": "7200000", "max.connections": "1234"},
        # a new cluster of Kafka 4.3 sets the last of these by itself
        {"log.segment.bytes": "3000000", "max.connections": "4321", "min.insync.replicas": "1"},
    )
    ours = [["broker", *shown(each)] for each in describe_broker(settings)]
    overrides = {"segment.bytes": "2000000", "cleanup.policy": "compact, delete"}
    ours += [["topic", *shown(each)] for each in describe_topic(overrides, settings)]
    assert sorted(ours) == sorted(theirs)


PROPERTIES = r"""
# a comment \
plain=value
 ! another comment
  spaced   =   two words  \ .
colon:value
blank value with = and :
empty
also.empty=
=no key
tab	separated
long = one, \
       two, \
       # no comment
escaped\=key\:with\ blanks = \t\n\r\f\\ \q \u00e4\u00df \ud83d\ude00
even \\\\
twice=1
twice=2
path=C:\\kafka\\logs
latin=äöü
end=\
"""


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "file.properties"
    file.write_text(PROPERTIES, encoding="iso-8859-1")
    ours = parse_properties(file.read_text(encoding="iso-8859-1"))
    assert read_by_java(file) == ours
    assert len(ours) == 15
    file.write_text(format_properties(ours), encoding="iso-8859-1")
    assert read_by_java(file) == ours


def read_by_java(file: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in tool(HERE / "ReadProperties.java", file).splitlines())
    return {text_of(key): text_of(value) for key, _, value in lines}


def text_of(units: str) -> str:
    return bytes.fromhex(units).decode("utf-16-be")


def test_what_kafka_writes_is_what_we_start_from(tmp_path: Path) -> None:
    """The settings of Apache Kafka's own node are taken without a warning."""
    kafka = ApacheKafka(tmp_path / "kafka")
    settings = resolve(file=kafka._properties(), strict=True)
    assert isinstance(settings, BrokerSettings)
    assert settings.warnings == ()
