"""Apache Kafka's tools on three nodes say of Barnabas what they say of Apache Kafka, wherever they ask.

Both clusters have three nodes that are broker and controller, and a broker alone that is killed on the way,
so that it can be unregistered. What differs by chance is made equal: ids, addresses, offsets, times, and
which node leads.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.kafka_tool_differences import NOT_SERVED_YET
from tests.support.combined_cluster import BARNABAS, KAFKA, CombinedCluster
from tests.support.kafka_tools import Done, KafkaTools
from tests.support.raw_client import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

BROKERS, CONTROLLERS = "--bootstrap-server {brokers}", "--bootstrap-controller {controllers}"
GONE = 4

# a tool, and what it is told
STEPS = [
    ("topics", f"{BROKERS} --create --topic letters --partitions 6"),
    ("topics", f"{BROKERS} --create --topic letters --partitions 6"),
    ("topics", f"{BROKERS} --create --topic copies --partitions 1 --replication-factor 5"),
    ("topics", f"{BROKERS} --create --topic placed --replica-assignment 3,1,2"),
    ("topics", f"{BROKERS} --describe --topic placed"),
    ("topics", f"{BROKERS} --alter --topic placed --partitions 4 --replica-assignment 3,1,2,3"),
    ("topics", f"{BROKERS} --list"),
    (
        "configs",
        f"{BROKERS} --alter --entity-type brokers --entity-name 2 --add-config log.cleaner.threads=2",
    ),
    (
        "configs",
        f"{BROKERS} --alter --entity-type brokers --entity-default --add-config message.max.bytes=2000",
    ),
    ("configs", f"{BROKERS} --describe --entity-type brokers --entity-name 2"),
    ("configs", f"{BROKERS} --describe --entity-type brokers --entity-name 3"),
    ("configs", f"{BROKERS} --describe --entity-type brokers --entity-default"),
    ("configs", f"{CONTROLLERS} --describe --entity-type brokers --entity-default"),
    ("configs", f"{BROKERS} --alter --entity-type topics --entity-name letters --add-config retention.ms=1"),
    ("configs", f"{CONTROLLERS} --describe --entity-type topics --entity-name letters"),
    ("cluster", f"cluster-id {BROKERS}"),
    ("cluster", f"cluster-id {CONTROLLERS}"),
    ("cluster", f"list-endpoints {BROKERS}"),
    ("cluster", f"list-endpoints {BROKERS} --include-fenced-brokers"),
    ("cluster", f"list-endpoints {CONTROLLERS}"),
    ("metadata-quorum", f"{BROKERS} describe --status"),
    ("metadata-quorum", f"{CONTROLLERS} describe --status"),
    ("metadata-quorum", f"{BROKERS} describe --replication"),
    (
        "metadata-quorum",
        f"{CONTROLLERS} remove-controller --controller-id 9 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ",
    ),
    ("features", f"{BROKERS} describe"),
    ("features", f"{CONTROLLERS} describe"),
    ("features", f"{BROKERS} upgrade --feature kraft.version=1"),
    ("cluster", f"unregister {BROKERS} --id {GONE}"),
    ("cluster", f"unregister {BROKERS} --id {GONE}"),
    ("cluster", f"list-endpoints {BROKERS} --include-fenced-brokers"),
    ("topics", f"{BROKERS} --delete --topic letters"),
    ("topics", f"{BROKERS} --list"),
]

_DIFFERS = [
    (re.compile(r"127\.0\.0\.1:\d+|(?<=127\.0\.0\.1) +\d+"), "<address>"),
    (re.compile(r"(?<![\w.-])[\w-]{22}(?![\w-])"), "<id>"),
    (re.compile(r"(?<=LeaderId: )\s+\d+|(?<=LeaderEpoch: )\s+\d+|(?<=HighWatermark: )\s+\d+"), "<number>"),
    (
        re.compile(r"(?<=MaxFollowerLag: )\s+\d+|(?<=MaxFollowerLagTimeMs: )\s+-?\d+|(?<=Epoch: )\d+"),
        "<number>",
    ),
    (re.compile(r"^(\d+) +\t<id>\t\d+ *\t\d+ *\t-?\d+ *\t-?\d+ *\t\w+ *", re.MULTILINE), r"replica \1"),
    (re.compile(rf"^Feature: ({NOT_SERVED_YET}) .*\n", re.MULTILINE), ""),
    (re.compile(r"(?<=VoterNotFoundException: ).*"), "<told in other words>"),
    (re.compile(r"\(state\.change\.\w+\)"), ""),
    (re.compile(r"^\[.*?\] ", re.MULTILINE), ""),
    (re.compile(r"^\tat .*\n", re.MULTILINE), ""),
]


def _normal(done: Done) -> tuple[int, list[str], list[str]]:
    def lines(text: str) -> list[str]:
        for pattern, instead in _DIFFERS:
            text = pattern.sub(instead, text)
        return sorted(text.splitlines())  # nodes come in the order of a hash table

    return done.status, lines(done.out), lines(done.err)


def _run(system: str, root: Path, tools: KafkaTools) -> list[tuple[int, list[str], list[str]]]:
    with CombinedCluster(system, root / system, nodes=GONE) as cluster:
        places = {"brokers": "", "controllers": cluster.bootstrap_controllers}
        cluster.kill(GONE)
        places["brokers"] = cluster.bootstrap
        _wait_until_fenced(cluster)
        return [_normal(tools.run(tool, *words.format(**places).split())) for tool, words in STEPS]


def _wait_until_fenced(cluster: CombinedCluster) -> None:
    wait_until(
        lambda: all(GONE not in cluster.active_by(each) for each in cluster.voter_ids),
        "the broker that was killed is fenced",
    )


Outcomes = list[tuple[tuple[int, list[str], list[str]], tuple[int, list[str], list[str]]]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What came of each step on either system."""
    root = tmp_path_factory.mktemp("clusters")
    with KafkaTools() as tools:
        theirs = _run(KAFKA, root, tools)
        ours = _run(BARNABAS, root, tools)
    return list(zip(ours, theirs, strict=True))


@pytest.mark.parametrize("number", range(len(STEPS)), ids=[f"{tool} {words}" for tool, words in STEPS])
def test_it_says_of_three_nodes_what_it_says_of_kafka(number: int, outcomes: Outcomes) -> None:
    ours, theirs = outcomes[number]
    assert ours == theirs
