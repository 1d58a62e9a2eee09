"""Codecs: framings that clients send, bounds that bombs run into, and bytes that are nothing of the kind."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import InvalidRecord, UnsupportedCompression
from barnabas.records.compression import Codec, DecompressionLimit, check_framing, compress, decompress

COMPRESSED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
TEXT = b"a line that comes again and again, as lines in logs do\n" * 3000


@given(st.sampled_from(Codec), st.binary(max_size=2000), st.integers(1, 60))
def test_round_trip(codec: Codec, piece: bytes, times: int) -> None:
    packed = compress(codec, piece * times)
    check_framing(codec, packed)
    assert bytes(decompress(codec, packed)) == piece * times


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("level", [None, 1, 5])
def test_every_codec_makes_text_smaller(codec: Codec, level: int | None) -> None:
    assert len(compress(codec, TEXT, level)) < len(TEXT) / 10


def test_snappy_is_written_in_blocks_as_java_clients_do_and_read_raw_too() -> None:
    packed = bytes(compress(Codec.SNAPPY, TEXT))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first = int.from_bytes(packed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == TEXT[: 32 << 10]
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert bytes(decompress(Codec.SNAPPY, raw)) == TEXT
    assert bytes(decompress(Codec.SNAPPY, packed + packed)) == TEXT * 2


def test_lz4_is_a_frame_of_independent_blocks() -> None:
    packed = bytes(compress(Codec.LZ4, TEXT))
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert bytes(decompress(Codec.LZ4, linked)) == TEXT
    with pytest.raises(InvalidRecord, match="independent"):
        check_framing(Codec.LZ4, linked)


def test_gzip_of_several_members() -> None:
    packed = gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])
    assert bytes(decompress(Codec.GZIP, packed)) == TEXT


def test_zstd_frames_with_and_without_a_content_size() -> None:
    stream = cramjam.zstd.Compressor()
    stream.compress(TEXT)
    without = bytes(stream.finish())
    assert bytes(decompress(Codec.ZSTD, without)) == TEXT
    for size in (0, 1, 255, 256, 257, 65_791, 65_792, 100_000):
        data = TEXT[:size]
        assert bytes(decompress(Codec.ZSTD, bytes(cramjam.zstd.compress(data)))) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_absolute_bound(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert len(decompress(codec, packed, max_bytes=len(TEXT))) == len(TEXT)
    with pytest.raises(DecompressionLimit, match="more than the"):
        decompress(codec, packed, max_bytes=len(TEXT) - 1)


def complaint(codec: Codec, data: bytes | bytearray) -> str:
    """What is said of bad bytes; nothing of good ones."""
    try:
        decompress(codec, data, max_bytes=1 << 20)
    except InvalidRecord as error:
        return str(error)
    return ""


def bomb(codec: Codec) -> bytes:
    """256 MiB of zeros in as few bytes as the codec can."""
    zeros = bytes(256 << 20)
    if codec is Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(zeros))
    if codec is Codec.GZIP:
        return zlib.compress(zeros, 1, 31)
    return bytes(compress(codec, zeros))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_before_its_memory_is_spent(codec: Codec) -> None:
    packed = bomb(codec)
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionLimit):
            decompress(codec, packed, max_ratio=4)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_a_raw_snappy_block_that_lies_about_its_size() -> None:
    with pytest.raises(DecompressionLimit):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00")


@given(st.sampled_from(COMPRESSED), st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_by_name(codec: Codec, data: bytes) -> None:
    said = complaint(codec, data)
    assert said == "" or said.startswith("the compressed records")


@given(st.sampled_from(COMPRESSED), st.data())
def test_damaged_bytes_are_read_or_refused_by_name(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, TEXT[:5000]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    del packed[data.draw(st.integers(0, len(packed))) :]
    said = complaint(codec, packed)
    assert said == "" or said.startswith("the compressed records")


@pytest.mark.parametrize("codec", COMPRESSED)
def test_framing_is_told_by_the_first_bytes(codec: Codec) -> None:
    if codec is not Codec.SNAPPY:
        for data in (b"", b"\x00" * 20, b"\x82SNAPPY\x00"):
            with pytest.raises(InvalidRecord):
                check_framing(codec, data)


def test_a_codec_that_does_not_exist() -> None:
    for call in (compress, decompress, check_framing):
        with pytest.raises(UnsupportedCompression, match="codec 5"):
            call(5, b"")
