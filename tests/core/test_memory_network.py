"""What the network in memory can do beyond the contract: hold, release, partition and drop."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.network import Connection, ConnectionLost, ConnectionRefused


async def pair(network: MemoryNetwork, one: str = "a", other: str = "b") -> tuple[Connection, Connection]:
    accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
    listener = await network.host(other).listen("", 9092, accepted.set_result)
    client = await network.host(one).connect(other, 9092)
    server = await accepted
    listener.close()
    return client, server


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_held_link_delivers_when_it_is_released() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        client, server = await pair(network)
        assert server.peer.host == "a"
        network.hold("a", "b")
        await client.write([b"held"])
        client.write_eof()
        reading = asyncio.create_task(server.read(9))
        await turns()
        assert not reading.done()
        await server.write([b"the other way is open"])
        assert await client.read(99) == b"the other way is open"
        network.release("a", "b")
        assert await reading == b"held"
        assert await server.read(9) == b""

    asyncio.run(scenario())


def test_a_partition_holds_bytes_resets_and_connections() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        client, server = await pair(network)
        beside = await pair(network, "b", "c")
        network.partition(["a"], ["b", "c"])
        client.abort()
        reading = asyncio.create_task(server.read(9))
        connecting = asyncio.create_task(network.host("a").connect("b", 9092))
        await server.write([b"into the dark"])
        await beside[0].write([b"same side"])
        assert await beside[1].read(9) == b"same side"
        await turns()
        assert not reading.done()
        assert not connecting.done()
        network.heal()
        with pytest.raises(ConnectionLost, match="reset by the peer"):
            await reading
        with pytest.raises(ConnectionRefused, match="nobody listens"):
            await connecting

    asyncio.run(scenario())


def test_bytes_on_the_way_are_bounded_too() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        client, server = await pair(network)
        network.hold("a", "b")
        data = bytes(3_000_000)
        writing = asyncio.create_task(client.write([data]))
        await turns()
        assert not writing.done()
        assert client.unsent_bytes > 2_000_000
        network.heal()
        received = 0
        while received < len(data):
            received += len(await server.read(1 << 20))
        await writing

    asyncio.run(scenario())


def test_dropped_connections_are_lost_at_both_ends_even_across_a_partition() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        client, server = await pair(network)
        network.partition(["a"], ["b"])
        await client.write([b"never arrives"])
        network.drop("b", "a")
        for connection in (client, server):
            with pytest.raises(ConnectionLost):
                await connection.read(9)
            with pytest.raises(ConnectionLost):
                await connection.write([b"x"])
        network.heal()
        again, _ = await pair(network)
        await again.write([b"a new one works"])

    asyncio.run(scenario())


def test_a_listener_that_closes_before_it_accepts_resets() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        accepted: list[Connection] = []
        listener = await network.host("b").listen("b", 1, accepted.append)
        client = await network.host("a").connect("b", 1)
        listener.close()
        with pytest.raises(ConnectionLost):
            await client.read(1)
        assert accepted == []

    asyncio.run(scenario())


def test_closed_connections_leave_nothing_behind() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        for _ in range(3):
            client, server = await pair(network)
            await client.write([b"x"])
            client.close()
            assert await server.read(1) == b"x"
            server.close()
        client, _ = await pair(network)
        client.abort()
        _.abort()
        assert not network.link("a", "b").pipes
        assert not network.link("b", "a").pipes

    asyncio.run(scenario())


def test_a_writer_that_cannot_hear_that_its_reader_left_waits() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        client, server = await pair(network)
        network.partition(["a"], ["b"])
        server.close()
        writing = asyncio.create_task(client.write([bytes(4 * 1024 * 1024)]))
        await turns()
        assert not writing.done()
        network.heal()
        with pytest.raises(ConnectionLost):
            await writing

    asyncio.run(scenario())


def test_who_listens_accepts_in_its_own_context() -> None:
    name: ContextVar[str] = ContextVar("name")

    async def scenario() -> None:
        network = MemoryNetwork()
        accepted_by: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def listen() -> None:
            name.set("server")
            await network.host("b").listen("", 9092, lambda _: accepted_by.set_result(name.get()))

        await asyncio.create_task(listen())
        name.set("client")
        await network.host("a").connect("b", 9092)
        assert await accepted_by == "server"

    asyncio.run(scenario())
