"""Batches that Apache Kafka's producer made and its broker stored: read, and made again to the byte."""

from __future__ import annotations

from barnabas.records.batch import BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.reader import read_batch
from tests.interop.barnabas_log import Batch, batches_in, expected
from tests.interop.workload import KafkaDirectory


def batches(kafka: KafkaDirectory, topic: str) -> list[Batch]:
    return batches_in(kafka.data / f"{topic}-0")


def test_every_record_reads_as_kafka_served_it(kafka_directory: KafkaDirectory) -> None:
    for topic, described in kafka_directory.topics.items():
        read = [
            record
            for batch in batches(kafka_directory, topic)
            for record in batch.records()
            if not batch.header.is_control and record.offset >= described["start"]
        ]
        assert read == expected(described), topic


def test_the_workload_covers_every_codec_and_kind_of_batch(kafka_directory: KafkaDirectory) -> None:
    headers = [header for topic in kafka_directory.topics for header, _ in batches(kafka_directory, topic)]
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
        for header, batch in batches(kafka_directory, topic):
            if header.codec == Codec.NONE and not header.is_log_append_time:
                assert rebuilt(header, batch) == batch, (topic, header)
                count += 1
    assert count > 100


def test_a_compressed_batch_built_again_holds_the_same_records(kafka_directory: KafkaDirectory) -> None:
    count = 0
    for topic in kafka_directory.topics:
        for header, batch in batches(kafka_directory, topic):
            if header.codec != Codec.NONE and not header.is_log_append_time:
                again = rebuilt(header, batch)
                assert list(read_batch(again)) == list(read_batch(batch)), (topic, header)
                assert BatchHeader.parse(again)._replace(batch_length=0, crc=0) == header._replace(
                    batch_length=0, crc=0
                )
                count += 1
    assert count > 20


def rebuilt(header: BatchHeader, batch: bytes) -> bytearray:
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
