"""The five codecs of record batches, with bounds on the decompressed size.

Only the records after the header are compressed. Two codecs have framings of their own: snappy is written as
the Java clients do (xerial's stream of 32 KiB blocks) and read in that form or as one raw block; lz4 is
written as a frame of independent blocks, the only kind that Kafka reads.

Decompression is bounded before memory is allocated: the output goes into a buffer that grows up to the limit
and no further. The limit is absolute (`max_bytes`) and, above an allowance for every batch, relative to the
compressed size (`max_ratio`). Any fault of the bytes is an `InvalidRecord`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import cramjam

from barnabas.core.disk import Buffer
from barnabas.core.errors import InvalidRecord, UnsupportedCompression

MAX_BYTES = 256 << 20
MAX_RATIO = 1024
# Allowed for any batch whatever its ratio: a few kilobytes of zstd can legitimately be megabytes of zeros.
RATIO_FREE_BYTES = 16 << 20

_XERIAL_HEADER = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES = 32 << 10
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
# format version 1 and the flag for independent blocks
_LZ4_INDEPENDENT = 0x60
# a frame of such blocks, of at most 64 KiB, without checksums; the last byte is the checksum of those two
_LZ4_HEADER = _LZ4_MAGIC + bytes((_LZ4_INDEPENDENT, 0x40, 0x82))
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_STORED = 1 << 31  # in a block's size: the block is stored as it was, not compressed
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# cramjam's message when a fixed output is full; any other message means bad input
_OUTPUT_FULL = "failed to write whole buffer"


class Codec(IntEnum):
    """The number in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionLimit(InvalidRecord):
    """Compressed bytes that decompress to more than the bounds allow."""


def codec_of(number: int) -> Codec:
    """The codec of that number, or `UnsupportedCompression`."""
    try:
        return Codec(number)
    except ValueError:
        raise UnsupportedCompression(f"there is no compression codec {number}") from None


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`data` compressed; `level` is on the codec's own scale, None its default."""
    match codec_of(codec):
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return memoryview(cramjam.gzip.compress(data, level=level))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data) if level is None else _compress_lz4_harder(data, level)
        case Codec.ZSTD:
            return memoryview(cramjam.zstd.compress(data, level=level))


def decompress(codec: int, data: Buffer, *, max_bytes: int = MAX_BYTES, max_ratio: int = MAX_RATIO) -> Buffer:
    """The decompressed bytes; `DecompressionLimit` beyond the bounds, `InvalidRecord` for bad bytes."""
    limit = min(max_bytes, max(RATIO_FREE_BYTES, len(data) * max_ratio))
    match codec_of(codec):
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _decompress_stream(cramjam.gzip.decompress_into, data, _gzip_size(data), limit)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), limit)
        case Codec.LZ4:
            return _decompress_stream(cramjam.lz4.decompress_into, data, None, limit)
        case Codec.ZSTD:
            return _decompress_stream(cramjam.zstd.decompress_into, data, _zstd_size(data), limit)


def check_framing(codec: int, data: Buffer) -> None:
    """Check the first bytes for the codec's framing.

    Far from a full check, but it costs nothing. It refuses records that Kafka's readers could never read,
    above all lz4 frames of linked blocks, in batches that are stored without being decompressed.
    """
    start = bytes(data[:5])
    match codec_of(codec):
        case Codec.GZIP if start[:2] != b"\x1f\x8b":
            raise InvalidRecord("the compressed records do not begin as gzip does")
        case Codec.LZ4 if start[:4] != _LZ4_MAGIC or len(start) < 5 or start[4] & 0xE0 != _LZ4_INDEPENDENT:
            raise InvalidRecord("the compressed records are no lz4 frame of independent blocks")
        case Codec.ZSTD if start[:4] != _ZSTD_MAGIC:
            raise InvalidRecord("the compressed records do not begin as a zstd frame does")


def _too_large(limit: int) -> DecompressionLimit:
    return DecompressionLimit(f"the compressed records unfold to more than the {limit} bytes allowed")


def _bad_bytes(error: Exception) -> InvalidRecord:
    return InvalidRecord(f"the compressed records cannot be read: {error}")


def _decompress_stream(
    into: Callable[[Any, Any], int], data: Buffer, declared: int | None, limit: int
) -> bytearray:
    """Try with the declared or a likely size, then with ever larger outputs up to the limit."""
    size = min(limit, declared if declared is not None else max(1024, 4 * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise _bad_bytes(error) from None
            if size >= limit:
                raise _too_large(limit) from None
            size = min(limit, max(1024, 4 * size))
        else:
            del output[written:]
            return output


def _gzip_size(data: Buffer) -> int | None:
    """The size in the last member's trailer; a hint: it may be wrong, and other members may precede."""
    return int.from_bytes(data[-4:], "little") if len(data) > 18 else None


def _zstd_size(data: Buffer) -> int | None:
    """The content size that the first frame declares; a hint, since frames may follow it."""
    if len(data) < 6 or bytes(data[:4]) != _ZSTD_MAGIC:
        return None
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    field_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    if field_bytes == 0:
        return None
    at = 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(data[at : at + field_bytes], "little")
    return size + 256 if field_bytes == 2 else size


# ---- lz4 --------------------------------------------------------------------------------------------------


def _compress_lz4(data: Buffer) -> bytearray:
    """Block by block, since only cramjam's function for single blocks releases the GIL."""
    output, view = bytearray(_LZ4_HEADER), memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            output += len(block).to_bytes(4, "little")
            output += block
        else:
            output += (len(plain) | _LZ4_STORED).to_bytes(4, "little")
            output += plain
    output += bytes(4)
    return output


def _compress_lz4_harder(data: Buffer, level: int) -> memoryview:
    """With the thorough compressor, which holds the GIL: it is released after each block."""
    compressor, view = cramjam.lz4.Compressor(level=level, block_linked=False), memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        compressor.compress(bytes(view[start : start + _LZ4_BLOCK_BYTES]))
    return memoryview(compressor.finish())


# ---- snappy -----------------------------------------------------------------------------------------------


def _compress_snappy(data: Buffer) -> bytearray:
    output, view = bytearray(_XERIAL_HEADER), memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        output += len(block).to_bytes(4, "big")
        output += block
    return output


def _decompress_snappy(data: memoryview, limit: int) -> Buffer:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit)
    output, at = bytearray(), 0
    while at < len(data):
        if bytes(data[at : at + 8]) == _XERIAL_MAGIC:  # at the start, and wherever streams were joined
            at += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if at + size > len(data):
            raise InvalidRecord("the compressed records cannot be read: a snappy block is cut short")
        output += _snappy_block(data[at : at + size], limit - len(output))
        at += size
    if at > len(data):
        raise InvalidRecord("the compressed records cannot be read: the snappy stream header is cut short")
    return output


def _snappy_block(block: memoryview, limit: int) -> bytearray:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise _too_large(limit)
        output = bytearray(size)
        cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise _bad_bytes(error) from None
    return output
