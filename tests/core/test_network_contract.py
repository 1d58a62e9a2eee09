"""The rules of core/network.py, held against the network in memory and that of the operating system."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from barnabas.core.clock import SystemClock
from barnabas.core.disk import Disk, FileRange, HandleClosed
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.network import (
    WRITE_LIMIT_BYTES,
    Address,
    CannotListen,
    Connection,
    ConnectionLost,
    ConnectionRefused,
    Network,
)
from barnabas.core.os_disk import OsDisk
from barnabas.core.os_network import OsNetwork
from barnabas.core.workers import InlineWorkers, ThreadWorkers

HOST = "127.0.0.1"
BIG = bytes(range(256)) * 4 * 1024 * 16  # 16 MiB: more than any socket buffer takes

Scenario = Callable[[Network], Awaitable[None]]
Run = Callable[[Scenario], None]


@pytest.fixture(params=["memory", "os-asyncio", "os-uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_on_network(scenario: Scenario) -> None:
        async def main() -> None:
            workers = InlineWorkers()
            network = MemoryNetwork().host(HOST) if request.param == "memory" else OsNetwork(workers)
            async with asyncio.timeout(30):
                await scenario(network)

        loop_factory = uvloop.new_event_loop if request.param == "os-uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(main())

    return run_on_network


async def pair(network: Network) -> tuple[Connection, Connection]:
    """A connection's two ends: who connected, and who accepted."""
    accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
    listener = await network.listen(HOST, 0, accepted.set_result)
    client = await network.connect(HOST, listener.address.port)
    server = await accepted
    listener.close()
    return client, server


async def read_exactly(connection: Connection, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = await connection.read(count - len(data))
        assert piece, f"ended after {len(data)} of {count} bytes"
        data += piece
    return bytes(data)


async def read_all(connection: Connection) -> bytes:
    data = bytearray()
    while piece := await connection.read(1 << 20):
        data += piece
    return bytes(data)


async def close(*connections: Connection) -> None:
    for connection in connections:
        connection.close()
        await connection.wait_closed()


async def turns(count: int = 50) -> None:
    """Let everything that can happen on the loop happen."""
    for _ in range(count):
        await asyncio.sleep(0)


class TestConnections:
    def test_bytes_arrive_in_order_in_both_directions(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            await client.write([b"one ", memoryview(b"two "), bytearray(b"three"), b""])
            await client.write([b" four"])
            assert await read_exactly(server, 18) == b"one two three four"
            await server.write([b"answer"])
            buffer = bytearray(10)
            assert await client.readinto(memoryview(buffer)[2:]) == 6
            assert bytes(buffer) == b"\0\0answer\0\0"
            assert client.unsent_bytes == 0
            await close(client, server)

        run(scenario)

    def test_reads_wait_for_bytes(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            for word in (b"first", b"second", b"third"):
                reading = asyncio.create_task(server.read(100))
                await turns()
                assert not reading.done()
                await client.write([word])
                assert await reading == word
            await close(client, server)

        run(scenario)

    def test_a_cancelled_read_loses_nothing(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            reading = asyncio.create_task(server.read(100))
            await turns()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await client.write([b"kept"])
            await turns()
            assert await server.read(100) == b"kept"
            await close(client, server)

        run(scenario)

    def test_reads_give_at_most_what_was_asked_for(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            await client.write([b"0123456789"])
            assert await read_exactly(server, 4) == b"0123"
            buffer = bytearray(3)
            assert await server.readinto(buffer) == 3
            assert buffer == b"456"
            assert await read_exactly(server, 3) == b"789"
            await close(client, server)

        run(scenario)

    def test_many_small_parts_in_one_write(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            parts = [str(number).encode() for number in range(5000)]
            await client.write(parts)
            client.write_eof()
            assert await read_all(server) == b"".join(parts)
            await close(client, server)

        run(scenario)

    def test_ends_know_each_other(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
            listener = await network.listen(HOST, 0, accepted.set_result)
            client = await network.connect(HOST, listener.address.port)
            assert client.peer == listener.address == Address(HOST, listener.address.port)
            server = await accepted
            assert server.peer.host == HOST
            assert server.peer.port not in (0, listener.address.port)
            listener.close()
            listener.close()
            await close(client, server)

        run(scenario)


class TestBackPressure:
    def test_a_writer_waits_for_a_reader(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            writing = asyncio.create_task(client.write([BIG]))
            await turns()
            assert not writing.done()
            assert client.unsent_bytes > WRITE_LIMIT_BYTES
            received = await read_exactly(server, len(BIG) - WRITE_LIMIT_BYTES // 2)
            await writing
            assert client.unsent_bytes <= WRITE_LIMIT_BYTES
            client.write_eof()
            assert received + await read_all(server) == BIG
            assert client.unsent_bytes == 0
            await close(client, server)

        run(scenario)

    def test_a_cancelled_write_is_still_sent_whole(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            writing = asyncio.create_task(client.write([BIG]))
            await turns()
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            after = asyncio.create_task(client.write([b"after"]))
            assert await read_exactly(server, len(BIG) + 5) == BIG + b"after"
            await after
            await close(client, server)

        run(scenario)

    def test_writers_keep_their_order(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            words = [bytes([letter]) * 700_000 for letter in b"abcde"]
            async with asyncio.TaskGroup() as group:
                for word in words:
                    group.create_task(client.write([word]))
                received = await read_exactly(server, 5 * 700_000)
            assert received == b"".join(words)
            await close(client, server)

        run(scenario)

    def test_a_waiting_writer_hears_of_the_loss(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            writing = asyncio.create_task(client.write([BIG]))
            await turns()
            server.abort()
            with pytest.raises(ConnectionLost):
                await writing
            assert client.unsent_bytes == 0
            await client.wait_closed()

        run(scenario)


class TestEnds:
    def test_one_side_ends_and_the_other_goes_on(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            await client.write([b"question"])
            client.write_eof()
            assert await read_all(server) == b"question"
            assert await server.read(10) == b""
            assert await server.readinto(bytearray(10)) == 0
            await server.write([b"answer"])
            server.close()
            assert await read_all(client) == b"answer"
            with pytest.raises(ConnectionLost, match="already been ended"):
                await client.write([b"more"])
            await close(client, server)

        run(scenario)

    def test_close_sends_what_was_written(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            writing = asyncio.create_task(client.write([BIG]))
            await turns()
            client.close()
            client.close()
            assert await read_all(server) == BIG
            await writing
            await client.wait_closed()
            with pytest.raises(ConnectionLost, match="closed on this side"):
                await client.read(1)
            with pytest.raises(ConnectionLost):
                await client.write([b"x"])
            await close(server)

        run(scenario)

    def test_close_wakes_a_reader_on_this_side(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            reading = asyncio.create_task(client.read(1))
            await turns()
            client.close()
            with pytest.raises(ConnectionLost, match="closed on this side"):
                await reading
            assert await server.read(1) == b""
            await close(server)

        run(scenario)

    def test_abort_is_a_loss_at_both_ends(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            reading = asyncio.create_task(server.read(1))
            await turns()
            client.abort()
            client.abort()
            with pytest.raises(ConnectionLost, match="is lost"):
                await reading
            for connection in (client, server):
                with pytest.raises(ConnectionLost):
                    await connection.read(1)
                with pytest.raises(ConnectionLost):
                    await connection.write([b"x"])
                await connection.wait_closed()

        run(scenario)

    def test_writing_to_one_who_left_is_a_loss_in_the_end(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            await close(server)

            async def write_on() -> None:
                while True:
                    await client.write([b"x" * 1000])
                    await asyncio.sleep(0)

            with pytest.raises(ConnectionLost) as caught:
                await write_on()
            assert caught.value.wire == WIRE_ERRORS[13]
            await client.wait_closed()

        run(scenario)


class TestAddresses:
    def test_nobody_there(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            listener = await network.listen(HOST, 0, lambda connection: connection.close())
            with pytest.raises(CannotListen, match=r"cannot listen at 127\.0\.0\.1:\d+"):
                await network.listen(HOST, listener.address.port, lambda connection: connection.close())
            listener.close()
            with pytest.raises(ConnectionRefused, match=r"cannot connect to 127\.0\.0\.1:\d+"):
                await network.connect(HOST, listener.address.port)

        run(scenario)

    def test_many_connections_to_one_listener(self, run: Run) -> None:
        async def scenario(network: Network) -> None:
            tasks = []

            async def echo(connection: Connection) -> None:
                while data := await connection.read(100):
                    await connection.write([b"<", data, b">"])
                connection.close()

            listener = await network.listen(
                HOST, 0, lambda connection: tasks.append(asyncio.create_task(echo(connection)))
            )
            clients = [await network.connect(HOST, listener.address.port) for _ in range(20)]
            for number, client in enumerate(clients):
                await client.write([str(number).encode()])
                client.write_eof()
            answers = [await read_all(client) for client in clients]
            assert answers == [f"<{number}>".encode() for number in range(20)]
            await asyncio.gather(*tasks)
            listener.close()
            await close(*clients)

        run(scenario)


@pytest.fixture(params=["memory", "os", "os-cold"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    workers = ThreadWorkers(1)
    made: Disk = MemoryDisk() if request.param == "memory" else OsDisk(tmp_path, workers, SystemClock())
    if request.param == "os-cold":
        monkeypatch.setattr("barnabas.core.os_file.OsFile.is_cached", lambda file, position, size: False)
    yield made
    made.close()
    workers.close()


class TestFileRanges:
    def test_ranges_go_out_between_buffers(self, run: Run, disk: Disk) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            file = await disk.open("a.log", create=True)
            await file.append(BIG)
            end = len(BIG)
            parts = [
                b"head",
                FileRange(file, 10, 100),
                FileRange(file, 0, 0),
                b"|",
                FileRange(file, 5, end - 5),
            ]
            writing = asyncio.create_task(client.write([*parts, b"tail"]))
            await turns()
            assert file.pins >= 1
            await disk.remove("a.log")
            file.close()
            expected = b"head" + BIG[10:110] + b"|" + BIG[5:] + b"tail"
            assert await read_exactly(server, len(expected)) == expected
            await writing
            assert (file.pins, client.unsent_bytes) == (0, 0)
            await close(client, server)

        run(scenario)

    def test_a_lost_connection_lets_go_of_its_files(self, run: Run, disk: Disk) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            file = await disk.open("a.log", create=True)
            await file.append(BIG)
            writing = asyncio.create_task(client.write([FileRange(file, 0, len(BIG)), FileRange(file, 0, 5)]))
            await turns()
            assert file.pins == 2
            client.abort()
            with pytest.raises(ConnectionLost):
                await writing
            assert file.pins == 0
            server.abort()

        run(scenario)

    def test_a_fault_of_the_program_reaches_readers_and_writers(self, run: Run, disk: Disk) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            file = await disk.open("a.log", create=True)
            await file.append(BIG)
            reading = asyncio.create_task(client.read(1))
            writing = asyncio.create_task(client.write([FileRange(file, 0, len(BIG))]))
            await turns()
            disk.close()  # under a range that is being sent
            with pytest.raises((HandleClosed, ConnectionLost)):
                await read_exactly(server, len(BIG))
            for task in (reading, writing):
                with pytest.raises(HandleClosed):
                    await task
            await client.wait_closed()

        run(scenario)

    def test_parts_that_cannot_be_pinned_leave_none_pinned(self, run: Run, disk: Disk) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            open_file, closed = [await disk.open(name, create=True) for name in ("a.log", "b.log")]
            for file in (open_file, closed):
                await file.append(BIG)
            closed.close()
            with pytest.raises(HandleClosed):
                await client.write([FileRange(open_file, 0, 5), FileRange(closed, 0, 5)])
            assert (open_file.pins, client.unsent_bytes) == (0, 0)
            await close(client, server)

        run(scenario)

    def test_a_file_shorter_than_promised_ends_the_connection(self, run: Run, disk: Disk) -> None:
        async def scenario(network: Network) -> None:
            client, server = await pair(network)
            file = await disk.open("a.log", create=True)
            await file.append(b"short")
            # Written whole or not, the peer must never take what follows for the missing bytes.
            with pytest.raises(ConnectionLost, match=r"a\.log ends before byte 9|given up"):  # noqa: PT012
                await client.write([FileRange(file, 0, 9), b"next"])
                await client.wait_closed()
                await client.write([b"next"])
            with pytest.raises(ConnectionLost):
                assert b"next" not in await read_all(server)
            assert file.pins == 0

        run(scenario)
