"""Where the replicas of a new topic go: striped over the brokers, from a random start.

Brokers are put in a random order; each partition's replicas are neighbours in it, and each partition starts
one broker further than the one before. So leaders are spread evenly, and replicas nearly so. Fenced brokers
get replicas only where the others are not enough, and never lead. Brokers of which every directory is
cordoned get none.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.controller.decisions import Refused
from barnabas.core.random import Random
from barnabas.metadata.directories import takes_new
from barnabas.metadata.parts import BrokerImage


def place(
    brokers: Sequence[BrokerImage], partitions: int, replication_factor: int, random: Random
) -> list[list[int]]:
    """The replicas of each partition, the preferred leader first; Refused where there are too few brokers."""
    brokers = [broker for broker in brokers if takes_new(broker)]
    if not any(broker.is_active for broker in brokers):
        raise Refused(
            "INVALID_REPLICATION_FACTOR",
            f"Unable to replicate the partition {replication_factor} time(s): "
            "All brokers are currently fenced, or have all their log directories cordoned.",
        )
    if replication_factor > len(brokers):
        raise Refused(
            "INVALID_REPLICATION_FACTOR",
            f"Unable to replicate the partition {replication_factor} time(s): "
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered or some brokers have all their log directories "
            "cordoned.",
        )
    active = _shuffled([broker.id for broker in brokers if broker.is_active], random)
    fenced = _shuffled([broker.id for broker in brokers if not broker.is_active], random)
    from_active = min(replication_factor, len(active))
    return [
        _stripe(active, start, from_active) + _stripe(fenced, start, replication_factor - from_active)
        for start in range(partitions)
    ]


def _stripe(ids: list[int], start: int, count: int) -> list[int]:
    return [ids[(start + step) % len(ids)] for step in range(count)]


def _shuffled(ids: list[int], random: Random) -> list[int]:
    ids = sorted(ids)
    for last in range(len(ids) - 1, 0, -1):
        other = random.below(last + 1)
        ids[last], ids[other] = ids[other], ids[last]
    return ids
