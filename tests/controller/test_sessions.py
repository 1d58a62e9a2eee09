"""Sessions: when a silent broker is fenced, when one that was found dead is, and who is elected then."""

from __future__ import annotations

import pytest

from barnabas.controller.configs import alter_config
from barnabas.controller.contacts import OWN_PROCESS, BrokerContacts, BrokerLife, Hint
from barnabas.controller.elections import ElectionDefaults
from barnabas.controller.leaders import elect_leaders
from barnabas.controller.sessions import (
    AFTER_FENCING_S,
    fence_dead,
    fence_silent,
    may_be_fenced,
    sweep,
    wait_no_longer,
)
from barnabas.metadata.image import TOPIC_RESOURCE
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.controller.clusters import Cluster, topic

SESSION_S = 9.0
EIGHTH_S = SESSION_S / 8
DEFAULTS = ElectionDefaults()
UNCLEAN = {"unclean.leader.election.enable": "true"}


class Link:
    """A connection."""

    def __init__(self) -> None:
        self.is_open = True


def life(cluster: Cluster, broker_id: int) -> BrokerLife:
    return BrokerLife.of(cluster.image.brokers[broker_id])


def inherited(cluster: Cluster, at: float = 0.0) -> BrokerContacts:
    contacts = BrokerContacts()
    contacts.inherit(cluster.image, at, SESSION_S)
    return contacts


def fence(cluster: Cluster, broker_id: int) -> None:
    cluster.carry_out(fence_silent(cluster.image, life(cluster, broker_id), DEFAULTS))


# ---- silence ---------------------------------------------------------------------------------------------


def test_a_new_controller_grants_every_broker_that_is_not_fenced_a_session() -> None:
    cluster, contacts = Cluster(1, 2, 3), BrokerContacts()
    cluster.beat(3, want_fence=True)
    contacts.heard(life(cluster, 2), 4.0, 5, Link())
    assert contacts.inherit(cluster.image, 10.0, SESSION_S, {1: 8.0, 2: 8.0}) == [life(cluster, 1)]
    heard = contacts.last(life(cluster, 2))
    assert heard is not None
    assert heard.at == 4.0  # what it has heard already counts
    silent = contacts.last(life(cluster, 1))
    assert silent is not None
    assert silent.at == 8.0
    assert contacts.last(life(cluster, 3)) is None


@pytest.mark.parametrize(("now", "is_over"), [(9.0, False), (9.01, True)])
def test_a_broker_is_fenced_when_its_session_is_over(now: float, is_over: bool) -> None:
    cluster = Cluster(1, 2)
    contacts = inherited(cluster)
    contacts.heard(life(cluster, 2), 5.0, 0, Link())
    found = sweep(cluster.image, contacts, now, SESSION_S)
    assert found.expired == (life(cluster, 1) if is_over else None)
    assert found.again_s == (AFTER_FENCING_S if is_over else EIGHTH_S)


def test_one_broker_is_fenced_at_a_time_the_one_first_that_was_silent_longest() -> None:
    cluster = Cluster(1, 2, 3)
    contacts = inherited(cluster)
    contacts.heard(life(cluster, 1), 2.0, 0, Link())
    contacts.heard(life(cluster, 3), 1.0, 0, Link())
    fenced = []
    while (found := sweep(cluster.image, contacts, 100.0, SESSION_S)).expired is not None:
        fenced.append(found.expired.id)
        fence(cluster, found.expired.id)
    assert fenced == [2, 3, 1]
    assert found.again_s == EIGHTH_S


def test_a_broker_in_the_controllers_process_has_no_end_of_its_session() -> None:
    cluster = Cluster(1)
    contacts = inherited(cluster)
    assert sweep(cluster.image, contacts, 1000.0, SESSION_S).expired is not None
    contacts.heard(life(cluster, 1), 0.0, 0, OWN_PROCESS)
    assert sweep(cluster.image, contacts, 1000.0, SESSION_S).expired is None
    assert contacts.is_in_session(life(cluster, 1), 1000.0, SESSION_S)


def test_fencing_elects_another_leader() -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2]}))
    fence(cluster, 1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    assert cluster.image.brokers[1].fenced


def test_what_is_fenced_already_or_registered_anew_is_not_fenced() -> None:
    cluster = Cluster(1, 2)
    first = life(cluster, 1)
    cluster.start(1, incarnation=2)
    assert fence_silent(cluster.image, first, DEFAULTS) == ([], None)
    fence(cluster, 1)
    assert fence_silent(cluster.image, life(cluster, 1), DEFAULTS) == ([], None)
    assert fence_silent(cluster.image, BrokerLife(9, 9), DEFAULTS) == ([], None)


# ---- found dead ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("brokers", "dead", "waiting_for", "expected"),
    [
        (1, 1, 0, False),
        (2, 1, 0, True),
        (2, 2, 0, False),
        (3, 1, 0, True),
        (3, 2, 0, False),
        (4, 2, 0, True),
        (5, 2, 0, True),
        (5, 3, 0, False),
        # those that were found dead before, and whose sessions last
        (5, 1, 1, True),
        (5, 1, 2, False),
        (3, 1, 1, False),
    ],
)
def test_most_brokers_at_once_are_not_fenced(
    brokers: int, dead: int, waiting_for: int, expected: bool
) -> None:
    cluster = Cluster(*range(1, brokers + 1))
    contacts = inherited(cluster)
    lives = [life(cluster, each) for each in cluster.image.brokers]
    for before in lives[:waiting_for]:
        contacts.found_dead(before, 9.0)
        fence(cluster, before.id)
    found = lives[waiting_for : waiting_for + dead]
    assert [may_be_fenced(cluster.image, contacts, each, found, 5.0) for each in found] == [expected] * dead
    # when their sessions are over they count no longer
    if dead == 1 and brokers - waiting_for > 1:
        assert may_be_fenced(cluster.image, contacts, found[0], found, 10.0)


def test_a_broker_that_was_found_dead_and_lives_is_not_fenced_so_again() -> None:
    cluster = Cluster(1, 2)
    contacts = inherited(cluster)
    contacts.found_dead(life(cluster, 1), 9.0)
    fence(cluster, 1)
    assert contacts.waiting_for(cluster.image, 1.0) == {1}
    contacts.heard(life(cluster, 1), 2.0, 0, Link())
    assert contacts.waiting_for(cluster.image, 2.0) == set()
    cluster.beat(1)
    assert not may_be_fenced(cluster.image, contacts, life(cluster, 1), [], 3.0)
    # its next life is judged anew
    cluster.start(1, incarnation=2)
    contacts.forget_all_but(cluster.image)
    assert may_be_fenced(cluster.image, contacts, life(cluster, 1), [], 3.0)


def two_replicas(*, has_elr: bool = False) -> tuple[Cluster, BrokerContacts]:
    """Broker 1 leads alone, 2 is not in sync, and the topic would rather lose records than wait."""
    cluster = Cluster(1, 2, 3, has_elr=has_elr)
    cluster.create(topic("t", assigned={0: [1, 2]}))
    cluster.beat(2, want_fence=True)
    cluster.beat(2)
    cluster.carry_out(alter_config(cluster.image, TOPIC_RESOURCE, "t", UNCLEAN, lambda new: None))
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (1, (1,))
    return cluster, inherited(cluster)


@pytest.mark.parametrize("has_elr", [False, True])
def test_a_broker_found_dead_is_not_replaced_by_one_that_lacks_records_until_its_session_is_over(
    has_elr: bool,
) -> None:
    cluster, contacts = two_replicas(has_elr=has_elr)
    dead = life(cluster, 1)
    decision = fence_dead(cluster.image, contacts, dead, [dead], 1.0, DEFAULTS)
    assert decision.response == cluster.image.brokers[1]
    cluster.carry_out(decision)
    contacts.found_dead(dead, SESSION_S)
    assert cluster.image.brokers[1].fenced
    assert cluster.partition("t").leader == -1
    assert sweep(cluster.image, contacts, 9.0, SESSION_S).waited_for is None
    found = sweep(cluster.image, contacts, 9.1, SESSION_S)
    assert (found.waited_for, found.again_s) == (Hint(dead, SESSION_S), AFTER_FENCING_S)
    cluster.carry_out(wait_no_longer(cluster.image, dead, DEFAULTS))
    assert (cluster.partition("t").leader, cluster.partition("t").leader_recovery_state) == (2, 1)
    contacts.waited_for(Hint(dead, SESSION_S + 1))  # another one, of later
    assert list(contacts.hints) == [1]
    contacts.waited_for(Hint(dead, SESSION_S))
    assert sweep(cluster.image, contacts, 9.2, SESSION_S).waited_for is None


def test_a_new_controller_waits_for_those_that_may_have_been_found_dead() -> None:
    """It does not know by what they were fenced; and it counts none of them as found dead itself."""
    cluster, before = two_replicas()
    dead = life(cluster, 1)
    cluster.carry_out(fence_dead(cluster.image, before, dead, [dead], 1.0, DEFAULTS))
    contacts = inherited(cluster, at=2.0)
    assert contacts.waiting_for(cluster.image, 10.9) == {1}
    assert may_be_fenced(cluster.image, contacts, life(cluster, 2), [life(cluster, 2)], 3.0)
    found = sweep(cluster.image, contacts, 11.1, SESSION_S).waited_for
    assert found is not None
    assert found.broker == dead
    contacts.heard(dead, 12.0, 0, Link())  # it was only slow
    assert not contacts.was_misjudged(dead)
    assert contacts.hints == {}


def test_silence_elects_one_that_lacks_records_at_once() -> None:
    cluster, _ = two_replicas()
    fence(cluster, 1)
    assert (cluster.partition("t").leader, cluster.partition("t").leader_recovery_state) == (2, 1)


def test_others_that_come_meanwhile_wait_as_well() -> None:
    cluster, contacts = two_replicas()
    cluster.beat(2, want_fence=True)
    dead = life(cluster, 1)
    cluster.carry_out(fence_dead(cluster.image, contacts, dead, [dead], 1.0, DEFAULTS))
    contacts.found_dead(dead, SESSION_S)
    defaults = ElectionDefaults(waiting_for=contacts.waiting_for(cluster.image, 2.0))
    assert cluster.beat(2, defaults=defaults).is_fenced is False
    assert cluster.partition("t").leader == -1
    # the one that is waited for leads again when it is back
    cluster.beat(1, defaults=defaults)
    assert (cluster.partition("t").leader, cluster.partition("t").leader_recovery_state) == (1, 0)


def test_one_that_lost_its_power_is_waited_for_no_longer_when_it_is_back() -> None:
    """It lacks records as others may; and a controller that becomes active then finds nobody to wait for."""
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1]}))
    contacts, dead = inherited(cluster), life(cluster, 1)
    cluster.carry_out(fence_dead(cluster.image, contacts, dead, [dead], 1.0, DEFAULTS))
    contacts.found_dead(dead, SESSION_S)
    assert cluster.partition("t").leader == -1
    waiting_for = contacts.waiting_for(cluster.image, 2.0)
    assert waiting_for == {1}
    cluster.start(1, incarnation=2, defaults=ElectionDefaults(waiting_for=waiting_for))
    assert (cluster.partition("t").leader, cluster.partition("t").leader_recovery_state) == (1, 1)


def test_an_administrator_need_not_wait() -> None:
    cluster, contacts = two_replicas()
    dead = life(cluster, 1)
    cluster.carry_out(fence_dead(cluster.image, contacts, dead, [dead], 1.0, DEFAULTS))
    request = ElectLeadersRequest(
        election_type=1, topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=1
    )
    defaults = ElectionDefaults(waiting_for=frozenset({1}))
    cluster.carry_out(elect_leaders(cluster.image, request, defaults=defaults))
    assert cluster.partition("t").leader == 2


def test_nothing_is_waited_for_that_is_not_fenced_or_not_registered() -> None:
    cluster, contacts = Cluster(1, 2), BrokerContacts()
    contacts.found_dead(life(cluster, 1), 9.0)
    assert contacts.waiting_for(cluster.image, 1.0) == set()
    fence(cluster, 1)
    assert contacts.waiting_for(cluster.image, 9.0) == {1}
    assert contacts.waiting_for(cluster.image, 9.1) == set()
    contacts.found_dead(BrokerLife(7, 7), 9.0)
    assert contacts.waiting_for(cluster.image, 1.0) == {1}
    contacts.forget_all_but(cluster.image)
    assert list(contacts.hints) == [1]
