"""Apache Kafka's command-line tools do the same to Barnabas as to Apache Kafka, and say the same.

All steps are run once against each system; then each one's exit status and output are compared, after what
must differ (ids, ports, directories, times) was replaced.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.kafka_tool_acts import Act, Stage
from tests.interop.kafka_tool_differences import KNOWN, normal
from tests.interop.kafka_tool_step import Step
from tests.interop.kafka_tool_steps import STEPS, write_files
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_tools import Done, KafkaTools
from tests.support.targets import Served

pytestmark = [pytest.mark.java, pytest.mark.slow]  # some hundred tools, one after another, on either system

Outcome = tuple[Done, Done]  # Apache Kafka's, and Barnabas's
AT = "--bootstrap-server {bootstrap} "

# each coordinator's state is in one file, which steps read
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
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


def _names() -> list[str]:
    return [f"{number} {step.name.replace(AT, '')}" for number, step in enumerate(STEPS)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """What came of each step on either system."""
    root = tmp_path_factory.mktemp("tools")
    write_files(root)
    served = Served(root / "barnabas", OF_A_SINGLE_NODE | SETTINGS)
    with (
        KafkaTools() as tools,
        ApacheKafka(root / "kafka", standalone=True, settings=SETTINGS) as kafka,
    ):
        of_kafka = _run_all(tools, kafka, root, root / "kafka")
        served.start()
        try:
            of_barnabas = _run_all(tools, served, root, root / "barnabas")
            served.stop()
        finally:
            served.kill()
    return list(zip(of_kafka, of_barnabas, strict=True))


def _run_all(tools: KafkaTools, system: ApacheKafka | Served, root: Path, home: Path) -> list[Done]:
    places = {
        "bootstrap": system.bootstrap,
        "controller": f"127.0.0.1:{system.controller_port}",
        "dir": str(root),
        "data": str(home / "data"),
    }
    with Stage(system.port, system.controller_port) as stage:
        return [normal(_run(tools, step, stage, places), home) for step in STEPS]


def _run(tools: KafkaTools, step: Step | Act, stage: Stage, places: dict[str, str]) -> Done:
    if isinstance(step, Act):
        return Done(0, step.does(stage), "")
    return tools.run(step.tool, *step.words(places), given=step.given)


@pytest.mark.parametrize("number", range(len(STEPS)), ids=_names())
def test_it_says_what_it_says_of_kafka(number: int, outcomes: list[Outcome]) -> None:
    step, (theirs, ours) = STEPS[number], outcomes[number]
    known = KNOWN.get(step.arguments.removeprefix(AT)) if isinstance(step, Step) else None
    if known is None:
        assert _lines(ours) == _lines(theirs)
    else:
        instead, _ = known
        assert instead in ours.out
        assert instead not in theirs.out


def _lines(done: Done) -> list[str]:
    return [f"status {done.status}", *done.out.split("\n"), *done.err.split("\n")]


def test_known_differences_are_steps() -> None:
    assert set(KNOWN) <= {step.arguments.removeprefix(AT) for step in STEPS if isinstance(step, Step)}
