"""One directory that Apache Kafka and Barnabas serve in turns, and all that a client can see of it.

`look` asks whoever serves for everything: topics with ids and settings, every record with offset, timestamp,
key, value, headers and leader epoch, what is committed of them, watermarks, altered settings of the broker.
Two looks are equal where nothing was lost, invented or changed by a move.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.interop.workload import wait_until
from tests.support.apache_kafka import ApacheKafka, tool
from tests.support.raw_client import RawClient
from tests.support.serve_process import ServeProcess

WAIT_S = 60.0
_SET, _DELETE = 0, 1
_minutes = itertools.count()  # of all that is sent, one for each time that something is
_RESOURCE_TYPES = {ResourceType.TOPIC: 2, ResourceType.BROKER: 4}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": "4194304",
    # after kill -9 a node of Kafka's waits for its own old session to end
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    # snapshots and segments of the metadata log come and go all the time
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "internal.metadata.log.segment.bytes": "3000",
    "metadata.max.retention.bytes": "5000",
}


class OneDirectory:
    """`with moving.kafka() as bootstrap`, `with moving.barnabas() as bootstrap`, in any order."""

    def __init__(
        self,
        home: Path,
        *,
        release: str | None = None,
        standalone: bool = False,
        allow_unenforced: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.node = _Formatted(home / "kafka", release, standalone, {**SETTINGS, **(settings or {})})
        self.data = self.node.data
        self._arguments = ["--set", "barnabas.allow.unenforced.security=true"] if allow_unenforced else []

    def kafka(self) -> ApacheKafka:
        return self.node

    def barnabas(self, *arguments: str) -> ServeProcess:
        """On the same directory, with the same server.properties."""
        config = ["--config", str(self.node.home / "server.properties")]
        return ServeProcess(self.data, *config, *self._arguments, *arguments, listen=None)

    def files(self, *patterns: str) -> dict[str, bytes]:
        found = (path for pattern in patterns for path in self.data.glob(pattern))
        return {str(path.relative_to(self.data)): path.read_bytes() for path in found}


class _Formatted(ApacheKafka):
    """Of a release, or as a quorum whose voters stand in its log."""

    def __init__(
        self, home: Path, release: str | None, standalone: bool, settings: Mapping[str, str]
    ) -> None:
        super().__init__(home, settings=settings)
        self._release = release
        self._is_standalone = standalone

    def format(self) -> Path:
        properties = self.home / "server.properties"
        if properties.exists():
            return properties
        self.home.mkdir(parents=True)
        settings = self._properties()
        options = ["--release-version", self._release] if self._release else []
        if self._is_standalone:
            del settings["controller.quorum.voters"]
            settings["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{self.controller_port}"
            options.append("--standalone")
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        tool(
            "kafka.tools.StorageTool",
            "format",
            "--cluster-id=AAAAAAAAAAAAAAAAAAAAAQ",
            *options,
            "-c",
            properties,
        )
        return properties


# ---- what is seen ----------------------------------------------------------------------------------------


def records_of(bootstrap: str, topic: str) -> list[Any]:
    """All records of a topic with one partition."""
    return read(bootstrap, [TopicPartition(topic, 0)], "read_uncommitted")[f"{topic}-0"]


def look(bootstrap: str) -> dict[str, Any]:
    """Everything that a client can see, but for internal topics."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_topics(timeout=WAIT_S).topics
    names = sorted(name for name in listed if not name.startswith("__"))
    partitions = [TopicPartition(name, index) for name in names for index in sorted(listed[name].partitions)]
    return {
        "topics": {name: topic_told(admin, name, len(listed[name].partitions)) for name in names},
        "broker": _altered(admin, ConfigResource(ResourceType.BROKER, "1")),
        "records": read(bootstrap, partitions, "read_uncommitted"),
        "committed": {
            partition: [record[0] for record in records]
            for partition, records in read(bootstrap, partitions, "read_committed").items()
        },
        "watermarks": _watermarks(bootstrap, partitions),
    }


def topic_told(admin: AdminClient, name: str, partitions: int) -> tuple[str, int, dict[str, str]]:
    from confluent_kafka import TopicCollection

    (described,) = admin.describe_topics(TopicCollection([name])).values()
    resource = ConfigResource(ResourceType.TOPIC, name)
    return str(described.result(WAIT_S).topic_id), partitions, _altered(admin, resource)


def _altered(admin: AdminClient, resource: ConfigResource) -> dict[str, str]:
    """What somebody has set, with who it was (1: for the topic, 2: for the broker, 3: for all brokers)."""
    (described,) = admin.describe_configs([resource]).values()
    wanted = (1,) if resource.restype == ResourceType.TOPIC else (2, 3)
    return {
        name: f"{entry.value} ({entry.source})"
        for name, entry in sorted(described.result(WAIT_S).items())
        if entry.source in wanted
    }


def read(bootstrap: str, partitions: list[TopicPartition], isolation: str) -> dict[str, list[Any]]:
    """All records from the start of each partition to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
        }
    )
    found: dict[str, list[Any]] = {f"{each.topic}-{each.partition}": [] for each in partitions}
    at_end: set[str] = set()
    try:
        consumer.assign([TopicPartition(each.topic, each.partition, 0) for each in partitions])
        while len(at_end) < len(partitions):
            message = consumer.poll(WAIT_S)
            assert message is not None, f"nothing comes any more; at the end are {sorted(at_end)}"
            name = f"{message.topic()}-{message.partition()}"
            error = message.error()
            if error is None:
                found[name].append(_described(message))
            else:
                assert error.name() == "_PARTITION_EOF", error
                at_end.add(name)
    finally:
        consumer.close()
    return found


def _described(message: Any) -> tuple[Any, ...]:
    kind, timestamp = message.timestamp()
    assert kind != TIMESTAMP_NOT_AVAILABLE
    headers = tuple(message.headers() or ())
    return message.offset(), kind, timestamp, message.key(), message.value(), headers, message.leader_epoch()


def _watermarks(bootstrap: str, partitions: list[TopicPartition]) -> dict[str, Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody"})
    try:
        return {
            f"{each.topic}-{each.partition}": consumer.get_watermark_offsets(each, timeout=WAIT_S)
            for each in partitions
        }
    finally:
        consumer.close()


def latest(records: list[Any]) -> dict[bytes, bytes]:
    """The latest value of each key, where it is not a tombstone."""
    values = {record[3]: record[4] for record in records}
    return {key: value for key, value in values.items() if value is not None}


# ---- what is done ----------------------------------------------------------------------------------------


class Doing:
    """A client's work, with whoever serves."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        config = {key.replace("_", "."): value for key, value in configs.items()}
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            future.result(WAIT_S)
        self._wait_for(name, partitions)

    def delete(self, name: str) -> None:
        for future in self.admin.delete_topics([name]).values():
            future.result(WAIT_S)
        self._wait_for(name, 0)

    def add_partitions(self, name: str, partitions: int) -> None:
        for future in self.admin.create_partitions([NewPartitions(name, partitions)]).values():
            future.result(WAIT_S)
        self._wait_for(name, partitions)

    def _wait_for(self, name: str, partitions: int) -> None:
        """Kafka's broker follows its controller a little later."""

        def is_there() -> bool:
            listed = self.admin.list_topics(timeout=WAIT_S).topics
            found = len(listed[name].partitions) if name in listed else 0
            return found == partitions

        wait_until(is_there, f"{partitions} partitions of {name}")

    def delete_records(self, name: str, before: int) -> None:
        for future in self.admin.delete_records([TopicPartition(name, 0, before)]).values():
            future.result(WAIT_S)

    def alter(self, resource_type: ResourceType, name: str, **values: str | None) -> None:
        """Set, or with None unset, settings of a topic or of a broker (`""`: of all brokers)."""
        changes = [
            AlterableConfig(
                name=key.replace("_", "."),
                config_operation=_SET if value is not None else _DELETE,
                value=value,
            )
            for key, value in values.items()
        ]
        resource = AlterConfigsResource(
            resource_type=_RESOURCE_TYPES[resource_type], resource_name=name, configs=changes
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        with RawClient(int(self.bootstrap.rpartition(":")[2])) as client:
            (answer,) = client.ask(request, 1, IncrementalAlterConfigsResponse).responses
        assert answer.error_code == 0, answer.error_message
        shown = ConfigResource(resource_type, name or "1")

        def is_altered() -> bool:
            found = _altered(self.admin, shown)
            told = {key: found.get(key.replace("_", ".")) for key in values}
            return all((told[key] or "None").partition(" ")[0] == str(value) for key, value in values.items())

        wait_until(is_altered, f"{values} to be in effect")

    def produce(self, topic: str, values: list[tuple[Any, Any]], partition: int = 0, **settings: Any) -> None:
        """Records of these keys and values, with headers and timestamps; in one batch if they fit."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 50, **_dotted(settings)},
        )
        self.send(producer, topic, values, partition)
        assert producer.flush(WAIT_S) == 0

    def send(self, producer: Producer, topic: str, values: list[tuple[Any, Any]], partition: int = 0) -> None:
        failed: list[Any] = []
        first_ms = 1_790_000_000_000 + next(_minutes) * 60_000
        for number, (key, value) in enumerate(values):
            producer.produce(
                topic,
                value,
                key,
                partition=partition,
                timestamp=first_ms + number * 1000,
                headers=[("trace", b"%d" % number), ("empty", b""), ("null", None)][: number % 4],
                on_delivery=lambda error, _: error and failed.append(error),
            )
        assert producer.flush(WAIT_S) == 0
        assert not failed, failed

    def every_codec(self, topic: str, word: str) -> None:
        for codec in CODECS:
            values = [
                (b"k%d" % number, f"{word} {codec} {number}".encode() * number) for number in range(1, 6)
            ]
            self.produce(topic, values, compression_type=codec)

    def transactions(self, topic: str, word: str) -> None:
        """One committed, one aborted, one committed."""
        producer = self.transactional(f"{word}-{topic}")
        for number, commit in enumerate((True, False, True)):
            producer.begin_transaction()
            self.send(producer, topic, [(b"t", f"{word} {number} {commit}".encode())] * 2)
            if commit:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)

    def transactional(self, name: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 900_000,
                "linger.ms": 5,
            }
        )
        producer.init_transactions(WAIT_S)
        return producer

    def commit(self, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            consumer.commit(
                offsets=[TopicPartition(topic, 0, offset, metadata="from a test")], asynchronous=False
            )
        finally:
            consumer.close()

    def committed(self, groups: list[str], topic: str) -> dict[str, tuple[int, str]]:
        found = {}
        for group in groups:
            consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
            (one,) = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
            found[group] = (one.offset, one.metadata)
            consumer.close()
        return found


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "."): value for key, value in settings.items()}
