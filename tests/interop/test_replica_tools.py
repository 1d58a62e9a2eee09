"""Apache Kafka's tools do the same to replicated partitions on three nodes of Barnabas as of Apache Kafka.

They say the same of topics, settings, reassignments, elections, log directories and offsets, and so do the
verifiable clients: with all brokers there, with one down, and where an election is unclean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.interop.kafka_tool_differences import normal
from tests.interop.kafka_tool_step import Step
from tests.interop.replica_tool_acts import ClusterAct, known_to_all
from tests.interop.replica_tool_steps import AT, STEPS, write_files
from tests.support.combined_cluster import BARNABAS, KAFKA, CombinedCluster
from tests.support.kafka_tools import Done, KafkaTools

pytestmark = [pytest.mark.java, pytest.mark.slow]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}

# by step: what is said by Apache Kafka, what is said here instead, and why
KNOWN: Mapping[str, tuple[str, str, str]] = {
    "--topic strict --max-messages 1 --acks -1": (
        "Messages are rejected since there are fewer in-sync replicas than required.",
        "strict-0: 1 of 2 in-sync replicas",
        "Apache Kafka leaves it to the client to find words for this error",
    ),
}
READING = re.compile(r"--describe|--list|--verify|--generate|kafka-(get-offsets|verifiable)")

_NODES = re.compile(r"(?<=Isr: )[\d,]+|(?<=Elr: )[\d,]+|(?<=LastKnownElr: )[\d,]+")
_DIFFERS = [
    # bytes on disk depend on how records came to batches
    (re.compile(r'(?<="size": )[1-9]\d*'), '"<not 0>"'),
    (re.compile(r"(?<=offset )\d+(?= among)"), "<offset>"),
]
# what is told of several partitions or brokers, in the order of a hash table
_LISTED = re.compile(r"(?<=: )[\w.-]+(?:, [\w.-]+)+|(?<=partitions )[\w.-]+(?:, [\w.-]+)+")

Outcome = tuple[Done, Done]  # Apache Kafka's, and Barnabas's


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """What came of each step on either system."""
    root = tmp_path_factory.mktemp("replicas")
    write_files(root)
    with KafkaTools() as tools:
        theirs, ours = (_run_all(tools, system, root) for system in (KAFKA, BARNABAS))
    return list(zip(theirs, ours, strict=True))


def _run_all(tools: KafkaTools, system: str, root: Path) -> list[Done]:
    with CombinedCluster(system, root / system, voters=1, settings=SETTINGS) as cluster:
        return [_run(tools, number, cluster, root) for number in range(len(STEPS))]


def _run(tools: KafkaTools, number: int, cluster: CombinedCluster, root: Path) -> Done:
    step = STEPS[number]
    if isinstance(step, ClusterAct):
        done = Done(0, step.does(cluster), "")
    else:
        done = _tell(tools, step, cluster, root)
    if not READING.search(step.name):
        known_to_all(cluster, number)
    return done


def _tell(tools: KafkaTools, step: Step, cluster: CombinedCluster, root: Path) -> Done:
    places = {
        "bootstrap": cluster.bootstrap,
        "controllers": cluster.bootstrap_controllers,
        "dir": str(root),
    }
    done = normal(tools.run(step.tool, *step.words(places), given=step.given), root / cluster.system)
    return Done(done.status, _without_differences(done.out), _without_differences(done.err))


def _without_differences(text: str) -> str:
    for pattern, instead in _DIFFERS:
        text = pattern.sub(instead, text)
    text = _NODES.sub(lambda found: ",".join(sorted(found[0].split(","))), text)
    text = _LISTED.sub(lambda found: ", ".join(sorted(found[0].split(", "))), text)
    return "\n".join(sorted(text.split("\n")))


@pytest.mark.parametrize(
    "number",
    range(len(STEPS)),
    ids=[f"{number} {step.name.replace(AT, '')}" for number, step in enumerate(STEPS)],
)
def test_it_says_of_replicas_what_it_says_of_kafka(number: int, outcomes: list[Outcome]) -> None:
    step, (theirs, ours) = STEPS[number], outcomes[number]
    known = KNOWN.get(step.arguments.removeprefix(AT)) if isinstance(step, Step) else None
    if known is None:
        assert _lines(ours) == _lines(theirs)
    else:
        said_there, said_here, _ = known
        assert said_there in theirs.out + theirs.err
        assert said_here in ours.out + ours.err


def _lines(done: Done) -> list[str]:
    return [f"status {done.status}", *done.out.split("\n"), *done.err.split("\n")]


def test_known_differences_are_steps() -> None:
    assert set(KNOWN) <= {step.arguments.removeprefix(AT) for step in STEPS if isinstance(step, Step)}
