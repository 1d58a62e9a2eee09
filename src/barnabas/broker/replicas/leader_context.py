"""The state that the leaders of one node share: metadata, lag time, and how to ask the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.core.clock import Clock
from barnabas.metadata.parts import BrokerImage
from barnabas.metadata.publisher import MetadataPublisher

if TYPE_CHECKING:
    from barnabas.broker.replicas.partition_changes import PartitionChange


class IsrChanges:
    """Counters of this node's ISR changes; they only go up."""

    __slots__ = ("expands", "failed", "shrinks")

    def __init__(self) -> None:
        self.shrinks = 0
        self.expands = 0
        self.failed = 0


class LeaderContext:
    """The state that the leaders of one node share. `lag_s` is replica.lag.time.max.ms."""

    __slots__ = ("broker_epoch", "isr_changes", "lag_s", "metadata", "node_id", "now", "submit")

    def __init__(
        self,
        node_id: int,
        metadata: MetadataPublisher,
        clock: Clock,
        lag_s: float,
        *,
        submit: Callable[[PartitionChange], None],
        broker_epoch: Callable[[], int],
    ) -> None:
        self.node_id = node_id
        self.metadata = metadata
        self.now = clock.monotonic
        self.lag_s = lag_s
        self.submit = submit
        self.broker_epoch = broker_epoch
        self.isr_changes = IsrChanges()

    def broker(self, node_id: int) -> BrokerImage | None:
        """The registration of a broker, as published."""
        return self.metadata.image.brokers.get(node_id)
