"""The published image: the metadata as the services of a node see it, passed to them in order.

Every change is published as (image, delta), the loading of a snapshot included. Subscribers are called in the
order of subscription, and must not raise: one that does has processed half of a change. `image` is the
published one from just before the first of them is called. A service reads `image` anew at every step and
keeps none: an old image is memory that cannot be freed and may be out of date.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.errors import InvariantViolation
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage

Subscriber = Callable[[ClusterImage, Delta], None]


class MetadataNotApplied(InvariantViolation):
    """A service has processed half of a metadata change: the node must stop."""


class MetadataPublisher:
    """One a node. Only the node's active controller calls `publish` while there is one, otherwise its
    metadata loader."""

    __slots__ = ("_subscribers", "image")

    def __init__(self, image: ClusterImage | None = None) -> None:
        self.image = ClusterImage() if image is None else image
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def publish(self, image: ClusterImage, delta: Delta) -> None:
        self.image = image
        try:
            for each in self._subscribers:
                each(image, delta)
        except Exception as error:
            raise MetadataNotApplied(f"a service could not follow the metadata: {error!r}") from error
