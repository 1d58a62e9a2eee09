"""Apache Kafka's own message classes, in one JVM: what they read in our bytes, and what bytes they write.

    with KafkaMessages() as kafka:
        data = kafka.write(message, version)         # from its fields, so that none of our bytes are read
        read = kafka.read(type(message), version, data)
        assert read.fields == fields_of(message, version)

Messages travel as Kafka's own JSON. Records do not: there Kafka tells and takes them as empty.
"""

from __future__ import annotations

import base64
import re
from typing import Any, NamedTuple

from barnabas.protocol.schema import Field, Message, Struct
from tests.support.apache_kafka import HERE, LEAN_JVM, KafkaFailed
from tests.support.java_driver import JavaDriver

SOURCE = HERE / "KafkaMessages.java"


class Read(NamedTuple):
    """What Kafka reads in bytes, and the bytes that it writes of that."""

    fields: dict[str, Any]
    again: bytes


class KafkaMessages(JavaDriver):
    """The process; started by `with`, ended with it."""

    def __init__(self) -> None:
        super().__init__(SOURCE, LEAN_JVM)

    def write(self, message: Message, version: int) -> bytes:
        return self._asked(type(message), version, {"fields": fields_of(message, version)}).again

    def read(self, cls: type[Message], version: int, data: bytes) -> Read:
        return self._asked(cls, version, {"hex": data.hex()})

    def _asked(self, cls: type[Message], version: int, given: dict[str, Any]) -> Read:
        answer = self._ask({"message": cls.__name__, "version": version, **given})
        if "error" in answer:
            raise KafkaFailed(f"{cls.__name__} version {version}: {answer['error']}")
        return Read(answer["fields"], bytes.fromhex(answer["hex"]))


def fields_of(message: Struct, version: int) -> dict[str, Any]:
    """The fields of that version in Kafka's JSON: tagged ones only where they are not the default."""
    found = {}
    for field in message.__fields__:
        if not field.first <= version <= field.last:
            continue
        value = getattr(message, field.name)
        if field.tag is None or not _is_default(field, value):
            found[_camel(field.name)] = _told(field, value, version)
    return found


def _is_default(field: Field, value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return list(value) == list(field.default or ())
    if isinstance(value, Struct) and field.default is None:  # Kafka has no structure that is absent
        return value == type(value)(**{each.name: each.default for each in value.__fields__})
    return bool(value == field.default)


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name.rstrip("_"))


def _told(field: Field, value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return fields_of(value, version)
    if isinstance(value, (list, tuple)):
        return [_told(field, each, version) for each in value]
    if "Records" in field.type_text and value is not None:
        return ""
    if "Uuid" in field.type_text and value is not None:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    return base64.b64encode(value).decode() if isinstance(value, (bytes, memoryview)) else value
