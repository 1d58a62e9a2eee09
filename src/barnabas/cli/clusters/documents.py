"""What `barnabas cluster describe` has found, and the same for machines."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.cli.clusters.partitions import Partitions
from barnabas.client.admin import (
    ClusterDescription,
    Features,
    LogDirDescription,
    QuorumDescription,
    QuorumReplica,
)
from barnabas.log.checkpoints import uuid_to_text

LogDirsByBroker = dict[int, dict[str, LogDirDescription]]


class Seen(NamedTuple):
    """A cluster as it has told of itself; what it does not tell is None."""

    cluster: ClusterDescription
    partitions: Partitions
    quorum: QuorumDescription | None
    features: Features | None
    log_dirs: LogDirsByBroker | None
    silent: list[int]  # brokers that do not answer

    @property
    def leaders(self) -> Counter[int]:
        """How many partitions each broker leads."""
        return Counter(each.partition.leader for each in self.partitions.every)

    @property
    def replicas(self) -> Counter[int]:
        """How many partitions each broker is to have a replica of."""
        return Counter(broker for each in self.partitions.every for broker in each.partition.replicas)

    def bytes_of(self, broker: int) -> int | None:
        """How much the logs of a broker take."""
        directories = (self.log_dirs or {}).get(broker)
        if directories is None:
            return None
        return sum(each.size_bytes for one in directories.values() for each in one.replicas.values())


def document(seen: Seen) -> dict[str, Any]:
    """All of it."""
    cluster, quorum, features, log_dirs = seen.cluster, seen.quorum, seen.features, seen.log_dirs
    return {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "brokers": [
            {
                "id": broker.node_id,
                "host": broker.address.host,
                "port": broker.address.port,
                "rack": broker.rack,
                "fenced": broker.is_fenced,
                "answers": not broker.is_fenced and broker.node_id not in seen.silent,
                "leaders": seen.leaders[broker.node_id],
                "replicas": seen.replicas[broker.node_id],
                "bytes": seen.bytes_of(broker.node_id),
            }
            for broker in sorted(cluster.brokers, key=lambda each: each.node_id)
        ],
        "partitions": seen.partitions.counts._asdict(),
        "quorum": None if quorum is None else _quorum_document(quorum),
        "features": None if features is None else _features_document(features),
        "log_dirs": None if log_dirs is None else _log_dirs_document(log_dirs),
    }


def _quorum_document(quorum: QuorumDescription) -> dict[str, Any]:
    return {
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [_replica_document(each, quorum) for each in quorum.voters],
        "observers": [_replica_document(each, quorum) for each in quorum.observers],
    }


def _replica_document(replica: QuorumReplica, quorum: QuorumDescription) -> dict[str, Any]:
    directory = replica.directory_id
    return {
        "id": replica.node_id,
        "directory_id": None if directory is None else uuid_to_text(UUID(bytes=directory)),
        "log_end_offset": replica.log_end_offset,
        "last_fetch_timestamp_ms": replica.last_fetch_timestamp_ms,
        "last_caught_up_timestamp_ms": replica.last_caught_up_timestamp_ms,
        "endpoints": {
            listener: str(address) for listener, address in quorum.endpoints.get(replica.node_id, {}).items()
        },
    }


def _features_document(features: Features) -> list[dict[str, Any]]:
    return [
        {
            "feature": name,
            "level": features.finalized[name].last if name in features.finalized else None,
            "supported": list(features.supported[name]) if name in features.supported else None,
        }
        for name in sorted(features.supported | features.finalized)
    ]


def _log_dirs_document(log_dirs: LogDirsByBroker) -> list[dict[str, Any]]:
    return [
        {
            "broker": node_id,
            "path": path,
            "error": None if each.error is None else each.error.name,
            "cordoned": each.is_cordoned,
            "total_bytes": each.total_bytes,
            "usable_bytes": each.usable_bytes,
            "logs": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "size_bytes": replica.size_bytes,
                    "offset_lag": replica.offset_lag,
                    "future": replica.is_future,
                }
                for partition, replica in sorted(each.replicas.items())
            ],
        }
        for node_id, directories in log_dirs.items()
        for path, each in sorted(directories.items())
    ]
