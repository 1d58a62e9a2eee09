"""Apache Kafka's own command-line tools, run as a person would, but all in one JVM of this process:

with KafkaTools() as tools:
    done = tools.run("topics", "--bootstrap-server", "127.0.0.1:9092", "--list")
    done.status, done.out, done.err

It is started by the first, and ends with this process.
"""

from __future__ import annotations

import atexit
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tests.support.apache_kafka import HERE, LEAN_JVM, KafkaFailed, libs
from tests.support.java_classes import compiled
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


class KafkaTools:
    """Each of them uses the same process."""

    def __enter__(self) -> KafkaTools:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def run(self, tool: str, *arguments: str, given: str = "") -> Done:
        """Run `kafka-<tool>.sh` with these arguments; `given` is what it reads from its standard input."""
        done, _ = _in_jvm({"tool": TOOLS[tool], "arguments": arguments, "input": given})
        return done


def run_main(main: str | Path, *arguments: str, timeout_s: float) -> str:
    """All that a main class (or a .java file) prints, complaints included; KafkaFailed where it fails."""
    command: dict[str, Any] = {"tool": main, "arguments": arguments, "input": ""}
    if isinstance(main, Path):
        command |= {"tool": main.stem, "classes": str(compiled(main, libs()))}
    done, logged = _in_jvm(command, timeout_s)
    printed = done.out + done.err + logged
    if done.status != 0:
        raise KafkaFailed(f"{main} ended with {done.status}:\n{printed}")
    return printed


class _Jvm(JavaDriver):
    """The process."""

    def ask(self, command: dict[str, Any], deadline_s: float) -> tuple[Done, str]:
        before = len(self.complaints())
        answer = self._ask(command, deadline_s)
        return Done(answer["status"], answer["out"], answer["err"]), self.complaints()[before:]


_jvm: _Jvm | None = None
_one_at_a_time = threading.Lock()


def _in_jvm(command: dict[str, Any], deadline_s: float = 300.0) -> tuple[Done, str]:
    """How the tool ended, and what was logged meanwhile."""
    global _jvm
    with _one_at_a_time:
        if _jvm is not None and _jvm.has_ended:
            _end()
        if _jvm is None:
            _jvm = _Jvm(SOURCE, (*LEAN_JVM, *OPEN)).__enter__()
        return _jvm.ask(command, deadline_s)


@atexit.register
def _end() -> None:
    global _jvm
    if _jvm is not None:
        _jvm.__exit__(None, None, None)
        _jvm = None
