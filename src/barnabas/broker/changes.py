"""What changes in the metadata mean to the replicas of this node, record by record."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.quorum import MetadataQuorum
from barnabas.broker.replicas import Replicas
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from barnabas.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from barnabas.protocol.schema import Message


def follow(quorum: MetadataQuorum, replicas: Replicas, settings: CurrentSettings) -> None:
    """Have the replicas follow what is committed from now on."""
    image = quorum.image
    topics = dict(image.topics_by_id)  # the image forgets a topic before this hears of its removal

    def committed(records: Sequence[Message]) -> None:
        changed: dict[bytes, None] = {}
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                changed.pop(record.topic_id, None)
                removed = topics.pop(record.topic_id, None)
                if removed is not None:
                    replicas.topic_removed(removed)
            elif isinstance(record, (PartitionRecord, PartitionChangeRecord)):
                changed[record.topic_id] = None
            elif isinstance(record, ConfigRecord):
                changed.update(dict.fromkeys(_concerned(record, image)))
                if record.resource_type == BROKER_RESOURCE:
                    settings.broker_changed()
        for topic_id in changed:
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                topics[topic_id] = topic
                replicas.topic_changed(topic)

    quorum.subscribe(committed)


def _concerned(record: ConfigRecord, image: ClusterImage) -> list[bytes]:
    """The topics whose settings may be others after that."""
    if record.resource_type == BROKER_RESOURCE:
        return list(image.topics_by_id)
    topic = image.topic(record.resource_name) if record.resource_type == TOPIC_RESOURCE else None
    return [] if topic is None else [topic.id]
