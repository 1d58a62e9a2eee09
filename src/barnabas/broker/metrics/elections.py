"""Counts elections of partition leaders by kind, as the metadata is published.

The kind depends on the new leader's state before the election:

    preferred   in sync, as is the previous leader, which has handed over to the preferred replica
    isr         in sync, or in sync by now if a reassignment has ended
    elr         not in sync, but eligible: it has all committed records
    last_known  the last leader, after the ISR and the ELR were lost: it may lack records
    unclean     any other replica: it may lack records

Every node with metrics counts the elections that it has seen itself. Changes that are published together, as
after a snapshot, count as one for each partition.
"""

from __future__ import annotations

from collections import Counter

from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import RECOVERING, PartitionImage
from barnabas.metadata.records import NO_LEADER

PREFERRED, ISR, ELR, LAST_KNOWN, UNCLEAN = KINDS = ("preferred", "isr", "elr", "last_known", "unclean")


class ElectionCounts:
    """A subscriber of the published metadata."""

    def __init__(self) -> None:
        self.by_kind: Counter[str] = Counter()

    def published(self, image: ClusterImage, delta: Delta) -> None:
        """Count the elections between two images."""
        for topic_id, index in delta.changed_partitions:
            before = delta.base.topic_by_id(topic_id)
            old = None if before is None else before.partition(index)
            if old is not None:
                kind = kind_of(old, image.topics_by_id[topic_id].partitions[index])
                if kind is not None:
                    self.by_kind[kind] += 1


def kind_of(old: PartitionImage, new: PartitionImage) -> str | None:
    """The kind of an election between two images of a partition; None if there was none."""
    leader = new.leader
    if leader in (NO_LEADER, old.leader):
        return None
    if leader in old.isr:
        has_handed_over = old.leader in new.isr and leader == new.replicas[0]
        return PREFERRED if has_handed_over else ISR
    if leader in old.elr:
        return ELR
    if new.leader_recovery_state != RECOVERING:
        return ISR
    return LAST_KNOWN if leader in old.last_known_elr else UNCLEAN
