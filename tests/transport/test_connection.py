"""One connection: pipelining, timeouts, loss, and agreeing on versions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas.client.errors import TimedOut
from barnabas.core.network import Address, CannotConnect, ConnectionLost
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.schema import Message
from barnabas.sim.loop import LoopClock, run
from barnabas.transport.connection import BrokerConnection, open_connection
from tests.client.fake_broker import PORT, Drop, FakeBroker, FakeCluster

ASK = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)


async def opened(cluster: FakeCluster, *, timeout_s: float = 30.0) -> BrokerConnection:
    return await open_connection(
        cluster.network.host("client"),
        LoopClock(),
        Address("b1", PORT),
        client_id="test",
        software_version="1.0",
        connect_timeout_s=5.0,
        request_timeout_s=timeout_s,
        scratch=memoryview(bytearray(1000)),
    )


def connected(
    work: Callable[[FakeCluster, BrokerConnection], Awaitable[None]], **options: Any
) -> FakeCluster:
    async def main() -> FakeCluster:
        cluster = FakeCluster()
        await cluster.start()
        connection = await opened(cluster, **options)
        await work(cluster, connection)
        connection.close()
        return cluster

    return run(main())


@pytest.mark.parametrize("turns", range(12))
def test_a_connection_that_nobody_waits_for_any_more_is_closed(turns: int) -> None:
    class Stub:
        def __init__(self) -> None:
            self.is_closed = False
            self.peer = Address("b1", PORT)

        def close(self) -> None:
            self.is_closed = True

        async def write(self, parts: object) -> None:
            await asyncio.Event().wait()

        read = readinto = write

    made: list[Stub] = []

    class Host:
        async def connect(self, host: str, port: int) -> Stub:
            await asyncio.sleep(0)
            made.append(Stub())
            return made[-1]

    async def main() -> None:
        cluster = FakeCluster()
        cluster.network.host = lambda name: Host()  # type: ignore[assignment,method-assign,return-value]
        opening = asyncio.ensure_future(opened(cluster))
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait((opening,))
        await asyncio.sleep(0)

    run(main())
    assert all(stub.is_closed for stub in made)


def test_requests_are_pipelined_and_answered_in_order() -> None:
    async def work(cluster: FakeCluster, connection: BrokerConnection) -> None:
        answers = [connection.submit(ASK, InitProducerIdResponse) for _ in range(50)]
        assert connection.open_requests == 50
        ids = [(await answer).producer_id for answer in answers]
        assert ids == list(range(ids[0], ids[0] + 50))
        assert connection.open_requests == 0

    connected(work)


@pytest.mark.parametrize("last", [0, 1, 2, 3, 4])
def test_brokers_of_every_age_are_asked_for_their_versions(last: int) -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.max_versions.update(ApiVersionsRequest=last, InitProducerIdRequest=1)
        await cluster.start()
        connection = await opened(cluster)
        assert connection.versions.choose(InitProducerIdRequest) == 1
        asked = [version for _, name, version, _ in cluster.log if name == "ApiVersionsRequest"]
        assert asked == [last]
        connection.close()

    run(main())


def test_a_request_that_is_not_answered_ends_the_connection() -> None:
    async def work(cluster: FakeCluster, connection: BrokerConnection) -> None:
        cluster.network.hold("b1", "client")
        lost: list[float] = []
        connection.on_lost = lambda: lost.append(asyncio.get_running_loop().time())
        before = asyncio.get_running_loop().time()
        patient = connection.submit(ASK, InitProducerIdResponse)
        hasty = connection.submit(ASK, InitProducerIdResponse, timeout_s=2.0)
        with pytest.raises(TimedOut, match="did not answer InitProducerId in time"):
            await hasty
        assert asyncio.get_running_loop().time() - before == pytest.approx(2.0, abs=0.01)
        with pytest.raises(ConnectionLost):
            await patient
        with pytest.raises(ConnectionLost):
            connection.submit(ASK, InitProducerIdResponse)
        assert len(lost) == 1

    connected(work)


def test_an_answer_in_time_lets_the_next_have_its_own() -> None:
    async def work(cluster: FakeCluster, connection: BrokerConnection) -> None:
        async def slow(broker: FakeBroker, request: Any, version: int) -> Message | None:
            await asyncio.sleep(0.9)
            return None

        cluster.rules.append(slow)
        for _ in range(5):
            await connection.ask(ASK, InitProducerIdResponse)

    connected(work, timeout_s=1.0)


def test_a_lost_connection_fails_whatever_is_open() -> None:
    async def work(cluster: FakeCluster, connection: BrokerConnection) -> None:
        async def drop(broker: FakeBroker, request: Any, version: int) -> Message | None:
            raise Drop

        cluster.rules.append(drop)
        answers = [connection.submit(ASK, InitProducerIdResponse) for _ in range(3)]
        for outcome in await asyncio.gather(*answers, return_exceptions=True):
            assert isinstance(outcome, ConnectionLost)

    connected(work)


def test_closing_fails_whatever_is_open() -> None:
    async def work(cluster: FakeCluster, connection: BrokerConnection) -> None:
        answer = connection.submit(ASK, InitProducerIdResponse)
        connection.close()
        connection.close()
        with pytest.raises(ConnectionLost, match="closed on this side"):
            await answer

    connected(work)


def test_what_the_broker_does_not_speak_is_told_at_once() -> None:
    async def work(cluster: FakeCluster, connection: BrokerConnection) -> None:
        del connection.versions.ranges[InitProducerIdRequest.__key__]
        with pytest.raises(NotSpoken):
            connection.submit(ASK, InitProducerIdResponse)
        assert connection.lost is None

    connected(work)


def test_a_broker_that_cannot_be_reached() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        with pytest.raises(CannotConnect):
            await opened(cluster)
        await cluster.start()
        cluster.network.hold("client", "b1")
        with pytest.raises(TimedOut, match="connecting to b1:9092 took longer than 5 s"):
            await opened(cluster)

    run(main())


def test_somebody_who_does_not_speak_kafka() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        host = cluster.network.host("b1")

        def greet(connection: Any) -> None:
            tasks.append(asyncio.ensure_future(connection.write([b"220 mail.example.org ESMTP ready\r\n"])))

        tasks: list[Any] = []
        await host.listen("b1", PORT, greet)
        with pytest.raises(ConnectionLost, match="a frame of 842149920 bytes, more than the 1048576"):
            await opened(cluster, timeout_s=3.0)  # at once: it does not wait for that much

    run(main())
