"""Messages as Apache Kafka's own classes read and write them: every message, every version, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from barnabas.protocol.codecs import decode, encode
from tests.protocol.golden import examples, golden
from tests.support.kafka_messages import KafkaMessages, fields_of
from tests.support.messages import declared, random_message

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaMessages]:
    with KafkaMessages() as started:
        yield started


def test_golden_bytes_are_what_kafka_writes(kafka: KafkaMessages) -> None:
    written = {each.name: kafka.write(each.message, each.version) for each in examples()}
    assert written == golden()


def test_kafka_reads_what_was_written_and_writes_the_same(kafka: KafkaMessages) -> None:
    for cls in declared():
        for version in range(cls.__versions__[0], cls.__versions__[1] + 1):
            for number in range(2):
                message = random_message(cls, version, Random(f"{cls.__name__} {version} {number}"))
                data = encode(message, version)
                read = kafka.read(cls, version, data)
                assert read.again == data, (cls, version, number)
                assert read.fields == fields_of(message, version), (cls, version, number)
                assert encode(decode(cls, version, read.again), version) == data
