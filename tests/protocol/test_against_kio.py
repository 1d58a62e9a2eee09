"""Every message, at every version, byte for byte as an independent implementation writes it."""

from __future__ import annotations

import importlib
import io
from random import Random
from typing import Any

import pytest

from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.schema import Message
from tests.support.messages import declared, random_message

CASES = [(cls, v) for cls in declared() for v in range(cls.__versions__[0], cls.__versions__[1] + 1)]


def _kio_class(cls: type[Message], version: int) -> Any:
    side = next((side for side in ("request", "response") if cls.__name__.lower().endswith(side)), "data")
    api = cls.__module__.rsplit(".", 1)[1]
    return getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{side}"), cls.__name__)


@pytest.mark.parametrize(
    ("cls", "version"), CASES, ids=lambda x: x.__name__ if isinstance(x, type) else f"v{x}"
)
def test_bytes_are_those_of_kio(cls: type[Message], version: int) -> None:
    from kio.serial import entity_reader, entity_writer

    random = Random(f"{cls.__name__} {version}")
    theirs = _kio_class(cls, version)
    for _ in range(20):
        message = random_message(cls, version, random)
        data = encode(message, version)
        assert decode(cls, version, data) == message
        read = entity_reader(theirs)(data, 0)
        assert read[1] == len(data)
        again = io.BytesIO()
        entity_writer(theirs)(again, read[0])
        assert again.getvalue() == data
