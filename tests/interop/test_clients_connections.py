"""Connections: a thousand at once; readers who wait for data, without asking again and again."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka
import pytest

from barnabas.core.descriptors import raise_open_file_limit
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.clients import (
    CLIENTS,
    Client,
    confluent_consumer,
    confluent_next,
    create_topic,
    values,
)
from tests.support.proxy import FETCH, Proxy
from tests.support.raw_client import frame, payload, produce_request
from tests.support.targets import Target

CONNECTIONS = 1000
PRODUCE_VERSION = 9
WAIT_MS = 10_000
LONG_WAITS: dict[str, dict[str, Any]] = {
    "confluent": {"fetch.wait.max.ms": WAIT_MS},
    "aiokafka": {"fetch_max_wait_ms": WAIT_MS},
    "kafka-python": {"fetch_max_wait_ms": WAIT_MS},
}
by_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


def test_a_thousand_connections_write_at_once(bootstrap: str, topic: str) -> None:
    if raise_open_file_limit() < 3 * CONNECTIONS:
        pytest.skip(f"needs {3 * CONNECTIONS} open files (ulimit -n)")
    create_topic(bootstrap, topic)
    host, port = bootstrap.split(":")
    ready = asyncio.Barrier(CONNECTIONS)
    versions = payload(ApiVersionsRequest(), 0)

    async def write(number: int) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))

        async def ask(request: bytes) -> bytes:
            writer.write(frame(request))
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            return await reader.readexactly(size)

        assert (await ask(versions))[4:6] == b"\0\0"
        await ready.wait()  # all are connected, and now all write
        request = produce_request(topic, [str(number).encode()], acks=-1)
        await ask(payload(request, PRODUCE_VERSION, number))
        writer.close()
        await writer.wait_closed()

    async def write_all() -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*(write(number) for number in range(CONNECTIONS)))

    asyncio.run(write_all())
    found = CLIENTS[0].consume(bootstrap, topic, CONNECTIONS)
    assert sorted(int(one.value or b"") for one in found) == list(range(CONNECTIONS))


@by_client
def test_a_reader_who_waits_gets_data_when_it_comes(
    client: Client, new_target: Callable[[Mapping[str, str]], Target], topic: str
) -> None:
    """Not when its patience ends, and by few requests: it is the broker who waits."""
    with Proxy() as proxy:
        target = new_target({"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"})
        proxy.leads_to(target.port)
        create_topic(proxy.bootstrap, topic)

        def write_when_asked() -> None:
            deadline = time.monotonic() + 10
            while not proxy.requests[FETCH] and time.monotonic() < deadline:
                time.sleep(0.005)
            CLIENTS[0].produce(target.bootstrap, topic, values(1))

        writer = threading.Thread(target=write_when_asked)
        writer.start()
        began = time.monotonic()
        found = client.consume(proxy.bootstrap, topic, 1, **LONG_WAITS[client.name])
        took = time.monotonic() - began
        writer.join()
        # the one that was answered, one that was sent ahead, and one that closes a session
        fetches = proxy.requests[FETCH]
    assert found[0].value == values(1)[0].value
    assert took < WAIT_MS / 1000 / 2
    assert fetches <= 3


def test_an_idle_reader_asks_rarely(new_target: Callable[[Mapping[str, str]], Target], topic: str) -> None:
    with Proxy() as proxy:
        target = new_target({"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"})
        proxy.leads_to(target.port)
        create_topic(proxy.bootstrap, topic)
        with confluent_consumer(proxy.bootstrap, **{"fetch.wait.max.ms": 250}) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            assert consumer.poll(1.0) is None
            assert 1 <= proxy.requests[FETCH] <= 6
            CLIENTS[0].produce(target.bootstrap, topic, values(1))
            assert confluent_next(consumer).offset == 0
