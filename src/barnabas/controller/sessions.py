"""The fencing of brokers whose session is over, or whose process was found dead.

A session is over when its broker has been silent for broker.session.timeout.ms. Sessions are checked eight
times in that time, and brokers are fenced one at a time, so that the effect of each is known before the next.

The death of a process is detected earlier. Its kernel closes its connections, which is a hint, and refuses
new ones, which is proof. A connection that is accepted, or gets no answer, proves nothing: then the session
decides. It also decides

- if more than half of the brokers are found dead at once: that is more likely an error here, or the end of
  the whole cluster, than so many deaths. Those that were found dead within one session count together;
- if a broker was found dead and then sent a heartbeat: its listener cannot be reached from here.

A broker that is found dead is fenced, and loses its partitions to replicas that have all records. Partitions
without such a replica have no leader until the session would have ended: only then may a replica lead that
lacks records, if the topic allows it (elections.py). A controller that becomes active does not know why
brokers are fenced: it waits for all of them as for those that were found dead.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from barnabas.controller.brokers import fence_broker
from barnabas.controller.contacts import BrokerContacts, BrokerLife, Hint
from barnabas.controller.decisions import Decision
from barnabas.controller.elections import ElectionDefaults, without_leader
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import BrokerImage

LOOKS_A_SESSION = 8
AFTER_FENCING_S = 0.01  # between the fencing of one broker and the next


class Sweep(NamedTuple):
    """The result of a check of the sessions: a broker to fence, or one that is no longer waited for; and the
    time until the next check."""

    expired: BrokerLife | None
    waited_for: Hint | None
    again_s: float


def sweep(image: ClusterImage, contacts: BrokerContacts, now: float, session_s: float) -> Sweep:
    """Check all sessions: the broker that has been silent longest comes first."""
    silent = []
    for broker in image.brokers.values():
        contact = contacts.last(BrokerLife.of(broker))
        if not broker.fenced and contact is not None and contact.is_over(now, session_s):
            silent.append((contact.at, BrokerLife.of(broker)))
    expired = min(silent)[1] if silent else None
    ended = [(hint.until, hint.broker, hint) for hint in contacts.hints.values() if hint.until < now]
    waited_for = min(ended)[2] if ended else None
    is_busy = expired is not None or waited_for is not None
    return Sweep(expired, waited_for, AFTER_FENCING_S if is_busy else session_s / LOOKS_A_SESSION)


def fence_silent(
    image: ClusterImage, silent: BrokerLife, defaults: ElectionDefaults
) -> Decision[BrokerImage | None]:
    """Fence a broker whose session is over. The response is that broker, or None if it is fenced already, or
    has registered again."""
    broker = image.brokers.get(silent.id)
    if broker is None or broker.epoch != silent.epoch or broker.fenced:
        return Decision([], None)
    return Decision(fence_broker(image, broker, defaults), broker)


def may_be_fenced(
    image: ClusterImage,
    contacts: BrokerContacts,
    broker: BrokerLife,
    dead: Collection[BrokerLife],
    now: float,
) -> bool:
    """Whether a broker that was found dead is fenced before its session is over; `dead` are all brokers that
    were found dead just now."""
    unfenced = {BrokerLife.of(each) for each in image.brokers.values() if not each.fenced}
    if broker not in unfenced or contacts.was_misjudged(broker):
        return False
    before = contacts.found_dead_by(image, now)
    gone = len(unfenced.intersection({broker, *dead})) + len(before)
    return 2 * gone <= len(unfenced) + len(before)


def fence_dead(
    image: ClusterImage,
    contacts: BrokerContacts,
    broker: BrokerLife,
    dead: Collection[BrokerLife],
    now: float,
    defaults: ElectionDefaults,
) -> Decision[BrokerImage | None]:
    """Fence a broker that was found dead, if allowed, without electing replicas that may lack records."""
    if not may_be_fenced(image, contacts, broker, dead, now):
        return Decision([], None)
    waiting_for = defaults.waiting_for | {broker.id}
    return fence_silent(image, broker, defaults._replace(waiting_for=waiting_for))


def wait_no_longer(image: ClusterImage, broker: BrokerLife, defaults: ElectionDefaults) -> Decision[None]:
    """The session of a broker that was found dead would be over now: partitions without a leader may elect
    any replica that the topic allows."""
    waiting_for = defaults.waiting_for - {broker.id}
    return Decision([*without_leader(image, broker.id, defaults._replace(waiting_for=waiting_for))], None)
