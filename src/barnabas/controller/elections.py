"""The election of leaders when brokers come and go, and the eligible leader replicas.

Only a replica with all committed records may lead: one in the ISR or, with eligible leader replicas (ELR),
one that left the ISR when the ISR was already as small as min.insync.replicas allows. Without ELR the last
replica stays in the ISR, leading or not; with ELR the ISR may become empty, and the partition remembers its
last leader. A replica that had an unclean shutdown may have lost its tail: it is no longer eligible, and
leads only as the last known leader if no replica is eligible, or if the topic allows unclean elections. Then
the ISR starts over with it, and the partition is marked as recovering. A replica in a directory that its
broker no longer has does not lead at all.

A broker that was fenced because its process is gone may be back in a moment, with all its records. Until its
session would have ended, its partitions do not elect a replica that may lack some (`waiting_for`), unless an
administrator requests it.

Every change is one PartitionChangeRecord, which has only the changed fields; naming a leader begins a new
leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from barnabas.metadata.directories import is_online
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import RECOVERING, PartitionImage, TopicImage
from barnabas.metadata.records import LEADER_AS_IT_WAS, NO_LEADER, PartitionChangeRecord
from barnabas.protocol.schema import Uuid

ELR_FEATURE = "eligible.leader.replicas.version"
MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"


class ElectionDefaults(NamedTuple):
    """The values that apply if neither the topic nor the cluster's dynamic settings have them.

    Partitions with a replica on one of `waiting_for` have no unclean elections now.
    """

    min_insync_replicas: int = 1
    unclean_election: bool = False
    waiting_for: frozenset[int] = frozenset()


class _Rules(NamedTuple):
    """The rules for one topic, and the replicas that may lead now."""

    has_elr: bool
    min_insync_replicas: int
    unclean_election: bool
    may_lead: Callable[[int], bool]
    is_reachable: Callable[[PartitionImage, int], bool]
    waiting_for: frozenset[int]
    prefers_first: bool = False  # the first replica leads if it may, whichever replica leads now


class _Election(NamedTuple):
    leader: int
    is_unclean: bool


def without_broker(
    image: ClusterImage, broker_id: int, defaults: ElectionDefaults, *, was_unclean: bool = False
) -> list[PartitionChangeRecord]:
    """The changes when a broker leaves: out of every ISR and, if it may lack records, out of every ELR."""

    def may_lead(replica: int) -> bool:
        return replica != broker_id and _is_active(image, replica)

    return list(
        _changes(
            image,
            image.partitions_assigned(broker_id),
            lambda p: broker_id in p.isr or (was_unclean and broker_id in p.elr),
            lambda p: tuple(each for each in p.isr if each != broker_id),
            may_lead,
            defaults,
            lost=broker_id if was_unclean else NO_LEADER,
        )
    )


def with_broker(
    image: ClusterImage, broker_id: int, defaults: ElectionDefaults
) -> list[PartitionChangeRecord]:
    """The changes when a broker comes: it leads partitions without a leader, if it may. The broker is no
    longer waited for, even if it lacks records itself."""

    def may_lead(replica: int) -> bool:
        return replica == broker_id or _is_active(image, replica)

    return list(
        _changes(
            image,
            image.partitions_led(NO_LEADER),
            lambda p: broker_id in p.replicas,
            lambda p: p.isr,
            may_lead,
            defaults._replace(waiting_for=defaults.waiting_for - {broker_id}),
        )
    )


def without_leader(
    image: ClusterImage, broker_id: int, defaults: ElectionDefaults
) -> list[PartitionChangeRecord]:
    """The changes when a broker is no longer waited for: leaders for partitions without one."""
    return list(
        _changes(
            image,
            image.partitions_led(NO_LEADER),
            lambda p: broker_id in p.replicas,
            lambda p: p.isr,
            partial(_is_active, image),
            defaults,
        )
    )


def for_leaderless(image: ClusterImage, defaults: ElectionDefaults) -> Iterator[PartitionChangeRecord]:
    """The changes of all partitions without a leader, by the present brokers and settings."""
    return _changes(
        image,
        image.partitions_led(NO_LEADER),
        lambda p: True,
        lambda p: p.isr,
        partial(_is_active, image),
        defaults,
    )


def elect(
    image: ClusterImage, topic: TopicImage, index: int, defaults: ElectionDefaults, *, is_unclean: bool
) -> PartitionChangeRecord | None:
    """The change that makes the preferred replica lead or, if `is_unclean`, any active one of a partition
    without a leader; None if there is no new leader."""
    rules = _rules(image, topic, partial(_is_active, image), defaults)
    if is_unclean:
        rules = rules._replace(unclean_election=True, waiting_for=frozenset())
    else:
        rules = rules._replace(prefers_first=True)
    old = topic.partitions[index]
    return _change(topic.id, index, old, old.isr, rules, NO_LEADER)


def with_replicas(
    image: ClusterImage,
    topic: TopicImage,
    index: int,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    defaults: ElectionDefaults,
) -> PartitionChangeRecord:
    """The change of a partition's replicas or ISR; replicas that are removed neither lead nor may. If a
    replica is removed, a new leader epoch begins even if the leader stays: requests that depend on the old
    set are refused."""
    rules = _rules(image, topic, partial(_is_active, image), defaults)
    old = topic.partitions[index]
    change = _change(topic.id, index, old, isr, rules, NO_LEADER, replicas)
    change = change or PartitionChangeRecord(partition_id=index, topic_id=topic.id)
    if not set(old.replicas) <= set(replicas):
        change.leader = old.leader if change.leader == LEADER_AS_IT_WAS else change.leader
    return change


def allows_unclean(image: ClusterImage, topic: TopicImage, defaults: ElectionDefaults) -> bool:
    """Whether the topic allows leaders that may lack records."""
    return _rules(image, topic, partial(_is_active, image), defaults).unclean_election


def without_replica(
    image: ClusterImage, topic: TopicImage, index: int, broker_id: int, defaults: ElectionDefaults
) -> list[PartitionChangeRecord]:
    """The change when the directory of a broker's replica has failed, but not the broker."""

    def may_lead(replica: int) -> bool:
        return replica != broker_id and _is_active(image, replica)

    old = topic.partitions[index]
    isr = tuple(each for each in old.isr if each != broker_id)
    change = _change(topic.id, index, old, isr, _rules(image, topic, may_lead, defaults), NO_LEADER)
    return [] if change is None else [change]


def _changes(
    image: ClusterImage,
    partitions: Iterable[tuple[TopicImage, int, PartitionImage]],
    concerns: Callable[[PartitionImage], bool],
    new_isr: Callable[[PartitionImage], tuple[int, ...]],
    may_lead: Callable[[int], bool],
    defaults: ElectionDefaults,
    lost: int = NO_LEADER,
) -> Iterator[PartitionChangeRecord]:
    concerned = ((topic, index, each) for topic, index, each in partitions if concerns(each))
    for topic, its_partitions in groupby(concerned, itemgetter(0)):
        rules = _rules(image, topic, may_lead, defaults)
        for _, index, partition in its_partitions:
            change = _change(topic.id, index, partition, new_isr(partition), rules, lost)
            if change is not None:
                yield change


def _is_reachable(image: ClusterImage, partition: PartitionImage, broker_id: int) -> bool:
    """Whether the replica is in a directory that its broker has; a failed one may come back."""
    broker = image.brokers.get(broker_id)
    return broker is None or is_online(partition, broker)


def _is_active(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active


def _rules(
    image: ClusterImage, topic: TopicImage, may_lead: Callable[[int], bool], defaults: ElectionDefaults
) -> _Rules:
    def setting(name: str) -> str | None:
        return image.topic_config(topic.name).get(name) or image.broker_config().get(name)

    min_isr, unclean = setting(MIN_INSYNC_REPLICAS), setting(UNCLEAN_ELECTION)
    return _Rules(
        image.features.get(ELR_FEATURE, 0) > 0,
        defaults.min_insync_replicas if min_isr is None else int(min_isr),
        defaults.unclean_election if unclean is None else unclean.strip().lower() == "true",
        may_lead,
        partial(_is_reachable, image),
        defaults.waiting_for,
    )


def _change(
    topic_id: Uuid,
    index: int,
    old: PartitionImage,
    isr: tuple[int, ...],
    rules: _Rules,
    lost: int,
    replicas: tuple[int, ...] | None = None,
) -> PartitionChangeRecord | None:
    """The change of a partition to the ISR `isr`, with an election; None if nothing changes."""
    replicas = old.replicas if replicas is None else replicas
    elr = tuple(each for each in _eligible(old, isr, rules, lost) if each in replicas)
    elected = _elect(old, replicas, isr, elr, rules)
    if elected.is_unclean:
        isr, elr = (elected.leader,), ()
    elif elected.leader in elr:
        isr, elr = (elected.leader,), tuple(each for each in elr if each != elected.leader)
    if not isr and not rules.has_elr:
        isr = old.isr
    change = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    if replicas != old.replicas:
        change.replicas = list(replicas)
    if isr != old.isr:
        change.isr = list(isr)
    if elr != old.elr:
        change.eligible_leader_replicas = list(elr)
    if elected.leader != old.leader:
        change.leader = elected.leader
    if elected.is_unclean and old.leader_recovery_state != RECOVERING:
        change.leader_recovery_state = RECOVERING
    last_known = _last_known(old, isr, elected.leader, rules)
    if last_known != old.last_known_elr:
        change.last_known_elr = list(last_known)
    # an empty record has no attributes except those that identify the partition
    return change if len(vars(change)) > 2 else None


def _eligible(old: PartitionImage, isr: tuple[int, ...], rules: _Rules, lost: int) -> tuple[int, ...]:
    """The ELR: replicas not in sync that left while the ISR was at its minimum or below."""
    if not rules.has_elr:
        return old.elr
    if len(isr) >= min(rules.min_insync_replicas, len(old.replicas)):
        return ()
    candidates = _distinct((*old.elr, *old.isr))
    return tuple(each for each in candidates if each not in isr and each != lost)


def _elect(
    old: PartitionImage,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    rules: _Rules,
) -> _Election:
    def may_lead(replica: int) -> bool:
        return rules.may_lead(replica) and rules.is_reachable(old, replica)

    # replicas in sync take precedence: an ISR that starts over with an eligible replica drops the others
    eligible = elr if rules.has_elr and not isr else isr

    def is_eligible(replica: int) -> bool:
        return replica in eligible and may_lead(replica)

    first = replicas[0] if rules.prefers_first else old.leader
    for replica in (first, old.leader, *replicas):
        if is_eligible(replica):
            return _Election(replica, False)
    if not rules.waiting_for.isdisjoint(old.replicas):
        return _Election(NO_LEADER, False)
    is_nobody_left = rules.has_elr and not isr and not elr
    if is_nobody_left and len(old.last_known_elr) == 1 and may_lead(old.last_known_elr[0]):
        return _Election(old.last_known_elr[0], True)
    if rules.unclean_election:
        for replica in replicas:
            if may_lead(replica):
                return _Election(replica, True)
    return _Election(NO_LEADER, False)


def _last_known(old: PartitionImage, isr: tuple[int, ...], leader: int, rules: _Rules) -> tuple[int, ...]:
    """The last leader of a partition without any; removed when there is a leader again."""
    if not rules.has_elr:
        return old.last_known_elr
    if leader != NO_LEADER:
        return ()
    return (old.leader,) if not isr and old.leader != NO_LEADER else old.last_known_elr


def _distinct(replicas: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(replicas))
