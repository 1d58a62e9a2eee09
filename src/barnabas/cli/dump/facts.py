"""Batches and records as plain facts: names and values, ready for JSON, the same for every output."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from barnabas.cli.dump import coordinators
from barnabas.cli.dump.batches import FoundBatch
from barnabas.cli.payload import headers_to_json, put_bytes
from barnabas.core.errors import BarnabasError
from barnabas.log.checkpoints import uuid_to_text
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.metadata.records import decode_record, read_frame
from barnabas.protocol.schema import Message, Struct
from barnabas.raft.control_records import read_control_batch
from barnabas.records.batch import NO_SEQUENCE, BatchHeader, increment_sequence
from barnabas.records.compression import Codec
from barnabas.records.control import control_type, parse_marker
from barnabas.records.reader import read_batch
from barnabas.records.record import Record

Facts = dict[str, Any]


def batch_facts(position: int, header: BatchHeader) -> Facts:
    """What a batch's header says, and where it stands."""
    codec = header.codec
    facts: Facts = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "position": position,
        "size": header.size_bytes,
        "leader_epoch": header.leader_epoch,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "max_timestamp": header.max_timestamp,
        "codec": Codec(codec).name.lower() if codec in Codec.__members__.values() else str(codec),
        "crc": header.crc,
        "magic": header.magic,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
    }
    if header.delete_horizon_ms is not None:
        facts["delete_horizon_ms"] = header.delete_horizon_ms
    return facts


def records_facts(batch: FoundBatch, topic: str | None) -> Iterator[Facts]:
    """What the records of a batch say; those of brokers, and of the topics of theirs, in their own terms."""
    header = batch.header
    controls: dict[int, Message] = {}
    for record in read_batch(batch.data, 0, header):
        facts: Facts = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key_size": -1 if record.key is None else len(record.key),
            "value_size": -1 if record.value is None else len(record.value),
        }
        if header.base_sequence != NO_SEQUENCE:
            facts["sequence"] = increment_sequence(header.base_sequence, record.offset - header.base_offset)
        facts["headers"] = headers_to_json(record.headers)
        try:
            if header.is_control:
                controls = controls or dict(read_control_batch(batch.data, 0, header))
                facts |= _control(record, controls.get(record.offset))
            elif topic == CLUSTER_METADATA:
                facts |= _metadata(record)
            elif topic in coordinators.TOPICS:
                facts |= _coordinator(topic, record)
            else:
                _payload(facts, record)
        except BarnabasError as error:
            _payload(facts, record)
            facts["not_decoded"] = str(error)
        yield facts


def _payload(facts: Facts, record: Record) -> None:
    put_bytes(facts, "key", record.key)
    put_bytes(facts, "value", record.value)


def _control(record: Record, message: Message | None) -> Facts:
    facts: Facts = {"control_type": control_type(record.key).name}
    if message is not None:
        return facts | {"data": _plain(message, message.__versions__[1])}
    marker = parse_marker(record)
    return facts if marker is None else facts | {"coordinator_epoch": marker.coordinator_epoch}


def _metadata(record: Record) -> Facts:
    value = record.value or b""
    cls, version, _ = read_frame(value)
    name = cls.__name__.removesuffix("Record")
    return {"type": name, "version": version, "data": _plain(decode_record(value), version)}


def _coordinator(topic: str, record: Record) -> Facts:
    told = coordinators.decode_coordinator(topic, record)
    key = _plain(told.key, 0)
    if told.value is None:
        return {"type": told.type, "key": key, "data": None}
    return {"type": told.type, "key": key, "version": told.version, "data": _plain(told.value, told.version)}


def _plain(message: Message | Struct, version: int) -> Facts:
    """The fields that a message has in that version; of the tagged ones those that were there."""
    return {
        field.name: _plain_value(field.type_text, getattr(message, field.name), version)
        for field in message.__fields__
        if field.first <= version <= field.last
        and (field.tag is None or getattr(message, field.name) != field.default)
    }


def _plain_value(type_text: str, value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return _plain(value, version)
    if isinstance(value, (list, tuple)):
        return [_plain_value(type_text, each, version) for each in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        if "Uuid" in type_text:
            return uuid_to_text(UUID(bytes=bytes(value)))
        return {"base64": base64.b64encode(value).decode()}
    return value
