"""What the active controller has heard from brokers: soft state, in no record.

It begins empty with every active controller and is filled by the brokers' heartbeats. A contact counts at the
moment it is made, before anything that the heartbeat asks for is decided or committed. It is one broker
epoch's: a late heartbeat of an earlier life says nothing about the present one.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.metadata.image import ClusterImage

UNKNOWN_OFFSET = -1


class BrokerLife(NamedTuple):
    """A broker from one registration to the next."""

    id: int
    epoch: int


class Contact(NamedTuple):
    """The last heartbeat of a broker: its time (monotonic), and how far the broker had read the metadata."""

    at: float
    metadata_offset: int


class BrokerContacts:
    """By broker and epoch."""

    def __init__(self) -> None:
        self._contacts: dict[BrokerLife, Contact] = {}
        self._shutdown_offsets: dict[BrokerLife, int] = {}

    def heard(self, broker: BrokerLife, at: float, metadata_offset: int) -> None:
        """A broker has sent a heartbeat."""
        self._contacts[broker] = Contact(at, metadata_offset)

    def last(self, broker: BrokerLife) -> Contact | None:
        """The last heartbeat of a broker since this controller is active."""
        return self._contacts.get(broker)

    def began_shutdown(self, broker: BrokerLife, offset: int) -> None:
        """The last record of a broker's controlled shutdown has this offset; a shutdown that is not committed
        is decided again, with another offset."""
        self._shutdown_offsets[broker] = offset

    def forget_all_but(self, image: ClusterImage) -> None:
        """Drop what is known of lives that are over."""
        living = {BrokerLife(each.id, each.epoch) for each in image.brokers.values()}
        for known in (self._contacts, self._shutdown_offsets):
            for life in [each for each in known if each not in living]:
                del known[life]

    def have_seen_shutdown(self, image: ClusterImage, broker: BrokerLife) -> bool:
        """Whether every other active broker has read the metadata up to a broker's controlled shutdown.

        One that this controller has not seen begin counts as seen: it began under another controller.
        """
        offset = self._shutdown_offsets.get(broker, UNKNOWN_OFFSET)
        return all(
            self._offset_of(BrokerLife(other.id, other.epoch)) >= offset
            for other in image.brokers.values()
            if other.is_active and other.id != broker.id
        )

    def _offset_of(self, broker: BrokerLife) -> int:
        contact = self._contacts.get(broker)
        return UNKNOWN_OFFSET if contact is None else contact.metadata_offset
