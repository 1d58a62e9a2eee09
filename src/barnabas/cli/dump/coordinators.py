"""Records of `__consumer_offsets` and `__transaction_state`, for people to read."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.coordination.records import Kinds, decode_record
from barnabas.groups.records import KINDS as OF_GROUPS
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.protocol.schema import Message
from barnabas.records.record import Record
from barnabas.transactions.records import KINDS as OF_TRANSACTIONS

_OF_TOPIC: dict[str, Kinds] = {CONSUMER_OFFSETS: OF_GROUPS, TRANSACTION_STATE: OF_TRANSACTIONS}
TOPICS = tuple(_OF_TOPIC)


class Decoded(NamedTuple):
    """A coordinator's record; without a value it deletes what the key names."""

    type: str
    key: Message
    version: int
    value: Message | None


def decode_coordinator(topic: str, record: Record) -> Decoded:
    """What a record of one of these topics says; NotDecoded where its type or version is not known."""
    kinds = _OF_TOPIC[topic]
    key, value, version = decode_record(kinds, record.key, record.value)
    name = next(kind.name for kind in kinds.values() if kind.key is type(key))
    return Decoded(name, key, version, value)
