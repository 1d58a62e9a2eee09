"""A delta: the changes of one committed batch or metadata transaction, from one image to the next.

`replay` applies one record, in the order of the log, with a bounded amount of work (except ClearElrRecord for
all topics). It is the only way in which metadata changes, the same on the leader, on every other node and in
recovery. `apply` returns the next image. The delta then tells subscribers that follow a part of the metadata
what has changed: it names topics, partitions, brokers and resources, whose contents are in the two images.

A record that contradicts the image (a partition of an unknown topic) is an InvariantViolation: otherwise this
node would serve another cluster than the other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from barnabas.core.errors import InvariantViolation
from barnabas.metadata import records as r
from barnabas.metadata.image import (
    METADATA_VERSION,
    NO_PARTITIONS,
    TOPIC_RESOURCE,
    ClusterImage,
    PartitionKey,
    PartitionSet,
    Resource,
    folded,
)
from barnabas.metadata.parts import BrokerImage, ControllerImage, PartitionImage, TopicImage
from barnabas.metadata.shards import Draft
from barnabas.metadata.versions import LATEST_METADATA_VERSION
from barnabas.protocol.schema import Message, Uuid

K = TypeVar("K")
V = TypeVar("V")


class Delta:
    """The changes of records to `base`. The sets of changed names are in the order of the first change.

    `changed_topics` has topics that are new or have new or changed partitions, `changed_partitions` those
    partitions; `removed_topics` has topics of the base that were removed.
    """

    def __init__(self, base: ClusterImage) -> None:
        self.base = base
        self.is_empty = True
        self.changed_features: dict[str, None] = {}
        self.changed_brokers: dict[int, None] = {}
        self.changed_controllers: dict[int, None] = {}
        self.changed_topics: dict[Uuid, None] = {}
        self.changed_partitions: dict[PartitionKey, None] = {}
        self.removed_topics: dict[Uuid, TopicImage] = {}
        self.changed_configs: dict[Resource, None] = {}
        self.next_producer_id = base.next_producer_id
        self._features = _Copied(base.features)
        self._brokers = _Copied(base.brokers)
        self._controllers = _Copied(base.controllers)
        self._kept = _Copied(base.kept)
        self._configs = Draft(base.configs)
        self._topics: dict[Uuid, _TopicDraft] = {}
        self._new_names: dict[str, Uuid] = {}

    def replay(self, record: Message) -> None:
        """Apply one record of the metadata log."""
        _REPLAYS[type(record)](self, record)
        self.is_empty = False

    def apply(self, offset: int, epoch: int) -> ClusterImage:
        """The next image, at `offset`: it includes every record below, the last one of `epoch`."""
        base = self.base
        if self.is_empty:
            return base._replace(offset=offset, epoch=epoch)
        by_id, by_name, index = Draft(base.topics_by_id), Draft(base.topics_by_name), _BrokerIndex(base)
        names = Draft(base.folded_names)
        for topic_id, topic in self.removed_topics.items():
            by_id.remove(topic_id)
            by_name.remove(topic.name)
            if (key := folded(topic.name)) is not None:
                names.remove(key)
            for number, partition in enumerate(topic.partitions):
                index.change((topic_id, number), partition, None)
        for topic_id, draft in self._topics.items():
            topic = draft.finish()
            by_id[topic_id] = by_name[topic.name] = topic
        for name in self._new_names:
            if (key := folded(name)) is not None:
                names[key] = name
        for topic_id, number in self.changed_partitions:
            draft = self._topics[topic_id]
            index.change((topic_id, number), draft.before(number), draft.changed[number])
        return ClusterImage(
            offset,
            epoch,
            self._features.finish(),
            self._brokers.finish(),
            self._controllers.finish(),
            by_id.finish(),
            by_name.finish(),
            self._configs.finish(),
            self.next_producer_id,
            self._kept.finish(),
            *index.finish(),
            names.finish(),
        )

    # --- used by replay

    def topic(self, topic_id: Uuid) -> _TopicDraft:
        """A topic that exists now, to be changed."""
        draft = self._topics.get(topic_id)
        if draft is None:
            topic = self.base.topics_by_id.get(topic_id)
            if topic is None or topic_id in self.removed_topics:
                raise InvariantViolation(
                    f"metadata names a topic with id {topic_id.hex()}, which does not exist"
                )
            draft = self._topics[topic_id] = _TopicDraft(topic)
        return draft

    def find_topic(self, name: str) -> Uuid | None:
        """The id of the topic that has this name now."""
        if name in self._new_names:
            return self._new_names[name]
        topic = self.base.topics_by_name.get(name)
        return None if topic is None or topic.id in self.removed_topics else topic.id

    def add_topic(self, name: str, topic_id: Uuid) -> None:
        is_known = topic_id in self._topics or topic_id in self.base.topics_by_id
        if is_known or self.find_topic(name) is not None:
            raise InvariantViolation(f"metadata creates topic {name} twice")
        self._topics[topic_id] = _TopicDraft(TopicImage(name, topic_id))
        self._new_names[name] = topic_id
        self.changed_topics[topic_id] = None

    def remove_topic(self, topic_id: Uuid) -> None:
        draft = self.topic(topic_id)
        del self._topics[topic_id]
        for index in draft.changed:
            self.changed_partitions.pop((topic_id, index), None)
        self.changed_topics.pop(topic_id, None)
        self._new_names.pop(draft.name, None)
        topic = self.base.topics_by_id.get(topic_id)
        if topic is not None:
            self.removed_topics[topic_id] = topic
        resource = (TOPIC_RESOURCE, draft.name)
        if self._configs.get(resource) is not None:
            self._configs.remove(resource)
            self.changed_configs[resource] = None

    def set_partition(self, topic_id: Uuid, index: int, partition: PartitionImage) -> None:
        self.topic(topic_id).changed[index] = partition
        self.changed_topics[topic_id] = None
        self.changed_partitions[topic_id, index] = None

    def set_config(self, resource: Resource, name: str, value: str | None) -> None:
        """Alter a setting; None removes it."""
        values = dict(self._configs.get(resource) or {})
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
        if values:
            self._configs[resource] = values
        else:
            self._configs.remove(resource)
        self.changed_configs[resource] = None

    def broker(self, broker_id: int, epoch: int) -> BrokerImage:
        """The registration that a record changes."""
        broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise InvariantViolation(
                f"metadata changes broker {broker_id} of epoch {epoch}; here it is {broker}"
            )
        return broker

    def set_broker(self, broker_id: int, broker: BrokerImage | None) -> None:
        self._brokers.set(broker_id, broker)
        self.changed_brokers[broker_id] = None


class _Copied(Generic[K, V]):
    """A small mapping that is copied when it is first written to."""

    __slots__ = ("_base", "_copy")

    def __init__(self, base: Mapping[K, V]) -> None:
        self._base = base
        self._copy: dict[K, V] | None = None

    def get(self, key: K) -> V | None:
        return (self._base if self._copy is None else self._copy).get(key)

    def set(self, key: K, value: V | None) -> None:
        """Set a value; None removes the key."""
        if self._copy is None:
            self._copy = dict(self._base)
        if value is None:
            self._copy.pop(key, None)
        else:
            self._copy[key] = value

    def finish(self) -> Mapping[K, V]:
        return self._base if self._copy is None else self._copy


class _TopicDraft:
    """A topic of the base or a new one, and its changed or new partitions."""

    __slots__ = ("_base", "changed")

    def __init__(self, base: TopicImage) -> None:
        self._base = base
        self.changed: dict[int, PartitionImage] = {}

    @property
    def name(self) -> str:
        return self._base.name

    def before(self, index: int) -> PartitionImage | None:
        """A partition in the base."""
        return self._base.partition(index)

    def partition(self, index: int) -> PartitionImage | None:
        """A partition after the changes so far."""
        return self.changed.get(index) or self._base.partition(index)

    def __len__(self) -> int:
        return max(len(self._base.partitions), max(self.changed, default=-1) + 1)

    def finish(self) -> TopicImage:
        partitions = list(self._base.partitions)
        for index in sorted(self.changed):
            if index < len(partitions):
                partitions[index] = self.changed[index]
            elif index == len(partitions):
                partitions.append(self.changed[index])
            else:
                raise InvariantViolation(
                    f"metadata creates {self.name}-{index}, but there is no {self.name}-{len(partitions)}"
                )
        return self._base._replace(partitions=tuple(partitions))


class _BrokerIndex:
    """The next version of the index by broker."""

    __slots__ = ("_assigned", "_base", "_led")

    def __init__(self, base: ClusterImage) -> None:
        self._base = base
        self._assigned: dict[int, Draft[PartitionKey, None]] = {}
        self._led: dict[int, Draft[PartitionKey, None]] = {}

    def change(self, key: PartitionKey, old: PartitionImage | None, new: PartitionImage | None) -> None:
        before = () if old is None else old.replicas
        after = () if new is None else new.replicas
        if before != after:
            for broker_id in before:
                if broker_id not in after:
                    self._draft(self._assigned, self._base.assigned, broker_id).remove(key)
            for broker_id in after:
                if broker_id not in before:
                    self._draft(self._assigned, self._base.assigned, broker_id)[key] = None
        was_led_by = None if old is None else old.leader
        is_led_by = None if new is None else new.leader
        if was_led_by != is_led_by:
            if was_led_by is not None:
                self._draft(self._led, self._base.led, was_led_by).remove(key)
            if is_led_by is not None:
                self._draft(self._led, self._base.led, is_led_by)[key] = None

    @staticmethod
    def _draft(
        drafts: dict[int, Draft[PartitionKey, None]], base: Mapping[int, PartitionSet], broker_id: int
    ) -> Draft[PartitionKey, None]:
        draft = drafts.get(broker_id)
        if draft is None:
            draft = drafts[broker_id] = Draft(base.get(broker_id, NO_PARTITIONS))
        return draft

    def finish(self) -> tuple[Mapping[int, PartitionSet], Mapping[int, PartitionSet]]:
        return _finished(self._base.assigned, self._assigned), _finished(self._base.led, self._led)


def _finished(
    base: Mapping[int, PartitionSet], drafts: Mapping[int, Draft[PartitionKey, None]]
) -> Mapping[int, PartitionSet]:
    if not drafts:
        return base
    made = dict(base)
    for broker_id, draft in drafts.items():
        partitions = draft.finish()
        if partitions:
            made[broker_id] = partitions
        else:
            made.pop(broker_id, None)  # images with different histories must be equal
    return made


# ---- one function a record -------------------------------------------------------------------------------


def _feature(delta: Delta, record: r.FeatureLevelRecord) -> None:
    if record.name == METADATA_VERSION and record.feature_level > LATEST_METADATA_VERSION:
        raise r.UnknownRecord(
            f"a newer Kafka wrote this metadata: {METADATA_VERSION} {record.feature_level},"
            f" where {LATEST_METADATA_VERSION} is the latest that is known here"
        )
    delta._features.set(record.name, record.feature_level or None)
    delta.changed_features[record.name] = None


def _register_broker(delta: Delta, record: r.RegisterBrokerRecord) -> None:
    delta.set_broker(record.broker_id, BrokerImage.of(record))


def _unregister_broker(delta: Delta, record: r.UnregisterBrokerRecord) -> None:
    delta.broker(record.broker_id, record.broker_epoch)
    delta.set_broker(record.broker_id, None)


def _broker_change(delta: Delta, record: r.BrokerRegistrationChangeRecord) -> None:
    broker = delta.broker(record.broker_id, record.broker_epoch)
    delta.set_broker(record.broker_id, broker.changed_by(record))


def _fence(delta: Delta, record: r.FenceBrokerRecord) -> None:
    delta.set_broker(record.id, delta.broker(record.id, record.epoch)._replace(fenced=True))


def _unfence(delta: Delta, record: r.UnfenceBrokerRecord) -> None:
    delta.set_broker(record.id, delta.broker(record.id, record.epoch)._replace(fenced=False))


def _register_controller(delta: Delta, record: r.RegisterControllerRecord) -> None:
    delta._controllers.set(record.controller_id, ControllerImage.of(record))
    delta.changed_controllers[record.controller_id] = None


def _topic(delta: Delta, record: r.TopicRecord) -> None:
    delta.add_topic(record.name, record.topic_id)


def _remove_topic(delta: Delta, record: r.RemoveTopicRecord) -> None:
    delta.remove_topic(record.topic_id)


def _partition(delta: Delta, record: r.PartitionRecord) -> None:
    delta.set_partition(record.topic_id, record.partition_id, PartitionImage.of(record))


def _partition_change(delta: Delta, record: r.PartitionChangeRecord) -> None:
    topic = delta.topic(record.topic_id)
    partition = topic.partition(record.partition_id)
    if partition is None:
        raise InvariantViolation(f"metadata changes {topic.name}-{record.partition_id}, which does not exist")
    delta.set_partition(record.topic_id, record.partition_id, partition.changed_by(record))


def _clear_elr(delta: Delta, record: r.ClearElrRecord) -> None:
    if record.topic_name:
        topic_id = delta.find_topic(record.topic_name)
        if topic_id is None:
            raise InvariantViolation(f"metadata names topic {record.topic_name}, which does not exist")
        topic_ids = [topic_id]
    else:
        gone = delta.removed_topics
        topic_ids = [each for each in delta.base.topics_by_id if each not in gone]
        topic_ids += [each for each in delta._topics if each not in delta.base.topics_by_id]
    for topic_id in topic_ids:
        topic = delta.topic(topic_id)
        for index in range(len(topic)):
            partition = topic.partition(index)
            if partition is not None and (partition.elr or partition.last_known_elr):
                cleared = partition._replace(
                    elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                )
                delta.set_partition(topic_id, index, cleared)


def _config(delta: Delta, record: r.ConfigRecord) -> None:
    delta.set_config((record.resource_type, record.resource_name), record.name, record.value)


def _producer_ids(delta: Delta, record: r.ProducerIdsRecord) -> None:
    if delta.next_producer_id and record.next_producer_id <= delta.next_producer_id:
        told = f"{delta.next_producer_id} to {record.next_producer_id}"
        raise InvariantViolation(f"metadata takes producer ids back, from {told}: some would be given twice")
    delta.next_producer_id = record.next_producer_id


def _nothing(delta: Delta, record: Message) -> None:
    """Ignored: no-ops, and the end of the migration from ZooKeeper."""


def _keep(delta: Delta, record: Message) -> None:
    delta._kept.set(_key_kept(record), record)


def _forget(delta: Delta, record: Message) -> None:
    delta._kept.set(_key_kept(record), None)


def _quota(delta: Delta, record: r.ClientQuotaRecord) -> None:
    (_forget if record.remove else _keep)(delta, record)


def _key_kept(record: Any) -> tuple[Any, ...]:
    match record:
        case r.ClientQuotaRecord():
            entity = tuple((each.entity_type, each.entity_name) for each in record.entity)
            return "quota", entity, record.key
        case r.AccessControlEntryRecord() | r.RemoveAccessControlEntryRecord():
            return "acl", record.id
        case r.UserScramCredentialRecord() | r.RemoveUserScramCredentialRecord():
            return "scram", record.name, record.mechanism
    return "token", record.token_id


_REPLAYS: dict[type[Message], Callable[[Delta, Any], None]] = {
    r.RegisterBrokerRecord: _register_broker,
    r.UnregisterBrokerRecord: _unregister_broker,
    r.TopicRecord: _topic,
    r.PartitionRecord: _partition,
    r.ConfigRecord: _config,
    r.PartitionChangeRecord: _partition_change,
    r.FenceBrokerRecord: _fence,
    r.UnfenceBrokerRecord: _unfence,
    r.RemoveTopicRecord: _remove_topic,
    r.DelegationTokenRecord: _keep,
    r.UserScramCredentialRecord: _keep,
    r.FeatureLevelRecord: _feature,
    r.ClientQuotaRecord: _quota,
    r.ProducerIdsRecord: _producer_ids,
    r.BrokerRegistrationChangeRecord: _broker_change,
    r.AccessControlEntryRecord: _keep,
    r.RemoveAccessControlEntryRecord: _forget,
    r.NoOpRecord: _nothing,
    r.ZkMigrationStateRecord: _nothing,
    r.RemoveUserScramCredentialRecord: _forget,
    r.RemoveDelegationTokenRecord: _forget,
    r.RegisterControllerRecord: _register_controller,
    r.ClearElrRecord: _clear_elr,
}
