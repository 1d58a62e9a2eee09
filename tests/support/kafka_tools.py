"""Apache Kafka's own command-line tools, run as a person would, but in one JVM:

with KafkaTools() as tools:
    done = tools.run("topics", "--bootstrap-server", "127.0.0.1:9092", "--list")
    done.status, done.out, done.err
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.apache_kafka import HERE, LEAN_JVM
from tests.support.java_driver import JavaDriver

SOURCE = HERE / "KafkaTools.java"
OPEN = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")  # for what tools do when their process ends

# kafka-<name>.sh runs this class
TOOLS = {
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "storage": "kafka.tools.StorageTool",
    "streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


class Done(NamedTuple):
    """How a tool ended, and what it said."""

    status: int
    out: str
    err: str


class KafkaTools(JavaDriver):
    """The process; started by `with`, ended with it."""

    def __init__(self) -> None:
        super().__init__(SOURCE, (*LEAN_JVM, *OPEN))

    def run(self, tool: str, *arguments: str, given: str = "") -> Done:
        """Run `kafka-<tool>.sh` with these arguments; `given` is what it reads from its standard input."""
        answer = self._ask({"tool": TOOLS[tool], "arguments": arguments, "input": given})
        return Done(answer["status"], answer["out"], answer["err"])
