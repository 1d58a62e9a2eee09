"""The channel: what was asked and what comes back find each other, whatever the versions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.disk import Buffer
from barnabas.protocol.channel import (
    MAX_CORRELATION_ID,
    NotSpoken,
    OutOfStep,
    RequestChannel,
    Versions,
    retry_version,
)
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.frames import FrameReader
from barnabas.protocol.headers import LENGTH_BYTES, begin_response, read_request_header, skip_header_tags
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.schema import NO_UUID, Message
from barnabas.protocol.wire import MalformedMessage

ASK = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=7)


def joined(parts: list[Buffer]) -> bytes:
    data = b"".join(bytes(part) for part in parts)
    assert struct.unpack_from(">i", data) == (len(data) - LENGTH_BYTES,)
    return data[LENGTH_BYTES:]


def response(message: Message, correlation_id: int, version: int) -> memoryview:
    frame = begin_response(message.__key__, correlation_id, flexible=version >= type(message).__flexible__)
    return memoryview(bytes(frame[LENGTH_BYTES:]) + encode(message, version))


def answer(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)


@pytest.mark.parametrize("version", range(7))
def test_a_request_can_be_read_by_who_gets_it(version: int) -> None:
    channel = RequestChannel("me", first_correlation_id=41)
    parts, pending = channel.send(ASK, version, InitProducerIdResponse)
    frame = memoryview(joined(parts))  # type: ignore[arg-type]
    header = read_request_header(frame)
    assert header[:4] == (22, version, 41, "me")
    body = skip_header_tags(frame, header.end) if version >= 2 else header.end
    assert decode(InitProducerIdRequest, version, frame, body) == ASK
    assert pending is not None
    assert (pending.correlation_id, pending.version, pending.is_flexible) == (41, version, version >= 2)


def test_large_records_stand_beside_the_frame() -> None:
    records = bytearray(b"r" * 100_000)
    data = TopicProduceData(
        topic_id=NO_UUID, name="t", partition_data=[PartitionProduceData(index=0, records=records)]
    )
    parts, _ = RequestChannel(None).send(
        ProduceRequest(acks=1, timeout_ms=1, topic_data=[data]), 9, ProduceResponse
    )
    assert any(part is records for part in parts)
    frame = memoryview(joined(parts))  # type: ignore[arg-type]
    header = read_request_header(frame)
    request = decode(ProduceRequest, 9, frame, skip_header_tags(frame, header.end))
    assert bytes(request.topic_data[0].partition_data[0].records) == records  # type: ignore[arg-type]


@given(
    versions=st.lists(st.integers(0, 6), min_size=1, max_size=10),
    unanswered=st.sets(st.integers(0, 9)),
    pieces=st.lists(st.integers(1, 40), max_size=30),
)
def test_pipelined_responses_find_their_requests(
    versions: list[int], unanswered: set[int], pieces: list[int]
) -> None:
    channel = RequestChannel("me")
    wire = b""
    expected = []
    for index, version in enumerate(versions):
        wanted = None if index in unanswered else InitProducerIdResponse
        _, pending = channel.send(ASK, version, wanted)
        if pending is not None:
            body = bytes(response(answer(index), pending.correlation_id, version))
            wire += struct.pack(">i", len(body)) + body
            expected.append((pending, answer(index)))
    assert len(channel) == len(expected)
    reader, came, position = FrameReader(memoryview(bytearray(32)), 1000), [], 0
    sizes = iter(pieces)
    while position < len(wire):
        buffer = reader.buffer()
        count = min(next(sizes, 1000), len(buffer), len(wire) - position)
        buffer[:count] = wire[position : position + count]
        position += count
        came += list(channel.received(reader.received(count)))
    assert came == expected
    assert len(channel) == 0


def test_a_request_without_response_shifts_nothing() -> None:
    channel = RequestChannel("me")
    _, none = channel.send(ASK, 0, None)
    _, pending = channel.send(ASK, 0, InitProducerIdResponse)
    assert none is None
    assert pending is not None
    assert pending.correlation_id == 1
    ((_, message),) = channel.received([response(answer(5), 1, 0)])
    assert message == answer(5)


def test_a_wrong_number_is_out_of_step() -> None:
    channel = RequestChannel("me")
    channel.send(ASK, 0, InitProducerIdResponse)
    channel.send(ASK, 0, InitProducerIdResponse)
    with pytest.raises(OutOfStep, match="request 1, where one to 0"):
        list(channel.received([response(answer(5), 1, 0)]))


def test_a_response_to_nothing_is_out_of_step() -> None:
    with pytest.raises(OutOfStep, match="nothing that was asked"):
        list(RequestChannel("me").received([response(answer(5), 0, 0)]))


def test_responses_before_a_bad_one_are_kept() -> None:
    channel = RequestChannel("me")
    for _ in range(2):
        channel.send(ASK, 0, InitProducerIdResponse)
    came = channel.received([response(answer(1), 0, 0), response(answer(2), 1, 0)[:-1]])
    assert next(came)[1] == answer(1)
    with pytest.raises(MalformedMessage):
        next(came)


def test_numbers_wrap() -> None:
    channel = RequestChannel("me", first_correlation_id=MAX_CORRELATION_ID)
    _, last = channel.send(ASK, 0, InitProducerIdResponse)
    _, first = channel.send(ASK, 0, InitProducerIdResponse)
    assert last is not None
    assert first is not None
    assert (last.correlation_id, first.correlation_id) == (MAX_CORRELATION_ID, 0)


# ---- versions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker", "at_most", "chosen"),
    [((0, 3), 100, 3), ((0, 100), 100, 6), ((0, 100), 4, 4), ((2, 2), 100, 2), ((6, 9), 6, 6)],
)
def test_the_newest_common_version_is_chosen(broker: tuple[int, int], at_most: int, chosen: int) -> None:
    assert Versions({22: broker}).choose(InitProducerIdRequest, at_most) == chosen


@pytest.mark.parametrize(("broker", "at_most"), [((7, 9), 100), ((5, 6), 4)])
def test_no_common_version_is_told(broker: tuple[int, int], at_most: int) -> None:
    with pytest.raises(NotSpoken, match="no common version of InitProducerId"):
        Versions({22: broker}).choose(InitProducerIdRequest, at_most)


def test_a_broker_that_is_too_old() -> None:
    with pytest.raises(NotSpoken, match="speaks 0 to 0"):
        Versions({2: (0, 0)}).choose(ListOffsetsRequest)
    with pytest.raises(NotSpoken, match="has no InitProducerId"):
        Versions({}).choose(InitProducerIdRequest)


def api_versions(error_code: int, own: tuple[int, int] | None) -> ApiVersionsResponse:
    keys = [] if own is None else [ApiVersion(api_key=18, min_version=own[0], max_version=own[1])]
    return ApiVersionsResponse(
        error_code=error_code, api_keys=keys, throttle_time_ms=0, supported_features=(), finalized_features=()
    )


@pytest.mark.parametrize(
    ("error_code", "own", "asked", "again"),
    [
        (0, (0, 3), 4, None),
        (35, (0, 3), 4, 3),
        (35, None, 4, 0),  # brokers before 2.4 do not say what they have
        (35, (0, 9), 4, 3),  # one that contradicts itself is not asked the same again
        (35, (0, 3), 0, None),
        (42, (0, 3), 4, None),
    ],
)
def test_how_api_versions_is_asked_again(
    error_code: int, own: tuple[int, int] | None, asked: int, again: int | None
) -> None:
    assert retry_version(api_versions(error_code, own), asked) == again


@pytest.mark.parametrize("asked", [0, 3, 4])
def test_a_refusal_of_api_versions_comes_in_version_0(asked: int) -> None:
    channel = RequestChannel("me")
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    channel.send(request, asked, ApiVersionsResponse)
    refused = api_versions(35, (0, 2))
    ((_, message),) = channel.received([response(refused, 0, 0)])
    assert isinstance(message, ApiVersionsResponse)
    assert (message.error_code, message.api_keys) == (35, refused.api_keys)
    channel.send(request, asked, ApiVersionsResponse)
    ((_, message),) = channel.received([response(api_versions(0, (0, 4)), 1, asked)])
    assert message.error_code == 0


def test_a_response_to_api_versions_that_is_cut_short() -> None:
    channel = RequestChannel("me")
    channel.send(
        ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4, ApiVersionsResponse
    )
    with pytest.raises(MalformedMessage):
        list(channel.received([memoryview(bytes(4))]))
