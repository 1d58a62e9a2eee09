"""From the records of the metadata log to images: batch by batch, with metadata transactions.

A batch makes one change (an image and its delta). The records of a transaction take effect together when it
ends, and never if it is aborted: until then `image` is the last one before the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from barnabas.core.errors import InvariantViolation
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from barnabas.protocol.schema import Message

K = TypeVar("K")
V = TypeVar("V")


class Change(NamedTuple):
    """The next image, and its differences from the previous one."""

    image: ClusterImage
    delta: Delta


class Replayer:
    """Follows the log from `image` on. After an error of `replay` it must not be used again."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._delta = Delta(image)
        self._in_transaction = False
        self._loaded = (image.offset, image.epoch)

    @property
    def in_transaction(self) -> bool:
        """Whether the log has records after `image` that have no effect yet."""
        return self._in_transaction

    def replay(self, base_offset: int, epoch: int, records: Sequence[Message]) -> list[Change]:
        """Apply one batch. Usually one change; none inside a transaction."""
        changes: list[Change] = []
        for offset, record in enumerate(records, base_offset):
            if isinstance(record, BeginTransactionRecord) and not self._delta.is_empty:
                changes.append(self._apply(offset, epoch))
            self._take(record)
        if not self._in_transaction:
            changes.append(self._apply(base_offset + len(records), epoch))
        return changes

    def load(self, base_offset: int, epoch: int, records: Sequence[Message]) -> None:
        """Apply one of many batches that make one change, which `finish` completes; used at a start."""
        for offset, record in enumerate(records, base_offset):
            if isinstance(record, BeginTransactionRecord) and not self._delta.is_empty:
                self._apply(offset, epoch)
            self._take(record)
        self._loaded = base_offset + len(records), epoch

    def finish(self) -> None:
        """Complete the change of all batches passed to `load`."""
        if not self._in_transaction:
            self._apply(*self._loaded)

    def _take(self, record: Message) -> None:
        if isinstance(record, BeginTransactionRecord):
            if self._in_transaction:
                raise InvariantViolation("a metadata transaction begins inside another")
            self._in_transaction = True
        elif isinstance(record, (EndTransactionRecord, AbortTransactionRecord)):
            if not self._in_transaction:
                raise InvariantViolation("a metadata transaction ends that never began")
            self._in_transaction = False
            if isinstance(record, AbortTransactionRecord):
                self._delta = Delta(self.image)
        else:
            self._delta.replay(record)

    def skip(self, end_offset: int, epoch: int) -> None:
        """Skip a control batch: it does not change the cluster, but advances the image's offset."""
        if not self._in_transaction:
            self.image = self.image._replace(offset=end_offset, epoch=epoch)
            self._delta = Delta(self.image)

    def _apply(self, offset: int, epoch: int) -> Change:
        delta, self.image = self._delta, self._delta.apply(offset, epoch)
        self._delta = Delta(self.image)
        return Change(self.image, delta)


def replay_all(image: ClusterImage, records: Iterable[Message]) -> ClusterImage:
    """The image after records without offsets, such as a snapshot's; its offset stays."""
    delta = Delta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(image.offset, image.epoch)


def difference(base: ClusterImage, image: ClusterImage) -> Delta:
    """The difference between two images that no records connect, when a snapshot is loaded."""
    delta = Delta(base)
    delta.is_empty = base == image
    delta.changed_features |= dict.fromkeys(_differing(base.features, image.features))
    delta.changed_brokers |= dict.fromkeys(_differing(base.brokers, image.brokers))
    delta.changed_controllers |= dict.fromkeys(_differing(base.controllers, image.controllers))
    for old, new in zip(base.configs.shards(), image.configs.shards(), strict=True):
        delta.changed_configs |= dict.fromkeys(_differing(old, new))
    for before, after in zip(base.topics_by_id.shards(), image.topics_by_id.shards(), strict=True):
        for topic_id in _differing(before, after):
            if topic_id not in after:
                delta.removed_topics[topic_id] = before[topic_id]
                continue
            delta.changed_topics[topic_id] = None
            old_topic, new_topic = before.get(topic_id), after[topic_id]
            for index, partition in enumerate(new_topic.partitions):
                if old_topic is None or old_topic.partition(index) != partition:
                    delta.changed_partitions[topic_id, index] = None
    return delta


def _differing(base: Mapping[K, V], image: Mapping[K, V]) -> list[K]:
    """The keys that only one of them has, or whose values differ."""
    if base is image:
        return []
    return [key for key in base if key not in image] + [
        key for key, value in image.items() if key not in base or base[key] != value
    ]
