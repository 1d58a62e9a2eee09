"""What is seen of coordinators that move, for a history (see sim/history.py)."""

from __future__ import annotations

from typing import NamedTuple


class CoordinatorMoved(NamedTuple):
    """Another node leads a partition of a coordinators' topic, by the metadata that was published first.
    `states` are those of the groups or transactions that the coordinator before it had, one for each."""

    at: float
    node: int
    topic: str
    partition: int
    leader_epoch: int
    states: tuple[str, ...]


CoordinationNodeEvent = CoordinatorMoved
