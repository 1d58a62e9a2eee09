"""Applies published metadata changes to the replicas of this node."""

from __future__ import annotations

from barnabas.broker.replicas.replicas import Replicas
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.protocol.schema import Uuid


def follow(metadata: MetadataPublisher, replicas: Replicas) -> None:
    """Subscribe the replicas to metadata. The node's settings must be subscribed before them."""

    def published(image: ClusterImage, delta: Delta) -> None:
        for removed in delta.removed_topics.values():
            replicas.topic_removed(removed)
        # the partitions that changed, by topic; None: the topic's settings changed, so all of its partitions
        # did
        changed: dict[Uuid, list[int] | None] = {}
        if any(resource_type == BROKER_RESOURCE for resource_type, _ in delta.changed_configs):
            changed.update(dict.fromkeys(image.topics_by_id))
        for resource_type, name in delta.changed_configs:
            if resource_type == TOPIC_RESOURCE and (topic := image.topic(name)) is not None:
                changed[topic.id] = None
        for topic_id, index in delta.changed_partitions:
            indexes = changed.setdefault(topic_id, [])
            if indexes is not None:
                indexes.append(index)
        for topic_id, partitions in changed.items():
            replicas.topic_changed(image.topics_by_id[topic_id], partitions)
        if delta.changed_brokers:
            replicas.brokers_changed()
        for topic_id, index in delta.changed_partitions:
            before = delta.base.topic_by_id(topic_id)
            old = None if before is None else before.partition(index)
            if old is not None:
                replicas.assigned_otherwise(image.topics_by_id[topic_id], index, old)

    metadata.subscribe(published)
