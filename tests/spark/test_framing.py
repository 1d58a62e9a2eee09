"""The registry's frame, as the registry's own serializers write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.framing import FrameError, frame, looks_framed, read_indexes, unframe, write_indexes


def test_a_frame_is_a_zero_byte_and_the_id() -> None:
    assert frame(258) == b"\0\0\0\1\2"
    assert unframe(b"\0\0\0\1\2body") == (258, b"body")
    assert not looks_framed(b"\0\0\0\1")
    with pytest.raises(FrameError, match="no registry frame"):
        unframe(b"\1\0\0\1\2")


@pytest.mark.parametrize(
    ("indexes", "written"),
    [
        ((0,), b"\0"),
        ((1,), b"\x02\x02"),
        ((0, 1), b"\x04\0\x02"),
        ((2, 1), b"\x04\x04\x02"),
        ((64,), b"\x02\x80\x01"),
    ],
)
def test_the_path_of_a_message(indexes: tuple[int, ...], written: bytes) -> None:
    assert write_indexes(indexes) == written
    assert read_indexes(written + b"body") == (indexes, b"body")


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=8), st.binary(max_size=5))
def test_any_path_goes_both_ways(indexes: list[int], body: bytes) -> None:
    assert read_indexes(write_indexes(indexes) + body) == (tuple(indexes), body)


@given(st.binary(max_size=12))
def test_any_bytes_are_a_path_or_a_frame_error(data: bytes) -> None:
    try:
        indexes, body = read_indexes(data)
    except FrameError:
        return
    assert data.endswith(body)
    assert indexes
