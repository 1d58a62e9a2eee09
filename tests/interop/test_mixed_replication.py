"""Partitions whose replicas are on a broker of Apache Kafka 4.3.0 and on one of Barnabas, as real processes;
the long form is `mixed_replication_run`.

Under a controller of Barnabas each broker is killed while the other one leads, and things happen to
partitions meanwhile. Under one of Kafka leaders move. Under both, a leader of the other kind has a broker
that does not fetch leave the ISR, and come back. All the time records are written with acks=all: each is
there once afterwards, in order. The files of replicas are equal in the end (`replica_files` says what of
them), and Kafka has logged nothing unexpected.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from tests.interop.mixed_load import MixedLoad
from tests.interop.mixed_partitions import Diverged, Recreated, StartedAndEmptied, Transactional, tell
from tests.interop.mixed_replication_acts import ReplicationActs
from tests.interop.replica_files import ReplicaFiles, difference, read_replica
from tests.support.mixed_cluster import MixedCluster
from tests.support.mixed_node import BARNABAS, KAFKA, MixedNode

pytestmark = [pytest.mark.java, pytest.mark.slow]  # clusters of several nodes, some of which are killed

OF_KAFKA, OF_BARNABAS = 11, 12
SETTINGS = {
    # only a broker that has ended is fenced, and one that is paused leaves the ISR by its leader's request
    "broker.session.timeout.ms": "60000",
    "replica.lag.time.max.ms": "4000",
    "transaction.state.log.replication.factor": "2",
}
STORIES = (Diverged, Recreated, StartedAndEmptied, Transactional)
LED_BY = {"led-by-kafka": [OF_KAFKA, OF_BARNABAS], "led-by-barnabas": [OF_BARNABAS, OF_KAFKA]}


def cluster(home: Path, controller: str) -> MixedCluster:
    made = MixedCluster(home, {1: controller}, None, settings=SETTINGS)
    made.add_broker(OF_KAFKA, KAFKA)
    made.add_broker(OF_BARNABAS, BARNABAS)
    return made


def begin(cluster: MixedCluster) -> ReplicationActs:
    cluster.start()
    acts = ReplicationActs(cluster)
    acts.wait_for_brokers()
    for name, replicas in LED_BY.items():
        acts.create(name, replicas)
    return acts


def end(acts: ReplicationActs, load: MixedLoad) -> None:
    for name in LED_BY:
        load.check(name, acts.read(name))
    acts.stop_and_compare()


def test_differences_of_replicas_are_told(tmp_path: Path) -> None:
    def replica(name: str, count: int, epochs: str, start: int = 0, segment: int = 0) -> ReplicaFiles:
        folder = tmp_path / name / "t-0"
        folder.mkdir(parents=True)
        batches = [build_batch([Record(at, 0, b"k", b"%d" % at, ())], base_offset=at) for at in range(count)]
        for at, batch in enumerate(batches):
            file = folder / f"{segment if segment <= at else 0:020}.log"
            with file.open("ab") as log:
                log.write(batch)
        (folder / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs.split())}\n{epochs}")
        (tmp_path / name / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
        return read_replica(tmp_path / name, "t")

    one = replica("one", 5, "0 0\n3 2\n")
    assert difference(one, replica("rolled", 5, "0 0\n3 2\n", segment=3)) == ""
    assert difference(one, replica("elected", 5, "0 0\n3 2\n4 5\n")) == ""
    assert "the batch at offset 4" in difference(one, replica("shorter", 4, "0 0\n3 2\n"))
    assert "leader epochs" in difference(one, replica("epochs", 5, "0 0\n3 3\n"))
    assert "log start offsets 0 and 2" in difference(one, replica("started", 5, "3 2\n", start=2))
    changed = one.batches | {1: one.batches[1][:-1] + b"?"}
    assert "the batch at offset 1" in difference(one, one._replace(batches=changed))


def test_replicas_are_equal_when_a_broker_of_either_kind_was_killed(tmp_path: Path) -> None:
    with cluster(tmp_path, BARNABAS) as nodes:
        acts = begin(nodes)
        with MixedLoad(nodes, acts.bootstrap, list(LED_BY)) as load:
            for leader, other in LED_BY.values():
                tell(acts, STORIES, leader, other, MixedNode.kill)
                load.progress()
                for name in LED_BY:
                    acts.lead(name, other)  # it serves what it has caught up with
                load.progress()
            acts.lag(OF_BARNABAS, list(LED_BY))  # both are led by Kafka now
        end(acts, load)


def test_a_controller_of_kafka_takes_the_changes_of_isr_and_leaders(tmp_path: Path) -> None:
    with cluster(tmp_path, KAFKA) as nodes:
        acts = begin(nodes)
        with MixedLoad(nodes, acts.bootstrap, list(LED_BY)) as load:
            load.progress()  # a broker that is paused before anything is written lags behind nothing
            acts.lag(OF_KAFKA, ["led-by-barnabas"])
            load.progress()
            for name, replicas in LED_BY.items():
                acts.lead(name, replicas[1])
            load.progress()
            for leader in (OF_BARNABAS, OF_KAFKA):
                acts.reassign("led-by-kafka", [leader])  # leaves the other broker
                load.progress()
            acts.reassign("led-by-kafka", [OF_BARNABAS, OF_KAFKA])
        end(acts, load)
