"""A group of a type that is not served here; Apache Kafka has created it, and may use it again.

    consumer, streams   it is listed, its offsets are kept, and it can be deleted. Its members cannot send
                        heartbeats here, so it counts as empty: a joining classic member takes the group
                        over, as Kafka allows for an empty one
    share               its state is in a topic of its own, which only Kafka can delete with it: the group
                        can neither be taken over nor deleted

Nothing of it expires: only Kafka knows its members and their subscriptions.
"""

from __future__ import annotations

from barnabas.coordination.effects import Now
from barnabas.coordination.records import KeyedRecord, encode_key
from barnabas.groups.errors import GroupNotFound, UnknownMember
from barnabas.groups.foreign_records import ShareGroupMemberMetadataKey
from barnabas.groups.group import CONSUMER, CONSUMER_PROTOCOL, EMPTY, SHARE, STREAMS
from barnabas.protocol.schema import Message

STABLE = "Stable"
_SHARE_KEYS = range(10, 16)
_STREAMS_KEYS = range(17, 24)
_HEADS = (3, 11, 17)  # the keys of the records of the group itself


def type_of(key: Message) -> str:
    """The type of the group of a record."""
    if key.__key__ in _SHARE_KEYS:
        return SHARE
    return STREAMS if key.__key__ in _STREAMS_KEYS else CONSUMER


class ForeignGroup:
    """A group of another type, as the set of its records' keys."""

    state_since_ms = None
    knows_subscription = False
    may_expire = False

    def __init__(self, group_id: str, group_type: str) -> None:
        self.id = group_id
        self.type = group_type
        self.protocol_type = CONSUMER_PROTOCOL if group_type == CONSUMER else group_type
        self._keys: dict[bytes, Message] = {}

    @property
    def state(self) -> str:
        if self.type == SHARE and any(
            isinstance(key, ShareGroupMemberMetadataKey) for key in self._keys.values()
        ):
            return STABLE
        return EMPTY

    @property
    def is_empty(self) -> bool:
        return self.type != SHARE

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: Now, *, is_transactional: bool
    ) -> None:
        if self.type == SHARE:
            raise GroupNotFound(f"Group {self.id} is not a consumer group.")
        if generation >= 0:
            raise UnknownMember(f"members of group {self.id} are not served")

    def replay(self, record: KeyedRecord) -> None:
        encoded = encode_key(record.key)
        if record.value is None:
            self._keys.pop(encoded, None)
        else:
            self._keys[encoded] = record.key

    def tombstones(self) -> list[KeyedRecord]:
        """Members and assignments are removed before the group itself."""
        keys = sorted(self._keys.values(), key=lambda key: key.__key__ in _HEADS)
        return [KeyedRecord(key, None) for key in keys]

    @property
    def is_gone(self) -> bool:
        return not self._keys
