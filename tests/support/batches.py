"""Records and batches for tests: what Hypothesis draws, and a few fixed ones."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from barnabas.records import kernel
from barnabas.records.batch import ATTRIBUTES_AT, CRC_AT
from barnabas.records.builder import build_batch
from barnabas.records.record import Record

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
# most records are alike; now and then a timestamp or offset is at the edge of what fits
TIMESTAMPS = st.one_of(st.integers(-1, 1 << 41), INT64)
FIELDS = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=120, max_size=300))
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
RECORDS = st.builds(Record, st.just(0), TIMESTAMPS, FIELDS, FIELDS, HEADERS)
RECORD_LISTS = st.lists(RECORDS, min_size=1, max_size=12)
CODECS = st.integers(0, 4)


def simple_records(count: int = 3, *, timestamp: int = 1_700_000_000_000) -> list[Record]:
    """A few records with nothing special about them."""
    return [Record(i, timestamp + i, b"key-%d" % i, b"value-%d" % i, (("h", b"x"),)) for i in range(count)]


def renew_crc(batch: bytearray) -> bytearray:
    """Give a changed batch the checksum of its new bytes."""
    crc = kernel.crc32c(batch, ATTRIBUTES_AT, len(batch))
    batch[CRC_AT : CRC_AT + 4] = crc.to_bytes(4, "big")
    return batch


def patched(batch: bytes | bytearray, at: int, form: str, value: int, *, crc: bool = True) -> bytearray:
    """The batch with one field changed, and its checksum renewed unless told otherwise."""
    changed = bytearray(batch)
    struct.pack_into(f">{form}", changed, at, value)
    return renew_crc(changed) if crc else changed


def with_section(section: bytes, count: int, *, codec: int = 0) -> bytearray:
    """A batch of `count` records whose bytes are given, whatever they are."""
    batch = build_batch(simple_records(1))[:61] + section
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    return renew_crc(batch)
