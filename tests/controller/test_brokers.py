"""Brokers come and go: epochs, fencing, controlled shutdown, and who leads meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from barnabas.controller.brokers import (
    fence_broker,
    heartbeat,
    register_broker,
    unregister_broker,
)
from barnabas.controller.configs import alter_config
from barnabas.controller.elections import ElectionDefaults
from barnabas.core.errors import WIRE_ERRORS
from barnabas.metadata.image import TOPIC_RESOURCE
from barnabas.metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.controller.clusters import CLUSTER_ID, Cluster, registration, topic

# ---- heartbeats ------------------------------------------------------------------------------------------


def test_a_broker_is_unfenced_when_it_has_read_its_registration() -> None:
    cluster = Cluster()
    cluster.carry_out(
        register_broker(
            cluster.image, registration(1), cluster_id=CLUSTER_ID, next_offset=9, may_be_alive=False
        )
    )

    def beat(
        offset: int, *, epoch: int = 9, broker_id: int = 1, registered_at: int = -1
    ) -> tuple[str, bool, bool]:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch,
            current_metadata_offset=offset,
            want_fence=False,
            want_shut_down=False,
        )
        response = cluster.carry_out(heartbeat(cluster.image, request, registered_at=registered_at))
        return WIRE_ERRORS[response.error_code].name, response.is_caught_up, response.is_fenced

    assert beat(9, epoch=8) == ("STALE_BROKER_EPOCH", False, True)
    assert beat(9, broker_id=2) == ("STALE_BROKER_EPOCH", False, True)
    assert beat(8) == ("NONE", False, True)
    assert beat(10, registered_at=11) == ("NONE", False, True)
    assert beat(9) == ("NONE", True, False)
    assert cluster.image.brokers[1].is_active
    length = len(cluster.log)
    assert beat(10) == ("NONE", True, False)
    assert len(cluster.log) == length


def test_a_stop_hands_over_before_it_lets_go() -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2], 1: [2, 1]}))
    first = cluster.beat(1, want_shut_down=True)
    assert (first.is_fenced, first.should_shut_down) == (False, False)
    assert cluster.image.brokers[1].in_controlled_shutdown
    for index in (0, 1):
        assert (cluster.partition("t", index).leader, cluster.partition("t", index).isr) == (2, (2,))
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=cluster.image.brokers[1].epoch,
        current_metadata_offset=len(cluster.log),
        want_fence=False,
        want_shut_down=True,
    )
    waiting = heartbeat(cluster.image, request, others_have_seen_it_go=False)
    assert (waiting.records, waiting.response.should_shut_down) == ([], False)
    assert cluster.beat(1, want_shut_down=True).should_shut_down
    assert cluster.image.brokers[1].fenced
    assert cluster.beat(1, want_shut_down=True).should_shut_down
    # it comes back only by registering anew
    assert cluster.beat(1).is_fenced
    cluster.start(1, incarnation=2)
    assert cluster.image.brokers[1].is_active


def test_a_broker_that_leads_nothing_may_stop_at_once() -> None:
    cluster = Cluster(1, 2)
    response = cluster.beat(1, want_shut_down=True)
    assert (response.should_shut_down, response.is_fenced) == (True, True)


def test_cordoned_directories_are_told_once() -> None:
    cluster = Cluster(1)
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=cluster.image.brokers[1].epoch,
        current_metadata_offset=len(cluster.log),
        want_fence=False,
        want_shut_down=False,
        cordoned_log_dirs=[b"c" * 16],
    )
    decision = heartbeat(cluster.image, request)
    cluster.carry_out(decision)
    assert cluster.image.brokers[1].cordoned_log_dirs == (b"c" * 16,)
    assert heartbeat(cluster.image, request).records == []


# ---- a cluster of one that stops and starts --------------------------------------------------------------


def test_one_broker_stops_cleanly_and_leads_again_in_a_new_epoch() -> None:
    cluster = Cluster(1)
    cluster.create(topic("t", 1, 1))
    epoch = cluster.stop(1)
    stopped = cluster.partition("t")
    assert (stopped.leader, stopped.isr, stopped.elr, stopped.last_known_elr) == (-1, (), (1,), (1,))
    cluster.start(1, incarnation=2, previous_epoch=epoch)
    again = cluster.partition("t")
    assert (again.leader, again.isr, again.elr, again.last_known_elr) == (1, (1,), (), ())
    assert (again.leader_epoch, again.leader_recovery_state) == (2, 0)


def test_one_broker_killed_leads_again_as_the_last_leader_known() -> None:
    cluster = Cluster(1)
    cluster.create(topic("t", 1, 1))
    cluster.start(1, incarnation=2, previous_epoch=-1)
    again = cluster.partition("t")
    assert (again.leader, again.isr, again.elr, again.last_known_elr) == (1, (1,), (), ())
    assert (again.leader_epoch, again.leader_recovery_state) == (2, 1)


@pytest.mark.parametrize("previous", ["clean", "killed"])
def test_without_elr_the_last_replica_stays_in_sync(previous: str) -> None:
    cluster = Cluster(1, has_elr=False)
    cluster.create(topic("t", 1, 1))
    epoch = -1
    if previous == "clean":
        epoch = cluster.stop(1)
        assert (cluster.partition("t").leader, cluster.partition("t").isr) == (-1, (1,))
    cluster.start(1, incarnation=2, previous_epoch=epoch)
    again = cluster.partition("t")
    assert (again.leader, again.isr, again.leader_epoch, again.leader_recovery_state) == (1, (1,), 2, 0)


# ---- several brokers -------------------------------------------------------------------------------------


def test_the_next_replica_in_sync_leads_when_a_broker_is_fenced() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(topic("t", assigned={0: [1, 2, 3]}))
    cluster.beat(2, want_fence=True)
    assert (cluster.partition("t").isr, cluster.partition("t").leader_epoch) == ((1, 3), 0)
    cluster.beat(1, want_fence=True)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((3,), 3)
    # back, but not in sync before the leader says so
    cluster.beat(1)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((3,), 3)


def test_only_eligible_replicas_lead_after_the_isr_shrank_below_its_minimum() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(topic("t", assigned={0: [1, 2, 3]}, configs={"min.insync.replicas": "2"}))
    for broker_id in (1, 2):
        cluster.beat(broker_id, want_fence=True)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((3,), (2,))
    cluster.beat(3, want_fence=True)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((), (2, 3))
    # 1 left while the ISR was large enough: it may miss committed records
    cluster.beat(1)
    assert cluster.partition("t").leader == -1
    cluster.beat(2)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    assert cluster.partition("t").elr == (3,)
    assert cluster.partition("t").leader_recovery_state == 0


def test_replicas_in_sync_lead_before_eligible_ones() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create(topic("t", assigned={0: [1, 2, 3, 4]}, configs={"min.insync.replicas": "3"}))
    for broker_id in (4, 2):
        cluster.beat(broker_id, want_fence=True)
    cluster.beat(2)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((1, 3), (2,))
    cluster.beat(1, want_fence=True)
    now = cluster.partition("t")
    assert (now.leader, now.isr, sorted(now.elr)) == (3, (3,), [1, 2])  # nobody is forgotten


def test_an_eligible_replica_that_went_down_uncleanly_is_not_eligible() -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2]}, configs={"min.insync.replicas": "2"}))
    cluster.beat(2, want_fence=True)
    assert cluster.partition("t").elr == (2,)
    cluster.start(2, incarnation=2, previous_epoch=-1)
    assert (cluster.partition("t").elr, cluster.partition("t").leader) == ((), 1)


def test_any_replica_leads_where_the_topic_allows_it() -> None:
    cluster = Cluster(1, 2, has_elr=False)
    cluster.create(topic("t", assigned={0: [1, 2]}))
    cluster.beat(2, want_fence=True)
    cluster.beat(1, want_fence=True)
    cluster.beat(2)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (-1, (1,))
    cluster.beat(2, want_fence=True)
    unclean = {"unclean.leader.election.enable": "true"}
    cluster.carry_out(alter_config(cluster.image, TOPIC_RESOURCE, "t", unclean, lambda new: None))
    cluster.beat(2)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    assert cluster.partition("t").leader_recovery_state == 1


def test_settings_of_the_server_hold_where_nothing_else_does() -> None:
    cluster = Cluster(1, 2, has_elr=False)
    cluster.create(topic("t", assigned={0: [1, 2]}))
    cluster.append(fence_broker(cluster.image, cluster.image.brokers[2]))
    defaults = ElectionDefaults(unclean_election=True)
    records = fence_broker(cluster.image, cluster.image.brokers[1], defaults)
    assert [type(record) for record in records] == [PartitionChangeRecord, BrokerRegistrationChangeRecord]
    cluster.append(records)
    assert cluster.partition("t").leader == -1


def test_a_broker_is_forgotten() -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2]}))
    response = cluster.carry_out(unregister_broker(cluster.image, UnregisterBrokerRequest(broker_id=1)))
    assert response.error_code == 0
    assert list(cluster.image.brokers) == [2]
    assert cluster.partition("t").leader == 2
    again = unregister_broker(cluster.image, UnregisterBrokerRequest(broker_id=1))
    assert (WIRE_ERRORS[again.response.error_code].name, again.records) == ("BROKER_ID_NOT_REGISTERED", [])


# ---- what metadata of older versions cannot tell ---------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata_version", "fails", "is_cordoned"), [(16, False, False), (29, True, False), (30, True, True)]
)
def test_directories_are_told_where_the_metadata_can(
    metadata_version: int, fails: bool, is_cordoned: bool
) -> None:
    cluster = Cluster(1)
    first, second = b"1" * 16, b"2" * 16
    cluster.append([BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, log_dirs=[first, second])])
    cluster.append([FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)])
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=6,
        current_metadata_offset=len(cluster.log),
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=[first],
        cordoned_log_dirs=[second],
    )
    records = heartbeat(cluster.image, request).records
    assert [each.log_dirs for each in changes(records) if each.log_dirs] == ([[second]] if fails else [])
    cordoned = [each.cordoned_log_dirs for each in changes(records) if each.cordoned_log_dirs is not None]
    assert cordoned == ([[second]] if is_cordoned else [])


def changes(records: Iterable[object]) -> list[BrokerRegistrationChangeRecord]:
    return [each for each in records if isinstance(each, BrokerRegistrationChangeRecord)]
