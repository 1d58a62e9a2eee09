"""Batches of an implementation that shares no code with this one, in both directions."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given

from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.records.validate import RecordPolicy, validate_batch
from tests.support.batches import CODECS, RECORD_LISTS


def theirs(records: list[Record], codec: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for i, record in enumerate(records):
        builder.append(i, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def tame(records: list[Record]) -> list[Record]:
    """What that library can express: no timestamp that is none, none so far apart that they wrap."""
    return [
        record._replace(offset=i, timestamp=1_700_000_000_000 + record.timestamp % 1_000_000)
        for i, record in enumerate(records)
    ]


@given(RECORD_LISTS, CODECS)
def test_theirs_is_valid_here(drawn: list[Record], codec: int) -> None:
    records = tame(drawn)
    batch = bytearray(theirs(records, codec))
    assert validate_batch(batch, RecordPolicy(open_compressed=True)).record_count == len(records)
    assert list(read_records(batch)) == records


@given(RECORD_LISTS, CODECS)
def test_ours_is_valid_there(drawn: list[Record], codec: int) -> None:
    records = tame(drawn)
    batch = DefaultRecordBatch(bytes(build_batch(records, codec=codec)))
    assert batch.validate_crc()
    read = [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(map(tuple, each.headers)))
        for each in batch
    ]
    assert read == records


@pytest.mark.parametrize("count", [1, 40])
def test_uncompressed_batches_are_the_same_to_the_byte(count: int) -> None:
    records = [
        Record(i, 1000 + i, b"k%d" % i, b"v" * i, (("h", None),) if i % 2 else ()) for i in range(count)
    ]
    ours = build_batch(records, codec=Codec.NONE)
    other = theirs(records, 0)
    # only the leader epoch, which the broker sets, is left to the builder's taste
    assert (ours[:12], ours[16:]) == (other[:12], other[16:])
