"""What is forwarded: the same Envelopes to a controller of Apache Kafka and to one of Barnabas."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from barnabas.broker.cluster.remote_controller import RemoteController
from barnabas.broker.connections.requests import BROKER_ROUTER, RequestContext
from barnabas.broker.handlers.envelope import FORWARDABLE
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.network import Address
from barnabas.core.settings.sources import resolve
from barnabas.protocol.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.messages.envelope import EnvelopeRequest
from barnabas.spark.driving import seams
from barnabas.testing import Broker
from tests.broker import test_envelope as envelopes
from tests.broker.test_envelope import ANN, forward, inner, opened
from tests.interop.admin_steps import steps
from tests.interop.test_admin_as_kafka import comparable
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.java


class Side(NamedTuple):
    """One of the two: connections with its broker and with its controller."""

    broker: RawClient
    controller: RawClient
    controller_port: int


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka, and Barnabas."""
    home = tmp_path_factory.mktemp("forwarding")
    with (
        ApacheKafka(home / "kafka") as kafka,
        Broker(home / "barnabas") as broker,
        RawClient(kafka.port) as their_broker,
        RawClient(broker.port) as our_broker,
        RawClient(kafka.controller_port) as theirs,
        RawClient(broker.node.port_of("CONTROLLER")) as ours,
    ):
        yield (
            Side(their_broker, theirs, kafka.controller_port),
            Side(our_broker, ours, broker.node.port_of("CONTROLLER")),
        )


def test_administrators_are_answered_alike_in_an_envelope(sides: tuple[Side, Side]) -> None:
    differences, forwarded = [], set()
    for step in steps():
        request, version, response = step.request, step.version, step.response
        if request.__key__ not in FORWARDABLE:
            continue
        forwarded.add(request.__key__)
        expected, got = (
            comparable(opened(forward(side.controller, inner(request, version)), response, version))
            for side in sides
        )
        if got != expected:
            differences.append(f"{request} v{version}\n  Kafka: {expected}\n  here:  {got}")
    assert {19, 20, 37, 43, 45, 49} <= forwarded
    assert not differences, "\n".join(differences)


SOUND = inner(envelopes.create("sound"), 7)
FAULTS: dict[str, dict[str, Any]] = {
    "no principal": {"principal": None},
    "empty principal": {"principal": b""},
    "principal of a later version": {"principal": b"\0\x09" + ANN[2:]},
    "half a principal": {"principal": ANN[:-2]},
    "principal and address": {"principal": b"", "address": b"too"},
    "no address": {"address": b""},
    "address of five bytes": {"address": bytes(5)},
    "no request": {"data": b""},
    "half a header": {"data": SOUND[:4]},
    "unknown API": {"data": b"\x03\xe7" + SOUND[2:]},
    "API of former times": {"data": b"\0\x04" + SOUND[2:]},
    "API that is not forwarded": {"data": b"\0\x03\0\x0c" + SOUND[4:]},
    "Envelope in an Envelope": {
        "data": inner(EnvelopeRequest(request_data=b"", request_principal=ANN, client_host_address=b""), 0)
    },
    "version that is too new": {"data": SOUND[:2] + b"\0\x08" + SOUND[4:]},
    "version that is too old": {"data": SOUND[:2] + b"\0\x01" + SOUND[4:]},
    "half a request": {"data": SOUND[:-9]},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_an_envelope_have_the_same_errors(sides: tuple[Side, Side], fault: str) -> None:
    given = {"data": SOUND, **FAULTS[fault]}
    theirs, ours = (forward(side.controller, **given) for side in sides)
    assert ours == theirs
    assert WIRE_ERRORS[ours.error_code].name != "NONE"


def test_access_rules_are_answered_alike(sides: tuple[Side, Side]) -> None:
    from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
    from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
    from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

    every: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    asked: list[tuple[Any, Any]] = [
        (CreateAclsRequest(creations=[envelopes.RULE, envelopes.RULE]), CreateAclsResponse),
        (DeleteAclsRequest(filters=[envelopes.MATCHING]), DeleteAclsResponse),
        (
            DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1, **every),
            DescribeAclsResponse,
        ),
    ]
    for request, response in asked:
        for version in (1, 2, 3):
            for listener in ("broker", "controller"):
                theirs, ours = (getattr(side, listener).ask(request, version, response) for side in sides)
                assert ours == theirs, (listener, version)


def test_a_broker_forwards_to_a_controller_of_kafka(sides: tuple[Side, Side]) -> None:
    async def main() -> None:
        context = RequestContext("User:ann", "PLAINTEXT", BROKER_ROUTER, "10.1.2.3", "tool", 7)
        for side in sides:
            network, clock, random = seams()
            remote = RemoteController(
                node_id=9, network=network, clock=clock, random=random, settings=resolve
            )
            leader = (1, Address("127.0.0.1", side.controller_port))
            for version, expected in ((7, "NONE"), (5, "TOPIC_ALREADY_EXISTS"), (2, "TOPIC_ALREADY_EXISTS")):
                answer = await remote.ask(
                    leader,
                    envelopes.create("by-a-broker"),
                    CreateTopicsResponse,
                    context._replace(api_version=version),
                    timeout_s=60,
                )
                assert WIRE_ERRORS[answer.topics[0].error_code].name == expected
            again = await remote.ask(
                leader, envelopes.create("by-a-broker"), CreateTopicsResponse, timeout_s=60
            )
            assert WIRE_ERRORS[again.topics[0].error_code].name == "TOPIC_ALREADY_EXISTS"
            remote.close()

    asyncio.run(main())
