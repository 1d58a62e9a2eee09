"""The parts of the image: brokers, controllers, topics and partitions, to and from records."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.metadata.records import (
    LEADER_AS_IT_WAS,
    BrokerRegistrationChangeRecord,
    Endpoint,
    Feature,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from barnabas.protocol.schema import NO_UUID, Uuid

RECOVERED, RECOVERING = 0, 1

# in place of a directory's id: created before directories had ids, and not assigned yet
MIGRATING_DIRECTORY: Uuid = NO_UUID
UNASSIGNED_DIRECTORY: Uuid = bytes(15) + b"\x01"


class ListenerImage(NamedTuple):
    """The endpoint of one listener of a node."""

    host: str
    port: int
    security_protocol: int


Listeners = dict[str, ListenerImage]
FeatureRanges = dict[str, tuple[int, int]]


class BrokerImage(NamedTuple):
    """A registered broker. A fenced one leads nothing and is not shown to clients."""

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: Listeners
    features: FeatureRanges
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]
    cordoned_log_dirs: tuple[Uuid, ...] | None

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and get new ones."""
        return not self.fenced and not self.in_controlled_shutdown

    @classmethod
    def of(cls, record: RegisterBrokerRecord) -> BrokerImage:
        return cls(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            _listeners(record.end_points),
            _ranges(record.features),
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            tuple(record.log_dirs),
            None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )

    def changed_by(self, record: BrokerRegistrationChangeRecord) -> BrokerImage:
        cordoned = record.cordoned_log_dirs
        return self._replace(
            fenced=self.fenced if record.fenced == 0 else record.fenced > 0,
            in_controlled_shutdown=self.in_controlled_shutdown or record.in_controlled_shutdown > 0,
            log_dirs=tuple(record.log_dirs) or self.log_dirs,
            cordoned_log_dirs=self.cordoned_log_dirs if cordoned is None else tuple(cordoned),
        )

    def to_record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.id,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=_endpoints(self.endpoints),
            features=_features(self.features),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.log_dirs),
            cordoned_log_dirs=None if self.cordoned_log_dirs is None else list(self.cordoned_log_dirs),
        )


class ControllerImage(NamedTuple):
    """A registered node of the metadata quorum."""

    id: int
    incarnation_id: Uuid
    endpoints: Listeners
    features: FeatureRanges

    @classmethod
    def of(cls, record: RegisterControllerRecord) -> ControllerImage:
        return cls(
            record.controller_id,
            record.incarnation_id,
            _listeners(record.end_points),
            _ranges(record.features),
        )

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            end_points=_endpoints(self.endpoints),
            features=_features(self.features),
        )


class PartitionImage(NamedTuple):
    """One partition; `directories` has one entry for each of `replicas`."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...]

    @classmethod
    def of(cls, record: PartitionRecord) -> PartitionImage:
        return cls(
            tuple(record.replicas),
            tuple(record.isr),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            record.leader,
            record.leader_recovery_state,
            record.leader_epoch,
            record.partition_epoch,
            # records of older versions have no directories
            tuple(record.directories) or (MIGRATING_DIRECTORY,) * len(record.replicas),
        )

    def changed_by(self, record: PartitionChangeRecord) -> PartitionImage:
        """Apply a change: a new partition epoch and, if it names a leader, even the same, a new leader
        epoch."""
        led = record.leader != LEADER_AS_IT_WAS
        state = record.leader_recovery_state
        return PartitionImage(
            _changed(self.replicas, record.replicas),
            _changed(self.isr, record.isr),
            _changed(self.removing_replicas, record.removing_replicas),
            _changed(self.adding_replicas, record.adding_replicas),
            _changed(self.elr, record.eligible_leader_replicas),
            _changed(self.last_known_elr, record.last_known_elr),
            record.leader if led else self.leader,
            state if state >= 0 else self.leader_recovery_state,
            self.leader_epoch + led,
            self.partition_epoch + 1,
            _changed_directories(self.directories, record),
        )

    def to_record(self, topic_id: Uuid, index: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories),
            eligible_leader_replicas=list(self.elr) or None,
            last_known_elr=list(self.last_known_elr) or None,
        )


class TopicImage(NamedTuple):
    """A topic; its partitions by index, without gaps."""

    name: str
    id: Uuid
    partitions: tuple[PartitionImage, ...] = ()

    def partition(self, index: int) -> PartitionImage | None:
        """One partition, None if there is no such index."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


def _changed(old: tuple[int, ...], new: list[int] | None) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _changed_directories(old: tuple[Uuid, ...], record: PartitionChangeRecord) -> tuple[Uuid, ...]:
    if record.directories is not None:
        return tuple(record.directories)
    return old if record.replicas is None else (MIGRATING_DIRECTORY,) * len(record.replicas)


def _listeners(end_points: list[Endpoint]) -> Listeners:
    return {each.name: ListenerImage(each.host, each.port, each.security_protocol) for each in end_points}


def _endpoints(listeners: Listeners) -> list[Endpoint]:
    return [
        Endpoint(name=name, host=each.host, port=each.port, security_protocol=each.security_protocol)
        for name, each in listeners.items()
    ]


def _ranges(features: list[Feature]) -> FeatureRanges:
    return {each.name: (each.min_supported_version, each.max_supported_version) for each in features}


def _features(ranges: FeatureRanges) -> list[Feature]:
    return [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in ranges.items()
    ]
