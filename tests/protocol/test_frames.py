"""Frames come out of a stream the same however it is cut, and bad ones cost little; headers, likewise."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.protocol import frames as frames_module
from barnabas.protocol.frames import BadFrame, FrameReader
from barnabas.protocol.headers import (
    API_VERSIONS,
    LENGTH_BYTES,
    begin_request,
    begin_response,
    read_request_header,
    read_response_header,
    set_length,
    skip_header_tags,
)
from barnabas.protocol.wire import MalformedMessage

MAX_FRAME_BYTES = 10_000


def feed(reader: FrameReader, data: bytes, cuts: list[int]) -> list[bytes]:
    """Give `data` to a reader in pieces that end at `cuts`, as a socket would; what came out of it."""
    came: list[bytes] = []
    ends = sorted({cut for cut in cuts if 0 < cut < len(data)} | {len(data)})
    position = 0
    for end in ends:
        while position < end:
            buffer = reader.buffer()
            count = min(len(buffer), end - position)
            buffer[:count] = data[position : position + count]
            position += count
            came += [bytes(frame) for frame in reader.received(count)]
    return came


def feed_and_ask_for_more(reader: FrameReader, data: bytes, cuts: list[int]) -> None:
    feed(reader, data, cuts)
    reader.buffer()


def stream(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def reader(scratch_bytes: int = 64) -> FrameReader:
    return FrameReader(memoryview(bytearray(scratch_bytes)), MAX_FRAME_BYTES)


BODIES = st.lists(st.binary(min_size=1, max_size=200), max_size=8)


@given(bodies=BODIES, cuts=st.lists(st.integers(0, 1700)), scratch_bytes=st.integers(1, 300))
@example(bodies=[b"x" * 64, b"y"], cuts=[1, 2, 3, 4, 5, 67, 68, 69], scratch_bytes=4)
def test_frames_are_the_same_however_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int], scratch_bytes: int
) -> None:
    one = reader(scratch_bytes)
    assert feed(one, stream(bodies), cuts) == bodies
    assert one.is_between_frames
    assert one.awaited_bytes == 0


@pytest.mark.parametrize("scratch_bytes", [1, 2, 3, 4, 5, 7, 64, 4096])
def test_byte_by_byte(scratch_bytes: int) -> None:
    bodies = [b"a", b"bc", bytes(range(256)), b"d" * 1000, b"e"]
    data = stream(bodies)
    one = reader(scratch_bytes)
    came: list[bytes] = []
    ends = []
    for position in range(len(data)):
        came += feed(one, data[position : position + 1], [])
        if one.is_between_frames:
            ends.append(position + 1)
    assert came == bodies
    # a stream may end behind each frame, and nowhere else
    assert ends == [len(stream(bodies[: count + 1])) for count in range(len(bodies))]


def test_two_readers_share_a_scratch() -> None:
    scratch = memoryview(bytearray(16))
    first, second = FrameReader(scratch, MAX_FRAME_BYTES), FrameReader(scratch, MAX_FRAME_BYTES)
    one, other = stream([b"first frame of the first"]), stream([b"SECOND", b"and more of that"])
    came: tuple[list[bytes], list[bytes]] = ([], [])
    for position in range(max(len(one), len(other))):
        came[0].extend(feed(first, one[position : position + 1], []))
        came[1].extend(feed(second, other[position : position + 1], []))
    assert came == ([b"first frame of the first"], [b"SECOND", b"and more of that"])


def test_a_frame_is_nobody_elses() -> None:
    scratch = memoryview(bytearray(64))
    one = FrameReader(scratch, MAX_FRAME_BYTES)
    data = stream([b"keep", b"this"])
    scratch[: len(data)] = data
    kept, other = one.received(len(data))
    scratch[:] = bytes(64)
    assert bytes(kept) == b"keep"
    kept[:] = b"edit"  # writable: a leader numbers batches in place
    assert bytes(other) == b"this"


def test_what_is_awaited_is_told() -> None:
    one = reader()
    assert feed(one, struct.pack(">i", 500) + b"x", []) == []
    assert (one.awaited_bytes, one.is_between_frames) == (500, False)
    assert feed(one, b"x" * 499, []) == [b"x" * 500]
    assert (one.awaited_bytes, one.is_between_frames) == (0, True)
    assert feed(one, b"\0\0", []) == []
    assert not one.is_between_frames


def test_a_frame_never_takes_bytes_of_the_next() -> None:
    one = reader()
    feed(one, struct.pack(">i", 10) + b"abc", [])
    assert len(one.buffer()) == 7


@pytest.mark.parametrize("size", [0, -1, -(2**31), MAX_FRAME_BYTES + 1, 2**31 - 1])
@pytest.mark.parametrize("split", [0, 1, 2, 3])
def test_impossible_lengths(size: int, split: int) -> None:
    one = reader()
    assert feed(one, stream([b"good"]) + struct.pack(">i", size), [8 + split]) == [b"good"]
    for _ in range(2):
        with pytest.raises(BadFrame, match=str(size)):
            one.buffer()


def test_the_largest_frame_is_allowed() -> None:
    assert feed(reader(), stream([b"x" * MAX_FRAME_BYTES]), [9]) == [b"x" * MAX_FRAME_BYTES]


@pytest.mark.parametrize(
    ("said", "explained"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS handshake"),
        (b"GET / HTTP/1.1\r\n", "HTTP request"),
        (b"POST /topics HTTP/1.1\r\n", "HTTP request"),
        (b"OPTIONS * HTTP/1.1\r\n", "HTTP request"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "that port wants TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n", "an HTTP response"),
    ],
)
def test_other_protocols_are_named(said: bytes, explained: str) -> None:
    for cuts in ([], list(range(len(said)))):
        with pytest.raises(BadFrame, match=explained):
            feed_and_ask_for_more(reader(), said, cuts)


def test_a_length_alone_costs_little_memory() -> None:
    one = FrameReader(memoryview(bytearray(64)), 1 << 30)
    tracemalloc.start()
    try:
        feed(one, struct.pack(">i", 1 << 30) + b"x", [])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * frames_module.TRUSTED_BYTES
    assert one.awaited_bytes == 1 << 30


@given(size=st.integers(1, 5000), step=st.integers(1, 700))
def test_large_frames_grow_with_what_comes(size: int, step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames_module, "TRUSTED_BYTES", 100)
        body = bytes(index & 0xFF for index in range(size))
        one = reader()
        assert feed(one, stream([body, b"next"]), list(range(0, size, step))) == [body, b"next"]


# ---- headers ---------------------------------------------------------------------------------------------

NAMES = st.none() | st.text(st.characters(codec="utf-8"), max_size=40)


@given(
    api_key=st.integers(0, 100),
    version=st.integers(0, 20),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=NAMES,
    flexible=st.booleans(),
    body=st.binary(max_size=20),
)
def test_request_headers_round_trip(
    api_key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool, body: bytes
) -> None:
    frame = begin_request(api_key, version, correlation_id, client_id, flexible=flexible)
    frame += body
    set_length(frame)
    assert struct.unpack_from(">i", frame) == (len(frame) - LENGTH_BYTES,)
    view = memoryview(frame)[LENGTH_BYTES:]
    header = read_request_header(view)
    assert header[:4] == (api_key, version, correlation_id, client_id)
    end = skip_header_tags(view, header.end) if flexible else header.end
    assert bytes(view[end:]) == body


@given(
    api_key=st.sampled_from([0, 1, 3, API_VERSIONS]),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    flexible=st.booleans(),
    body=st.binary(max_size=20),
)
def test_response_headers_round_trip(api_key: int, correlation_id: int, flexible: bool, body: bytes) -> None:
    frame = begin_response(api_key, correlation_id, flexible=flexible)
    frame += body
    set_length(frame)
    view = memoryview(frame)[LENGTH_BYTES:]
    told, start = read_response_header(view, api_key, flexible=flexible)
    assert (told, bytes(view[start:])) == (correlation_id, body)


def test_responses_to_api_versions_have_no_tags() -> None:
    assert begin_response(API_VERSIONS, 1, flexible=True) == begin_response(API_VERSIONS, 1, flexible=False)
    assert len(begin_response(3, 1, flexible=True)) == len(begin_response(3, 1, flexible=False)) + 1


def test_what_stands_beside_a_frame_is_counted() -> None:
    frame = begin_response(0, 1, flexible=False)
    set_length(frame, 1000)
    assert struct.unpack_from(">i", frame) == (1004,)


def test_unknown_tags_are_skipped() -> None:
    tags = b"\x02" + b"\x00\x03abc" + b"\x81\x01\x00"
    assert skip_header_tags(memoryview(tags + b"body"), 0) == len(tags)


@given(data=st.binary(max_size=60))
def test_no_bytes_do_worse_than_being_malformed(data: bytes) -> None:
    view = memoryview(data)
    for read in (
        lambda: skip_header_tags(view, read_request_header(view).end),
        lambda: read_response_header(view, 0, flexible=True),
        lambda: read_response_header(view, API_VERSIONS, flexible=True),
    ):
        with contextlib.suppress(MalformedMessage):
            read()


@pytest.mark.parametrize("length", range(10))
def test_a_request_header_that_is_cut_short(length: int) -> None:
    whole = bytes(begin_request(3, 12, 7, "me", flexible=True)[LENGTH_BYTES:])
    with pytest.raises(MalformedMessage):
        read_request_header(memoryview(whole[:length]))


def test_a_name_longer_than_its_request() -> None:
    with pytest.raises(MalformedMessage, match="300 bytes"):
        read_request_header(memoryview(struct.pack(">hhih", 3, 0, 1, 300) + b"short"))


def test_tags_that_reach_beyond_the_frame() -> None:
    # one tag of 100 bytes, where 2 are left: the body would begin where nothing is
    with pytest.raises(MalformedMessage):
        skip_header_tags(memoryview(b"\x01\x00\x64ab"), 0)
