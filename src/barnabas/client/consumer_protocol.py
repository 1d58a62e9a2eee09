"""The classic consumer protocol: subscriptions and assignments that members exchange through the coordinator.

The coordinator does not parse them. Each part begins with its version; later versions only add fields at the
end, so a newer one is read as the newest version known here.
"""

from __future__ import annotations

from typing import TypeVar

from barnabas.client.metadata import TopicPartition
from barnabas.protocol.codecs import decode_with, decoder, encode
from barnabas.protocol.schema import Bytes, Int32, Message, String, Struct, field
from barnabas.protocol.wire import MalformedMessage

M = TypeVar("M", bound=Message)

PROTOCOL_TYPE = "consumer"


class Partitions(Struct):
    topic: String
    partitions: list[Int32]


class Subscription(Message, versions=(0, 3)):
    topics: list[String]
    user_data: Bytes | None
    owned_partitions: list[Partitions] = field(1)
    generation_id: Int32 = field(2, default=-1)
    rack_id: String | None = field(3, default=None)


class Assignment(Message, versions=(0, 3)):
    assigned_partitions: list[Partitions]
    user_data: Bytes | None


def encode_part(message: Message, version: int) -> bytes:
    """Encode a part, with its version."""
    return version.to_bytes(2, "big", signed=True) + encode(message, version)


def decode_part(cls: type[M], data: bytes) -> M | None:
    """Decode a part; None if it is not valid."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        return None
    try:
        codec = decoder(cls, min(version, cls.__versions__[1]))
        message: M = decode_with(codec, memoryview(data), 2, exact=False)
    except MalformedMessage:
        return None
    return message


def partitions_of(assignment: Assignment) -> list[TopicPartition]:
    """The assigned partitions, sorted."""
    return sorted(
        TopicPartition(each.topic, partition)
        for each in assignment.assigned_partitions
        for partition in each.partitions
    )
