"""Batches that Apache Kafka's producer made and its broker stored: read, and made again to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.records.batch import BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.reader import Record, read_batch, read_batches, read_records
from tests.interop.workload import KafkaDirectory


def batches(data: Path, topic: str) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch of partition 0, straight from the files."""
    for file in sorted((data / f"{topic}-0").glob("*.log")):
        contents = file.read_bytes()
        for header, start in read_batches(contents):
            yield header, contents[start : start + header.size_bytes]


def expected(described: dict[str, Any]) -> list[Record]:
    """The records that Kafka's consumer saw."""

    def raw(text: str | None) -> bytes | None:
        return None if text is None else bytes.fromhex(text)

    return [
        Record(
            each["offset"],
            each["timestamp"],
            raw(each["key"]),
            raw(each["value"]),
            tuple((key, raw(value)) for key, value in each["headers"]),
        )
        for each in described["records"]
    ]


def test_every_record_reads_as_kafka_served_it(kafka_directory: KafkaDirectory) -> None:
    for topic, described in kafka_directory.topics.items():
        read = [record for _, batch in batches(kafka_directory.data, topic) for record in read_records(batch)]
        assert [record for record in read if record.offset >= described["start"]] == expected(described), (
            topic
        )


def test_the_workload_covers_every_codec_and_kind_of_batch(kafka_directory: KafkaDirectory) -> None:
    headers = [
        header for topic in kafka_directory.topics for header, _ in batches(kafka_directory.data, topic)
    ]
    assert {header.codec for header in headers} == set(Codec)
    for kind in ("is_log_append_time", "is_transactional", "is_control"):
        assert {getattr(header, kind) for header in headers} == {True, False}
    assert any(header.delete_horizon_ms is not None for header in headers)
    assert any(header.base_sequence > 0 for header in headers)
    assert {header.leader_epoch for header in headers} >= {0, 2}
    records = [record for topic in kafka_directory.topics.values() for record in expected(topic)]
    assert any(record.key is None for record in records)
    assert any(record.value is None for record in records)
    assert any(value is None for record in records for _, value in record.headers)


def test_a_plain_batch_built_again_is_the_same_to_the_byte(kafka_directory: KafkaDirectory) -> None:
    count = 0
    for topic in kafka_directory.topics:
        for header, batch in batches(kafka_directory.data, topic):
            if header.codec == Codec.NONE and not header.is_log_append_time:
                assert rebuilt(header, batch) == batch, (topic, header)
                count += 1
    assert count > 100


def test_a_compressed_batch_built_again_holds_the_same_records(kafka_directory: KafkaDirectory) -> None:
    count = 0
    for topic in kafka_directory.topics:
        for header, batch in batches(kafka_directory.data, topic):
            if header.codec != Codec.NONE and not header.is_log_append_time:
                again = rebuilt(header, batch)
                assert list(read_batch(again)) == list(read_batch(batch)), (topic, header)
                assert BatchHeader.parse(again)._replace(batch_length=0, crc=0) == header._replace(
                    batch_length=0, crc=0
                )
                count += 1
    assert count > 20


def rebuilt(header: BatchHeader, batch: bytes) -> bytes:
    return build_batch(
        read_batch(batch),
        base_offset=header.base_offset,
        keep_offsets=True,
        last_offset=header.last_offset,
        codec=header.codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        leader_epoch=header.leader_epoch,
        delete_horizon_ms=header.delete_horizon_ms,
    )
