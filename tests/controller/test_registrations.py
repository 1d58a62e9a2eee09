"""Registrations of brokers and controllers: what is written, and what is refused in which order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.controller.bootstrap import REGISTERED_FEATURES, SUPPORTED_FEATURES
from barnabas.controller.brokers import register_broker, unregister_broker
from barnabas.controller.contacts import OWN_PROCESS, Carrier, Contact
from barnabas.controller.controllers import register_controller
from barnabas.controller.registrations import Liveness, dialled_addresses, liveness
from barnabas.core.errors import WIRE_ERRORS
from barnabas.metadata.parts import ListenerImage
from barnabas.metadata.records import FeatureLevelRecord, RegisterBrokerRecord, RegisterControllerRecord
from barnabas.protocol.messages import controller_registration as wire
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.controller.clusters import CLUSTER_ID, Cluster, registration, topic

# what a cluster has finalised that Kafka 4.3.0 has formatted with its defaults
DEFAULTS_OF_KAFKA = {
    "metadata.version": 30,
    "transaction.version": 2,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "share.version": 1,
    "streams.version": 1,
}


def register(
    cluster: Cluster,
    request: BrokerRegistrationRequest,
    *,
    may_be_alive: bool = False,
    kraft_version: int = 1,
) -> tuple[str, list[object]]:
    decision = register_broker(
        cluster.image,
        request,
        cluster_id=CLUSTER_ID,
        next_offset=77,
        may_be_alive=may_be_alive,
        kraft_version=kraft_version,
    )
    return WIRE_ERRORS[decision.response.error_code].name, list(decision.records)


def finalise(cluster: Cluster, **levels: int) -> Cluster:
    cluster.append(
        FeatureLevelRecord(name=name.replace("_", "."), feature_level=level) for name, level in levels.items()
    )
    return cluster


# ---- brokers ---------------------------------------------------------------------------------------------


def test_a_new_broker_is_fenced_and_gets_the_next_offset_as_its_epoch() -> None:
    error, (record,) = register(Cluster(), registration(1))
    assert error == "NONE"
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.broker_id, record.broker_epoch, record.fenced) == (1, 77, True)
    assert [(each.name, each.host, each.port) for each in record.end_points] == [("PLAINTEXT", "h", 9092)]
    assert record.log_dirs == [bytes([101]) * 16]


@pytest.mark.parametrize("state", ["active", "fenced", "stopping"])
def test_a_second_incarnation_waits_until_the_first_is_gone(state: str) -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2]}))
    if state != "active":
        cluster.beat(1, want_fence=state == "fenced", want_shut_down=state == "stopping")
    again = registration(1, incarnation=2)
    assert register(cluster, again, may_be_alive=True) == ("DUPLICATE_BROKER_REGISTRATION", [])
    assert register(cluster, again)[0] == "NONE"


def test_the_same_incarnation_keeps_its_epoch_and_state() -> None:
    cluster = Cluster(1)
    epoch = cluster.image.brokers[1].epoch
    decision = register_broker(
        cluster.image, registration(1, port=9093), cluster_id=CLUSTER_ID, next_offset=77, may_be_alive=True
    )
    assert decision.response.broker_epoch == epoch
    cluster.carry_out(decision)
    assert cluster.image.brokers[1].is_active
    assert cluster.image.brokers[1].endpoints["PLAINTEXT"].port == 9093


Spoil = Callable[[BrokerRegistrationRequest], None]


def other_cluster(request: BrokerRegistrationRequest) -> None:
    request.cluster_id = "another"


def migrating(request: BrokerRegistrationRequest) -> None:
    request.is_migrating_zk_broker = True


def no_directory(request: BrokerRegistrationRequest) -> None:
    request.log_dirs = []


def reserved_directory(request: BrokerRegistrationRequest) -> None:
    request.log_dirs = [bytes(15) + b"\x63"]


def same_directory_twice(request: BrokerRegistrationRequest) -> None:
    request.log_dirs = request.log_dirs * 2


def directory_of_another(request: BrokerRegistrationRequest) -> None:
    request.log_dirs = registration(2).log_dirs


def unknown_protocol(request: BrokerRegistrationRequest) -> None:
    request.listeners[0].security_protocol = 4


def older_metadata(request: BrokerRegistrationRequest) -> None:
    request.features[0].max_supported_version = 29


def no_kraft_version(request: BrokerRegistrationRequest) -> None:
    request.features = [each for each in request.features if each.name != "kraft.version"]


def no_metadata_version(request: BrokerRegistrationRequest) -> None:
    request.features = [each for each in request.features if each.name != "metadata.version"]


# in the order in which they are looked for
REFUSALS: list[tuple[Spoil, str]] = [
    (other_cluster, "INCONSISTENT_CLUSTER_ID"),
    (migrating, "BROKER_ID_NOT_REGISTERED"),
    (no_directory, "INVALID_REGISTRATION"),
    (reserved_directory, "INVALID_REGISTRATION"),
    (same_directory_twice, "INVALID_REGISTRATION"),
    (directory_of_another, "INVALID_REGISTRATION"),
    (unknown_protocol, "UNKNOWN_SERVER_ERROR"),
    (older_metadata, "UNSUPPORTED_VERSION"),
    (no_metadata_version, "INVALID_REGISTRATION"),
    (no_kraft_version, "UNSUPPORTED_VERSION"),
]


@pytest.mark.parametrize(("spoil", "error"), REFUSALS, ids=lambda each: getattr(each, "__name__", ""))
def test_what_cannot_be_registered(spoil: Spoil, error: str) -> None:
    request = registration(1)
    spoil(request)
    assert register(Cluster(2), request) == (error, [])


@pytest.mark.parametrize("at", range(len(REFUSALS) - 1))
def test_the_first_reason_is_told(at: int) -> None:
    (spoil, error), (spoil_next, _) = REFUSALS[at], REFUSALS[at + 1]
    if {spoil, spoil_next} == {older_metadata, no_metadata_version}:
        spoil_next = no_kraft_version  # of a feature that is not there the range cannot be wrong
    request = registration(1)
    spoil_next(request)
    spoil(request)
    assert register(Cluster(2), request) == (error, [])


def test_a_duplicate_is_told_before_what_is_wrong_with_it() -> None:
    request = registration(1, incarnation=2)
    no_directory(request)
    assert register(Cluster(1), request, may_be_alive=True)[0] == "DUPLICATE_BROKER_REGISTRATION"
    request.cluster_id = "another"
    assert register(Cluster(1), request, may_be_alive=True)[0] == "INCONSISTENT_CLUSTER_ID"


def test_directories_are_not_asked_for_before_they_had_ids() -> None:
    cluster = finalise(Cluster(), metadata_version=16, eligible_leader_replicas_version=0)
    request = registration(1)
    error, (record,) = register(cluster, request)
    assert error == "NONE"
    assert isinstance(record, RegisterBrokerRecord)
    assert record.log_dirs == []
    no_directory(request)
    assert register(cluster, request)[0] == "NONE"


def test_a_node_joins_a_cluster_that_kafka_has_formatted() -> None:
    cluster = finalise(
        Cluster(), **{name.replace(".", "_"): level for name, level in DEFAULTS_OF_KAFKA.items()}
    )
    request = registration(1)
    assert {each.name for each in request.features} == {*DEFAULTS_OF_KAFKA, "kraft.version"}
    assert register(cluster, request)[0] == "NONE"
    for name in sorted(REGISTERED_FEATURES.keys() - SUPPORTED_FEATURES.keys()):
        request = registration(1)
        request.features = [each for each in request.features if each.name != name]
        assert register(cluster, request) == ("UNSUPPORTED_VERSION", [])


@pytest.mark.parametrize(
    ("level", "error"), [(0, "UNSUPPORTED_VERSION"), (1, "NONE"), (3, "UNSUPPORTED_VERSION")]
)
def test_the_level_of_each_feature_lies_in_the_range_of_the_broker(level: int, error: str) -> None:
    cluster = finalise(Cluster(), new_version=level)
    request = registration(1)
    request.features.append(Feature(name="new.version", min_supported_version=1, max_supported_version=2))
    assert register(cluster, request)[0] == error


def test_a_feature_at_level_0_need_not_be_named() -> None:
    request = registration(1)
    no_kraft_version(request)
    assert register(Cluster(), request, kraft_version=0)[0] == "NONE"
    assert register(Cluster(), request, kraft_version=1)[0] == "UNSUPPORTED_VERSION"


def test_a_broker_that_was_forgotten_is_not_eligible_when_it_comes_back() -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2]}, configs={"min.insync.replicas": "2"}))
    cluster.beat(2, want_fence=True)
    cluster.carry_out(unregister_broker(cluster.image, UnregisterBrokerRequest(broker_id=2)))
    assert cluster.partition("t").elr == (2,)
    cluster.start(2, incarnation=2)  # it may have lost its disk
    assert cluster.partition("t").elr == ()


# ---- whether the incarnation that has the id may live ----------------------------------------------------


class Link:
    """A connection."""

    def __init__(self, is_open: bool) -> None:
        self.is_open = is_open


OLD, NEW = 9092, 9093
OPEN, CLOSED = Link(True), Link(False)
GONE, MAY_LIVE, DIAL = Liveness.GONE, Liveness.MAY_LIVE, Liveness.GONE_IF_REFUSED


@pytest.mark.parametrize(
    ("carrier", "silent_s", "port", "is_here", "expected"),
    [
        # an open connection, until its session is over
        (OPEN, 8, NEW, False, MAY_LIVE),
        (OPEN, 8, OLD, False, MAY_LIVE),
        (OPEN, 8, OLD, True, MAY_LIVE),
        (OPEN, 10, NEW, False, GONE),
        # a closed one: a dial tells, unless the newcomer has the listener
        (CLOSED, 1, NEW, False, DIAL),
        (CLOSED, 1, OLD, False, GONE),
        (CLOSED, 10, NEW, False, GONE),
        # none yet: the session was inherited
        (None, 1, NEW, False, DIAL),
        (None, 1, OLD, False, GONE),
        (None, 1, NEW, True, GONE),
        # in the process of the controller
        (OWN_PROCESS, 1, OLD, True, GONE),
        (OWN_PROCESS, 1000, OLD, False, MAY_LIVE),
    ],
)
def test_whether_a_broker_may_live_whose_id_another_one_wants(
    carrier: Carrier | None, silent_s: float, port: int, is_here: bool, expected: Liveness
) -> None:
    listeners = registration(1, port=port).listeners
    known = Cluster(1).image.brokers[1]
    addresses = dialled_addresses(known, "PLAINTEXT")
    assert addresses == [("h", OLD)]
    found = liveness(
        Contact(100.0, 1, carrier), addresses, listeners, is_here=is_here, now=100.0 + silent_s, session_s=9.0
    )
    assert found is expected


def test_a_broker_without_a_session_is_gone() -> None:
    listeners = registration(1).listeners
    assert liveness(None, [("h", 1)], listeners, is_here=False, now=1.0, session_s=9.0) is GONE


def test_all_listeners_are_dialled_where_the_one_between_brokers_is_not_known() -> None:
    known = Cluster(1).image.brokers[1]
    known = known._replace(
        endpoints={"OUTSIDE": ListenerImage("o", 1, 0), "INSIDE": ListenerImage("i", 2, 0)}
    )
    assert dialled_addresses(known, "INSIDE") == [("i", 2)]
    assert dialled_addresses(known, "ELSEWHERE") == [("o", 1), ("i", 2)]
    assert dialled_addresses(known, None) == [("o", 1), ("i", 2)]


# ---- controllers -----------------------------------------------------------------------------------------


def controller_request(controller_id: int = 1) -> wire.ControllerRegistrationRequest:
    return wire.ControllerRegistrationRequest(
        controller_id=controller_id,
        incarnation_id=b"i" * 16,
        zk_migration_ready=False,
        listeners=[wire.Listener(name="CONTROLLER", host="h", port=10092, security_protocol=0)],
        features=[
            wire.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in REGISTERED_FEATURES.items()
        ],
    )


def test_a_controller_registers_once() -> None:
    cluster, request = Cluster(), controller_request()
    decision = register_controller(cluster.image, request)
    assert [type(record) for record in decision.records] == [RegisterControllerRecord]
    cluster.carry_out(decision)
    assert cluster.image.controllers[1].endpoints["CONTROLLER"].port == 10092
    assert cluster.image.controllers[1].features == REGISTERED_FEATURES
    assert register_controller(cluster.image, request).records == []
    request.incarnation_id = b"j" * 16
    assert len(register_controller(cluster.image, request).records) == 1


@pytest.mark.parametrize(
    ("metadata_version", "protocol", "error"),
    [(14, 9, "UNSUPPORTED_VERSION"), (15, 9, "UNKNOWN_SERVER_ERROR"), (15, 3, "NONE")],
)
def test_which_controllers_are_registered(metadata_version: int, protocol: int, error: str) -> None:
    cluster = finalise(Cluster(), metadata_version=metadata_version)
    request = controller_request()
    request.listeners[0].security_protocol = protocol
    decision = register_controller(cluster.image, request)
    assert WIRE_ERRORS[decision.response.error_code].name == error
    assert len(decision.records) == (error == "NONE")
    assert (decision.response.error_message is None) == (error == "NONE")
