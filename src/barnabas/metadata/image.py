"""The image: all that the metadata log says of the cluster, up to some record.

`replay` is its only mutator, the same live, on a standby and at recovery. It takes one record, in the order
of the log, and does a bounded amount of work (ClearElrRecord for all topics aside). Parts that a reader may
hold on to (a broker, a partition) are tuples: a change puts another one in their place. The records of a
transaction take effect together when it ends, and never if it is aborted.

What nothing here serves yet (credentials, access rules, quotas, tokens) is kept as it was told and goes on
into snapshots. A record that contradicts the image (a partition of an unknown topic) is an
InvariantViolation: to go on would be to serve another cluster than the other nodes do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from barnabas.core.errors import InvariantViolation
from barnabas.metadata import records as r
from barnabas.metadata.parts import BrokerImage, ControllerImage, PartitionImage, TopicImage
from barnabas.metadata.versions import LATEST_METADATA_VERSION
from barnabas.protocol.schema import Message, Uuid

METADATA_VERSION = "metadata.version"

# the types of what can be configured, as ConfigRecord and the wire number them
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLUSTER_DEFAULT = ""  # the name of the broker resource that stands for all brokers


class ClusterImage:
    """Look-ups are attributes and dictionaries; whoever is not `replay` only reads them."""

    __slots__ = (
        "_transaction",
        "brokers",
        "configs",
        "controllers",
        "features",
        "kept",
        "next_producer_id",
        "topics_by_id",
        "topics_by_name",
    )

    def __init__(self) -> None:
        self.features: dict[str, int] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.controllers: dict[int, ControllerImage] = {}
        self.topics_by_name: dict[str, TopicImage] = {}
        self.topics_by_id: dict[Uuid, TopicImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.next_producer_id = 0
        self.kept: dict[tuple[Any, ...], Message] = {}
        self._transaction: list[Message] | None = None

    def topic(self, name: str) -> TopicImage | None:
        return self.topics_by_name.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def topic_config(self, name: str) -> dict[str, str]:
        """What is set for one topic; not to be changed."""
        return self.configs.get((TOPIC_RESOURCE, name), _NOTHING_SET)

    def broker_config(self, name: str = CLUSTER_DEFAULT) -> dict[str, str]:
        """What is set for one broker (its id as text), or for all; not to be changed."""
        return self.configs.get((BROKER_RESOURCE, name), _NOTHING_SET)

    @property
    def metadata_version(self) -> int:
        """The level at which the cluster's records are written."""
        return self.features.get(METADATA_VERSION, LATEST_METADATA_VERSION)

    @property
    def in_transaction(self) -> bool:
        """Whether records have been told that take no effect yet."""
        return self._transaction is not None

    def replay(self, record: Message) -> None:
        """Take one record of the metadata log."""
        if self._transaction is not None and not isinstance(record, _TRANSACTION_ENDS):
            if isinstance(record, r.BeginTransactionRecord):
                raise InvariantViolation("a metadata transaction begins inside another")
            self._transaction.append(record)
            return
        _REPLAYS[type(record)](self, record)

    def copy(self) -> ClusterImage:
        """An image of its own with the same contents; what is immutable is shared."""
        copied = ClusterImage()
        for _ in self.copy_into(copied):
            pass
        return copied

    def copy_into(self, copied: ClusterImage) -> Iterator[None]:
        """Make an empty image equal to this one, a slice at a time; this one must not change meanwhile."""
        copied.features = self.features.copy()
        copied.brokers = self.brokers.copy()
        copied.controllers = self.controllers.copy()
        copied.next_producer_id = self.next_producer_id
        copied.kept = self.kept.copy()
        copied._transaction = None if self._transaction is None else self._transaction.copy()
        for count, (name, topic) in enumerate(self.topics_by_name.items(), 1):
            copied.topics_by_name[name] = copied.topics_by_id[topic.id] = topic.copy()
            if count % _SLICE == 0:
                yield
        for count, (resource, values) in enumerate(self.configs.items(), 1):
            copied.configs[resource] = values.copy()
            if count % _SLICE == 0:
                yield

    def iter_records(self) -> Iterator[Message]:
        """The records of a snapshot, in the order in which Kafka writes them: what makes an equal image.

        Made one by one as they are asked for; the image must not change meanwhile (see `copy`).
        """
        return _snapshot(self)

    def to_records(self) -> list[Message]:
        """All of `iter_records`."""
        return list(_snapshot(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterImage):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]


_NOTHING_SET: dict[str, str] = {}
_SLICE = 200
_TRANSACTION_ENDS = (r.EndTransactionRecord, r.AbortTransactionRecord)


# ---- replay ----------------------------------------------------------------------------------------------


def _feature(image: ClusterImage, record: r.FeatureLevelRecord) -> None:
    if record.name == METADATA_VERSION and record.feature_level > LATEST_METADATA_VERSION:
        raise r.UnknownRecord(
            f"a newer Kafka wrote this metadata: {METADATA_VERSION} {record.feature_level},"
            f" where {LATEST_METADATA_VERSION} is the latest that is known here"
        )
    if record.feature_level == 0:
        image.features.pop(record.name, None)
    else:
        image.features[record.name] = record.feature_level


def _register_broker(image: ClusterImage, record: r.RegisterBrokerRecord) -> None:
    image.brokers[record.broker_id] = BrokerImage.of(record)


def _unregister_broker(image: ClusterImage, record: r.UnregisterBrokerRecord) -> None:
    _broker(image, record.broker_id, record.broker_epoch)
    del image.brokers[record.broker_id]


def _broker_change(image: ClusterImage, record: r.BrokerRegistrationChangeRecord) -> None:
    broker = _broker(image, record.broker_id, record.broker_epoch)
    image.brokers[record.broker_id] = broker.changed_by(record)


def _fence(image: ClusterImage, record: r.FenceBrokerRecord) -> None:
    image.brokers[record.id] = _broker(image, record.id, record.epoch)._replace(fenced=True)


def _unfence(image: ClusterImage, record: r.UnfenceBrokerRecord) -> None:
    image.brokers[record.id] = _broker(image, record.id, record.epoch)._replace(fenced=False)


def _broker(image: ClusterImage, broker_id: int, epoch: int) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        raise InvariantViolation(f"metadata changes broker {broker_id} of epoch {epoch}; here it is {broker}")
    return broker


def _register_controller(image: ClusterImage, record: r.RegisterControllerRecord) -> None:
    image.controllers[record.controller_id] = ControllerImage.of(record)


def _topic(image: ClusterImage, record: r.TopicRecord) -> None:
    if record.name in image.topics_by_name or record.topic_id in image.topics_by_id:
        raise InvariantViolation(f"metadata creates topic {record.name} twice")
    topic = TopicImage(record.name, record.topic_id)
    image.topics_by_name[record.name] = image.topics_by_id[record.topic_id] = topic


def _remove_topic(image: ClusterImage, record: r.RemoveTopicRecord) -> None:
    topic = _known_topic(image, record.topic_id)
    del image.topics_by_id[record.topic_id]
    del image.topics_by_name[topic.name]
    image.configs.pop((TOPIC_RESOURCE, topic.name), None)


def _partition(image: ClusterImage, record: r.PartitionRecord) -> None:
    topic = _known_topic(image, record.topic_id)
    topic.partitions[record.partition_id] = PartitionImage.of(record)


def _partition_change(image: ClusterImage, record: r.PartitionChangeRecord) -> None:
    topic = _known_topic(image, record.topic_id)
    partition = topic.partitions.get(record.partition_id)
    if partition is None:
        raise InvariantViolation(f"metadata changes {topic.name}-{record.partition_id}, which does not exist")
    topic.partitions[record.partition_id] = partition.changed_by(record)


def _known_topic(image: ClusterImage, topic_id: Uuid) -> TopicImage:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise InvariantViolation(f"metadata speaks of a topic with id {topic_id.hex()}, which does not exist")
    return topic


def _clear_elr(image: ClusterImage, record: r.ClearElrRecord) -> None:
    topics = list(image.topics_by_name.values())
    if record.topic_name:
        topics = [topic for topic in topics if topic.name == record.topic_name]
        if not topics:
            raise InvariantViolation(f"metadata speaks of topic {record.topic_name}, which does not exist")
    for topic in topics:
        for index, partition in topic.partitions.items():
            if partition.elr or partition.last_known_elr:
                topic.partitions[index] = partition._replace(
                    elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                )


def _config(image: ClusterImage, record: r.ConfigRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    if record.value is not None:
        image.configs.setdefault(resource, {})[record.name] = record.value
        return
    values = image.configs.get(resource)
    if values is not None:
        values.pop(record.name, None)
        if not values:
            del image.configs[resource]


def _producer_ids(image: ClusterImage, record: r.ProducerIdsRecord) -> None:
    if image.next_producer_id and record.next_producer_id <= image.next_producer_id:
        told = f"{image.next_producer_id} to {record.next_producer_id}"
        raise InvariantViolation(f"metadata takes producer ids back, from {told}: some would be given twice")
    image.next_producer_id = record.next_producer_id


def _begin(image: ClusterImage, record: r.BeginTransactionRecord) -> None:
    image._transaction = []


def _end(image: ClusterImage, record: r.EndTransactionRecord) -> None:
    told = _end_of_transaction(image)
    for each in told:
        image.replay(each)


def _abort(image: ClusterImage, record: r.AbortTransactionRecord) -> None:
    _end_of_transaction(image)


def _end_of_transaction(image: ClusterImage) -> list[Message]:
    told, image._transaction = image._transaction, None
    if told is None:
        raise InvariantViolation("a metadata transaction ends that never began")
    return told


def _nothing(image: ClusterImage, record: Message) -> None:
    """Says nothing about the cluster: no-ops, and the end of ZooKeeper's times."""


def _keep(image: ClusterImage, record: Message) -> None:
    image.kept[_key_kept(record)] = record


def _forget(image: ClusterImage, record: Message) -> None:
    image.kept.pop(_key_kept(record), None)


def _quota(image: ClusterImage, record: r.ClientQuotaRecord) -> None:
    (_forget if record.remove else _keep)(image, record)


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


_REPLAYS: dict[type[Message], Callable[[ClusterImage, Any], None]] = {
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
    r.BeginTransactionRecord: _begin,
    r.EndTransactionRecord: _end,
    r.AbortTransactionRecord: _abort,
    r.RemoveDelegationTokenRecord: _forget,
    r.RegisterControllerRecord: _register_controller,
    r.ClearElrRecord: _clear_elr,
}


# ---- snapshot --------------------------------------------------------------------------------------------

_KEPT_BEFORE_PRODUCER_IDS = "quota"
_KEPT_AFTER = ("acl", "scram", "token")


def _snapshot(image: ClusterImage) -> Iterator[Message]:
    # metadata.version comes first: it says how to read what follows
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield r.FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker_id in sorted(image.brokers):
        yield image.brokers[broker_id].to_record()
    for controller_id in sorted(image.controllers):
        yield image.controllers[controller_id].to_record()
    for name in sorted(image.topics_by_name):
        topic = image.topics_by_name[name]
        yield r.TopicRecord(name=name, topic_id=topic.id)
        for index in sorted(topic.partitions):
            yield topic.partitions[index].to_record(topic.id, index)
    for resource_type, resource_name in sorted(image.configs):
        for name, value in sorted(image.configs[resource_type, resource_name].items()):
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
