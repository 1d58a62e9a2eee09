"""The admin client: topics, records, settings, brokers, groups, transactions, quotas, on any Kafka.

    async with Admin(network, clock, random, "localhost:9092") as admin:
        await admin.create_topics([NewTopic("orders", partitions=12)])

One file a subject; `engine` sends the requests, and decides about retries.
"""

from __future__ import annotations

from types import TracebackType

from barnabas.client.admin.cluster import (
    Broker,
    ClusterAdmin,
    ClusterDescription,
    Features,
    FeatureUpdate,
    FeatureUpgrade,
    LevelRange,
)
from barnabas.client.admin.configs import (
    ALL_BROKERS,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    Configs,
    ConfigSource,
    ConfigSynonym,
    ResourceType,
)
from barnabas.client.admin.group_offsets import CommittedOffset, GroupOffsets
from barnabas.client.admin.groups import GroupDescription, GroupListing, GroupMember, Groups
from barnabas.client.admin.log_dirs import LogDirDescription, LogDirs, ReplicaInfo
from barnabas.client.admin.quorum import Quorum, QuorumDescription, QuorumReplica
from barnabas.client.admin.quotas import CLIENT_ID, IP, USER, Match, QuotaEntity, Quotas
from barnabas.client.admin.records import TO_THE_END, ActiveProducer
from barnabas.client.admin.replica_ends import ReplicaEnds
from barnabas.client.admin.replicas import ElectionType, Reassignment, Replicas
from barnabas.client.admin.topics import (
    DEFAULT,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    Topics,
)
from barnabas.client.admin.transactions import (
    FencedProducer,
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
    Transactions,
)
from barnabas.client.coordinator_finder import CoordinatorType
from barnabas.core.settings.definition import Kind as ConfigType


class Admin(
    Topics,
    Configs,
    ClusterAdmin,
    Quorum,
    LogDirs,
    Replicas,
    ReplicaEnds,
    Quotas,
    Groups,
    GroupOffsets,
    Transactions,
):
    """The admin client. To be used by the tasks of one event loop."""

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


__all__ = [
    "ALL_BROKERS",
    "CLIENT_ID",
    "DEFAULT",
    "IP",
    "TO_THE_END",
    "USER",
    "ActiveProducer",
    "Admin",
    "Broker",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CoordinatorType",
    "CreatedTopic",
    "ElectionType",
    "FeatureUpdate",
    "FeatureUpgrade",
    "Features",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "LevelRange",
    "LogDirDescription",
    "Match",
    "NewPartitions",
    "NewTopic",
    "OpenTransaction",
    "PartitionDescription",
    "QuorumDescription",
    "QuorumReplica",
    "QuotaEntity",
    "Reassignment",
    "ReplicaInfo",
    "ResourceType",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]
