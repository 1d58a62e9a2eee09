"""AlterPartition: the ISR that a leader asks for, each of its errors, and the moves that it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.controller.in_sync import ANY_EPOCH, alter_partition
from barnabas.controller.reassignments import alter_reassignments
from barnabas.core.errors import WIRE_ERRORS
from barnabas.metadata.parts import RECOVERED, RECOVERING
from barnabas.metadata.records import PartitionChangeRecord
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AskedPartition,
    AskedTopic,
    BrokerState,
)
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.controller.clusters import Cluster, topic


class Leader:
    """Asks as the leader of partition 0 of topic t would that knows the newest metadata."""

    def __init__(self, *replicas: int, brokers: Sequence[int] = (1, 2, 3, 4), min_isr: int = 1) -> None:
        self.cluster = Cluster(*brokers)
        configs: dict[str, str | None] = {"min.insync.replicas": str(min_isr)}
        self.cluster.create(topic("t", assigned={0: list(replicas)}, configs=configs))

    def asked(self, *isr: int, **changed: int) -> AskedPartition:
        partition = self.cluster.partition("t")
        brokers = self.cluster.image.brokers
        epochs = {each: brokers[each].epoch if each in brokers else 0 for each in isr}
        asked = AskedPartition(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr=[],
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=epochs.get(each, 0)) for each in isr
            ],
            leader_recovery_state=partition.leader_recovery_state,
        )
        for name, value in changed.items():
            setattr(asked, name, value)
        return asked

    def request(
        self, *partitions: AskedPartition, broker_id: int | None = None, topic_id: bytes | None = None
    ) -> AlterPartitionRequest:
        image = self.cluster.image
        asking = self.cluster.partition("t").leader if broker_id is None else broker_id
        broker = image.brokers.get(asking)
        topic_id = image.topics_by_name["t"].id if topic_id is None else topic_id
        return AlterPartitionRequest(
            broker_id=asking,
            broker_epoch=-1 if broker is None else broker.epoch,
            topics=[AskedTopic(topic_id=topic_id, partitions=list(partitions))],
        )

    def send(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return self.cluster.carry_out(alter_partition(self.cluster.image, request))

    def ask(self, *isr: int, **changed: int) -> str:
        """The error of a request for that ISR; changes nothing where there is one."""
        before = len(self.cluster.log)
        error = error_of(self.send(self.request(self.asked(*isr, **changed))))
        assert error in ("NONE", "NEW_LEADER_ELECTED") or len(self.cluster.log) == before
        return error

    @property
    def isr(self) -> tuple[int, ...]:
        return self.cluster.partition("t").isr


def error_of(response: AlterPartitionResponse) -> str:
    assert response.error_code == 0
    return WIRE_ERRORS[response.topics[0].partitions[0].error_code].name


def test_an_isr_shrinks_and_grows_without_a_new_leader_epoch() -> None:
    leader = Leader(1, 2, 3)
    before = leader.cluster.partition("t")
    assert leader.ask(1, 3) == "NONE"
    assert leader.isr == (1, 3)
    response = leader.send(leader.request(leader.asked(1, 3, 2)))
    after = leader.cluster.partition("t")
    assert after == before._replace(isr=(1, 3, 2), partition_epoch=before.partition_epoch + 2)
    told = response.topics[0].partitions[0]
    assert (told.leader_id, told.isr, told.leader_epoch) == (1, [1, 3, 2], before.leader_epoch)
    assert (told.partition_epoch, told.leader_recovery_state) == (after.partition_epoch, RECOVERED)


def test_the_isr_that_is_there_is_no_record() -> None:
    leader = Leader(1, 2)
    before = leader.cluster.partition("t")
    response = leader.send(leader.request(leader.asked(1, 2)))
    assert error_of(response) == "NONE"
    assert response.topics[0].partitions[0].partition_epoch == before.partition_epoch
    assert leader.cluster.partition("t") == before


@pytest.mark.parametrize(
    ("isr", "changed", "error"),
    [
        ((1, 2), {"partition_index": 7}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ((1, 2), {"leader_epoch": 99}, "NOT_CONTROLLER"),
        ((1, 2), {"partition_epoch": 99}, "NOT_CONTROLLER"),
        ((1, 2), {"leader_epoch": -1}, "FENCED_LEADER_EPOCH"),
        ((1, 2), {"leader_epoch": -1, "partition_epoch": -1}, "FENCED_LEADER_EPOCH"),
        ((1, 2), {"partition_epoch": -1}, "INVALID_UPDATE_VERSION"),
        ((1, 4), {}, "INVALID_REQUEST"),
        ((2, 3), {}, "INVALID_REQUEST"),
        ((1, 2, 2), {}, "INVALID_REQUEST"),
        ((), {}, "INVALID_REQUEST"),
        ((1, 2), {"leader_recovery_state": RECOVERING}, "INVALID_REQUEST"),
        ((1,), {"leader_recovery_state": RECOVERING}, "INVALID_REQUEST"),
        ((1, 2), {"leader_recovery_state": 5}, "INVALID_REQUEST"),
        ((1, 9), {"partition_epoch": -1}, "INVALID_UPDATE_VERSION"),
    ],
)
def test_what_cannot_be_is_refused(isr: tuple[int, ...], changed: dict[str, int], error: str) -> None:
    assert Leader(1, 2, 3).ask(*isr, **changed) == error


def test_a_broker_that_is_not_registered_or_is_another_incarnation_is_refused_altogether() -> None:
    leader = Leader(1, 2)
    request = leader.request(leader.asked(1))
    request.broker_epoch += 1
    for each in (request, leader.request(leader.asked(1), broker_id=9)):
        decision = alter_partition(leader.cluster.image, each)
        assert decision.records == []
        assert WIRE_ERRORS[decision.response.error_code].name == "STALE_BROKER_EPOCH"
        assert decision.response.topics == []


def test_another_broker_than_the_leader_is_refused() -> None:
    leader = Leader(1, 2)
    assert error_of(leader.send(leader.request(leader.asked(1, 2), broker_id=2))) == "INVALID_REQUEST"


def test_a_topic_that_is_not_there_is_unknown_by_its_id() -> None:
    leader = Leader(1, 2)
    response = leader.send(leader.request(leader.asked(1), topic_id=bytes(15) + b"\x09"))
    assert error_of(response) == "UNKNOWN_TOPIC_ID"


def test_only_brokers_that_serve_join() -> None:
    leader = Leader(1, 2, 3)
    cluster = leader.cluster
    cluster.beat(2, want_fence=True)
    assert leader.isr == (1, 3)
    assert leader.ask(1, 3, 2) == "INELIGIBLE_REPLICA"
    cluster.beat(2)
    cluster.beat(3, want_shut_down=True)
    assert leader.ask(1, 2, 3) == "INELIGIBLE_REPLICA"
    assert leader.ask(1, 2) == "NONE"


def test_a_broker_that_was_started_anew_since_does_not_join() -> None:
    leader = Leader(1, 2)
    cluster = leader.cluster
    leader.ask(1)
    asked = leader.asked(1, 2)
    cluster.start(2, incarnation=7, previous_epoch=cluster.image.brokers[2].epoch)
    assert error_of(leader.send(leader.request(asked))) == "INELIGIBLE_REPLICA"
    assert leader.ask(1, 2) == "NONE"


def test_version_2_names_no_epochs() -> None:
    leader = Leader(1, 2, 3)
    asked = leader.asked()
    asked.new_isr = [1, 2]
    assert error_of(leader.send(leader.request(asked))) == "NONE"
    assert leader.isr == (1, 2)
    assert leader.ask(1) == "NONE"
    asked = leader.asked()
    asked.new_isr_with_epochs = [BrokerState(broker_id=each, broker_epoch=ANY_EPOCH) for each in (1, 3)]
    assert error_of(leader.send(leader.request(asked))) == "NONE"
    assert leader.isr == (1, 3)


def test_of_a_partition_that_is_named_twice_the_first_counts() -> None:
    leader = Leader(1, 2, 3)
    response = leader.send(leader.request(leader.asked(1, 2), leader.asked(1, 3)))
    told = [WIRE_ERRORS[each.error_code].name for each in response.topics[0].partitions]
    assert told == ["NONE", "INVALID_UPDATE_VERSION"]
    assert leader.isr == (1, 2)


def test_replicas_that_leave_a_small_isr_stay_eligible_until_it_is_large_enough() -> None:
    leader = Leader(1, 2, 3, min_isr=2)
    assert leader.ask(1, 2) == "NONE"
    assert leader.cluster.partition("t").elr == ()
    assert leader.ask(1) == "NONE"
    assert leader.cluster.partition("t").elr == (2,)
    assert leader.ask(1, 3) == "NONE"
    assert leader.cluster.partition("t").elr == ()


def test_a_leader_that_was_elected_uncleanly_says_when_it_has_recovered() -> None:
    leader = Leader(1, 2)
    change = PartitionChangeRecord(
        partition_id=0, topic_id=leader.cluster.image.topics_by_name["t"].id, isr=[1]
    )
    change.leader_recovery_state = RECOVERING
    leader.cluster.append([change])
    assert leader.ask(1, 2) == "INVALID_REQUEST"  # alone as long as it recovers
    assert leader.ask(1) == "NONE"
    assert leader.cluster.partition("t").leader_recovery_state == RECOVERING
    assert leader.ask(1, leader_recovery_state=RECOVERED) == "NONE"
    assert leader.cluster.partition("t").leader_recovery_state == RECOVERED
    assert leader.ask(1, 2) == "NONE"


def move(leader: Leader, *target: int) -> None:
    partition = ReassignablePartition(partition_index=0, replicas=list(target))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=1,
        allow_replication_factor_change=True,
        topics=[ReassignableTopic(name="t", partitions=[partition])],
    )
    response = leader.cluster.carry_out(alter_reassignments(leader.cluster.image, request))
    assert response.responses[0].partitions[0].error_code == 0


def test_a_move_ends_when_everybody_who_comes_is_in_sync() -> None:
    leader = Leader(1, 2)
    move(leader, 1, 3)
    assert leader.cluster.partition("t").replicas == (1, 3, 2)
    assert leader.ask(1, 2, 3) == "NONE"
    after = leader.cluster.partition("t")
    assert (after.replicas, after.isr, after.adding_replicas, after.removing_replicas) == (
        (1, 3),
        (1, 3),
        (),
        (),
    )
    assert (after.leader, after.leader_epoch) == (1, 1)  # a replica has left: a new epoch
    assert after.directories == (bytes([101]) * 16, bytes([103]) * 16)


def test_a_leader_that_goes_with_the_end_of_a_move_is_told_of_the_next() -> None:
    leader = Leader(1, 2)
    move(leader, 2, 3)
    assert leader.ask(1, 2, 3) == "NEW_LEADER_ELECTED"
    after = leader.cluster.partition("t")
    assert (after.leader, after.replicas, after.isr) == (2, (2, 3), (2, 3))


def test_where_fewer_come_than_go_all_that_are_left_must_be_in_sync() -> None:
    leader = Leader(1, 2, 3)
    leader.ask(1)
    move(leader, 1, 4)  # 2 and 3 go
    assert leader.ask(1, 4) == "NONE"
    assert leader.cluster.partition("t").replicas == (1, 4)
    leader = Leader(1, 2, 3, 4, brokers=(1, 2, 3, 4, 5))
    leader.ask(1, 2, 3)
    move(leader, 4, 5, 1)  # 2 and 3 go, 5 comes
    assert leader.ask(1, 2, 3, 5) == "NONE"
    assert leader.cluster.partition("t").removing_replicas == (2, 3)
    assert leader.ask(1, 2, 3, 5, 4) == "NONE"
    assert leader.cluster.partition("t").replicas == (4, 5, 1)
