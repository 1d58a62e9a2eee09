"""What a group of any type is, to those who do not take part in it: who list it, commit to it, delete it."""

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

CONSUMER_PROTOCOL = "consumer"  # the protocol type of those who read topics


class Group(Protocol):
    """A group. Everything here is asked of any; what a type's own members ask stands with the type."""

    @property
    def id(self) -> str: ...

    @property
    def type(self) -> str:
        """Which protocol its members speak: `classic`, `consumer`, `share` or `streams`."""

    @property
    def state(self) -> str: ...

    @property
    def protocol_type(self) -> str | None:
        """What its members do together, `consumer` where they read topics; None where none ever joined."""

    @property
    def state_since_ms(self) -> int | None:
        """Since when it is in its state, where that is known."""

    @property
    def is_empty(self) -> bool: ...

    @property
    def may_expire(self) -> bool:
        """Whether it, and what it committed, goes when nobody has used it for long."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read a topic; where that cannot be known, they might."""

    @property
    def knows_subscription(self) -> bool:
        """Whether it is known which topics the members read."""

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: Now, *, is_transactional: bool
    ) -> None:
        """Raise what keeps a member from committing offsets; a plain commit shows that it is alive."""

    def tombstones(self) -> list[KeyedRecord]:
        """The records after which the group is gone, its offsets apart."""
