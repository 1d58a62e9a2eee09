"""Apache Kafka's own command-line tools, run as a person would, but in one JVM:

with KafkaTools() as tools:
    done = tools.run("topics", "--bootstrap-server", "127.0.0.1:9092", "--list")
    done.status, done.out, done.err
"""

from __future__ import annotations

import json
import subprocess
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, NamedTuple

from tests.support.apache_kafka import HERE, LEAN_JVM, KafkaFailed, java

SOURCE = HERE / "KafkaTools.java"
OPEN = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")  # for what tools do when their process ends

# kafka-<name>.sh runs this class
TOOLS = {
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


class KafkaTools:
    """The process; started by `with`, ended with it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._complaints: IO[str] | None = None

    def __enter__(self) -> KafkaTools:
        self._complaints = TemporaryFile("w+")
        self._process = subprocess.Popen(
            java(SOURCE, jvm=(*LEAN_JVM, *OPEN)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._complaints is not None
        with self._process:  # its end of the pipe is closed, so it ends by itself
            pass
        self._complaints.close()

    def run(self, tool: str, *arguments: str, given: str = "") -> Done:
        """Run `kafka-<tool>.sh` with these arguments; `given` is what it reads from its standard input."""
        process, complaints = self._process, self._complaints
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        assert complaints is not None
        command = {"tool": TOOLS[tool], "arguments": arguments, "input": given}
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            complaints.seek(0)
            raise KafkaFailed(f"the tools' JVM ended in the middle of kafka-{tool}:\n{complaints.read()}")
        answer = json.loads(line)
        return Done(answer["status"], answer["out"], answer["err"])
