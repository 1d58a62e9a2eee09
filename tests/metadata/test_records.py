"""Metadata records as bytes: every type and version there and back, and what cannot be read."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.metadata.records import (
    RECORDS,
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    TopicRecord,
    UnknownRecord,
    decode_record,
    encode_record,
    read_frame,
)
from barnabas.protocol.schema import Message
from barnabas.protocol.wire import MalformedMessage
from tests.metadata.kafka_life import KafkaLife
from tests.support.messages import random_message

CASES = [(cls, v) for cls in RECORDS.values() for v in range(cls.__versions__[1] + 1)]
ID = bytes(range(16))


@pytest.mark.parametrize(
    ("cls", "version"), CASES, ids=lambda x: x.__name__ if isinstance(x, type) else f"v{x}"
)
def test_every_record_comes_back(cls: type[Message], version: int) -> None:
    random = Random(f"{cls.__name__} {version}")
    for _ in range(20):
        record = random_message(cls, version, random)
        data = encode_record(record, version)
        assert read_frame(data)[:2] == (cls, version)
        assert decode_record(data) == record


def test_every_type_of_kafka_is_known() -> None:
    # those missing from 0 to 28 were retired before Kafka 3.3
    assert sorted(RECORDS) == [*range(6), *range(7, 13), 14, 15, *range(17, 29)]


def test_bytes_that_kafka_wrote_are_written_again(kafka_life: KafkaLife) -> None:
    for data in [*(value.data for value in kafka_life.log), *kafka_life.snapshot]:
        _, version, _ = read_frame(data)
        assert encode_record(decode_record(data), version) == data


def test_the_latest_version_says_the_same(kafka_life: KafkaLife) -> None:
    for value in kafka_life.log:
        record = decode_record(value.data)
        assert decode_record(encode_record(record)) == record


def test_a_frame_is_three_varints() -> None:
    assert encode_record(NoOpRecord()) == bytes([1, 20, 0, 0])
    assert encode_record(TopicRecord(name="t", topic_id=ID)) == bytes([1, 2, 0, 2]) + b"t" + ID + b"\0"


def test_no_change_and_an_empty_list_are_different() -> None:
    nothing = PartitionChangeRecord(partition_id=1, topic_id=ID)
    emptied = PartitionChangeRecord(partition_id=1, topic_id=ID, isr=[], leader=-1)
    assert encode_record(nothing).endswith(ID + b"\0")
    read = decode_record(encode_record(nothing))
    assert isinstance(read, PartitionChangeRecord)
    assert (read.isr, read.leader, read.leader_recovery_state) == (None, -2, -1)
    read = decode_record(encode_record(emptied))
    assert isinstance(read, PartitionChangeRecord)
    assert (read.isr, read.leader) == ([], -1)


def test_cordoned_directories_may_be_none_or_unsaid() -> None:
    for said in ([], None):
        record = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, cordoned_log_dirs=said)
        read = decode_record(encode_record(record))
        assert isinstance(read, BrokerRegistrationChangeRecord)
        assert read.cordoned_log_dirs == said


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (bytes([2, 2, 0]), "TopicRecord of version 0, frame version 2"),
        (bytes([1, 29, 0, 0]), "a record of type 29"),
        (bytes([1, 6, 0, 0]), "a record of type 6"),
        (bytes([1, 3, 3, 0]), "PartitionRecord of version 3"),
    ],
)
def test_what_a_newer_kafka_wrote_is_named(data: bytes, named: str) -> None:
    with pytest.raises(UnknownRecord, match=f"a newer Kafka .*{named}"):
        decode_record(data)


@pytest.mark.parametrize("size", range(24))
def test_a_record_cut_short_is_malformed(size: int) -> None:
    whole = encode_record(TopicRecord(name="topic", topic_id=ID))
    with pytest.raises(MalformedMessage):
        decode_record(whole[:size])
