"""The metadata image: the state of the cluster, built from the records of the metadata log, as a value.

An image is immutable and has an offset and an epoch: it includes every record below `offset`. A change is a
`Delta` (delta.py) whose `apply` returns the next image; unchanged parts are shared with the previous image,
so that a new version takes microseconds at any size. The mappings and tuples in it are never written to.

`assigned` and `led` are the index by broker: the partitions of which a broker is a replica, and those that it
leads (under NO_LEADER those without a leader). A broker's memberships in ISR and ELR are among its `assigned`
partitions, so no query about a broker iterates over all partitions of the cluster. `folded_names` has the
topic names that may collide with others (see `folded`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from barnabas.metadata.parts import BrokerImage, ControllerImage, PartitionImage, TopicImage
from barnabas.metadata.shards import ShardedMap, shard_of_text
from barnabas.metadata.versions import LATEST_METADATA_VERSION
from barnabas.protocol.schema import Message, Uuid

METADATA_VERSION = "metadata.version"

# the resource types of ConfigRecord and of the wire
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLUSTER_DEFAULT = ""  # the name of the broker resource for all brokers

Resource: TypeAlias = tuple[int, str]
PartitionKey: TypeAlias = tuple[Uuid, int]
PartitionSet: TypeAlias = ShardedMap[PartitionKey, None]


def _shard_of_partition(key: PartitionKey) -> int:
    return key[0][0]


def _shard_of_resource(resource: Resource) -> int:
    return shard_of_text(resource[1])


NO_PARTITIONS: PartitionSet = ShardedMap(_shard_of_partition)
_NOTHING: Mapping[Any, Any] = MappingProxyType({})
_NO_TOPICS_BY_ID: ShardedMap[Uuid, TopicImage] = ShardedMap(itemgetter(0))
_NO_TOPICS_BY_NAME: ShardedMap[str, TopicImage] = ShardedMap(shard_of_text)
_NO_NAMES: ShardedMap[str, str] = ShardedMap(shard_of_text)
_NO_CONFIGS: ShardedMap[Resource, Mapping[str, str]] = ShardedMap(_shard_of_resource)


def folded(name: str) -> str | None:
    """The key of a name in `folded_names`: in metric names a dot is an underscore. None for a name with
    neither, which cannot collide."""
    return name.replace(".", "_") if "." in name or "_" in name else None


class ClusterImage(NamedTuple):
    """One version of the metadata. `kept` holds records that nothing here uses, for snapshots."""

    offset: int = 0
    epoch: int = 0
    features: Mapping[str, int] = _NOTHING
    brokers: Mapping[int, BrokerImage] = _NOTHING
    controllers: Mapping[int, ControllerImage] = _NOTHING
    topics_by_id: ShardedMap[Uuid, TopicImage] = _NO_TOPICS_BY_ID
    topics_by_name: ShardedMap[str, TopicImage] = _NO_TOPICS_BY_NAME
    configs: ShardedMap[Resource, Mapping[str, str]] = _NO_CONFIGS
    next_producer_id: int = 0
    kept: Mapping[tuple[Any, ...], Message] = _NOTHING
    assigned: Mapping[int, PartitionSet] = _NOTHING
    led: Mapping[int, PartitionSet] = _NOTHING
    folded_names: ShardedMap[str, str] = _NO_NAMES

    def topic(self, name: str) -> TopicImage | None:
        return self.topics_by_name.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The altered settings of one topic."""
        return self.config(TOPIC_RESOURCE, name)

    def broker_config(self, name: str = CLUSTER_DEFAULT) -> Mapping[str, str]:
        """The altered settings of one broker (its id as text), or of all brokers."""
        return self.config(BROKER_RESOURCE, name)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The altered settings of a resource."""
        return self.configs.get((resource_type, name)) or _NOTHING

    @property
    def metadata_version(self) -> int:
        """The metadata.version, which decides the versions of new records."""
        return self.features.get(METADATA_VERSION, LATEST_METADATA_VERSION)

    def partitions_assigned(self, broker_id: int) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        """The partitions of which a broker is a replica, by topic name and index."""
        return self._in_order(self.assigned.get(broker_id, NO_PARTITIONS))

    def partitions_led(self, broker_id: int) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        """The partitions that a broker leads, or with NO_LEADER those without a leader, in the same order."""
        return self._in_order(self.led.get(broker_id, NO_PARTITIONS))

    def _in_order(self, keys: PartitionSet) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        topics = self.topics_by_id
        found = sorted((topics[topic_id].name, index, topic_id) for topic_id, index in keys)
        for _, index, topic_id in found:
            topic = topics[topic_id]
            yield topic, index, topic.partitions[index]

    def leads_any(self, broker_id: int) -> bool:
        """Whether a broker leads any partition."""
        return len(self.led.get(broker_id, NO_PARTITIONS)) > 0
