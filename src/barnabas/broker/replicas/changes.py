"""What changes in the metadata mean to the replicas of this node, record by record."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.broker.replicas.replicas import Replicas
from barnabas.broker.settings.current_settings import CurrentSettings
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
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
        if any(isinstance(each, ConfigRecord) and each.resource_type == BROKER_RESOURCE for each in records):
            settings.broker_changed()
            changed.update(dict.fromkeys(image.topics_by_id))
        elif any(isinstance(each, FeatureLevelRecord) for each in records):
            settings.broker_changed()  # what they are needs a metadata.version here and there
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                changed.pop(record.topic_id, None)
                removed = topics.pop(record.topic_id, None)
                if removed is not None:
                    replicas.topic_removed(removed)
            elif isinstance(record, (PartitionRecord, PartitionChangeRecord)):
                changed[record.topic_id] = None
            elif isinstance(record, ConfigRecord) and record.resource_type == TOPIC_RESOURCE:
                topic = image.topic(record.resource_name)
                if topic is not None:
                    changed[topic.id] = None
        for topic_id in changed:
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                topics[topic_id] = topic
                replicas.topic_changed(topic)

    quorum.subscribe(committed)
