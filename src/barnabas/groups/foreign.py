"""A group whose members speak the consumer protocol, which nobody serves here: Apache Kafka has left it.

It is listed, its offsets are kept, and it can be deleted. Its members cannot be heard of, so it counts as
empty: a classic member that joins takes the group over, as Kafka lets it do with an empty one.
"""

from __future__ import annotations

from barnabas.coordination.effects import Now
from barnabas.coordination.records import KeyedRecord, encode_key
from barnabas.groups.errors import UnknownMember
from barnabas.groups.group import CONSUMER, CONSUMER_PROTOCOL, EMPTY
from barnabas.groups.records import ConsumerGroupMetadataKey
from barnabas.protocol.schema import Message


class ForeignGroup:
    """A group of the consumer protocol: the records that are about it."""

    type = CONSUMER
    state = EMPTY
    protocol_type = CONSUMER_PROTOCOL
    state_since_ms = None
    is_empty = True
    knows_subscription = False

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self._keys: dict[bytes, Message] = {}

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: Now, *, is_transactional: bool
    ) -> None:
        if generation >= 0:
            raise UnknownMember(f"members of group {self.id} are not served")

    def replay(self, record: KeyedRecord) -> None:
        encoded = encode_key(record.key)
        if record.value is None:
            self._keys.pop(encoded, None)
        else:
            self._keys[encoded] = record.key

    def tombstones(self) -> list[KeyedRecord]:
        """Members and assignments go before the group itself."""
        keys = sorted(self._keys.values(), key=lambda key: isinstance(key, ConsumerGroupMetadataKey))
        return [KeyedRecord(key, None) for key in keys]

    @property
    def is_gone(self) -> bool:
        return not self._keys
