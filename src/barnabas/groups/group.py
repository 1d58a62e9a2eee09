"""The interface of a group of any type for listing, commits and deletion."""

from __future__ import annotations

from typing import Protocol

from barnabas.coordination.effects import Now
from barnabas.coordination.records import KeyedRecord

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
STREAMS = "streams"

EMPTY = "Empty"
DEAD = "Dead"

CONSUMER_PROTOCOL = "consumer"  # the protocol type of consumers


class Group(Protocol):
    """A group of any type. Requests of members are handled by the modules of the type."""

    @property
    def id(self) -> str: ...

    @property
    def type(self) -> str:
        """The group type: `classic`, `consumer`, `share` or `streams`."""

    @property
    def state(self) -> str: ...

    @property
    def protocol_type(self) -> str | None:
        """The protocol type of its members, `consumer` for consumers; None if there never were any."""

    @property
    def state_since_ms(self) -> int | None:
        """When its present state began, if known."""

    @property
    def is_empty(self) -> bool: ...

    @property
    def may_expire(self) -> bool:
        """Whether it expires, with its committed offsets, after a long time without use."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members subscribe to a topic; True if that is not known."""

    @property
    def knows_subscription(self) -> bool:
        """Whether the topics of the members are known."""

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: Now, *, is_transactional: bool
    ) -> None:
        """Raise if a member may not commit offsets; a plain commit also restarts its session."""

    def tombstones(self) -> list[KeyedRecord]:
        """The records that remove the group, without its offsets."""
