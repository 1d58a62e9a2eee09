"""Envelope at a controller: what is in it is answered, and each of its faults is an error of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.connections import requests
from barnabas.broker.connections.requests import CONTROLLER_ROUTER, RequestContext
from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.headers import LENGTH_BYTES, begin_request, read_response_header
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.default_principal_data import DefaultPrincipalData
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.principals import encode_principal
from barnabas.protocol.schema import Message
from barnabas.testing import Broker
from tests.support.raw_client import RawClient

ANN = encode_principal(DefaultPrincipalData(type="User", name="ann", token_authenticated=False))
ADDRESS = bytes((10, 1, 2, 3))
CORRELATION_ID = 77


@pytest.fixture
def controller(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.node.port_of("CONTROLLER")) as client:
        yield client


def inner(request: Message, version: int, client_id: str | None = "tool") -> bytes:
    cls = type(request)
    flexible = version >= cls.__flexible__
    header = begin_request(cls.__key__, version, CORRELATION_ID, client_id, flexible=flexible)
    return bytes(header[LENGTH_BYTES:]) + encode(request, version)


def create(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def forward(
    controller: RawClient,
    data: bytes,
    *,
    principal: bytes | None = ANN,
    address: bytes = ADDRESS,
) -> EnvelopeResponse:
    envelope = EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address)
    return controller.ask(envelope, 0, EnvelopeResponse)


def error_of(response: EnvelopeResponse) -> str:
    assert response.response_data is None
    return WIRE_ERRORS[response.error_code].name


def opened(envelope: EnvelopeResponse, response: type[Message], version: int) -> Any:
    """What is in a response, whose header has the client's correlation id."""
    assert (envelope.error_code, envelope.response_data is None) == (0, False)
    data = memoryview(envelope.response_data or b"")
    correlation_id, body = read_response_header(
        data, response.__key__, flexible=version >= response.__flexible__
    )
    assert correlation_id == CORRELATION_ID
    return decode(response, version, data, body)


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_a_forwarded_request_is_answered_in_its_own_version(
    broker: Broker, controller: RawClient, version: int
) -> None:
    name = f"in-{version}"
    answer = opened(forward(controller, inner(create(name), version)), CreateTopicsResponse, version)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [(name, 0)]
    assert broker.node.services.image.topic(name) is not None
    again = opened(forward(controller, inner(create(name), version)), CreateTopicsResponse, version)
    assert WIRE_ERRORS[again.topics[0].error_code].name == "TOPIC_ALREADY_EXISTS"


def test_the_handler_sees_the_client_and_not_the_broker(
    broker: Broker, controller: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[RequestContext] = []

    async def handle(request: Any, context: RequestContext, services: Any) -> CreateTopicsResponse:
        seen.append(context)
        return CreateTopicsResponse(throttle_time_ms=0, topics=[])

    forward(controller, inner(create("t"), 7))
    route = CONTROLLER_ROUTER.routes[19, 7]
    monkeypatch.setitem(CONTROLLER_ROUTER.routes, (19, 7), route._replace(handle=handle))
    for client_id in ("tool", None):
        forward(controller, inner(create("t"), 7, client_id))
        context = seen.pop()
        assert (context.principal, context.host, context.client_id) == ("User:ann", "10.1.2.3", client_id)
        assert (context.api_version, context.is_forwarded, context.is_at_controller) == (7, True, True)
        assert context.listener == "CONTROLLER"
    forward(controller, inner(create("t"), 7), address=bytes(15) + b"\x01")
    assert seen.pop().host == "::1"


@pytest.mark.parametrize(
    "principal", [None, b"", b"\0", b"\0\x09" + ANN[2:], ANN[:-2], b"\0\0\x05User"], ids=repr
)
def test_principal_that_cannot_be_read(controller: RawClient, principal: bytes | None) -> None:
    answer = forward(controller, inner(create("t"), 7), principal=principal, address=b"too")
    assert error_of(answer) == "PRINCIPAL_DESERIALIZATION_FAILURE"  # whatever else is wrong


@pytest.mark.parametrize("address", [b"", b"123", bytes(5), bytes(17)], ids=repr)
def test_address_that_is_none(controller: RawClient, address: bytes) -> None:
    assert error_of(forward(controller, b"", address=address)) == "INVALID_REQUEST"


@pytest.mark.parametrize("data", [b"", b"\0\x13\0\x07", b"\0\x13\0\x07\0\0\0\x01\0\x09ab"], ids=repr)
def test_header_that_cannot_be_read(controller: RawClient, data: bytes) -> None:
    assert error_of(forward(controller, data)) == "UNSUPPORTED_VERSION"


def test_api_that_is_not_forwarded(controller: RawClient) -> None:
    described = DescribeClusterRequest(include_cluster_authorized_operations=False)
    assert error_of(forward(controller, inner(described, 1))) == "INVALID_REQUEST"
    nested = EnvelopeRequest(request_data=b"", request_principal=ANN, client_host_address=ADDRESS)
    assert error_of(forward(controller, inner(nested, 0))) == "INVALID_REQUEST"


def test_version_and_body_that_cannot_be_read(controller: RawClient) -> None:
    sound = inner(create("t"), 7)
    for version in (b"\0\x01", b"\0\x08", b"\x7f\xff", b"\xff\xff"):
        assert error_of(forward(controller, sound[:2] + version + sound[4:])) == "UNSUPPORTED_VERSION"
    assert error_of(forward(controller, sound[:-9])) == "UNSUPPORTED_VERSION"
    no_handler = inner(create("t"), 7).replace(b"\0\x13", b"\0\x26", 1)  # CreateDelegationToken
    assert error_of(forward(controller, no_handler)) == "UNSUPPORTED_VERSION"
    assert opened(forward(controller, sound), CreateTopicsResponse, 7).topics[0].error_code == 0


def test_an_error_in_the_program_ends_neither_connection_nor_node(
    broker: Broker,
    controller: RawClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(request: Any, context: Any, services: Any) -> Message:
        raise ZeroDivisionError

    forward(controller, inner(create("t"), 7))
    route = requests.CONTROLLER_ROUTER.routes[19, 7]
    with monkeypatch.context() as patched:
        patched.setitem(requests.CONTROLLER_ROUTER.routes, (19, 7), route._replace(handle=fail))
        assert error_of(forward(controller, inner(create("u"), 7))) == "UNKNOWN_SERVER_ERROR"
    assert "ZeroDivisionError" in caplog.text
    assert (
        opened(forward(controller, inner(create("u"), 7)), CreateTopicsResponse, 7).topics[0].error_code == 0
    )


def test_deletion_that_is_off_is_told_in_the_clients_version(make_broker: Any) -> None:
    broker = make_broker(settings={"delete.topic.enable": "false"})
    with RawClient(broker.node.port_of("CONTROLLER")) as controller:
        request = DeleteTopicsRequest(topics=[], topic_names=["t"], timeout_ms=1)
        for version, expected in ((2, "INVALID_REQUEST"), (3, "TOPIC_DELETION_DISABLED")):
            answer = opened(forward(controller, inner(request, version)), DeleteTopicsResponse, version)
            assert WIRE_ERRORS[answer.responses[0].error_code].name == expected


# ---- access rules and credentials, of which there are none -----------------------------------------------

RULE = AclCreation(
    resource_type=2, resource_name="t", principal="User:ann", host="*", operation=3, permission_type=3
)
MATCHING = DeleteAclsFilter(
    resource_type_filter=2,
    resource_name_filter=None,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_access_rules_and_credentials_are_disabled(broker: Broker, listener: str) -> None:
    with RawClient(broker.node.port_of(listener)) as client:
        for version in (1, 2, 3):
            rules = client.ask(CreateAclsRequest(creations=[RULE, RULE]), version, CreateAclsResponse)
            filters = client.ask(DeleteAclsRequest(filters=[MATCHING]), version, DeleteAclsResponse)
            described = client.ask(
                DescribeAclsRequest(
                    resource_type_filter=1,
                    resource_name_filter=None,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                ),
                version,
                DescribeAclsResponse,
            )
            told: list[Any] = [*rules.results, *filters.filter_results, described]
            assert len(told) == 4
            assert {WIRE_ERRORS[each.error_code].name for each in told} == {"SECURITY_DISABLED"}
            assert all(each.error_message for each in told)
        request = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="ben", mechanism=1)],
            upsertions=[
                ScramCredentialUpsertion(
                    name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p"
                )
                for name in ("ben", "ann")
            ],
        )
        results = client.ask(request, 0, AlterUserScramCredentialsResponse).results
        assert [(each.user, WIRE_ERRORS[each.error_code].name) for each in results] == [
            ("ann", "SECURITY_DISABLED"),
            ("ben", "SECURITY_DISABLED"),
        ]
