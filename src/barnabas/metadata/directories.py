"""In which directory a replica is, as the metadata tells, and whether its broker has that directory now.

A broker registers the directories it can use. A replica in one that it has no longer is offline: its data may
be whole, but nobody can reach it. One whose directory was not chosen yet is not.
"""

from __future__ import annotations

from barnabas.metadata.parts import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, BrokerImage, PartitionImage
from barnabas.protocol.schema import Uuid

_NOT_CHOSEN = (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)


def directory_of(partition: PartitionImage, broker_id: int) -> Uuid:
    """Where a broker keeps its replica of a partition."""
    if broker_id not in partition.replicas:
        return UNASSIGNED_DIRECTORY
    return partition.directories[partition.replicas.index(broker_id)]


def is_online(partition: PartitionImage, broker: BrokerImage) -> bool:
    """Whether a broker can reach its replica of a partition."""
    directory = directory_of(partition, broker.id)
    # brokers from before directories had ids register none
    return directory in _NOT_CHOSEN or directory in broker.log_dirs or not broker.log_dirs


def takes_new(broker: BrokerImage) -> bool:
    """Whether a broker has a directory that is open to new replicas: one that is not cordoned."""
    cordoned = broker.cordoned_log_dirs
    return not cordoned or any(each not in cordoned for each in broker.log_dirs)
