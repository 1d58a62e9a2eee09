"""The simulated network: latency, order, silence, resets, and machines without power."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.network import Connection, ConnectionLost, ConnectionRefused
from barnabas.sim.network import Wire
from barnabas.sim.process import Process
from tests.sim.stage import Stage, on_stage


async def connected(stage: Stage, client: Process, server: Process) -> tuple[Connection, Connection, Wire]:
    accepted: asyncio.Future[Connection] = stage.loop.create_future()
    await server.network.listen("", 9092, accepted.set_result)
    connection = await client.network.connect(server.name, 9092)
    return connection, await accepted, stage.network.wires()[-1]


def test_bytes_arrive_later_and_in_their_order() -> None:
    async def scene(stage: Stage) -> None:
        client, server, _ = await connected(stage, stage.process("c"), stage.process("s"))
        stage.network.delay("s", 2.0)
        began = stage.loop.time()
        for number in range(50):
            await client.write([b"%02d" % number])
            client.flush()
            await asyncio.sleep(0.001)
        received = b""
        while len(received) < 100:
            received += await server.read(1000)
        assert received == b"".join(b"%02d" % number for number in range(50))
        assert 0.5 < stage.loop.time() - began < 2.1

    on_stage(scene)


def test_a_link_is_held_between_one_pair_of_hosts() -> None:
    async def scene(stage: Stage) -> None:
        a, b, c = (stage.process(name) for name in "abc")
        a_to_b, b_from_a, _ = await connected(stage, a, b)
        a_to_c, c_from_a, _ = await connected(stage, a, c)
        c_to_b = await c.network.connect("b", 9092)
        stage.network.hold("a", "b")
        for connection in (a_to_b, b_from_a, a_to_c, c_from_a):
            await connection.write([b"sent"])
            connection.flush()
        held = asyncio.create_task(b_from_a.read(9))
        calls = [asyncio.create_task(one.network.connect(other, 9092)) for one, other in ((a, "b"), (c, "b"))]
        assert [await one.read(9) for one in (a_to_b, a_to_c, c_from_a)] == [b"sent"] * 3
        await asyncio.sleep(100)
        assert not held.done()
        assert [call.done() for call in calls] == [False, True]
        stage.network.release("a", "b")
        assert await held == b"sent"
        for connection in (c_to_b, *await asyncio.gather(*calls)):
            connection.abort()

    on_stage(scene)


def test_dials_are_refused_or_hang_though_there_is_a_listener() -> None:
    async def scene(stage: Stage) -> None:
        a, b, c = (stage.process(name) for name in "abc")
        await connected(stage, a, b)
        stage.network.refuse("a", "b")
        with pytest.raises(ConnectionRefused):
            await a.network.connect("b", 9092)
        stage.network.hang("c", "b")
        hanging = asyncio.create_task(c.network.connect("b", 9092))
        await asyncio.sleep(100)
        assert not hanging.done()
        stage.network.let_dial("c", "b")
        stage.network.heal()
        for connection in (await hanging, await a.network.connect("b", 9092)):
            connection.abort()

    on_stage(scene)


def test_a_delay_is_that_of_one_host() -> None:
    async def scene(stage: Stage) -> None:
        a, b, c = (stage.process(name) for name in "abc")
        pairs = [await connected(stage, a, b), await connected(stage, b, c), await connected(stage, c, a)]
        stage.network.delay("c", 1000.0)
        took: list[float] = []
        for one, other, _ in pairs:
            began = stage.loop.time()
            for _ in range(10):
                await one.write([b"?"])
                one.flush()
                assert await other.read(1) == b"?"
            took.append(stage.loop.time() - began)
        assert took[0] < 1 < 100 < min(took[1:])
        stage.network.heal()
        assert max(stage.network.latency_s("a", "c") for _ in range(100)) < 0.1

    on_stage(scene)


def test_the_connections_of_a_host() -> None:
    async def scene(stage: Stage) -> None:
        a, b, c = (stage.process(name) for name in "abc")
        *_, a_b = await connected(stage, a, b)
        *_, b_c = await connected(stage, b, c)
        assert [stage.network.wires_of(name) for name in "abc"] == [[a_b], [a_b, b_c], [b_c]]
        assert [stage.network.peers_of(name) for name in "abc"] == [["b"], ["a", "c"], ["b"]]
        await a.kill()
        await asyncio.sleep(1)
        assert stage.network.peers_of("a") == ["b"]  # which has not closed its end
        await b.kill()
        assert stage.network.peers_of("a") == []

    on_stage(scene)


def test_a_dead_process_is_told_of_at_once_and_calls_to_it_are_refused() -> None:
    async def scene(stage: Stage) -> None:
        c, s = stage.process("c"), stage.process("s")
        client, server, _ = await connected(stage, c, s)
        await server.write([b"said before"])
        server.flush()
        await s.kill()
        assert await client.read(99) == b"said before"
        with pytest.raises(ConnectionLost):
            await client.read(99)
        with pytest.raises(ConnectionRefused):
            await c.network.connect("s", 9092)
        with pytest.raises(ConnectionLost):
            await server.read(1)

    on_stage(scene)


def test_a_machine_without_power_falls_silent_and_resets_when_it_is_back() -> None:
    async def scene(stage: Stage) -> None:
        c, s = stage.process("c"), stage.process("s")
        client, _, _ = await connected(stage, c, s)
        s.cut(silently=True)
        stage.network.go_dark("s")
        await client.write([b"anybody there?"])
        reading = asyncio.create_task(client.read(99))
        calling = asyncio.create_task(c.network.connect("s", 9092))
        await asyncio.sleep(100)
        assert not reading.done()
        assert not calling.done()
        stage.network.light("s")
        with pytest.raises(ConnectionLost):
            await reading
        with pytest.raises(ConnectionRefused):
            await calling

    on_stage(scene)


def test_an_idle_client_hears_of_the_power_loss_when_it_next_writes() -> None:
    async def scene(stage: Stage) -> None:
        s = stage.process("s")
        client, _, _ = await connected(stage, stage.process("c"), s)
        s.cut(silently=True)
        stage.network.go_dark("s")
        await asyncio.sleep(1)
        stage.network.light("s")
        reading = asyncio.create_task(client.read(99))
        await asyncio.sleep(100)
        assert not reading.done()
        await client.write([b"hello again"])
        with pytest.raises(ConnectionLost):
            await reading

    on_stage(scene)


@pytest.mark.parametrize("told", ["client", "server"])
def test_half_open(told: str) -> None:
    async def scene(stage: Stage) -> None:
        client, server, wire = await connected(stage, stage.process("c"), stage.process("s"))
        wire.cut()
        one, other, pipe = (client, server, wire.coming) if told == "client" else (server, client, wire.going)
        pipe.drop()
        with pytest.raises(ConnectionLost):
            await one.read(1)
        one.abort()
        reading = asyncio.create_task(other.read(1))
        await other.write([b"into the void"])
        await asyncio.sleep(100)
        assert not reading.done()
        with pytest.raises(TimeoutError):  # the window is full some time, and never opens
            async with asyncio.timeout(10):
                await other.write([bytes(4 << 20)])
        other.abort()
        with pytest.raises(ConnectionLost):
            await reading

    on_stage(scene)


def test_whoever_listens_accepts_in_its_own_name() -> None:
    async def scene(stage: Stage) -> None:
        c, s = stage.process("c"), stage.process("s")
        serving: list[asyncio.Task[bytes]] = []
        await s.network.listen(
            "", 9092, lambda connection: serving.append(asyncio.create_task(connection.read(1)))
        )
        await s.spawn(_listen_again(s, serving))
        await c.spawn(c.network.connect("s", 9093))
        await asyncio.sleep(1)
        await c.kill()
        (task,) = serving
        assert not task.cancelled()
        await s.kill()
        assert task.done()

    on_stage(scene)


async def _listen_again(server: Process, serving: list[asyncio.Task[bytes]]) -> None:
    await server.network.listen(
        "", 9093, lambda connection: serving.append(asyncio.create_task(connection.read(1)))
    )
