"""The log directories of replicas according to the metadata, and whether they are online.

A broker registers its usable directories. A replica in a directory that its broker has not registered is
offline: its data may be complete, but cannot be reached. A replica without an assigned directory is not
offline.
"""

from __future__ import annotations

from barnabas.metadata.parts import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, BrokerImage, PartitionImage
from barnabas.protocol.schema import Uuid

_NOT_CHOSEN = (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)


def directory_of(partition: PartitionImage, broker_id: int) -> Uuid:
    """The directory of a broker's replica of a partition."""
    if broker_id not in partition.replicas:
        return UNASSIGNED_DIRECTORY
    return partition.directories[partition.replicas.index(broker_id)]


def is_online(partition: PartitionImage, broker: BrokerImage) -> bool:
    """Whether a broker can reach its replica of a partition."""
    directory = directory_of(partition, broker.id)
    # brokers of versions before directory ids register none
    return directory in _NOT_CHOSEN or directory in broker.log_dirs or not broker.log_dirs


def takes_new(broker: BrokerImage) -> bool:
    """Whether a broker has a directory for new replicas: one that is not cordoned."""
    cordoned = broker.cordoned_log_dirs
    return not cordoned or any(each not in cordoned for each in broker.log_dirs)
