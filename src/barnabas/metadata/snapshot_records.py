"""The records of a snapshot: those that rebuild an image, in Kafka's order.

They are generated lazily, topics a shard at a time, so that a snapshot of any size can be written in slices
while commands go on: the image is a value and does not change meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.metadata import records as r
from barnabas.metadata.image import METADATA_VERSION, ClusterImage
from barnabas.protocol.schema import Message

_KEPT_BEFORE_PRODUCER_IDS = "quota"
_KEPT_AFTER = ("acl", "scram", "token")


def snapshot_records(image: ClusterImage) -> Iterator[Message]:
    # metadata.version comes first: readers need it for the rest
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield r.FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker_id in sorted(image.brokers):
        yield image.brokers[broker_id].to_record()
    for controller_id in sorted(image.controllers):
        yield image.controllers[controller_id].to_record()
    for topics in image.topics_by_id.shards():
        for topic_id in sorted(topics):
            topic = topics[topic_id]
            yield r.TopicRecord(name=topic.name, topic_id=topic_id)
            for index, partition in enumerate(topic.partitions):
                yield partition.to_record(topic_id, index)
    for configs in image.configs.shards():
        for resource_type, resource_name in sorted(configs):
            for name, value in sorted(configs[resource_type, resource_name].items()):
                yield r.ConfigRecord(
                    resource_type=resource_type, resource_name=resource_name, name=name, value=value
                )
    yield from _kept(image, _KEPT_BEFORE_PRODUCER_IDS)
    if image.next_producer_id > 0:
        yield r.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    for kind in _KEPT_AFTER:
        yield from _kept(image, kind)


def _kept(image: ClusterImage, kind: str) -> Iterator[Message]:
    keys = [key for key in image.kept if key[0] == kind]
    return (image.kept[key] for key in sorted(keys, key=repr))
