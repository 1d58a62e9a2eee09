"""Connections as clients find them, good ones and bad ones, over real sockets to a broker in this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from barnabas.broker.connections.connections import Limits
from barnabas.core.connection import StreamConnection
from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.network import WRITE_LIMIT_BYTES, Address, Connection
from barnabas.core.os_network import SocketStream
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records.reader import read_records
from barnabas.testing import Broker
from tests.support.raw_client import (
    RawClient,
    fetch_request,
    frame,
    header,
    metadata_request,
    payload,
    produce_request,
    wait_until,
)
from tests.support.sessions import (
    IDLE_S,
    STEP_S,
    IdleTime,
    connections_of,
    session_of,
    sessions_of,
)

MakeBroker = Callable[..., Broker]

TOPIC = "t"
METADATA = 9
PRODUCE = 9
FETCH = 12
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def create(client: RawClient, topic: str = TOPIC) -> None:
    answer = client.ask(metadata_request(topic), METADATA, MetadataResponse)
    assert [one.error_code for one in answer.topics] == [0]


def serves(broker: Broker) -> bool:
    """Whether a new client can produce and fetch."""
    with RawClient(broker.port) as client:
        create(client, "still-there")
        value = b"%d" % time.monotonic_ns()
        produced = client.ask(produce_request("still-there", [value]), PRODUCE, ProduceResponse)
        at = produced.responses[0].partition_responses[0]
        fetched = client.ask(fetch_request("still-there", offset=at.base_offset), FETCH, FetchResponse)
        records = fetched.responses[0].partitions[0].records
        return at.error_code == 0 and [r.value for r in read_records(records)] == [value]


def lines_about(caplog: pytest.LogCaptureFixture, client: RawClient | str) -> list[logging.LogRecord]:
    address = client if isinstance(client, str) else client.address
    return [r for r in caplog.records if address in r.getMessage()]


def polls_of(broker: Broker) -> int:
    """How many long polls are waiting."""

    async def look() -> int:
        return sum(len(replica.marks.polls) for replica in broker.node.broker.replicas._leading.values())

    return broker.run(look())


async def end_of_polls(broker: Broker) -> None:
    """The time of all long polls is over."""
    for replica in broker.node.broker.replicas._leading.values():
        for poll in list(replica.marks.polls):
            poll._end(False)


# ---- order ----------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_their_order(client: RawClient) -> None:
    create(client)
    # of several kinds and sizes, long polls among them, all sent before anything is read
    asked = []
    for number in range(60):
        request, version = [
            (metadata_request(TOPIC), METADATA),
            (produce_request(TOPIC, [b"v" * 10 * number]), PRODUCE),
            (fetch_request(TOPIC, offset=0, max_wait_ms=5, min_bytes=1 << 29), FETCH),
            (ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3),
        ][number % 4]
        asked.append(frame(payload(request, version, correlation_id=1000 - number)))
    client.send_bytes(b"".join(asked))
    got = [struct.unpack_from(">i", client.receive())[0] for _ in asked]
    assert got == [1000 - number for number in range(60)]


def test_requests_may_arrive_a_byte_at_a_time(client: RawClient) -> None:
    sent = b"".join(frame(payload(metadata_request(), METADATA, number)) for number in (1, 2))
    for byte in sent:
        client.send_bytes(bytes([byte]))
    assert [struct.unpack_from(">i", client.receive())[0] for _ in (1, 2)] == [1, 2]


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 12, 300_000])
def test_requests_cut_anywhere_are_put_together_again(client: RawClient, cut: int) -> None:
    create(client)
    value = random.Random(cut).randbytes(400_000)  # larger than what is received at once
    request = frame(payload(produce_request(TOPIC, [value]), PRODUCE, 7))
    stream = request + frame(payload(fetch_request(TOPIC), FETCH, 8))
    client.send_bytes(stream[:cut])
    assert client.is_silent(0.05)
    client.send_bytes(stream[cut:])
    _, produced = client.receive_response(ProduceResponse, PRODUCE, flexible=True)
    correlation_id, fetched = client.receive_response(FetchResponse, FETCH, flexible=True)
    assert produced.responses[0].partition_responses[0].error_code == 0
    assert correlation_id == 8
    records = fetched.responses[0].partitions[0].records
    assert [record.value for record in read_records(records)] == [value]


def test_acks_0_gets_no_answer_and_shifts_no_later_one(client: RawClient) -> None:
    create(client)
    for number in range(20):
        client.send(produce_request(TOPIC, [b"%d" % number], acks=0), PRODUCE, correlation_id=100 + number)
        if number % 3 == 0:
            client.send(produce_request(TOPIC, [b"acked"], acks=1), PRODUCE, correlation_id=200 + number)
            correlation_id, answer = client.receive_response(ProduceResponse, PRODUCE, flexible=True)
            assert correlation_id == 200 + number
            # whatever came without an answer came before it, and was appended
            assert answer.responses[0].partition_responses[0].base_offset == number + number // 3 + 1
    assert client.is_silent(0.1)


def test_acks_0_that_cannot_be_appended_ends_the_connection(broker: Broker, client: RawClient) -> None:
    client.send(produce_request("there-is-no-such-topic", [b"x"], acks=0), PRODUCE)
    assert client.is_closed()
    assert serves(broker)


# ---- versions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_answered_with_the_plain_header_in_every_version(
    client: RawClient, version: int
) -> None:
    request = ApiVersionsRequest(client_software_name="raw.client-1", client_software_version="1.0")
    client.send(request, version, correlation_id=77)
    # the body begins right after the correlation id, without tagged fields in between
    correlation_id, answer = client.receive_response(ApiVersionsResponse, version, flexible=True)
    assert correlation_id == 77
    assert answer.error_code == 0
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert ranges[0] == (0, 13)
    assert ranges[1] == (4, 18)
    assert ranges[18] == (0, 4)


@pytest.mark.parametrize("version", [5, 6, 100, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: RawClient, version: int) -> None:
    # what a request of the future holds cannot be known: only its header is read
    start = struct.pack(">hhih", 18, version, 55, 3) + b"new"
    client.send_bytes(frame(start + b"\0whatever a later version says"))
    got = client.receive()
    correlation_id, error_code, count = struct.unpack_from(">ihi", got)
    assert (correlation_id, error_code) == (55, UNSUPPORTED_VERSION)
    assert len(got) == 10 + 6 * count
    # nothing but the versions to ask again in: whoever is told more is content, and misses the features
    assert list(struct.iter_unpack(">hhh", got[10:])) == [(18, 0, 4)]
    # and the connection can be used: the client asks again
    answer = client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    assert answer.error_code == 0


@pytest.mark.parametrize(
    ("name", "version", "is_valid"),
    [
        ("apache-kafka-java", "4.3.0", True),
        ("a", "1", True),
        ("a-.b", "1-SNAPSHOT", True),
        ("", "1", False),
        ("raw", "", False),
        ("-raw", "1", False),
        ("raw.", "1", False),
        ("raw client", "1", False),
        ("raw", "1_0", False),
        ("räw", "1", False),
        ("raw\n", "1", False),
    ],
)
def test_the_software_of_a_client_must_have_a_proper_name(
    client: RawClient, name: str, version: str, is_valid: bool
) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    answer = client.ask(request, 3, ApiVersionsResponse)
    assert answer.error_code == (0 if is_valid else INVALID_REQUEST)
    assert bool(answer.api_keys) == is_valid
    # in either case it may go on
    assert client.ask(metadata_request(), METADATA, MetadataResponse).brokers


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(0, 2), (0, 14), (1, 3), (1, 19), (3, 14), (3, -1), (11, 10), (999, 0), (-1, 0), (32767, 32767), (6, 0)],
)
def test_what_is_not_served_ends_the_connection_with_one_line(
    broker: Broker, client: RawClient, caplog: pytest.LogCaptureFixture, api_key: int, version: int
) -> None:
    address = client.address
    client.send_bytes(frame(struct.pack(">hhih", api_key, version, 1, -1) + bytes(20)))
    assert client.is_closed()
    (line,) = lines_about(caplog, address)
    assert line.levelno == logging.WARNING
    assert "served" in line.getMessage()
    assert serves(broker)


def test_clients_from_before_api_versions_are_served(client: RawClient) -> None:
    """Old versions, no name of the client, nothing asked about versions."""

    def ask(request: MetadataRequest, version: int) -> MetadataResponse:
        client.send_bytes(frame(payload(request, version, 3, client_id=None)))
        return client.receive_response(MetadataResponse, version, flexible=False)[1]

    metadata = ask(metadata_request("old"), 0)
    assert [topic.name for topic in metadata.topics] == ["old"]
    assert [topic.name for topic in ask(MetadataRequest(topics=[]), 0).topics] == ["old"]
    client.send_bytes(frame(payload(produce_request("old", [b"x"]), 3, 4, client_id=None)))
    produced = client.receive_response(ProduceResponse, 3, flexible=False)[1]
    assert produced.responses[0].partition_responses[0].error_code == 0
    client.send_bytes(frame(payload(fetch_request("old"), 4, 5, client_id=None)))
    fetched = client.receive_response(FetchResponse, 4, flexible=False)[1]
    assert [r.value for r in read_records(fetched.responses[0].partitions[0].records)] == [b"x"]


def test_tagged_fields_in_a_header_are_skipped(client: RawClient) -> None:
    tags = b"\x02" + b"\x00\x03abc" + b"\xf0\x10\x01x"
    client.send_bytes(frame(payload(metadata_request(), METADATA, 9, tags=tags)))
    correlation_id, answer = client.receive_response(MetadataResponse, METADATA, flexible=True)
    assert correlation_id == 9
    assert len(answer.brokers) == 1


# ---- what is no request ---------------------------------------------------------------------------------

METADATA_START = header(MetadataRequest, METADATA, 1, "raw")

GARBAGE = {
    "a TLS handshake": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), "TLS"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP"),
    "a POST": (b"POST /topics HTTP/1.1\r\n\r\n", "HTTP"),
    "a huge length": (struct.pack(">i", 2**31 - 1), "more than the"),
    "one byte too many": (struct.pack(">i", 100 * 1024 * 1024 + 1), "more than the"),
    "a negative length": (struct.pack(">i", -1), "-1 bytes"),
    "the smallest length": (struct.pack(">i", -(2**31)), "bytes"),
    "nothing": (struct.pack(">i", 0), "0 bytes"),
    "no header": (frame(b"\0"), "header"),
    "half a header": (frame(struct.pack(">hhi", 3, 9, 1)), "header"),
    "a name beyond the end": (frame(struct.pack(">hhih", 3, 1, 1, 500)), "name"),
    "a name that is no text": (frame(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xff" + bytes(4)), "header"),
    "no tags of the header": (frame(struct.pack(">hhih", 3, 9, 1, 0)), "cut short"),
    "endless tags": (frame(struct.pack(">hhih", 3, 9, 1, 0) + b"\xff" * 30), "32 bits"),
    "no body": (frame(METADATA_START), "version"),
    "a list beyond the end": (frame(METADATA_START + b"\xff\xff\xff\xff\x07"), "length"),
    "too short a body": (frame(payload(metadata_request("abc"), METADATA)[:-4]), "version"),
    "text": (b"Hello, is this the Castle?\r\n", "bytes"),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_ends_the_connection_with_one_line(
    broker: Broker, client: RawClient, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    sent, words = GARBAGE[what]
    address = client.address
    client.send_bytes(sent)
    assert client.is_closed()
    (line,) = lines_about(caplog, address)
    assert line.levelno == logging.WARNING
    assert words in line.getMessage()
    assert "\n" not in line.getMessage()
    assert serves(broker)
    assert not [r for r in caplog.records if r.levelno > logging.WARNING]


def test_bytes_behind_a_request_are_ignored(client: RawClient) -> None:
    """librdkafka leaves some when it asks for all topics."""
    client.send_bytes(frame(payload(metadata_request(), METADATA, 5) + b"xyz"))
    correlation_id, _ = client.receive_response(MetadataResponse, METADATA, flexible=True)
    assert correlation_id == 5


def test_what_came_before_the_garbage_is_answered(client: RawClient) -> None:
    client.send_bytes(frame(payload(metadata_request(), METADATA, 5)) + b"GET / HTTP/1.1\r\n\r\n")
    correlation_id, _ = client.receive_response(MetadataResponse, METADATA, flexible=True)
    assert correlation_id == 5
    assert client.is_closed()


def test_many_connections_of_random_bytes(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    choose = random.Random(4)
    for _ in range(100):
        with RawClient(broker.port) as client:
            client.send_bytes(choose.randbytes(choose.choice((1, 4, 20, 5000))))
            client.end()
            assert client.is_closed()
    wait_until(lambda: not sessions_of(broker), "all connections are gone")
    assert not [r for r in caplog.records if r.levelno > logging.WARNING]
    assert serves(broker)


@pytest.mark.parametrize("leave", [RawClient.close, RawClient.reset, RawClient.end])
@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\x20", b"\0\0\0\x20\0\x03"])
def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(
    broker: Broker, caplog: pytest.LogCaptureFixture, leave: Callable[[RawClient], None], sent: bytes
) -> None:
    client = RawClient(broker.port)
    wait_until(lambda: len(sessions_of(broker)) == 1, "it is accepted")
    client.send_bytes(sent)
    leave(client)
    wait_until(lambda: not sessions_of(broker), "its connection is forgotten")
    client.close()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_answers_are_sent_to_a_client_that_ended_its_side(client: RawClient) -> None:
    client.send(metadata_request(), METADATA, 1)
    client.end()
    assert client.receive_response(MetadataResponse, METADATA, flexible=True)[0] == 1
    assert client.is_closed()


class _NeverStops:
    """A connection that has the next request as soon as one is answered, up to a last one."""

    peer = Address("192.0.2.1", 1)
    unsent_bytes = 0

    def __init__(self, request: bytes, count: int) -> None:
        self._request, self.left = request, count

    async def readinto(self, buffer: memoryview) -> int:
        if self.left <= 0:
            return 0
        self.left -= 1
        count = min(len(buffer), len(self._request), 65536)
        buffer[:count] = self._request[:count]
        return count

    async def write(self, parts: object) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass


@pytest.mark.parametrize(
    "stream",
    [
        frame(payload(ApiVersionsRequest(), 0)),
        frame(payload(ApiVersionsRequest(), 0)) * 2_000,
        frame(bytes(90_000_000)),  # comes a piece at a time, and is no request in the end
    ],
    ids=["one by one", "many at once", "a large one"],
)
def test_one_client_does_not_keep_the_others_waiting(broker: Broker, stream: bytes) -> None:
    endless = _NeverStops(stream, 3_000)

    async def look() -> int:
        connections_of(broker).accept(endless, "PLAINTEXT")  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen, endless.left = endless.left, 0
        return seen

    assert broker.run(look()) > 2_000
    wait_until(lambda: not sessions_of(broker), "it is gone")


# ---- bounds ---------------------------------------------------------------------------------------------


def test_requests_up_to_the_limit_are_taken(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    limit = 5_000
    broker = make_broker(settings={"socket.request.max.bytes": str(limit)})
    with RawClient(broker.port) as client:
        create(client)
        room = limit - len(payload(produce_request(TOPIC, [b""]), PRODUCE))
        request = payload(produce_request(TOPIC, [b"x" * (room - 8)]), PRODUCE)
        assert limit - 8 <= len(request) <= limit
        client.send_bytes(frame(request))
        _, answer = client.receive_response(ProduceResponse, PRODUCE, flexible=True)
        assert answer.responses[0].partition_responses[0].error_code == 0
        client.send_bytes(struct.pack(">i", limit + 1))
        assert client.is_closed()
        (line,) = lines_about(caplog, client)
        assert "5001" in line.getMessage()


def test_a_length_alone_takes_little_memory(broker: Broker) -> None:
    """Fifty clients announce 100 MB each, and send nothing of it."""
    before = _resident_bytes()  # of all tests so far
    with contextlib.ExitStack() as clients:
        for _ in range(50):
            client = clients.enter_context(RawClient(broker.port))
            client.send_bytes(struct.pack(">i", 100 * 1024 * 1024) + b"\0")
        wait_until(lambda: len(sessions_of(broker)) == 50, "they are accepted")
        assert serves(broker)
        assert _resident_bytes() - before < 300 * 1024 * 1024


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_a_client_that_does_not_read_is_not_read_from(broker: Broker) -> None:
    value = bytes(400_000)
    batches = 12
    with RawClient(broker.port) as writer:
        create(writer)
        for _ in range(batches):
            writer.ask(produce_request(TOPIC, [value]), PRODUCE, ProduceResponse)
    with RawClient(broker.port, receive_bytes=4096) as slow:
        fetch = frame(payload(fetch_request(TOPIC), FETCH))
        count = 16 * 1024 * 1024 // len(fetch)
        session = session_of(broker, slow)
        taken = slow.send_what_fits(fetch * count)
        assert taken < len(fetch) * count / 2  # what the system's buffers hold, and no more
        # one response, though thousands are asked for; and it is ranges of a file, not bytes
        wait_until(lambda: session.connection.unsent_bytes > WRITE_LIMIT_BYTES, "it is answered")
        before = session.connection.unsent_bytes
        assert before <= batches * 401_000
        assert serves(broker)
        assert WRITE_LIMIT_BYTES < session.connection.unsent_bytes <= before
        # it comes to life again: what it asked for is there, whole
        for _ in range(3):
            _, answer = slow.receive_response(FetchResponse, FETCH, flexible=True)
            records = answer.responses[0].partitions[0].records
            assert sum(1 for _ in read_records(records)) == batches
    wait_until(lambda: not sessions_of(broker), "it is gone")


def test_small_answers_to_one_who_does_not_read_are_bounded(broker: Broker) -> None:
    with RawClient(broker.port) as maker:
        for number in range(200):
            create(maker, f"topic-{number}-" + "x" * 200)
    with RawClient(broker.port, receive_bytes=4096) as slow:
        ask = frame(payload(MetadataRequest(topics=None), METADATA))
        session = session_of(broker, slow)
        slow.send_what_fits(ask * 100_000, patience_s=0.5)
        wait_until(lambda: session.connection.unsent_bytes > WRITE_LIMIT_BYTES, "it is answered")
        # asked for gigabytes, it is owed the limit and one answer more
        assert session.connection.unsent_bytes < WRITE_LIMIT_BYTES + 200 * 1024
        assert serves(broker)


def test_stopping_does_not_wait_for_one_who_does_not_read(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with RawClient(broker.port) as writer:
        create(writer)
        writer.ask(produce_request(TOPIC, [bytes(900_000)]), PRODUCE, ProduceResponse)
    with RawClient(broker.port, receive_bytes=4096) as slow:
        slow.send_what_fits(frame(payload(fetch_request(TOPIC), FETCH)) * 20)
        broker.stop()  # which fails where it takes longer than half a minute


def test_stopping_does_not_wait_for_long_polls(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with RawClient(broker.port) as client:
        create(client)
        client.send(fetch_request(TOPIC, max_wait_ms=600_000), FETCH)
        wait_until(lambda: polls_of(broker) == 1, "it polls")
        broker.stop()  # which fails where it takes longer than half a minute
        assert client.receive()  # with nothing in it, but it is an answer
        assert client.is_closed()


def test_stopping_lets_go_of_one_who_has_only_just_come(broker: Broker) -> None:
    async def come_and_stop() -> int:
        connections, network = connections_of(broker), MemoryNetwork()
        accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        listener = await network.host("there").listen("there", 1, accepted.set_result)
        coming = await network.host("here").connect("there", 1)
        connections.accept(await accepted, "PLAINTEXT")
        await connections.close()
        listener.close()
        assert await coming.read(1) == b""
        return len(connections)

    assert broker.run(come_and_stop()) == 0


def test_clients_that_say_nothing_are_let_go(broker: Broker) -> None:
    time_passes = IdleTime(broker).passes
    with RawClient(broker.port) as idle, RawClient(broker.port) as half, RawClient(broker.port) as busy:
        half.send_bytes(b"\0\0\0\x20\0\x03")
        create(busy)
        for _ in range(20):
            busy.ask(fetch_request(TOPIC), FETCH, FetchResponse)
            time_passes(STEP_S)
        assert idle.is_closed()
        assert half.is_closed()
        wait_until(lambda: len(sessions_of(broker)) == 1, "one connection is left")
        time_passes(2 * IDLE_S)
        assert busy.is_closed()  # it says nothing any more either


@pytest.mark.parametrize("leave", [RawClient.close, RawClient.reset, RawClient.end])
def test_a_poll_that_outlasts_the_idle_time_ends_with_it(
    broker: Broker, leave: Callable[[RawClient], None]
) -> None:
    """Or a client could leave behind, for weeks, all that a connection holds."""
    time_passes = IdleTime(broker).passes
    client = RawClient(broker.port)
    create(client)
    client.send(fetch_request(TOPIC, max_wait_ms=2**31 - 1), FETCH)
    wait_until(lambda: polls_of(broker) == 1, "it polls")
    leave(client)
    time_passes(2 * IDLE_S)
    wait_until(lambda: not sessions_of(broker), "it is forgotten")
    assert polls_of(broker) == 0
    client.close()


def test_a_client_that_stops_reading_is_let_go_but_not_a_slow_one(broker: Broker) -> None:
    time_passes = IdleTime(broker).passes
    with RawClient(broker.port) as writer:
        create(writer)
        for _ in range(10):
            writer.ask(produce_request(TOPIC, [bytes(900_000)]), PRODUCE, ProduceResponse)
    wait_until(lambda: not sessions_of(broker), "the writer is gone")
    with RawClient(broker.port, receive_bytes=4096) as slow, RawClient(broker.port) as stuck:
        for client in (slow, stuck):
            client.send_bytes(frame(payload(fetch_request(TOPIC), FETCH)) * 4)
        session = session_of(broker, slow)
        for each in (session, session_of(broker, stuck)):
            wait_until(lambda each=each: each.connection.unsent_bytes > 0, "it is answered")  # type: ignore[misc]
        read, rounds = b"", 0
        while len(sessions_of(broker)) == 2:  # the slow one takes a little between any two looks
            unsent_bytes = session.connection.unsent_bytes
            while session.connection.unsent_bytes == unsent_bytes:
                read += slow.receive_bytes(100_000)
            time_passes(STEP_S)
            rounds += 1
        assert rounds * STEP_S > IDLE_S
        assert [str(each.connection.peer) for each in sessions_of(broker)] == [slow.address]
        (size,) = struct.unpack_from(">i", read)
        assert slow.receive_bytes(4 * (4 + size) - len(read))


def test_a_client_that_ended_its_side_and_does_not_read_is_let_go(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    time_passes = IdleTime(broker).passes
    with RawClient(broker.port) as writer:
        create(writer)
        writer.ask(produce_request(TOPIC, [bytes(300_000)]), PRODUCE, ProduceResponse)
    with RawClient(broker.port, receive_bytes=4096) as client:
        connection = session_of(broker, client).connection
        hold_little(connection)
        client.send(fetch_request(TOPIC), FETCH)
        wait_until(lambda: connection.unsent_bytes > 0, "more than the system holds for it")
        client.end()
        wait_until(lambda: is_closing(connection), "the broker sees its end")
        time_passes(2 * IDLE_S)
        wait_until(lambda: not sessions_of(broker), "it is let go")
        (line,) = lines_about(caplog, client.address)
        assert "idle for too long" in line.getMessage()  # and not because it ended its side
        with pytest.raises(EOFError):
            client.receive_bytes(300_000)


def hold_little(connection: Connection) -> None:
    """Have the system take a few kilobytes for a client that does not read, never a whole answer."""
    assert isinstance(connection, StreamConnection)
    assert isinstance(connection._stream, SocketStream)
    connection._stream._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


def is_closing(connection: Connection) -> bool:
    """Whether it is closed on the broker's side once everything is sent."""
    assert isinstance(connection, StreamConnection)
    return connection._lost is not None


def test_with_a_negative_idle_time_nobody_is_let_go(make_broker: MakeBroker) -> None:
    broker = make_broker(settings={"connections.max.idle.ms": "-1"})
    time_passes = IdleTime(broker).passes
    with RawClient(broker.port) as idle:
        session_of(broker, idle)
        time_passes(10 * IDLE_S)
        assert idle.ask(metadata_request(), METADATA, MetadataResponse).brokers


def test_no_more_than_max_connections(make_broker: MakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker = make_broker(settings={"max.connections": "2"})
    first, second = RawClient(broker.port), RawClient(broker.port)
    for each in (first, second):
        each.ask(metadata_request(), METADATA, MetadataResponse)
    with RawClient(broker.port) as third:
        address = third.address
        assert third.is_closed()
    (line,) = lines_about(caplog, address)
    assert "max.connections=2" in line.getMessage()
    first.close()
    wait_until(lambda: len(sessions_of(broker)) == 1, "there is room again")
    assert serves(broker)
    assert second.ask(metadata_request(), METADATA, MetadataResponse).brokers
    second.close()


def test_no_more_than_max_connections_from_one_address(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(
        settings={"max.connections.per.ip": "3", "max.connections.per.ip.overrides": "127.0.0.9:1"}
    )
    clients = []
    for source, allowed in (("127.0.0.9", 1), ("127.0.0.8", 3), ("127.0.0.1", 3)):
        for _ in range(allowed):
            clients.append(RawClient(broker.port, source=source))
            clients[-1].ask(metadata_request(), METADATA, MetadataResponse)
        with RawClient(broker.port, source=source) as turned_away:
            address = turned_away.address
            assert turned_away.is_closed()
        (line,) = lines_about(caplog, address)
        assert "max.connections.per.ip" in line.getMessage()
    clients.pop(0).close()
    wait_until(lambda: len(sessions_of(broker)) == 6, "the first is gone")
    with RawClient(broker.port, source="127.0.0.9") as again:
        assert again.ask(metadata_request(), METADATA, MetadataResponse).brokers
    for client in clients:
        client.close()
    wait_until(lambda: not sessions_of(broker), "all are gone")
    assert not connections_of(broker)._per_host


def test_requests_together_take_no_more_than_their_room(make_broker: MakeBroker) -> None:
    settings = {"socket.request.max.bytes": "20000", "queued.max.request.bytes": "20000"}
    broker = make_broker(settings=settings)
    with RawClient(broker.port) as large, RawClient(broker.port) as small:
        create(large)
        request = frame(payload(produce_request(TOPIC, [b"x" * 19_000]), PRODUCE))
        large.send_bytes(request[:1000])
        small.send(metadata_request(), METADATA)
        assert small.receive()  # 1,000 bytes are left
        with RawClient(broker.port) as other:
            other.send_bytes(request[:1000])
            wait_until(lambda: connections_of(broker)._room.used > 20_000, "the room is taken")
            small.send(metadata_request(), METADATA)
            assert small.is_silent(0.2)
            large.send_bytes(request[1000:])
            assert large.receive()
            assert small.receive()
        # a client that goes away gives back what it held
        wait_until(lambda: connections_of(broker)._room.used == 0, "nothing is held")
    assert serves(broker)


def test_the_room_is_never_given_back_twice(make_broker: MakeBroker) -> None:
    settings = {"socket.request.max.bytes": "5000", "queued.max.request.bytes": "5000"}
    broker = make_broker(settings=settings)
    request = frame(payload(metadata_request(), METADATA))
    for cut in (0, 3, 10, len(request), len(request) + 10):
        with RawClient(broker.port) as client:
            client.send_bytes((request * 2)[:cut])
            if cut >= len(request):
                client.receive()
    wait_until(lambda: not sessions_of(broker), "all are gone")
    assert connections_of(broker)._room.used == 0


# ---- long polls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", [RawClient.close, RawClient.reset, RawClient.end])
def test_a_client_that_leaves_during_a_long_poll_is_forgotten(
    broker: Broker, caplog: pytest.LogCaptureFixture, leave: Callable[[RawClient], None]
) -> None:
    with RawClient(broker.port) as maker:
        create(maker)
    wait_until(lambda: not sessions_of(broker), "the maker is gone")
    client = RawClient(broker.port)
    client.send(fetch_request(TOPIC, max_wait_ms=600_000), FETCH)
    wait_until(lambda: polls_of(broker) == 1, "it polls")
    leave(client)
    broker.run(end_of_polls(broker))
    wait_until(lambda: not sessions_of(broker), "it is forgotten once its time is over")
    client.close()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    marks = broker.node.broker.replicas._leading.popitem()[1].marks
    assert not marks.polls


def test_a_long_poll_whose_client_left_ends_with_the_next_data(broker: Broker) -> None:
    with RawClient(broker.port) as writer:
        create(writer)
        client = RawClient(broker.port)
        client.send(fetch_request(TOPIC, max_wait_ms=60_000), FETCH)
        wait_until(lambda: polls_of(broker) == 1, "it polls")
        client.reset()
        writer.ask(produce_request(TOPIC, [b"x"]), PRODUCE, ProduceResponse)
        wait_until(lambda: len(sessions_of(broker)) == 1, "it is forgotten")


def test_requests_behind_a_long_poll_wait_for_it(client: RawClient, broker: Broker) -> None:
    create(client)
    client.send(fetch_request(TOPIC, max_wait_ms=60_000), FETCH, 1)
    client.send(metadata_request(), METADATA, 2)
    assert client.is_silent(0.1)
    with RawClient(broker.port) as writer:
        writer.ask(produce_request(TOPIC, [b"x"]), PRODUCE, ProduceResponse)
    ids = [struct.unpack_from(">i", client.receive())[0] for _ in range(2)]
    assert ids == [1, 2]


def test_limits_are_as_the_settings_say(make_broker: MakeBroker) -> None:
    broker = make_broker(
        settings={
            "socket.request.max.bytes": "1000",
            "connections.max.idle.ms": "2000",
            "max.connections": "3",
            "max.connections.per.ip": "4",
            "max.connections.per.ip.overrides": "127.0.0.1:5,10.0.0.1:6",
            "queued.max.request.bytes": "7000",
        }
    )
    expected = Limits(1000, 2000, 3, 4, (("127.0.0.1", 5), ("10.0.0.1", 6)), 7000)
    assert connections_of(broker)._limits == expected


def test_errors_that_quote_long_names_are_answered_in_old_versions(client: RawClient) -> None:
    """Where a text has 32,767 bytes at most, and so has the name that it speaks of."""
    name = "\1" * 32_000
    produced = client.ask(produce_request(name, [b"v"]), 8, ProduceResponse)
    assert produced.responses[0].partition_responses[0].error_code == 3
    broker = DescribeConfigsResource(resource_type=4, resource_name=name, configuration_keys=None)
    described = client.ask(DescribeConfigsRequest(resources=[broker]), 1, DescribeConfigsResponse)
    assert described.results[0].error_code == INVALID_REQUEST
    setting = CreatableTopicConfig(name="retention.ms", value=name)
    topic = CreatableTopic(
        name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[setting]
    )
    created = client.ask(CreateTopicsRequest(topics=[topic]), 4, CreateTopicsResponse)
    assert created.topics[0].error_code == 40


def test_an_unexpected_error_is_logged_and_ends_one_connection(
    broker: Broker, client: RawClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(client)

    async def fail(*_: object) -> None:
        raise ZeroDivisionError("a mistake in the program")

    from barnabas.broker.connections import requests

    route = requests.BROKER_ROUTER.routes[(3, METADATA)]
    monkeypatch.setitem(requests.BROKER_ROUTER.routes, (3, METADATA), route._replace(handle=fail))
    client.send(metadata_request(), METADATA)
    assert client.is_closed()
    wait_until(
        lambda: any("unexpected error" in r.getMessage() for r in caplog.records), "the log tells of it"
    )
    monkeypatch.undo()
    assert serves(broker)


def test_a_thousand_connections_are_answered(broker: Broker) -> None:
    """Opened first, then all asked, then all read: the kernel's and the broker's queues hold."""

    async def one(port: int, number: int, all_open: asyncio.Event) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        nonlocal opened
        opened += 1
        if opened == 1000:
            all_open.set()
        await all_open.wait()
        writer.write(frame(payload(metadata_request(), METADATA, number)))
        got = await reader.readexactly(8)
        writer.close()
        await writer.wait_closed()
        return struct.unpack(">ii", got)[1]

    async def run() -> list[int]:
        all_open = asyncio.Event()
        return await asyncio.gather(*(one(broker.port, number, all_open) for number in range(1000)))

    opened = 0
    assert asyncio.run(run()) == list(range(1000))
    wait_until(lambda: not sessions_of(broker), "all are gone")


def test_a_fetch_of_a_version_that_names_topics_by_id_is_not_confused_by_names(client: RawClient) -> None:
    create(client)
    answer = client.ask(fetch_request(TOPIC), 13, FetchResponse)
    assert answer.responses[0].partitions[0].error_code == 100  # UNKNOWN_TOPIC_ID
