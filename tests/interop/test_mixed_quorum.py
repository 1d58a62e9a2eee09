"""One quorum of Apache Kafka 4.3.0 and Barnabas, as real processes; the long form is `mixed_quorum_run`.

Two controllers of Kafka and one of Barnabas begin, with a broker of Barnabas. Under a leader of Kafka one of
Kafka's voters is replaced by one of Barnabas, which fetches a snapshot from it; then one of Barnabas leads,
and a broker of Kafka joins and fetches a snapshot from that; at last the only controller of Kafka leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.interop.mixed_quorum_acts import MixedActs
from tests.support.kafka_log import complaints
from tests.support.kafka_tools import KafkaTools
from tests.support.mixed_cluster import MixedCluster
from tests.support.mixed_node import BARNABAS, KAFKA, MixedNode

pytestmark = [pytest.mark.java, pytest.mark.slow]  # a cluster of six nodes lives through three leaders

# every node takes a snapshot after a few changes
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "1500"}


class Story:
    """What was seen on the way."""

    def __init__(self, acts: MixedActs) -> None:
        self.acts = acts
        self.cluster = acts.cluster
        self.fetched: list[tuple[MixedNode, MixedNode, set[str]]] = []
        self.voters: list[list[str]] = []

    def remember_snapshots(self, by: MixedNode, leader: MixedNode) -> None:
        """Those that both have; a node that has just come has taken none by itself."""
        self.fetched.append((by, leader, self.acts.snapshots(by) & self.acts.snapshots(leader)))

    def remember_voters(self) -> None:
        self.voters.append(sorted(each.kind for each in self.cluster.voters()))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    home = tmp_path_factory.mktemp("mixed")
    controllers = {1: KAFKA, 2: KAFKA, 3: BARNABAS}
    with (
        KafkaTools() as tools,
        MixedCluster(home, controllers, tools, settings=SETTINGS, newcomers=(4,)) as cluster,
    ):
        broker = cluster.add_broker(11, BARNABAS)
        story = Story(MixedActs(cluster, broker))
        _under_kafka(story)
        _under_barnabas(story)
        _under_the_only_kafka(story)
        yield story


def _under_kafka(story: Story) -> None:
    cluster, acts = story.cluster, story.acts
    kafkas = [each for each in cluster.controllers if each.kind == KAFKA]
    for each in kafkas:
        each.start()
    leader = cluster.wait_for_leader()
    for each in (cluster.nodes[3], cluster.nodes[11]):
        each.start()
    acts.make_things()
    story.remember_voters()
    acts.wait_for_snapshot(leader)
    (other,) = (each for each in kafkas if each is not leader)
    newcomer = acts.replace_voter(other, 4, BARNABAS)
    story.remember_snapshots(newcomer, leader)
    story.remember_voters()
    other.stop()


def _under_barnabas(story: Story) -> None:
    cluster, acts = story.cluster, story.acts
    leader = cluster.nodes[3]
    cluster.make_lead(leader)
    acts.wait_for_snapshot(leader)
    newcomer = cluster.add_broker(12, KAFKA)
    newcomer.start()
    acts.brokers.append(newcomer)
    acts.wait_for_brokers()
    story.remember_snapshots(newcomer, leader)
    acts.make_things()


def _under_the_only_kafka(story: Story) -> None:
    (kafka,) = (each for each in story.cluster.voters() if each.kind == KAFKA)
    story.cluster.make_lead(kafka)
    story.acts.make_things()


def test_complaints_are_told_from_what_kafka_always_logs() -> None:
    told = "2026-01-01 10:00:00,001 "
    expected = (
        f"{told}ERROR Unexpected error handling request X (a.B)\na.NotControllerException: no\n\tat a.b"
    )
    error, exception = (
        f"{told}ERROR oh (a.B)",
        f"{told}WARN oh (a.B)\na.SomeException: no\n\tat a.b(C.java:1)",
    )
    uncaught = 'Exception in thread "main" java.lang.Error'
    log = "\n".join((uncaught, f"{told}WARN all is well (a.B)", expected, error, exception, expected))
    assert complaints(log) == [uncaught, error, exception]


def test_lost_leaders_are_expected_while_they_are_away() -> None:
    lost = (
        "2026-01-01 10:00:0{},001 WARN [ReplicaFetcher replicaId=1, leaderId=2] Error in response for fetch "
        "request (type=FetchRequest) (a.B)\n"
        "java.io.IOException: Connection to 2 was disconnected before\n\tat a.b"
    )
    failed = lost.format(2).replace("2 was disconnected before", "127.0.0.1:9 (id: 2 rack: null) failed.")
    absences = {2: [(datetime(2026, 1, 1, 10, 0, 1), datetime(2026, 1, 1, 10, 0, 2))]}
    log = "\n".join([*map(lost.format, range(8)), failed])
    assert complaints(log, absences) == [lost.format(second) for second in (0, 5, 6, 7)]
    assert len(complaints(log)) == 9
    assert complaints(lost.format(0).replace("to 2", "to 3"), absences) != []


def test_changes_under_every_leader_are_told_by_every_broker(story: Story) -> None:
    assert [each.split()[-1] for each in story.acts.led] == [KAFKA, BARNABAS, KAFKA]
    assert len(story.acts.topics) == 1 + 2 + 2
    story.acts.check_things()


def test_a_voter_is_replaced_by_one_of_the_other_kind(story: Story) -> None:
    assert story.voters == [[BARNABAS, KAFKA, KAFKA], [BARNABAS, BARNABAS, KAFKA]]


def test_snapshots_are_fetched_both_ways(story: Story) -> None:
    ways = [(by.kind, leader.kind) for by, leader, _ in story.fetched]
    assert ways == [(BARNABAS, KAFKA), (KAFKA, BARNABAS)]
    for by, leader, snapshots in story.fetched:
        assert snapshots, f"{by} has none that {leader} has"


def test_every_log_is_dumped_as_the_same_and_kafka_complains_of_nothing(story: Story) -> None:
    story.acts.stop_and_check_logs()
    assert story.cluster.complaints() == []
