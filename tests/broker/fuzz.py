"""A fuzzer of the broker: damaged requests of every API and version, through connections, to a whole node.

    python -m tests.broker.fuzz --count 100000 [--seed 1] [--sockets 5000]

Sound requests, some that mean something to the broker and some made of random values, are damaged (bits,
bytes, lengths, headers, the frame around them) and sent. Whatever they are, the broker must answer or close
the connection; nothing may be logged as an error, nothing may stop the node. After every chunk a new client
must be able to produce and fetch, all connections must be forgotten, and memory must not have grown beyond
bounds. The network is in memory; `--sockets` sends some more over real ones. One seed gives the same frames
every time, and a failure prints the frame.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress

from barnabas.broker.node import Node
from barnabas.core.clock import SystemClock
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.network import Connection, ConnectionLost, Network
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SeededRandom
from barnabas.core.settings.sources import resolve
from barnabas.core.workers import InlineWorkers
from barnabas.protocol.codecs import decode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import (
    ProduceResponse,
)
from barnabas.protocol.schema import Message
from barnabas.records.reader import read_records
from tests.broker.mutants import TOPIC, Mutant, mutants
from tests.support.raw_client import fetch_request, frame, metadata_request, payload, produce_request

SENTINEL = 0x5EED0000
CHUNK = 1000
PATIENCE_S = 0.05  # what is not answered by then waits for data, or for the rest of a frame
GROWTH_BYTES = 300 * 1024 * 1024
SETTINGS = {
    "log.dirs": "memory",
    "listeners": "PLAINTEXT://broker:9092,CONTROLLER://broker:9093",
    "connections.max.idle.ms": "1000",
}


class _Complaints(logging.Handler):
    """Whatever the broker or the event loop says that it should not have to say."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class Target:
    """A node, and clients of it."""

    def __init__(self, node: Node, network: Network, host: str) -> None:
        self.node, self._network, self._host = node, network, host
        self._port = node.port_of("PLAINTEXT")

    async def connect(self) -> Connection:
        return await self._network.connect(self._host, self._port)

    async def ask(
        self, connection: Connection, request: Message, version: int, cls: type[Message]
    ) -> Message:
        await connection.write([frame(payload(request, version))])
        got = await receive(connection)
        assert got is not None, f"no answer to a sound {type(request).__name__}"
        return decode(cls, version, got, 5 if version >= type(request).__flexible__ else 4)

    async def check(self) -> bytes:
        """Produce and fetch as a new client, and take away what the mutants made; the id of the topic."""
        connection = await self.connect()
        metadata = await self.ask(connection, metadata_request(TOPIC), 12, MetadataResponse)
        assert isinstance(metadata, MetadataResponse)
        value = b"%d" % time.monotonic_ns()
        produced = await self.ask(connection, produce_request(TOPIC, [value]), 9, ProduceResponse)
        assert isinstance(produced, ProduceResponse)
        (done,) = produced.responses[0].partition_responses
        assert done.error_code == 0, f"a sound record is refused: {done}"
        fetched = await self.ask(connection, fetch_request(TOPIC, offset=done.base_offset), 12, FetchResponse)
        assert isinstance(fetched, FetchResponse)
        records = fetched.responses[0].partitions[0].records
        assert [record.value for record in read_records(records)] == [value]
        await self._clear(connection)
        connection.close()
        return metadata.topics[0].topic_id

    async def _clear(self, connection: Connection) -> None:
        everything = await self.ask(connection, MetadataRequest(topics=None), 12, MetadataResponse)
        assert isinstance(everything, MetadataResponse)
        names = [topic.name for topic in everything.topics if topic.name != TOPIC]
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=1000)
        deleted = await self.ask(connection, request, 5, DeleteTopicsResponse)
        assert isinstance(deleted, DeleteTopicsResponse)
        assert not [one for one in deleted.responses if one.error_code]

    async def forget_all(self) -> None:
        """Wait until no connection is left."""
        deadline = time.monotonic() + 60
        while len(self.node.broker.connections):
            assert time.monotonic() < deadline, (
                f"{len(self.node.broker.connections)} connections are left behind"
            )
            await asyncio.sleep(0.01)


async def receive(connection: Connection) -> bytes | None:
    """The next frame without its length; None where the connection ends instead."""
    data = b""
    try:
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            missing = 4 - len(data) if len(data) < 4 else 4 + int.from_bytes(data[:4], "big") - len(data)
            part = await connection.read(missing)
            if not part:
                return None
            data += part
    except ConnectionLost:
        return None
    return data[4:]


async def send(connection: Connection, mutant: Mutant, number: int) -> str:
    """Send a mutant, and tell what became of it: answered, unanswered, closed, or waiting."""
    sentinel = (SENTINEL + number) & 0x7FFFFFFF
    after = b"" if mutant.ends else frame(payload(ApiVersionsRequest(), 0, sentinel))
    answers = 0
    try:
        async with asyncio.timeout(PATIENCE_S):
            await connection.write([mutant.stream, after])
            if mutant.ends:
                connection.write_eof()
            while (got := await receive(connection)) is not None:
                if got[:4] == sentinel.to_bytes(4, "big") and not mutant.ends:
                    return "answered" if answers else "unanswered"
                answers += 1
    except TimeoutError:
        return "waiting"
    except ConnectionLost:
        pass
    return "closed"


async def drive(target: Target, seed: int, count: int, complaints: _Complaints) -> Counter[str]:
    """All mutants, one after another; connections are used as long as they last."""
    outcomes: Counter[str] = Counter()
    topic_id = await target.check()
    first_bytes, connection = 0, await target.connect()
    for number, mutant in enumerate(mutants(seed, count, topic_id)):
        outcome = await send(connection, mutant, number)
        outcomes[outcome] += 1
        if complaints.lines or target.node._failure.done():
            raise AssertionError(
                f"mutant {number} of seed {seed} ({mutant.stream.hex()}): {outcome}; {complaints.lines}; "
                f"{target.node._failure}"
            )
        if outcome in ("closed", "waiting") or mutant.ends:
            connection.abort()
            connection = await target.connect()
        if number % CHUNK == CHUNK - 1 or number == count - 1:
            connection.abort()
            await target.check()
            await target.forget_all()
            resident = resident_bytes()
            first_bytes = first_bytes or resident
            assert resident < first_bytes + GROWTH_BYTES, f"grew from {first_bytes} to {resident} bytes"
            connection = await target.connect()
    connection.abort()
    return outcomes


def resident_bytes() -> int:
    """The memory of this process, as far as the system tells."""
    with suppress(FileNotFoundError), open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
    return 0


async def _run(seed: int, count: int, sockets: bool, complaints: _Complaints) -> Counter[str]:
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: complaints.lines.append(f"event loop: {context}")
    )
    workers, clock = InlineWorkers(), SystemClock()
    wires = MemoryNetwork()
    settings = dict(SETTINGS)
    if sockets:
        settings["listeners"] = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    node = await Node.start(
        resolve(flags=settings),
        disk=lambda _: MemoryDisk(SeededRandom(seed), clock=clock),
        network=OsNetwork(workers) if sockets else wires.host("broker"),
        clock=clock,
        random=SeededRandom(seed),
        workers=workers,
    )
    client: Network = OsNetwork(workers) if sockets else wires.host("client")
    outcomes = await drive(
        Target(node, client, "127.0.0.1" if sockets else "broker"), seed, count, complaints
    )
    await node.stop()
    assert not complaints.lines, complaints.lines
    return outcomes


def run(seed: int, count: int, *, sockets: bool = False) -> Counter[str]:
    """So many mutants against a new broker; how often each outcome came. AssertionError where one hurts."""
    complaints = _Complaints()
    logger = logging.getLogger("barnabas")
    before = logger.propagate
    logger.addHandler(complaints)
    logger.propagate = False  # tens of thousands of closed connections are nothing to read
    try:
        return asyncio.run(_run(seed, count, sockets, complaints))
    finally:
        logger.propagate = before
        logger.removeHandler(complaints)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sockets", type=int, default=5_000, help="so many more over real sockets")
    options = parser.parse_args()
    for count, sockets in ((options.count, False), (options.sockets, True)):
        if not count:
            continue
        before, started = resident_bytes(), time.monotonic()
        outcomes = run(options.seed, count, sockets=sockets)
        seconds, grown = time.monotonic() - started, (resident_bytes() - before) / 1e6
        way = "sockets" if sockets else "the network in memory"
        print(f"{count:,} mutants over {way}, {seconds:.0f} s, {grown:+.0f} MB: the broker serves on")
        for name, times in outcomes.most_common():
            print(f"  {times:>10,}  {name}")


if __name__ == "__main__":
    main()
