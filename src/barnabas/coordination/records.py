"""Records of a coordinator's topic: the key identifies an entity, the value is its present state.

A key begins with its type (the `key` of its class), a value with its version; a null value deletes the
entity. Unknown types and versions are skipped: a newer version, or Apache Kafka, may have written them, and
compaction keeps them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.core.errors import BarnabasError
from barnabas.protocol.codecs import Decoder, decode_with, decoder, encode
from barnabas.protocol.schema import Message

_INT16 = struct.Struct(">h")
_PREFIX_BYTES = _INT16.size


class NotDecoded(BarnabasError):
    """A record of an unknown type or version."""


class Unread(Message, flexible=0):
    """A value that is not decoded here."""


class Kind(NamedTuple):
    """A type of record: Kafka's name of it, its key, and its value, or `Unread`."""

    name: str
    key: type[Message]
    value: type[Message]


Kinds = Mapping[int, Kind]  # by the type in a key


class KeyedRecord(NamedTuple):
    """The present state of a key; a value of None deletes it."""

    key: Message
    value: Message | None
    version: int = 0  # of the value


def encode_key(key: Message) -> bytes:
    """The key of a record as bytes."""
    return _INT16.pack(key.__key__) + encode(key, 0)


def encode_value(record: KeyedRecord) -> bytes | None:
    """The value of a record as bytes."""
    if record.value is None:
        return None
    return _INT16.pack(record.version) + encode(record.value, record.version)


class RecordReader:
    """Decodes the records of a topic. A load reads very many of them: codecs are looked up once."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._keys: dict[int, Decoder] = {}
        self._values: dict[tuple[int, int], Decoder] = {}

    def read(self, key: bytes | None, value: bytes | None) -> KeyedRecord:
        """Decode a record; NotDecoded if its type or version is unknown."""
        if key is None or len(key) < _PREFIX_BYTES:
            raise NotDecoded("the record's key is shorter than its type")
        number: int = _INT16.unpack_from(key)[0]
        codec = self._keys.get(number)
        if codec is None:
            codec = self._keys[number] = decoder(self._kind(number).key, 0)
        told = decode_with(codec, key, _PREFIX_BYTES)
        if value is None:
            return KeyedRecord(told, None)
        if len(value) < _PREFIX_BYTES:
            raise NotDecoded("the record's value is shorter than its version")
        version: int = _INT16.unpack_from(value)[0]
        codec = self._values.get((number, version))
        if codec is None:
            kind = self._kind(number)
            if kind.value is Unread:
                return KeyedRecord(told, Unread(), version)
            first, last = kind.value.__versions__
            if not first <= version <= last:
                raise NotDecoded(f"{kind.name} of version {version} is not known")
            codec = self._values[number, version] = decoder(kind.value, version)
        return KeyedRecord(told, decode_with(codec, value, _PREFIX_BYTES), version)

    def _kind(self, number: int) -> Kind:
        kind = self._kinds.get(number)
        if kind is None:
            raise NotDecoded(f"records of type {number} are not known")
        return kind


def decode_record(kinds: Kinds, key: bytes | None, value: bytes | None) -> KeyedRecord:
    """Decode one record; NotDecoded if its type or version is unknown."""
    return RecordReader(kinds).read(key, value)
