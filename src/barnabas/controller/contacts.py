"""The active controller's contacts with brokers: soft state, not in records.

It begins with every active controller: brokers that are not fenced get a fresh session each (or, if one is
known to have been silent for a while, the rest of one), and heartbeats extend it. A contact counts when it is
made, before the heartbeat's requests are decided or committed. It belongs to one broker epoch: a late
heartbeat of an earlier one does not count for the present one.

A session is over when its broker has sent no heartbeat for broker.session.timeout.ms (sessions.py). The
session of a broker in the controller's own process is never over: it lives as long as the controller does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import BrokerImage

UNKNOWN_OFFSET = -1


class BrokerLife(NamedTuple):
    """A broker from one registration to the next."""

    id: int
    epoch: int

    @classmethod
    def of(cls, broker: BrokerImage) -> BrokerLife:
        return cls(broker.id, broker.epoch)


class Carrier(Protocol):
    """The channel of heartbeats: a connection, or a call within the process."""

    @property
    def is_open(self) -> bool:
        """Whether another heartbeat can come on it."""


class _OwnProcess:
    is_open = True


OWN_PROCESS: Carrier = _OwnProcess()


class Contact(NamedTuple):
    """The last heartbeat of a broker: its time (monotonic), the broker's metadata offset, and its channel.
    The channel is None for an inherited session without a heartbeat yet."""

    at: float
    metadata_offset: int
    carrier: Carrier | None = None

    def is_over(self, now: float, session_s: float) -> bool:
        """Whether a session whose last heartbeat this was has ended."""
        return self.carrier is not OWN_PROCESS and self.at + session_s < now


class Hint(NamedTuple):
    """A broker was fenced because its process was found dead; its session would have lasted until `until`.

    `is_inherited`: it was fenced under another controller, for an unknown reason.
    """

    broker: BrokerLife
    until: float
    is_inherited: bool = False


class BrokerContacts:
    """Contacts and hints, by broker and epoch."""

    def __init__(self) -> None:
        self._contacts: dict[BrokerLife, Contact] = {}
        self._registered_at: dict[BrokerLife, int] = {}
        self._shutdown_offsets: dict[BrokerLife, int] = {}
        self._misjudged: set[BrokerLife] = set()
        self.hints: dict[int, Hint] = {}  # by broker id

    # --- sessions

    def inherit(
        self, image: ClusterImage, at: float, session_s: float, heard: Mapping[int, float] | None = None
    ) -> list[BrokerLife]:
        """This controller becomes active: start a session for every broker that is not fenced, from now or
        from the time it was `heard` (by id) in another way. Returns the brokers without a heartbeat yet.
        Fenced brokers may have been found dead just now: they are waited for as long as that is possible."""
        for broker in image.brokers.values():
            if broker.fenced and not broker.in_controlled_shutdown and broker.id not in self.hints:
                self.hints[broker.id] = Hint(BrokerLife.of(broker), at + session_s, is_inherited=True)
        heard = heard or {}
        lives = [BrokerLife.of(each) for each in image.brokers.values() if not each.fenced]
        inherited = [each for each in lives if each not in self._contacts]
        for each in inherited:
            self._contacts[each] = Contact(heard.get(each.id, at), UNKNOWN_OFFSET)
        return inherited

    def heard(
        self, broker: BrokerLife, at: float, metadata_offset: int, carrier: Carrier | None = None
    ) -> None:
        """Note a broker's heartbeat."""
        self._contacts[broker] = Contact(at, metadata_offset, carrier)
        hint = self.hints.get(broker.id)
        if hint is not None and hint.broker == broker:
            del self.hints[broker.id]
            if not hint.is_inherited:
                self._misjudged.add(broker)

    def last(self, broker: BrokerLife) -> Contact | None:
        """The last heartbeat of a broker since this controller became active."""
        return self._contacts.get(broker)

    def is_in_session(self, broker: BrokerLife, now: float, session_s: float) -> bool:
        """Whether the broker has a session that is not over."""
        contact = self._contacts.get(broker)
        return contact is not None and not contact.is_over(now, session_s)

    def forget_all_but(self, image: ClusterImage) -> None:
        """Drop the data of registrations that have ended."""
        living = {BrokerLife.of(each) for each in image.brokers.values()}
        for known in (self._contacts, self._registered_at, self._shutdown_offsets):
            for life in [each for each in known if each not in living]:
                del known[life]
        self._misjudged &= living
        for broker_id in [each for each in self.hints if each not in image.brokers]:
            del self.hints[broker_id]

    # --- registrations

    def registered(self, broker: BrokerLife, offset: int) -> None:
        """Note the offset of a broker's registration record."""
        self._registered_at[broker] = offset

    def registered_at(self, broker: BrokerLife) -> int:
        """The offset of that record; UNKNOWN_OFFSET if another controller wrote it."""
        return self._registered_at.get(broker, UNKNOWN_OFFSET)

    # --- brokers found dead

    def found_dead(self, broker: BrokerLife, until: float) -> None:
        """Note that a broker is fenced although its session lasts until `until`."""
        self.hints[broker.id] = Hint(broker, until)

    def was_misjudged(self, broker: BrokerLife) -> bool:
        """Whether the broker was found dead, and sent a heartbeat afterwards: its listener cannot be reached
        from here, and a refused connection proves nothing."""
        return broker in self._misjudged

    def waited_for(self, hint: Hint) -> None:
        """Forget the hint: the session would be over now."""
        if self.hints.get(hint.broker.id) == hint:
            del self.hints[hint.broker.id]

    def waiting_for(self, image: ClusterImage, now: float) -> frozenset[int]:
        """The fenced brokers that were or may have been found dead, whose sessions would not be over yet."""
        if not self.hints:
            return frozenset()
        brokers = (image.brokers.get(broker_id) for broker_id in self.hints)
        fenced = (each.id for each in brokers if each is not None and each.fenced)
        return frozenset(each for each in fenced if self.hints[each].until >= now)

    def found_dead_by(self, image: ClusterImage, now: float) -> frozenset[int]:
        """Those of them that this controller has found dead."""
        waiting_for = self.waiting_for(image, now)
        return frozenset(each for each in waiting_for if not self.hints[each].is_inherited)

    # --- controlled shutdowns

    def began_shutdown(self, broker: BrokerLife, offset: int) -> None:
        """Note the offset of the last record of a broker's controlled shutdown. A shutdown that is not
        committed is decided again, with another offset."""
        self._shutdown_offsets[broker] = offset

    def have_seen_shutdown(self, image: ClusterImage, broker: BrokerLife) -> bool:
        """Whether every other active broker has read the metadata up to a broker's controlled shutdown.

        A shutdown that began under another controller counts as seen.
        """
        offset = self._shutdown_offsets.get(broker, UNKNOWN_OFFSET)
        return all(
            self._offset_of(BrokerLife.of(other)) >= offset
            for other in image.brokers.values()
            if other.is_active and other.id != broker.id
        )

    def _offset_of(self, broker: BrokerLife) -> int:
        contact = self._contacts.get(broker)
        return UNKNOWN_OFFSET if contact is None else contact.metadata_offset
