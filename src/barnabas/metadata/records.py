"""The records of `__cluster_metadata` and their framing: Kafka's format, all versions.

A record's value is three unsigned varints (frame version 1, the type's key, the version) and the body.
Written records have the latest version, that of metadata.version 30; a later frame, type or version is an
UnknownRecord. A tagged field that is absent means "unchanged", and so does its default (leader -2, null
lists); an empty list means "none from now on".
"""

from __future__ import annotations

from barnabas.core.disk import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.protocol.codecs import decode, encoder
from barnabas.protocol.schema import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
)
from barnabas.protocol.wire import Beside, MalformedMessage, read_varint, write_varint

FRAME_VERSION = 1
NO_LEADER = -1
LEADER_AS_IT_WAS = -2


class UnknownRecord(BarnabasError):
    """A metadata record that this version cannot read, and must not skip."""


class Endpoint(Struct):
    name: String
    host: String
    port: UInt16
    security_protocol: Int16


class Feature(Struct):
    name: String
    min_supported_version: Int16
    max_supported_version: Int16


class RegisterBrokerRecord(Message, key=0, versions=(0, 4), flexible=0):
    broker_id: Int32
    is_migrating_zk_broker: Bool = field(2, default=False)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[Endpoint]
    features: list[Feature]
    rack: String | None = field(default=None)
    fenced: Bool = field(default=True)
    in_controlled_shutdown: Bool = field(1, default=False)
    log_dirs: list[Uuid] = field(3, tag=0, default=())
    cordoned_log_dirs: list[Uuid] | None = field(4, tag=1, default=None)


class UnregisterBrokerRecord(Message, key=1, flexible=0):
    broker_id: Int32
    broker_epoch: Int64


class TopicRecord(Message, key=2, flexible=0):
    name: String
    topic_id: Uuid


class PartitionRecord(Message, key=3, versions=(0, 2), flexible=0):
    partition_id: Int32
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32] = field(default=())
    adding_replicas: list[Int32] = field(default=())
    leader: Int32
    leader_recovery_state: Int8 = field(tag=0, default=0)
    leader_epoch: Int32
    partition_epoch: Int32
    directories: list[Uuid] = field(1)
    eligible_leader_replicas: list[Int32] | None = field(2, tag=1, default=None)
    last_known_elr: list[Int32] | None = field(2, tag=2, default=None)


class ConfigRecord(Message, key=4, flexible=0):
    resource_type: Int8
    resource_name: String
    name: String
    value: String | None


class PartitionChangeRecord(Message, key=5, versions=(0, 2), flexible=0):
    partition_id: Int32
    topic_id: Uuid
    isr: list[Int32] | None = field(tag=0, default=None)
    leader: Int32 = field(tag=1, default=LEADER_AS_IT_WAS)
    replicas: list[Int32] | None = field(tag=2, default=None)
    removing_replicas: list[Int32] | None = field(tag=3, default=None)
    adding_replicas: list[Int32] | None = field(tag=4, default=None)
    leader_recovery_state: Int8 = field(tag=5, default=-1)
    eligible_leader_replicas: list[Int32] | None = field(2, tag=6, default=None)
    last_known_elr: list[Int32] | None = field(2, tag=7, default=None)
    directories: list[Uuid] | None = field(1, tag=8, default=None)


class FenceBrokerRecord(Message, key=7, flexible=0):
    id: Int32
    epoch: Int64


class UnfenceBrokerRecord(Message, key=8, flexible=0):
    id: Int32
    epoch: Int64


class RemoveTopicRecord(Message, key=9, flexible=0):
    topic_id: Uuid


class DelegationTokenRecord(Message, key=10, flexible=0):
    owner: String
    requester: String
    renewers: list[String]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: String


class UserScramCredentialRecord(Message, key=11, flexible=0):
    name: String
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


class FeatureLevelRecord(Message, key=12, flexible=0):
    name: String
    feature_level: Int16


class QuotaEntity(Struct):
    entity_type: String
    entity_name: String | None


class ClientQuotaRecord(Message, key=14, flexible=0):
    entity: list[QuotaEntity]
    key: String
    value: Float64
    remove: Bool


class ProducerIdsRecord(Message, key=15, flexible=0):
    broker_id: Int32
    broker_epoch: Int64
    next_producer_id: Int64


class BrokerRegistrationChangeRecord(Message, key=17, versions=(0, 3), flexible=0):
    """`fenced`: -1 unfenced, 1 fenced, 0 unchanged; `in_controlled_shutdown`: 1 begun, 0 unchanged."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(tag=0, default=0)
    in_controlled_shutdown: Int8 = field(1, tag=1, default=0)
    log_dirs: list[Uuid] = field(2, tag=2, default=())
    cordoned_log_dirs: list[Uuid] | None = field(3, tag=3, default=None)


class AccessControlEntryRecord(Message, key=18, flexible=0):
    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class RemoveAccessControlEntryRecord(Message, key=19, flexible=0):
    id: Uuid


class NoOpRecord(Message, key=20, flexible=0):
    pass


class ZkMigrationStateRecord(Message, key=21, flexible=0):
    zk_migration_state: Int8


class RemoveUserScramCredentialRecord(Message, key=22, flexible=0):
    name: String
    mechanism: Int8


class BeginTransactionRecord(Message, key=23, flexible=0):
    name: String | None = field(tag=0, default=None)


class EndTransactionRecord(Message, key=24, flexible=0):
    pass


class AbortTransactionRecord(Message, key=25, flexible=0):
    reason: String | None = field(tag=0, default=None)


class RemoveDelegationTokenRecord(Message, key=26, flexible=0):
    token_id: String


class RegisterControllerRecord(Message, key=27, flexible=0):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool = field(default=False)
    end_points: list[Endpoint]
    features: list[Feature]


class ClearElrRecord(Message, key=28, flexible=0):
    """Clears the eligible leader replicas of one topic, or of all if the name is empty."""

    topic_name: String


RECORDS: dict[int, type[Message]] = {
    each.__key__: each
    for each in list(globals().values())
    if isinstance(each, type) and issubclass(each, Message) and each is not Message
}


def encode_record(record: Message, version: int | None = None) -> bytes:
    """The value of a record in the metadata log, in the latest version unless another is given."""
    cls = type(record)
    version = cls.__versions__[1] if version is None else version
    out = bytearray((FRAME_VERSION,))
    write_varint(out, cls.__key__)
    write_varint(out, version)
    beside: list[Beside] = []  # stays empty: metadata has no fields of records
    encoder(cls, version)(record, out, beside)
    return bytes(out)


def decode_record(data: Buffer) -> Message:
    """The record in a value of the metadata log; UnknownRecord if it is of a newer version."""
    cls, version, position = read_frame(data)
    return decode(cls, version, data, position)


def read_frame(data: Buffer) -> tuple[type[Message], int, int]:
    """The type and version of a record, and the position of its body."""
    view = memoryview(data)
    try:
        frame, position = read_varint(view, 0)
        key, position = read_varint(view, position)
        version, position = read_varint(view, position)
    except IndexError:
        raise MalformedMessage(f"no metadata record: {len(view)} bytes end inside its frame") from None
    cls = RECORDS.get(key)
    if frame != FRAME_VERSION or cls is None or version > cls.__versions__[1]:
        name = cls.__name__ if cls is not None else f"a record of type {key}"
        raise UnknownRecord(
            f"a newer Kafka wrote this metadata: {name} of version {version}, frame version {frame}"
        )
    return cls, version, position
