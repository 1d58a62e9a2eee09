"""Apache Kafka's command-line tools do the same to Barnabas as to Apache Kafka, and say the same.

All steps are run once against each system; then each one's exit status and output are compared, after what
must differ (ids, ports, directories, times) was replaced.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.interop.kafka_tool_steps import STEPS, Step, write_files
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_tools import Done, KafkaTools
from tests.support.targets import Served

pytestmark = pytest.mark.java

Outcome = tuple[Done, Done]  # Apache Kafka's, and Barnabas's

# what Apache Kafka's node of the tests is started with, besides where it is
OF_A_SINGLE_NODE = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def _name(step: Step) -> str:
    return step.name.replace("--bootstrap-server {bootstrap} ", "")


# features that Apache Kafka has and Barnabas does not serve yet
_NOT_SERVED_YET = r"group\.version|share\.version|streams\.version|transaction\.version"

_DIFFERS = [
    (re.compile(r"(?<=TopicId: )\S{22}|(?<=Cluster ID: )\S{22}|(?<=ClusterId: {14})\S{22}"), "<id>"),
    (re.compile(r'(?<="directoryId": ")\S{22}|(?<=\t)\S{22}(?=\t)'), "<directory id>"),
    (re.compile(r"127\.0\.0\.1[: ]\d+"), "<address>"),
    (re.compile(r"(?<=Epoch: )\d+|(?<=HighWatermark: {10})\d+"), "<offset>"),
    # metadata-quorum: end offset, lag, times; describe-producers: id, last timestamp
    (re.compile(r"^1 +\t<directory id>\t\d+ +\t0 +\t\d+ +\t\d+ +", re.MULTILINE), "<replica>"),
    (re.compile(r"^\d+ +(?=\t0 +\t-1 )|(?<=\t)\d{13}(?=\tNone)", re.MULTILINE), "<of the producer>"),
    (re.compile(r"(?<=1000 records sent, ).*"), "<rates>"),
    (re.compile(rf"^Feature: ({_NOT_SERVED_YET}) .*\n", re.MULTILINE), ""),
    (re.compile(r"^\tat .*\n", re.MULTILINE), ""),
    (re.compile(r"^  controller\.quorum\.bootstrap\.servers=.*\n", re.MULTILINE), ""),
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[Step, Outcome]:
    """What came of each step on either system."""
    root = tmp_path_factory.mktemp("tools")
    write_files(root)
    served = Served(root / "barnabas", OF_A_SINGLE_NODE)
    with KafkaTools() as tools, ApacheKafka(root / "kafka", standalone=True) as kafka:
        of_kafka = _run_all(tools, kafka, root)
        served.start()
        try:
            of_barnabas = _run_all(tools, served, root)
            served.stop()
        finally:
            served.kill()
    return {
        step: (_normal(theirs, root / "kafka"), _normal(ours, root / "barnabas"))
        for step, theirs, ours in zip(STEPS, of_kafka, of_barnabas, strict=True)
    }


def _run_all(tools: KafkaTools, system: ApacheKafka | Served, root: Path) -> list[Done]:
    controller = f"127.0.0.1:{system.controller_port}"
    places = {"bootstrap": system.bootstrap, "controller": controller, "dir": str(root)}
    return [tools.run(step.tool, *step.words(places), given=step.given) for step in STEPS]


def _normal(done: Done, home: Path) -> Done:
    return Done(done.status, _without_differences(done.out, home), _without_differences(done.err, home))


def _without_differences(text: str, home: Path) -> str:
    text = text.replace(str(home), "<home>")
    for pattern, instead in _DIFFERS:
        text = pattern.sub(instead, text)
    return "\n".join(_sorted(line) for line in text.split("\n"))


def _sorted(line: str) -> str:
    """What kafka-log-dirs prints, its partitions in order: Kafka has none."""
    if not line.startswith('{"brokers"'):
        return line
    told = json.loads(line)
    for broker in told["brokers"]:
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda each: each["partition"])
    return json.dumps(told)


@pytest.mark.parametrize("step", STEPS, ids=_name)
def test_it_says_what_it_says_of_kafka(step: Step, outcomes: dict[Step, Outcome]) -> None:
    theirs, ours = outcomes[step]
    assert ours == theirs
