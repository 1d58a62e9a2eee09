"""Directories of brokers: assigned by them, registered, and gone when they fail."""

from __future__ import annotations

import pytest

from barnabas.controller.brokers import heartbeat, register_broker
from barnabas.controller.directories import assign_replicas_to_dirs
from barnabas.core.errors import WIRE_ERRORS
from barnabas.metadata.directories import is_online
from barnabas.metadata.parts import UNASSIGNED_DIRECTORY, PartitionImage
from barnabas.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.schema import Message
from tests.controller.clusters import CLUSTER_ID, Cluster, registration, topic

A, B, C = (bytes([number]) * 16 for number in (0xA, 0xB, 0xC))


def start(cluster: Cluster, *directories: bytes, broker_id: int = 1, previous_epoch: int = -1) -> None:
    """A broker comes, or comes back, with these directories."""
    request = registration(broker_id, incarnation=len(cluster.log) % 200, previous_epoch=previous_epoch)
    request.log_dirs = list(directories)
    decision = register_broker(
        cluster.image, request, cluster_id=CLUSTER_ID, next_offset=len(cluster.log), may_be_alive=False
    )
    assert cluster.carry_out(decision).error_code == 0
    assert not cluster.beat(broker_id).is_fenced


def assign(cluster: Cluster, directory: bytes, *partitions: int, name: str = "t") -> list[str]:
    topics = [TopicData(topic_id=cluster.image.topics_by_name[name].id, partitions=_numbers(*partitions))]
    return told(cluster, [DirectoryData(id_=directory, topics=topics)])


def _numbers(*partitions: int) -> list[PartitionData]:
    return [PartitionData(partition_index=each) for each in partitions]


def told(cluster: Cluster, directories: list[DirectoryData], broker_id: int = 1) -> list[str]:
    epoch = cluster.image.brokers[broker_id].epoch
    request = AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=epoch, directories=directories)
    response = cluster.carry_out(assign_replicas_to_dirs(cluster.image, request))
    assert response.error_code == 0
    return [
        WIRE_ERRORS[partition.error_code].name
        for directory in response.directories
        for each in directory.topics
        for partition in each.partitions
    ]


def fail(cluster: Cluster, *directories: bytes, broker_id: int = 1) -> list[Message]:
    request = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.brokers[broker_id].epoch,
        current_metadata_offset=len(cluster.log),
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=list(directories),
    )
    decision = heartbeat(cluster.image, request)
    assert not cluster.carry_out(decision).is_fenced
    return list(decision.records)


def led(partition: PartitionImage) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return partition.leader, partition.isr, partition.elr


def two_directories(*, has_elr: bool) -> Cluster:
    """A broker with two directories, and a topic with a partition in each."""
    cluster = Cluster(has_elr=has_elr)
    start(cluster, B, A)
    cluster.create(topic("t", 2))
    assert assign(cluster, A, 0) == assign(cluster, B, 1) == ["NONE"]
    return cluster


def test_the_directories_are_registered_in_order() -> None:
    cluster = Cluster()
    start(cluster, C, A, B)
    assert cluster.image.brokers[1].log_dirs == (A, B, C)


def test_a_broker_with_one_directory_has_nothing_to_choose() -> None:
    cluster = Cluster()
    start(cluster, A)
    cluster.create(topic("t"))
    assert cluster.partition("t").directories == (A,)
    start(cluster, A, B)
    cluster.create(topic("u"))
    assert cluster.partition("u").directories == (UNASSIGNED_DIRECTORY,)


def test_a_broker_says_where_it_has_put_a_replica() -> None:
    cluster = Cluster()
    start(cluster, A, B)
    start(cluster, C, broker_id=2)
    cluster.create(topic("t", assigned={0: [2, 1]}), topic("u", assigned={0: [2]}))
    before = cluster.partition("t")
    assert before.directories == (C, UNASSIGNED_DIRECTORY)
    assert assign(cluster, B, 0, 3) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert assign(cluster, B, 0, name="u") == ["NOT_LEADER_OR_FOLLOWER"]
    after = cluster.partition("t")
    assert after == before._replace(directories=(C, B), partition_epoch=before.partition_epoch + 1)
    size = len(cluster.log)
    assert assign(cluster, B, 0) == ["NONE"]
    assert len(cluster.log) == size  # which was known
    nowhere = DirectoryData(id_=A, topics=[TopicData(topic_id=C, partitions=_numbers(0))])
    assert told(cluster, [nowhere]) == ["UNKNOWN_TOPIC_ID"]


@pytest.mark.parametrize(
    ("broker_id", "epoch_off", "error"),
    [(9, 0, "STALE_BROKER_EPOCH"), (1, 1, "STALE_BROKER_EPOCH")],
)
def test_only_a_broker_itself_says_so(broker_id: int, epoch_off: int, error: str) -> None:
    cluster = Cluster(1)
    epoch = cluster.image.brokers[1].epoch + epoch_off
    request = AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=epoch, directories=[])
    decision = assign_replicas_to_dirs(cluster.image, request)
    assert (WIRE_ERRORS[decision.response.error_code].name, decision.records) == (error, [])


@pytest.mark.parametrize("has_elr", [False, True])
def test_what_is_in_a_failed_directory_has_no_leader_and_the_rest_goes_on(has_elr: bool) -> None:
    cluster = two_directories(has_elr=has_elr)
    epoch = cluster.partition("t", 1).leader_epoch
    records = fail(cluster, B)
    assert [type(each) for each in records] == [PartitionChangeRecord, BrokerRegistrationChangeRecord]
    assert led(cluster.partition("t", 1)) == ((-1, (), (1,)) if has_elr else (-1, (1,), ()))
    assert cluster.partition("t", 1).leader_epoch == epoch + 1
    assert led(cluster.partition("t", 0)) == (1, (1,), ())
    broker = cluster.image.brokers[1]
    assert broker.log_dirs == (A,)
    assert [is_online(cluster.partition("t", number), broker) for number in (0, 1)] == [True, False]
    assert fail(cluster, B) == []  # which was known


@pytest.mark.parametrize("has_elr", [False, True])
@pytest.mark.parametrize("was_clean", [False, True])
def test_it_has_one_again_when_the_directory_is_back(has_elr: bool, was_clean: bool) -> None:
    cluster = two_directories(has_elr=has_elr)
    fail(cluster, B)
    start(cluster, A, previous_epoch=cluster.image.brokers[1].epoch if was_clean else -1)
    assert [cluster.partition("t", number).leader for number in (0, 1)] == [1, -1]
    start(cluster, A, B, previous_epoch=cluster.image.brokers[1].epoch if was_clean else -1)
    assert [cluster.partition("t", number).leader for number in (0, 1)] == [1, 1]


def test_another_replica_leads_where_there_is_one() -> None:
    cluster = Cluster()
    start(cluster, A, B)
    start(cluster, C, broker_id=2)
    cluster.create(topic("t", assigned={0: [1, 2]}))
    assign(cluster, B, 0)
    fail(cluster, B)
    assert led(cluster.partition("t")) == (2, (2,), ())


def test_a_replica_put_into_a_directory_that_has_failed_meanwhile_is_offline() -> None:
    cluster = Cluster(has_elr=False)
    start(cluster, A, B, C)
    cluster.create(topic("t"))
    fail(cluster, B)
    assert cluster.partition("t").leader == 1  # its place was not known
    assert assign(cluster, B, 0) == ["NONE"]
    assert led(cluster.partition("t")) == (-1, (1,), ())
    assert cluster.partition("t").directories == (B,)


def test_what_is_found_elsewhere_at_a_start_is_led_from_there() -> None:
    """A directory was taken out after what was in it had been moved: told before the broker is active."""
    cluster = two_directories(has_elr=True)
    epoch = cluster.stop(1)
    request = registration(1, incarnation=9, previous_epoch=epoch)
    request.log_dirs = [A]
    decision = register_broker(
        cluster.image, request, cluster_id=CLUSTER_ID, next_offset=len(cluster.log), may_be_alive=False
    )
    cluster.carry_out(decision)
    assert assign(cluster, A, 1) == ["NONE"]
    cluster.beat(1)
    assert [led(cluster.partition("t", number)) for number in (0, 1)] == [(1, (1,), ())] * 2


def test_a_broker_whose_directories_are_all_cordoned_gets_nothing_new() -> None:
    cluster = Cluster()
    start(cluster, A, B)
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=cluster.image.brokers[1].epoch,
        current_metadata_offset=len(cluster.log),
        want_fence=False,
        want_shut_down=False,
        cordoned_log_dirs=[A],
    )
    cluster.carry_out(heartbeat(cluster.image, request))
    assert [each.error_code for each in cluster.create(topic("t"))] == [0]
    request.cordoned_log_dirs = [A, B]
    cluster.carry_out(heartbeat(cluster.image, request))
    (refused,) = cluster.create(topic("u"))
    assert WIRE_ERRORS[refused.error_code].name == "INVALID_REPLICATION_FACTOR"
    assert "all their log directories cordoned" in (refused.error_message or "")
    request.cordoned_log_dirs = []
    cluster.carry_out(heartbeat(cluster.image, request))
    assert [each.error_code for each in cluster.create(topic("u"))] == [0]
