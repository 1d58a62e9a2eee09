"""Registrations and heartbeats at a controller's listener, over real sockets: a second broker that is only a
socket which listens, and one that sends heartbeats."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from barnabas.controller.bootstrap import REGISTERED_FEATURES
from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages import broker_registration, controller_registration
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.testing import Broker
from tests.support.raw_client import RawClient, wait_until

MakeBroker = Callable[..., Broker]

DUPLICATE = "DUPLICATE_BROKER_REGISTRATION"
HOST = "127.0.0.1"
# what is noticed in these tests is not noticed by a session
LONG_SESSION = {"broker.session.timeout.ms": "600000"}


@pytest.fixture
def node(make_broker: MakeBroker) -> Broker:
    return make_broker(settings=LONG_SESSION)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as listener:
        yield listener


def controller_of(node: Broker) -> RawClient:
    return RawClient(node.node.port_of("CONTROLLER"))


def register(node: Broker, client: RawClient, port: int, *, incarnation: int = 1) -> tuple[str, int]:
    request = BrokerRegistrationRequest(
        broker_id=2,
        cluster_id=node.node.cluster_id,
        incarnation_id=bytes([incarnation]) * 16,
        listeners=[broker_registration.Listener(name="PLAINTEXT", host=HOST, port=port, security_protocol=0)],
        features=[
            broker_registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in REGISTERED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[b"d" * 16],
    )
    response = client.ask(request, 4, BrokerRegistrationResponse)
    return WIRE_ERRORS[response.error_code].name, response.broker_epoch


def beat(client: RawClient, epoch: int) -> BrokerHeartbeatResponse:
    request = BrokerHeartbeatRequest(
        broker_id=2,
        broker_epoch=epoch,
        current_metadata_offset=1 << 40,
        want_fence=False,
        want_shut_down=False,
    )
    return client.ask(request, 2, BrokerHeartbeatResponse)


def is_fenced(node: Broker) -> bool:
    return node.node.quorum.metadata.image.brokers[2].fenced


def test_a_broker_registers_lives_and_dies(node: Broker, listening: socket.socket) -> None:
    with controller_of(node) as client:
        error, epoch = register(node, client, listening.getsockname()[1])
        assert error == "NONE"
        assert is_fenced(node)
        assert not beat(client, epoch).is_fenced
        assert not is_fenced(node)
        assert WIRE_ERRORS[beat(client, epoch + 1).error_code].name == "STALE_BROKER_EPOCH"
        listening.close()
    wait_until(lambda: is_fenced(node), "the broker is fenced that has died")


def test_a_broker_that_still_listens_is_not_fenced(node: Broker, listening: socket.socket) -> None:
    with controller_of(node) as client:
        _, epoch = register(node, client, listening.getsockname()[1])
        assert not beat(client, epoch).is_fenced
    listening.settimeout(60)
    for _ in range(3):  # each time the controller dials; it gives up then
        listening.accept()[0].close()
    assert not is_fenced(node)
    with controller_of(node) as client:
        assert not beat(client, epoch).is_fenced


def test_a_broker_is_replaced_when_it_is_gone(node: Broker, listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    with controller_of(node) as twin:
        with controller_of(node) as client:
            _, epoch = register(node, client, port)
            beat(client, epoch)
            assert register(node, twin, port, incarnation=2) == (DUPLICATE, -1)
        # the connection is closed, and a dial accepted
        wait_until(
            lambda: register(node, twin, port, incarnation=2)[0] == "NONE", "who has the port is let in"
        )
        beat(twin, epoch)  # which says nothing: it is that of the first
        with socket.create_server((HOST, 0)) as other:
            assert register(node, twin, other.getsockname()[1], incarnation=3)[0] == "NONE"
            _, epoch = register(node, twin, other.getsockname()[1], incarnation=3)
            beat(twin, epoch)
            assert register(node, twin, port, incarnation=4)[0] == DUPLICATE


def test_controllers_say_where_they_are(node: Broker) -> None:
    def ask(protocol: int) -> ControllerRegistrationResponse:
        request = ControllerRegistrationRequest(
            controller_id=7,
            incarnation_id=b"i" * 16,
            zk_migration_ready=False,
            listeners=[
                controller_registration.Listener(
                    name="CONTROLLER", host="h", port=9093, security_protocol=protocol
                )
            ],
            features=[
                controller_registration.Feature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, (low, high) in REGISTERED_FEATURES.items()
            ],
        )
        return client.ask(request, 0, ControllerRegistrationResponse)

    with controller_of(node) as client:
        refused = ask(9)
        assert WIRE_ERRORS[refused.error_code].name == "UNKNOWN_SERVER_ERROR"
        assert refused.error_message == "Unknown security protocol 9 in listener CONTROLLER"
        assert ask(0).error_code == 0
    known = node.node.quorum.metadata.image.controllers[7]
    assert (known.endpoints["CONTROLLER"].host, known.features) == ("h", REGISTERED_FEATURES)
