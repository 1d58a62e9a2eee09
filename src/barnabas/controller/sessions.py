"""Which broker is fenced now: one whose session is over, or one whose process was found dead.

A session is over when its broker has been silent for broker.session.timeout.ms. Sessions are looked at eight
times in that time, and one broker is fenced at a time, so that the effect of each is known before the next.

A process that has died is noticed earlier. Its kernel closes its connections, which is a suspicion, and
refuses new ones, which is the proof. A dial that is accepted, or that nobody answers, proves nothing: there
the session decides. It also decides

- where more than half of the brokers are found dead at once: that is more likely a mistake here, or an end of
  the whole cluster, than so many deaths. Those that were found dead within one session count together;
- where a broker was found dead and then sent a heartbeat: its listener cannot be dialled from here.

Whoever is found dead is fenced, and loses its partitions to replicas that have all records. Partitions that
have none go without a leader until the session would have ended: only then may a replica lead that lacks
records, where the topic allows it (elections.py). A controller that becomes active does not know by what the
fenced brokers were fenced: it waits for all of them as for those that were found dead.
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
AFTER_FENCING_S = 0.01  # between one broker that is fenced and the next


class Sweep(NamedTuple):
    """What a look at the sessions gives: a broker to fence, or one that is waited for no longer; and when to
    look again."""

    expired: BrokerLife | None
    waited_for: Hint | None
    again_s: float


def sweep(image: ClusterImage, contacts: BrokerContacts, now: float, session_s: float) -> Sweep:
    """Look at all sessions: the broker that has been silent longest comes first."""
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
    """Fence a broker whose session is over. The response is that broker, or None where it is fenced already,
    or is registered anew."""
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
    """Whether a broker that was found dead is fenced before its session is over; `dead` are all that were
    found dead just now."""
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
    """Fence a broker that was found dead, where that is allowed; nobody is elected who may lack records."""
    if not may_be_fenced(image, contacts, broker, dead, now):
        return Decision([], None)
    waiting_for = defaults.waiting_for | {broker.id}
    return fence_silent(image, broker, defaults._replace(waiting_for=waiting_for))


def wait_no_longer(image: ClusterImage, broker: BrokerLife, defaults: ElectionDefaults) -> Decision[None]:
    """The session of a broker that was found dead would be over now: where nobody leads, anyone may whom the
    topic allows."""
    waiting_for = defaults.waiting_for - {broker.id}
    return Decision([*without_leader(image, broker.id, defaults._replace(waiting_for=waiting_for))], None)
