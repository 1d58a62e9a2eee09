"""Messages between nodes of the quorum are those of Apache Kafka, byte for byte; see `golden.py`."""

from __future__ import annotations

import pytest

from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.messages.default_principal_data import DefaultPrincipalData
from barnabas.protocol.principals import (
    PrincipalDeserializationFailure,
    decode_principal,
    encode_principal,
)
from tests.protocol.golden import Example, examples, golden
from tests.support.kafka_messages import fields_of

BYTES = golden()


def test_golden_file_has_exactly_the_examples() -> None:
    assert list(BYTES) == [each.name for each in examples()]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_bytes_are_those_of_kafka(example: Example) -> None:
    data = BYTES[example.name]
    assert encode(example.message, example.version) == data
    read = decode(type(example.message), example.version, data)
    assert fields_of(read, example.version) == fields_of(example.message, example.version)
    assert encode(read, example.version) == data


def test_principal_stands_behind_its_version() -> None:
    principal = DefaultPrincipalData(type="User", name="alice", token_authenticated=False)
    data = encode_principal(principal)
    assert data == b"\0\0" + encode(principal, 0)
    assert decode_principal(data) == principal


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\5User\2a\0\0", b"\0\0\5Us", b"\xff\xff"])
def test_unreadable_principal_has_its_own_error(data: bytes) -> None:
    with pytest.raises(PrincipalDeserializationFailure):
        decode_principal(data)
