"""What the network of the operating system does beyond the contract: sendfile, names, running out."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path

import pytest

from barnabas.core import os_network
from barnabas.core.clock import SystemClock
from barnabas.core.disk import FileRange
from barnabas.core.network import Address, CannotConnect, CannotListen, Connection, ConnectionRefused
from barnabas.core.os_disk import OsDisk
from barnabas.core.os_network import OsNetwork
from barnabas.core.workers import InlineWorkers

HOST = "127.0.0.1"


async def pair(network: OsNetwork) -> tuple[Connection, Connection]:
    accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
    listener = await network.listen(HOST, 0, accepted.set_result)
    client = await network.connect(HOST, listener.address.port)
    server = await accepted
    listener.close()
    return client, server


@pytest.mark.parametrize("cached", [True, False])
def test_cached_pages_go_by_sendfile_and_others_through_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    sendfile, sent = os.sendfile, 0

    def count(out: int, source: int, position: int, size: int) -> int:
        nonlocal sent
        written = sendfile(out, source, position, size)
        sent += written
        return written

    def cold(*arguments: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "cold")

    async def scenario() -> None:
        disk = OsDisk(tmp_path, InlineWorkers(), SystemClock())
        file = await disk.open("a", create=True)
        await file.append(bytes(range(256)) * 40)
        client, server = await pair(OsNetwork(InlineWorkers()))
        monkeypatch.setattr(os, "sendfile", count)
        if not cached:
            monkeypatch.setattr(os, "preadv", cold)
        await client.write([b"head", FileRange(file, 256, 5000)])
        received = b""
        while len(received) < 5004:
            received += await server.read(10_000)
        assert received == b"head" + (bytes(range(256)) * 40)[256:5256]
        assert sent == (5000 if cached else 0)
        client.abort()
        server.abort()
        disk.close()

    asyncio.run(scenario())


def test_names_are_resolved_and_unknown_ones_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    getaddrinfo = socket.getaddrinfo

    def resolve(host: str, *arguments: object, **options: object) -> object:
        if host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return getaddrinfo(host, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    async def scenario() -> None:
        network = OsNetwork(InlineWorkers())
        accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        listener = await network.listen("localhost", 0, accepted.set_result)
        client = await network.connect("localhost", listener.address.port)
        (await accepted).abort()
        client.abort()
        listener.close()
        with pytest.raises(CannotConnect, match=r"cannot connect to no-such-host\.invalid:9092: "):
            await network.connect("no-such-host.invalid", 9092)
        with pytest.raises(CannotListen, match=r"cannot listen at no-such-host\.invalid:9092: "):
            await network.listen("no-such-host.invalid", 9092, lambda connection: connection.close())
        with pytest.raises(CannotListen, match="no address of this machine"):
            await network.listen("192.0.2.1", 0, lambda connection: connection.close())

    asyncio.run(scenario())


def test_without_a_descriptor_for_it_a_connection_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def scenario() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socket", refuse)
            with pytest.raises(
                CannotConnect, match=r"cannot connect to 127\.0\.0\.1:9092: Too many open files"
            ):
                await OsNetwork(InlineWorkers()).connect("127.0.0.1", 9092)

    asyncio.run(scenario())


def test_a_name_is_refused_only_where_all_its_addresses_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve_to(*hosts: str) -> None:
        def resolve(host: str, port: int, **options: object) -> list[tuple[object, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (one, port)) for one in hosts]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)

    async def scenario() -> None:
        network = OsNetwork(InlineWorkers())
        # bound and not listening: nobody else gets the port meanwhile
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
            bound.bind(("127.0.0.1", 0))
            port = bound.getsockname()[1]
            resolve_to("127.0.0.1", "127.0.0.1")
            with pytest.raises(
                ConnectionRefused, match=r"cannot connect to broker-3:\d+: Connection refused"
            ):
                await network.connect("broker-3", port)
            for hosts in (("127.0.0.1", "255.255.255.255"), ("255.255.255.255", "127.0.0.1"), ()):
                resolve_to(*hosts)
                with pytest.raises(CannotConnect) as caught:
                    await network.connect("broker-3", port)
                assert not isinstance(caught.value, ConnectionRefused)

    asyncio.run(scenario())


def test_addresses_print_as_people_write_them() -> None:
    assert str(Address("127.0.0.1", 9092)) == "127.0.0.1:9092"
    assert str(Address("::1", 9092)) == "[::1]:9092"


def test_out_of_descriptors_a_listener_rests_and_then_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, refusals = socket.socket.accept, 0

    def refuse(listening: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
        nonlocal refusals
        if not refusals:
            refusals += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    async def scenario() -> None:
        monkeypatch.setattr(os_network, "ACCEPT_PAUSE_SECONDS", 0.01)
        monkeypatch.setattr(socket.socket, "accept", refuse)
        client, server = await pair(OsNetwork(InlineWorkers()))
        await client.write([b"here at last"])
        assert await server.read(99) == b"here at last"
        client.abort()
        server.abort()

    asyncio.run(scenario())
    assert "Too many open files; raise the limit on open files" in caplog.text


def test_a_resting_listener_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[socket.socket] = []

    def refuse(listening: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
        tried.append(listening)
        first_try.set()
        raise OSError(errno.EMFILE, "Too many open files")

    first_try = asyncio.Event()

    async def scenario() -> None:
        monkeypatch.setattr(socket.socket, "accept", refuse)
        network = OsNetwork(InlineWorkers())
        listener = await network.listen(HOST, 0, lambda connection: connection.close())
        client = await network.connect(HOST, listener.address.port)
        await first_try.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(tried) == 1, "it must not spin"
        listener.close()
        client.abort()

    asyncio.run(scenario())
