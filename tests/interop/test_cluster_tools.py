"""Apache Kafka's tools on three nodes say of Barnabas what they say of Apache Kafka, wherever they ask.

Both clusters have three nodes that are broker and controller, and a broker alone that is killed on the way,
so that it can be unregistered. What differs by chance is made equal: ids, addresses, offsets, times, and
which node leads.
"""

from __future__ import annotations

import re

import pytest

from tests.interop.kafka_tool_differences import NOT_SERVED_YET
from tests.support.combined_cluster import BARNABAS, KAFKA, CombinedCluster
from tests.support.kafka_tools import Done, KafkaTools
from tests.support.raw_client import wait_until
from tests.support.raw_quorum import describe_quorum

pytestmark = [pytest.mark.java, pytest.mark.slow]

BROKERS, CONTROLLERS = "--bootstrap-server {brokers}", "--bootstrap-controller {controllers}"
GONE, LEAVING = 4, 3  # a broker that was killed, and a controller that leaves the voters and comes back

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
    ("broker-api-versions", BROKERS),
    ("metadata-quorum", f"{BROKERS} remove-controller --controller-id {{leaving}}"),
    ("metadata-quorum", f"{BROKERS} describe --replication"),
    ("metadata-quorum", f"{BROKERS} remove-controller --controller-id {{leaving}}"),
    ("metadata-quorum", f"{CONTROLLERS} --command-config {{config}} add-controller --dry-run"),
    ("metadata-quorum", f"{CONTROLLERS} --command-config {{config}} add-controller"),
    ("metadata-quorum", f"{BROKERS} describe --status"),
    ("cluster", f"unregister {BROKERS} --id {GONE}"),
    ("cluster", f"unregister {BROKERS} --id {GONE}"),
    ("cluster", f"list-endpoints {BROKERS} --include-fenced-brokers"),
    ("topics", f"{BROKERS} --delete --topic letters"),
    ("topics", f"{BROKERS} --list"),
]

READING = re.compile(r"\bdescribe\b|--list\b|list-endpoints")
TRIES = 20

APIS_NOT_SERVED = r"Sasl\w+|\w*DelegationToken|ConsumerGroup\w+|\w*Telemetry\w*|\w*Share\w*|StreamsGroup\w+"

_DIFFERS = [
    # what is served only in Apache Kafka
    (re.compile(rf"^\t({APIS_NOT_SERVED})\(\d+\): .*\n", re.MULTILINE), ""),
    (re.compile(r"127\.0\.0\.1:\d+|(?<=127\.0\.0\.1) +\d+"), "<address>"),
    (re.compile(r"(?<![\w.-])[\w-]{22}(?![\w-])"), "<id>"),
    (re.compile(r"(?<=LeaderId: )\s+\d+|(?<=LeaderEpoch: )\s+\d+|(?<=HighWatermark: )\s+\d+"), "<number>"),
    (
        re.compile(r"(?<=MaxFollowerLag: )\s+\d+|(?<=MaxFollowerLagTimeMs: )\s+-?\d+|(?<=Epoch: )\d+"),
        "<number>",
    ),
    (re.compile(r"^(\d+) +\t<id>\t\d+ *\t\d+ *\t-?\d+ *\t-?\d+ *\t\w+ *", re.MULTILINE), r"replica \1"),
    # a leader elected since has never heard of it
    (re.compile(rf'^replica {GONE}\t\n|(, )?{{"id": {GONE}, "directoryId": "<id>"}}', re.MULTILINE), ""),
    (re.compile(rf"^Feature: ({NOT_SERVED_YET}) .*\n", re.MULTILINE), ""),
    (re.compile(r"(?<=VoterNotFoundException: ).*"), "<told in other words>"),
    (re.compile(r"\(state\.change\.\w+\)"), ""),
    (re.compile(r"^\[.*?\] ", re.MULTILINE), ""),
    (re.compile(r"^\tat .*\n", re.MULTILINE), ""),
]


Outcome = tuple[int, list[str], list[str]]


def _normal(done: Done) -> Outcome:
    def lines(text: str) -> list[str]:
        for pattern, instead in _DIFFERS:
            text = pattern.sub(instead, text)
        return sorted(text.splitlines())  # nodes come in the order of a hash table

    return done.status, lines(done.out), lines(done.err)


def _run(cluster: CombinedCluster, tools: KafkaTools, tool: str, words: str) -> Outcome:
    places = {
        "brokers": cluster.bootstrap,
        "controllers": cluster.bootstrap_controllers,
        "leaving": f"{LEAVING} --controller-directory-id {cluster.directory_ids[LEAVING]}",
        "config": str(cluster.config(LEAVING)),
    }
    if tool == "metadata-quorum":
        _wait_until_all_have_the_log(cluster)
    return _normal(tools.run(tool, *words.format(**places).split()))


def _wait_until_fenced(cluster: CombinedCluster) -> None:
    wait_until(
        lambda: all(GONE not in cluster.active_by(each) for each in cluster.voter_ids),
        "the broker that was killed is fenced",
    )


def _have_another_lead(cluster: CombinedCluster, node_id: int) -> None:
    while cluster.leader() == node_id:
        cluster.stop(node_id)
        cluster.spawn(node_id)
        cluster.wait_until_active(len(cluster.voter_ids))


def _wait_until_all_have_the_log(cluster: CombinedCluster) -> None:
    """All controllers, whether they vote or not."""

    def have_it() -> bool:
        told = describe_quorum(cluster.controller_ports[cluster.leader()])
        if told is None or told.high_watermark < 0:
            return False
        replicas = [*told.current_voters, *told.observers]
        ready = {each.replica_id for each in replicas if each.log_end_offset >= told.high_watermark - 1}
        return ready >= set(cluster.voter_ids)

    wait_until(have_it, "all controllers have the log")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[list[Outcome]]:
    """What came of each step. One that changes nothing is repeated where they differ: a tool may ask a broker
    that has not heard of the last change yet."""
    root = tmp_path_factory.mktemp("clusters")
    done = []
    with (
        KafkaTools() as tools,
        CombinedCluster(BARNABAS, root / BARNABAS, nodes=GONE) as ours,
        CombinedCluster(KAFKA, root / KAFKA, nodes=GONE) as theirs,
    ):
        for cluster in (ours, theirs):
            cluster.kill(GONE)
            _wait_until_fenced(cluster)
            _have_another_lead(cluster, LEAVING)
        for tool, words in STEPS:
            for _ in range(TRIES if READING.search(words) else 1):
                both = [_run(cluster, tools, tool, words) for cluster in (ours, theirs)]
                if both[0] == both[1]:
                    break
            done.append(both)
    return done


@pytest.mark.parametrize("number", range(len(STEPS)), ids=[f"{tool} {words}" for tool, words in STEPS])
def test_it_says_of_three_nodes_what_it_says_of_kafka(number: int, outcomes: list[list[Outcome]]) -> None:
    ours, theirs = outcomes[number]
    assert ours == theirs
