"""Contacts: what the active controller remembers of heartbeats."""

from __future__ import annotations

from barnabas.controller.contacts import BrokerContacts, BrokerLife, Contact
from tests.controller.clusters import Cluster


def life(cluster: Cluster, broker_id: int) -> BrokerLife:
    return BrokerLife(broker_id, cluster.image.brokers[broker_id].epoch)


def test_a_contact_is_one_lifes() -> None:
    contacts = BrokerContacts()
    contacts.heard(BrokerLife(1, 5), 10.0, 7)
    assert contacts.last(BrokerLife(1, 5)) == Contact(10.0, 7)
    assert contacts.last(BrokerLife(1, 6)) is None


def test_a_shutdown_is_seen_when_every_other_active_broker_has_read_it() -> None:
    cluster, contacts = Cluster(1, 2, 3), BrokerContacts()
    one, two, three = (life(cluster, number) for number in (1, 2, 3))
    assert contacts.have_seen_shutdown(cluster.image, one)  # it began under another controller, if it did
    contacts.began_shutdown(one, 30)  # which could not be committed
    contacts.began_shutdown(one, 40)
    contacts.heard(two, 1.0, 40)
    assert not contacts.have_seen_shutdown(cluster.image, one)
    contacts.heard(three, 1.0, 39)
    assert not contacts.have_seen_shutdown(cluster.image, one)
    contacts.heard(three, 2.0, 40)
    assert contacts.have_seen_shutdown(cluster.image, one)


def test_fenced_brokers_are_not_waited_for() -> None:
    cluster, contacts = Cluster(1, 2), BrokerContacts()
    contacts.began_shutdown(life(cluster, 1), 40)
    assert not contacts.have_seen_shutdown(cluster.image, life(cluster, 1))
    cluster.beat(2, want_fence=True)
    assert contacts.have_seen_shutdown(cluster.image, life(cluster, 1))


def test_lives_that_are_over_are_forgotten() -> None:
    cluster, contacts = Cluster(1), BrokerContacts()
    contacts.heard(BrokerLife(1, 0), 1.0, 1)
    contacts.heard(life(cluster, 1), 1.0, 1)
    contacts.began_shutdown(BrokerLife(9, 9), 1)
    contacts.forget_all_but(cluster.image)
    assert contacts.last(BrokerLife(1, 0)) is None
    assert contacts.last(life(cluster, 1)) is not None
