"""Produce requests of one client that only have to be replicated: begun together, answered in order."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator

import pytest

from barnabas.broker.connections import connections, requests
from barnabas.broker.connections.later import LaterResponse
from barnabas.broker.connections.requests import NotServed
from barnabas.core.errors import BarnabasError
from barnabas.core.network import ConnectionLost
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.testing import Broker
from tests.support.raw_client import RawClient, metadata_request, produce_request, wait_until
from tests.support.sessions import sessions_of

TOPIC = "t"
METADATA, PRODUCE = 9, 9


class Replicating(LaterResponse):
    """A response that is complete when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_given_up = False

    def finish(self) -> ProduceResponse:
        return ProduceResponse(responses=[], throttle_time_ms=0, node_endpoints=[])

    def give_up(self) -> None:
        self.is_done = self.is_given_up = True


class Followers:
    """The followers of a broker in this process, which have what the test lets them have."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.begun: list[Replicating | None] = []
        self.is_slow = True
        self.error: BarnabasError | None = None

    async def begin(self, *_: object) -> ProduceResponse | LaterResponse:
        if self.error is not None:
            self.begun.append(None)
            raise self.error
        if not self.is_slow:
            self.begun.append(None)
            return ProduceResponse(responses=[], throttle_time_ms=0, node_endpoints=[])
        self.begun.append(one := Replicating())
        return one

    def follow(self, *numbers: int) -> None:
        async def complete() -> None:
            for number in numbers:
                if (one := self.begun[number]) is not None:
                    one._is_complete()

        self.broker.run(complete())

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.begun) >= count, f"{count} requests have been begun")
        self.broker.run(asyncio.sleep(0))
        assert len(self.begun) == count


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        client.ask(metadata_request(TOPIC), METADATA, MetadataResponse)
        client.ask(produce_request(TOPIC, [b"first"]), PRODUCE, ProduceResponse)
        yield client


@pytest.fixture
def followers(broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> Followers:
    followers = Followers(broker)
    routes = requests.BROKER_ROUTER.routes
    monkeypatch.setitem(routes, (0, PRODUCE), routes[0, PRODUCE]._replace(handle=followers.begin))
    return followers


def send(client: RawClient, *numbers: int) -> None:
    for number in numbers:
        client.send(produce_request(TOPIC, [b"v"], acks=-1), PRODUCE, number)


def answered(client: RawClient, count: int) -> list[int]:
    return [struct.unpack_from(">i", client.receive())[0] for _ in range(count)]


def test_the_next_produce_request_is_begun_before_the_one_before_is_answered(
    client: RawClient, followers: Followers
) -> None:
    send(client, 0, 1, 2)
    followers.wait_for(3)
    assert client.is_silent(0.01)
    followers.follow(0, 1, 2)
    assert answered(client, 3) == [0, 1, 2]


def test_responses_leave_in_the_order_of_the_requests(client: RawClient, followers: Followers) -> None:
    send(client, 0, 1)
    followers.wait_for(2)
    followers.is_slow = False
    send(client, 2)
    followers.wait_for(3)
    followers.follow(1)
    assert client.is_silent(0.01)
    followers.follow(0)
    assert answered(client, 3) == [0, 1, 2]


def test_requests_of_other_kinds_wait_for_the_responses_before(
    client: RawClient, followers: Followers
) -> None:
    send(client, 0)
    client.send(metadata_request(TOPIC), METADATA, 1)
    send(client, 2)
    followers.wait_for(1)
    followers.follow(0)
    assert answered(client, 2) == [0, 1]
    followers.wait_for(2)
    followers.follow(1)
    assert answered(client, 1) == [2]


def test_only_so_many_requests_wait_at_a_time(
    client: RawClient, followers: Followers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_WAITING", 3)
    send(client, *range(6))
    followers.wait_for(3)
    followers.follow(0, 1)
    assert answered(client, 2) == [0, 1]
    followers.follow(2)
    followers.wait_for(6)
    followers.follow(3, 4, 5)
    assert answered(client, 4) == [2, 3, 4, 5]


@pytest.mark.parametrize("error", [ConnectionLost("acks=0"), NotServed("version 99")])
def test_a_request_that_closes_its_connection_lets_the_responses_before_it_go_first(
    client: RawClient, followers: Followers, error: BarnabasError
) -> None:
    send(client, 0, 1)
    followers.wait_for(2)
    followers.error = error
    send(client, 2)
    followers.wait_for(3)
    followers.follow(1, 0)
    assert answered(client, 2) == [0, 1]
    assert client.is_closed()


def test_responses_of_a_lost_client_are_given_up(
    broker: Broker, client: RawClient, followers: Followers
) -> None:
    send(client, 0, 1)
    followers.wait_for(2)
    client.reset()
    wait_until(lambda: not sessions_of(broker), "the connection is forgotten")
    assert [one is not None and one.is_given_up for one in followers.begun] == [True, True]


def test_a_client_that_has_ended_its_side_is_still_answered(client: RawClient, followers: Followers) -> None:
    send(client, 0, 1)
    followers.wait_for(2)
    client.end()
    followers.follow(0, 1)
    assert answered(client, 2) == [0, 1]
    assert client.is_closed()


@pytest.mark.parametrize("are_answered", [True, False])
def test_a_stop_waits_for_responses_and_not_for_ever(
    broker: Broker, client: RawClient, followers: Followers, are_answered: bool
) -> None:
    send(client, 0, 1)
    followers.wait_for(2)

    async def stop() -> None:
        connections = broker.node.broker.connections
        stopping = asyncio.ensure_future(connections.finish(60.0 if are_answered else 0.0))
        await asyncio.sleep(0)
        if are_answered:
            for one in followers.begun:
                assert one is not None
                one._is_complete()
        await stopping

    broker.run(stop())
    if are_answered:
        assert answered(client, 2) == [0, 1]
    assert client.is_closed()


def test_a_client_that_takes_no_responses_is_not_read_from(
    broker: Broker, client: RawClient, followers: Followers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WRITE_LIMIT_BYTES", -1)  # whatever is written is too much
    answered_before, asked = connections.Session.answered, list[connections.Session]()

    async def asking(self: connections.Session) -> None:
        asked.append(self)
        await answered_before(self)

    monkeypatch.setattr(connections.Session, "answered", asking)
    send(client, 0)
    followers.wait_for(1)
    assert asked
    followers.follow(0)
    assert answered(client, 1) == [0]


def test_a_response_that_cannot_be_made_ends_its_connection(
    broker: Broker, client: RawClient, followers: Followers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(self: Replicating) -> ProduceResponse:
        raise RuntimeError("an error in the program")

    monkeypatch.setattr(Replicating, "finish", finish)
    send(client, 0)
    client.send(metadata_request(TOPIC), METADATA, 1)
    followers.wait_for(1)
    (session,) = sessions_of(broker)
    wait_until(lambda: session._answered is not None, "the next request waits for the response before")
    followers.follow(0)
    assert client.is_closed()
    wait_until(lambda: not sessions_of(broker), "the connection is forgotten")
